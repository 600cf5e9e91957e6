"""Records that replace another, hold for a time, are to-dos with a state, or were kept from a message."""

from django.conf import settings
from django.db import migrations, models

COLUMNS = {
    "replaces": models.UUIDField(null=True, blank=True, help_text="The record that this one takes the place of."),
    "valid_from": models.DateField(null=True, blank=True, help_text="The first day on which it holds."),
    "valid_until": models.DateField(null=True, blank=True, help_text="The last day on which it holds."),
    "done_at": models.DateTimeField(null=True, blank=True, help_text="Of a to-do: when it was done."),
    "source_conversation": models.UUIDField(null=True, blank=True, help_text="The chat it was kept from."),
    "source_turn": models.PositiveIntegerField(null=True, blank=True, help_text="The turn of that chat."),
}


class Migration(migrations.Migration):
    dependencies = [
        ("memory", "0003_attachments_in_the_index"),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        *(migrations.AddField("memoryrecord", name, field) for name, field in COLUMNS.items()),
        migrations.AddIndex(
            "memoryrecord",
            models.Index(
                fields=["user", "valid_until"],
                condition=models.Q(valid_until__isnull=False),
                name="idx_memory_records_until",
            ),
        ),
        migrations.AddIndex(
            "memoryrecord",
            models.Index(
                fields=["user", "source_conversation", "source_turn"],
                condition=models.Q(source_conversation__isnull=False),
                name="idx_memory_records_source",
            ),
        ),
        migrations.AddConstraint(
            "memoryrecord",
            models.UniqueConstraint(
                fields=["user", "replaces"],
                condition=models.Q(replaces__isnull=False),
                name="memory_records_replaced_once",
            ),
        ),
    ]
