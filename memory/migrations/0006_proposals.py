"""What is proposed to be kept: it waits for the user, is in no index, and goes with its turn."""

import django.utils.timezone
from django.conf import settings
from django.db import migrations, models
from pgvector.django import HalfVectorField

import core.ids
from core.isolation.policies import isolate

STATES = [("waiting", "Waiting"), ("accepted", "Accepted"), ("rejected", "Rejected"), ("never", "Never")]
KEYS = """
    ALTER TABLE memory_proposals DROP CONSTRAINT memory_proposals_pkey, ADD PRIMARY KEY (user_id, id),
        ADD CONSTRAINT memory_proposals_user FOREIGN KEY (user_id) REFERENCES users ON DELETE CASCADE,
        ADD CONSTRAINT memory_proposals_turn FOREIGN KEY (user_id, source_conversation, source_turn)
            REFERENCES intake_conversation_turns (user_id, conversation_id, turn_number) ON DELETE CASCADE
"""


class Migration(migrations.Migration):
    dependencies = [
        ("memory", "0005_projects_of_documents"),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.CreateModel(
            "Proposal",
            [
                ("id", models.UUIDField(default=core.ids.uuid7, editable=False, primary_key=True, serialize=False)),
                ("state", models.CharField(choices=STATES, default="waiting", max_length=8)),
                ("content", models.TextField()),
                ("type", models.CharField(max_length=100)),
                ("project_id", models.CharField(blank=True, default="", max_length=200)),
                (
                    "source_conversation",
                    models.UUIDField(blank=True, help_text="The chat it comes from.", null=True),
                ),
                (
                    "source_turn",
                    models.PositiveIntegerField(blank=True, help_text="The turn of that chat.", null=True),
                ),
                (
                    "quote",
                    models.TextField(blank=True, default="", help_text="The words of the person that say it."),
                ),
                (
                    "replaces",
                    models.UUIDField(blank=True, help_text="The record that is no longer true.", null=True),
                ),
                ("record", models.UUIDField(blank=True, help_text="The record that was made of it.", null=True)),
                ("vector", HalfVectorField(blank=True, null=True)),
                ("vector_model", models.CharField(blank=True, default="", max_length=200)),
                ("created_at", models.DateTimeField(default=django.utils.timezone.now)),
                ("decided_at", models.DateTimeField(blank=True, null=True)),
                (
                    "user",
                    models.ForeignKey(
                        db_constraint=False,
                        db_index=False,
                        on_delete=models.CASCADE,
                        to=settings.AUTH_USER_MODEL,
                    ),
                ),
            ],
            options={
                "db_table": "memory_proposals",
                "indexes": [
                    models.Index(fields=["user", "state", "created_at", "id"], name="idx_memory_proposals_state"),
                    models.Index(
                        fields=["user", "source_conversation", "source_turn"],
                        condition=models.Q(source_conversation__isnull=False),
                        name="idx_memory_proposals_source",
                    ),
                ],
            },
        ),
        migrations.RunSQL(KEYS, migrations.RunSQL.noop),
        isolate("memory_proposals"),
    ]
