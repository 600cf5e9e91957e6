from django.conf import settings
from django.db import migrations

from core.isolation.policies import EVERYTHING, READ, grant, isolate

ROLES = settings.DATABASE_ROLES
USERS = f"""
    CREATE POLICY everybody ON users TO {ROLES.web}, {ROLES.staff} USING (true);
    CREATE POLICY worker_reads ON users FOR SELECT TO {ROLES.worker} USING (true);
    CREATE POLICY worker_removes_visitors ON users FOR DELETE TO {ROLES.worker} USING (is_visitor);
    ALTER TABLE users ENABLE ROW LEVEL SECURITY
"""
EXPIRED = f"""
    CREATE POLICY worker_sees_expired ON intake_conversations FOR SELECT TO {ROLES.worker} USING (expires_at < now());
    CREATE POLICY worker_removes_expired ON intake_conversations FOR DELETE TO {ROLES.worker} USING (expires_at < now());
    GRANT SELECT (id, user_id, expires_at), DELETE ON intake_conversations TO {ROLES.worker}
"""
# What the role may do goes with the table's other rights.
NO_EXPIRED = """
    DROP POLICY worker_sees_expired ON intake_conversations;
    DROP POLICY worker_removes_expired ON intake_conversations
"""
# What is noted stays for a year: a worker can remove nothing that is newer, and nobody can change anything.
OLD_ACTIVITY = f"""
    CREATE POLICY worker_sees_old ON intake_activity FOR SELECT TO {ROLES.worker}
        USING (at < now() - interval '1 year');
    CREATE POLICY worker_removes_old ON intake_activity FOR DELETE TO {ROLES.worker}
        USING (at < now() - interval '1 year');
    GRANT SELECT (at), DELETE ON intake_activity TO {ROLES.worker}
"""
NO_OLD_ACTIVITY = """
    DROP POLICY worker_sees_old ON intake_activity;
    DROP POLICY worker_removes_old ON intake_activity
"""
NO_USERS = """
    ALTER TABLE users DISABLE ROW LEVEL SECURITY;
    DROP POLICY everybody ON users;
    DROP POLICY worker_reads ON users;
    DROP POLICY worker_removes_visitors ON users
"""


class Migration(migrations.Migration):
    dependencies = [
        ("intake", "0003_visitors_sessions_and_answers"),
        ("admin", "0003_logentry_add_action_flag_choices"),
        ("auth", "0012_alter_user_first_name_max_length"),
        ("contenttypes", "0002_remove_content_type_name"),
        ("account", "0009_emailaddress_unique_primary_email"),
        ("mfa", "0003_authenticator_type_uniq"),
        ("socialaccount", "0006_alter_socialaccount_extra_data"),
    ]

    operations = [
        isolate("intake_conversations"),
        # A worker removes temporary chats whose time is over, and sees none but those.
        migrations.RunSQL(EXPIRED, NO_EXPIRED),
        isolate(
            "intake_conversation_turns",
            # It closes what a dead server left open, and can change no word.
            worker=["SELECT", "UPDATE (status, updated_at)"],
        ),
        isolate("intake_idempotent_answers"),
        isolate("intake_chat_preferences"),
        isolate("intake_activity", web=["SELECT", "INSERT"], staff=["INSERT"]),
        migrations.RunSQL(OLD_ACTIVITY, NO_OLD_ACTIVITY),
        # Read to find out who is asking, and to let people register, log in and leave. A worker is told where somebody's
        # day begins, and removes visitors who come no more: them alone, as a policy says.
        grant(
            "users",
            web=EVERYTHING,
            worker=["SELECT (id, time_zone, is_visitor, joined_at)", "DELETE"],
            staff=["SELECT", "INSERT", "UPDATE"],
        ),
        migrations.RunSQL(USERS, NO_USERS),
        grant("users_groups", web=["SELECT", "DELETE"], staff=EVERYTHING),
        grant("users_user_permissions", web=["SELECT", "DELETE"], staff=EVERYTHING),
        grant("intake_sessions", web=EVERYTHING, staff=EVERYTHING),
        # They say who somebody is, so they are read before it is known who asks. A worker has no use for them. Staff
        # who give an account another address withdraw those that were confirmed.
        grant("account_emailaddress", web=EVERYTHING, staff=["SELECT", "DELETE"]),
        grant("account_emailconfirmation", web=["SELECT", "DELETE"], staff=["SELECT", "DELETE"]),
        grant("mfa_authenticator", web=EVERYTHING),
        grant("socialaccount_socialaccount", web=EVERYTHING),
        grant("socialaccount_socialapp", web=READ),
        # Other services' tokens are not kept; a user that goes takes along those that there are.
        grant("socialaccount_socialtoken", web=["SELECT", "DELETE"]),
        # Staff make invitations; the web role uses them up.
        grant("intake_invitations", web=["SELECT", "UPDATE (used)"], staff=EVERYTHING),
        # Rights, which staff hand out.
        grant("auth_group", web=READ, staff=EVERYTHING),
        grant("auth_group_permissions", web=READ, staff=EVERYTHING),
        grant("auth_permission", web=READ, staff=READ),
        # What staff did.
        grant("django_admin_log", web=["SELECT", "DELETE"], staff=["SELECT", "INSERT"]),
        # What tables there are.
        grant("django_content_type", web=READ, worker=READ, staff=READ),
        grant("django_migrations", web=READ, worker=READ, staff=READ),
    ]
