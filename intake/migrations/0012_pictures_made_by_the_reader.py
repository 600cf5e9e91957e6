"""The process that reads files makes the thumbnails: a worker stores them, and reads the pictures that are here."""

from django.conf import settings
from django.db import migrations


class Migration(migrations.Migration):
    dependencies = [("intake", "0011_reading_of_ended_chats")]

    operations = [
        migrations.RunSQL(
            f"GRANT INSERT ON attachment_pieces TO {settings.DATABASE_ROLES.worker}",
            f"REVOKE INSERT ON attachment_pieces FROM {settings.DATABASE_ROLES.worker}",
        ),
        migrations.RunSQL(
            """
            UPDATE attachments SET state = 'waiting', attempts = 0, next_attempt_at = now()
             WHERE media_type IN ('image/png', 'image/jpeg', 'image/gif', 'image/webp')
            """,
            migrations.RunSQL.noop,
        ),
    ]
