"""A worker stores the thumbnails, reads the pictures that are here, and removes a visitor's unsent file in an hour."""

from django.conf import settings
from django.db import migrations

REMOVES = """
    ALTER POLICY worker_removes_unclaimed ON attachments
        USING (conversation_id IS NULL AND created_at < now() - interval '{age}')
"""


class Migration(migrations.Migration):
    dependencies = [("intake", "0011_reading_of_ended_chats")]

    operations = [
        migrations.RunSQL(
            f"GRANT INSERT ON attachment_pieces TO {settings.DATABASE_ROLES.worker}",
            f"REVOKE INSERT ON attachment_pieces FROM {settings.DATABASE_ROLES.worker}",
        ),
        migrations.RunSQL(REMOVES.format(age="1 hour"), REMOVES.format(age="1 day")),
        migrations.RunSQL(
            """
            UPDATE attachments SET state = 'waiting', attempts = 0, next_attempt_at = now()
             WHERE media_type IN ('image/png', 'image/jpeg', 'image/gif', 'image/webp')
            """,
            migrations.RunSQL.noop,
        ),
    ]
