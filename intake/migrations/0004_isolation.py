from django.db import migrations

from core.isolation.policies import EVERYTHING, READ, VISITOR, grant, isolate


class Migration(migrations.Migration):
    dependencies = [
        ("intake", "0003_sessions_with_their_person"),
        ("admin", "0003_logentry_add_action_flag_choices"),
        ("auth", "0012_alter_user_first_name_max_length"),
        ("contenttypes", "0002_remove_content_type_name"),
    ]

    operations = [
        isolate("intake_conversations", visitor=f"session_key = {VISITOR}"),
        isolate(
            "intake_conversation_turns",
            # The conversation is looked up under its own policies. It may be a person's by now, who was the visitor a
            # moment ago and takes the turns along.
            visitor="EXISTS (SELECT FROM intake_conversations AS c "
            f"WHERE c.id = conversation_id AND c.session_key = {VISITOR})",
            # It closes what a dead server left open, and can change no word.
            worker=["SELECT", "UPDATE (status, updated_at)"],
        ),
        isolate("intake_session_links"),
        # Read to find out who is asking, and to let people register, log in and leave. The worker has no part in it; it
        # is told where somebody's day begins.
        grant("users", web=EVERYTHING, worker=["SELECT (id, time_zone)"], staff=["SELECT", "INSERT", "UPDATE"]),
        grant("users_groups", web=["SELECT", "DELETE"], staff=EVERYTHING),
        grant("users_user_permissions", web=["SELECT", "DELETE"], staff=EVERYTHING),
        grant("intake_sessions", web=EVERYTHING, staff=EVERYTHING),
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
