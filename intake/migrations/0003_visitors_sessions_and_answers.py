import django.contrib.postgres.indexes
import django.core.validators
import django.db.models.deletion
import django.utils.timezone
from django.conf import settings
from django.db import migrations, models

import core.ids
import intake.models.activity
import intake.models.conversations
import intake.models.sessions

# Keys and foreign keys begin with the user. A conversation or a turn may be from before there were owners, so its `id`
# stays the primary key, and the others refer to the unique pair. Deleting a user deletes
# their rows in the database: a worker, which removes visitors, has no right to those.
KEYS = """
    ALTER TABLE intake_conversations
        ADD CONSTRAINT intake_conversations_of_user UNIQUE (user_id, id),
        ADD CONSTRAINT intake_conversations_user FOREIGN KEY (user_id) REFERENCES users ON DELETE CASCADE;
    ALTER TABLE intake_conversation_turns
        ADD CONSTRAINT intake_turns_of_user UNIQUE (user_id, id),
        ADD CONSTRAINT intake_turns_conversation
            FOREIGN KEY (user_id, conversation_id) REFERENCES intake_conversations (user_id, id) ON DELETE CASCADE,
        -- A turn cannot go and leave children behind. Checked at the end, so that a whole tree goes in any order.
        ADD CONSTRAINT intake_turns_parent FOREIGN KEY (user_id, conversation_id, parent_number)
            REFERENCES intake_conversation_turns (user_id, conversation_id, turn_number) DEFERRABLE INITIALLY DEFERRED;
    ALTER TABLE intake_idempotent_answers
        DROP CONSTRAINT intake_idempotent_answers_pkey, ADD PRIMARY KEY (user_id, id),
        ADD CONSTRAINT intake_idempotent_answers_user FOREIGN KEY (user_id) REFERENCES users ON DELETE CASCADE;
    ALTER TABLE intake_chat_preferences
        DROP CONSTRAINT intake_chat_preferences_pkey, ADD PRIMARY KEY (user_id, id),
        ADD CONSTRAINT intake_chat_preferences_user FOREIGN KEY (user_id) REFERENCES users ON DELETE CASCADE;
    ALTER TABLE intake_activity
        ADD CONSTRAINT intake_activity_user FOREIGN KEY (user_id) REFERENCES users ON DELETE CASCADE
"""
NO_KEYS = """
    ALTER TABLE intake_conversation_turns
        DROP CONSTRAINT intake_turns_parent, DROP CONSTRAINT intake_turns_conversation, DROP CONSTRAINT intake_turns_of_user;
    ALTER TABLE intake_conversations
        DROP CONSTRAINT intake_conversations_user, DROP CONSTRAINT intake_conversations_of_user
"""

# Until now each turn followed the one before it.
BACKFILL_PARENTS = """
    UPDATE intake_conversation_turns AS turn
       SET parent_number = numbered.before
      FROM (SELECT id, lag(turn_number) OVER (PARTITION BY conversation_id ORDER BY turn_number) AS before
              FROM intake_conversation_turns) AS numbered
     WHERE turn.id = numbered.id AND numbered.before IS NOT NULL
"""
BACKFILL_PATHS = """
    UPDATE intake_conversations
       SET current_number = (SELECT max(turn_number) FROM intake_conversation_turns AS turn
                              WHERE turn.conversation_id = intake_conversations.id)
"""


def user(**options):
    return models.ForeignKey(
        settings.AUTH_USER_MODEL,
        db_constraint=False,
        db_index=False,
        on_delete=django.db.models.deletion.CASCADE,
        **options,
    )


ACTIVITY = migrations.CreateModel(
    name="ActivityEntry",
    fields=[
        (
            "pk",
            models.CompositePrimaryKey("user_id", "id", blank=True, editable=False, primary_key=True, serialize=False),
        ),
        ("id", models.UUIDField(default=core.ids.uuid7, editable=False)),
        ("at", models.DateTimeField(default=django.utils.timezone.now, editable=False)),
        ("what", models.CharField(choices=intake.models.activity.Activity.choices, max_length=24)),
        ("count", models.PositiveIntegerField(default=1)),
        ("device", models.CharField(blank=True, default="", max_length=60)),
        (
            "user",
            models.ForeignKey(
                db_constraint=False,
                db_index=False,
                on_delete=django.db.models.deletion.DO_NOTHING,
                to=settings.AUTH_USER_MODEL,
            ),
        ),
    ],
    options={
        "db_table": "intake_activity",
        "verbose_name_plural": "entries of activity",
        "indexes": [
            models.Index(fields=["user", "-at", "-id"], name="idx_intake_activity"),
            django.contrib.postgres.indexes.BrinIndex(fields=["at"], name="idx_intake_activity_age"),
        ],
    },
)


def number():
    return models.PositiveIntegerField(editable=False, null=True)


class Migration(migrations.Migration):
    dependencies = [
        ("intake", "0002_conversations_user_id"),
    ]

    operations = [
        # A visitor is a user, so no row is known by a key of the session any more.
        migrations.AlterField(
            "user", "email", models.EmailField(max_length=254, null=True, unique=True, verbose_name="email address")
        ),
        migrations.AddField(
            "user",
            "is_visitor",
            models.BooleanField(
                default=False,
                editable=False,
                help_text="Talks in a browser, and has not registered.",
                verbose_name="visitor",
            ),
        ),
        migrations.AddConstraint(
            "user",
            models.CheckConstraint(
                condition=models.Q(email=None, is_visitor=True) | models.Q(email__isnull=False, is_visitor=False),
                name="users_visit_or_have_an_email",
            ),
        ),
        migrations.AddIndex(
            "user", models.Index(fields=["joined_at"], condition=models.Q(is_visitor=True), name="idx_users_visitors")
        ),
        migrations.RemoveIndex("conversation", "idx_ic_session_key"),
        migrations.RemoveField("conversation", "session_key"),
        migrations.DeleteModel("SessionLink"),
        migrations.AlterField(
            "turn", "created_at", models.DateTimeField(default=django.utils.timezone.now, editable=False)
        ),
        migrations.AddField("turn", "attempt", models.PositiveIntegerField(db_default=1, default=1)),
        migrations.CreateModel(
            name="Session",
            fields=[
                (
                    "session_key",
                    intake.models.sessions.SessionKeyField(
                        max_length=64, primary_key=True, serialize=False, verbose_name="session key"
                    ),
                ),
                ("session_data", models.TextField(verbose_name="session data")),
                ("expire_date", models.DateTimeField(db_index=True, verbose_name="expire date")),
                ("last_used_at", models.DateTimeField(default=django.utils.timezone.now, editable=False)),
                (
                    "user",
                    models.ForeignKey(
                        db_constraint=False,
                        null=True,
                        on_delete=django.db.models.deletion.CASCADE,
                        to=settings.AUTH_USER_MODEL,
                    ),
                ),
            ],
            options={
                "verbose_name": "session",
                "verbose_name_plural": "sessions",
                "db_table": "intake_sessions",
                "abstract": False,
            },
        ),
        migrations.CreateModel(
            name="Invitation",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("digest", models.CharField(editable=False, max_length=64, unique=True)),
                (
                    "note",
                    models.CharField(
                        blank=True, default="", help_text="Whom it is for. Shown to staff alone.", max_length=200
                    ),
                ),
                (
                    "uses",
                    models.PositiveSmallIntegerField(
                        default=1,
                        help_text="How many people may register by it.",
                        validators=[
                            django.core.validators.MinValueValidator(1),
                            django.core.validators.MaxValueValidator(10000),
                        ],
                    ),
                ),
                ("used", models.PositiveSmallIntegerField(default=0, editable=False)),
                ("expires_at", models.DateTimeField()),
                ("created_at", models.DateTimeField(default=django.utils.timezone.now, editable=False)),
            ],
            options={"db_table": "intake_invitations"},
        ),
        migrations.CreateModel(
            name="IdempotentAnswer",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("key", models.CharField(max_length=255)),
                ("request_digest", models.CharField(max_length=64)),
                ("answer", models.TextField(blank=True, default="")),
                ("created_at", models.DateTimeField(default=django.utils.timezone.now, editable=False)),
                ("user", user()),
            ],
            options={
                "db_table": "intake_idempotent_answers",
                "constraints": [models.UniqueConstraint(fields=("user", "key"), name="intake_idempotent_answers_once")],
            },
        ),
        migrations.AlterField("conversation", "user", user(blank=True, null=True)),
        migrations.AlterField("turn", "user", user(blank=True, null=True)),
        migrations.AlterField(
            "turn",
            "conversation",
            models.ForeignKey(
                db_constraint=False,
                db_index=False,
                on_delete=django.db.models.deletion.CASCADE,
                related_name="turns",
                to="intake.conversation",
            ),
        ),
        migrations.AddField(
            "user",
            "titles_by_model",
            models.BooleanField(
                default=True,
                help_text="The language model makes a chat's title after its first answer.",
                verbose_name="titles by the model",
            ),
        ),
        migrations.AddField("user", "language", models.CharField(blank=True, default="", max_length=16)),
        migrations.AddField(
            "user",
            "retention_due_at",
            models.DateTimeField(default=django.utils.timezone.now, editable=False),
        ),
        migrations.AddIndex("user", models.Index(fields=["retention_due_at"], name="idx_users_retention")),
        # Keeping order among chats.
        migrations.AddField("conversation", "pinned_at", models.DateTimeField(blank=True, null=True)),
        migrations.AddField("conversation", "archived_at", models.DateTimeField(blank=True, null=True)),
        migrations.AddField(
            "conversation",
            "titled_by",
            models.CharField(
                choices=[("line", "First line"), ("model", "Language model"), ("person", "Person")],
                default="line",
                max_length=8,
            ),
        ),
        migrations.AddIndex(
            "conversation",
            models.Index(
                fields=["user", "-pinned_at"],
                condition=models.Q(pinned_at__isnull=False),
                name="idx_ic_user_pinned",
            ),
        ),
        # How a chat is answered, and whether it is kept.
        migrations.AddField("conversation", "expires_at", models.DateTimeField(editable=False, null=True)),
        migrations.AddField(
            "conversation", "model", models.CharField(blank=True, db_default="", default="", max_length=200)
        ),
        migrations.AddField("conversation", "instructions", models.TextField(blank=True, db_default="", default="")),
        migrations.AddField("conversation", "temperature", models.FloatField(blank=True, null=True)),
        migrations.AddField("conversation", "uses_memory", models.BooleanField(db_default=True, default=True)),
        migrations.AddIndex(
            "conversation",
            models.Index(
                fields=["expires_at"],
                condition=models.Q(expires_at__isnull=False),
                name="idx_ic_expiring",
            ),
        ),
        migrations.AddField("turn", "reasoning", models.TextField(blank=True, default="", db_default="")),
        migrations.AddField(
            "turn",
            "text_bytes",
            models.GeneratedField(
                expression=intake.models.conversations.bytes_of(
                    "user_message", "assistant_message", "reasoning", "tool_calls"
                ),
                output_field=models.IntegerField(),
                db_persist=True,
            ),
        ),
        migrations.RemoveIndex("turn", "idx_ict_user_said_at"),
        migrations.AddIndex(
            "turn", models.Index(fields=["user", "said_at"], include=["text_bytes"], name="idx_ict_user_said_at")
        ),
        migrations.AddField(
            "turn", "is_temporary", models.BooleanField(db_default=False, default=False, editable=False)
        ),
        migrations.CreateModel(
            name="ChatPreferences",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("model", models.CharField(blank=True, default="", max_length=200)),
                ("how_to_answer", models.TextField(blank=True, default="")),
                ("user", user()),
            ],
            options={
                "db_table": "intake_chat_preferences",
                "verbose_name_plural": "chat preferences",
                "constraints": [models.UniqueConstraint(fields=("user",), name="intake_chat_preferences_once")],
            },
        ),
        ACTIVITY,
        migrations.AddField("conversation", "current_number", number()),
        migrations.AddField("conversation", "has_versions", models.BooleanField(default=False, editable=False)),
        migrations.AddField("conversation", "branched_from", models.UUIDField(editable=False, null=True)),
        migrations.AddField("conversation", "branched_after", number()),
        migrations.AddIndex(
            "conversation",
            models.Index(
                fields=["user", "branched_from"],
                name="idx_ic_branches",
                condition=models.Q(branched_from__isnull=False),
            ),
        ),
        migrations.AddConstraint(
            "conversation",
            models.CheckConstraint(
                condition=models.Q(branched_from=None, branched_after=None)
                | models.Q(branched_from__isnull=False, branched_after__isnull=False),
                name="intake_conversations_branched_from_a_turn",
            ),
        ),
        migrations.AddField("turn", "parent_number", number()),
        migrations.AddField("turn", "usage", models.JSONField(blank=True, null=True)),
        migrations.AddIndex(
            "turn",
            models.Index(fields=["user", "conversation", "parent_number", "turn_number"], name="idx_ict_tree"),
        ),
        migrations.AddConstraint(
            "turn",
            models.CheckConstraint(
                condition=models.Q(parent_number=None)
                | models.Q(parent_number__gte=1, parent_number__lt=models.F("turn_number")),
                name="intake_turns_follow_an_earlier_one",
            ),
        ),
        migrations.RunSQL(KEYS, NO_KEYS),
        # Last: PostgreSQL alters no table that has constraint checks pending from an update in the same transaction.
        migrations.RunSQL(BACKFILL_PARENTS, migrations.RunSQL.noop),
        migrations.RunSQL(BACKFILL_PATHS, migrations.RunSQL.noop),
    ]
