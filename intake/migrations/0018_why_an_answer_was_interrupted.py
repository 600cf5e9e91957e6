"""A worker that closes the answer of a dead web process stores the reason."""

from django.conf import settings
from django.db import migrations

WORKER = settings.DATABASE_ROLES.worker


class Migration(migrations.Migration):
    dependencies = [("intake", "0017_logins_at_servers_of_tools")]

    operations = [
        migrations.RunSQL(
            f"GRANT UPDATE (error) ON intake_conversation_turns TO {WORKER}",
            f"REVOKE UPDATE (error) ON intake_conversation_turns FROM {WORKER}",
        ),
    ]
