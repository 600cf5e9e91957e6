"""A corpus for the texts of files, which a worker reads again when it makes their passages."""

from django.conf import settings
from django.db import migrations, models

CORPORA = [
    ("chat", "Chat"),
    ("memory", "MEMORY.md"),
    ("daily_log", "Daily Log"),
    ("record", "Record"),
    ("attachment", "Attachment"),
]
MODELS = ("deletedtext", "embedding", "indexedtext", "pendingterms", "termsegment", "vectorblock")
# To lock a row takes the right to change some column.
LOCK = f"GRANT UPDATE (number) ON attachment_texts TO {settings.DATABASE_ROLES.worker}"
NO_LOCK = f"REVOKE UPDATE (number) ON attachment_texts FROM {settings.DATABASE_ROLES.worker}"


class Migration(migrations.Migration):
    dependencies = [
        ("memory", "0002_keys_and_isolation"),
        ("intake", "0005_attachments"),
    ]

    operations = [
        *(migrations.AlterField(model, "corpus", models.CharField(choices=CORPORA, max_length=16)) for model in MODELS),
        migrations.RunSQL(LOCK, NO_LOCK),
    ]
