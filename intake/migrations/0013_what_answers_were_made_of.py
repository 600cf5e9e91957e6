"""What each answer was made of, by ids and digests, and what is left out of a chat.

The bytes of a turn are computed again with the new column, which writes the table of turns once: some seconds for each
gigabyte, in which no turn can be read.
"""

from django.db import migrations, models

from intake.models.conversations import bytes_of


class Migration(migrations.Migration):
    dependencies = [("intake", "0012_pictures_made_by_the_reader")]

    operations = [
        migrations.AddField(
            "conversation",
            "left_out",
            models.JSONField(blank=True, db_default=[], default=list, editable=False),
        ),
        migrations.AddField("turn", "prompt", models.TextField(blank=True, db_default="", default="", editable=False)),
        migrations.RemoveIndex("turn", "idx_ict_user_said_at"),
        migrations.RemoveField("turn", "text_bytes"),
        migrations.AddField(
            "turn",
            "text_bytes",
            models.GeneratedField(
                expression=bytes_of("user_message", "assistant_message", "reasoning", "tool_calls", "prompt"),
                output_field=models.IntegerField(),
                db_persist=True,
            ),
        ),
        migrations.AddIndex(
            "turn", models.Index(fields=["user", "said_at"], include=["text_bytes"], name="idx_ict_user_said_at")
        ),
    ]
