"""Who agreed that ended chats are read for things worth keeping, which chats are left out, and what reading cost."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("intake", "0010_projects"),
    ]

    operations = [
        migrations.AddField("user", "proposes_since", models.DateTimeField(blank=True, editable=False, null=True)),
        migrations.AddIndex(
            "user",
            models.Index(
                fields=["proposes_since"], condition=models.Q(proposes_since__isnull=False), name="idx_users_proposing"
            ),
        ),
        migrations.AddField("conversation", "proposes", models.BooleanField(db_default=True, default=True)),
        migrations.AddField(
            "conversation", "read_up_to", models.PositiveIntegerField(db_default=0, default=0, editable=False)
        ),
        migrations.AddField("conversation", "readings", models.JSONField(db_default={}, default=dict, editable=False)),
        migrations.AddField(
            "chatpreferences",
            "reading_tokens",
            models.JSONField(blank=True, db_default={}, default=dict, editable=False),
        ),
    ]
