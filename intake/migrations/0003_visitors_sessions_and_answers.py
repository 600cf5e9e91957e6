import django.db.models.deletion
import django.utils.timezone
from django.conf import settings
from django.db import migrations, models

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
            FOREIGN KEY (user_id, conversation_id) REFERENCES intake_conversations (user_id, id) ON DELETE CASCADE;
    ALTER TABLE intake_idempotent_answers
        DROP CONSTRAINT intake_idempotent_answers_pkey, ADD PRIMARY KEY (user_id, id),
        ADD CONSTRAINT intake_idempotent_answers_user FOREIGN KEY (user_id) REFERENCES users ON DELETE CASCADE
"""
NO_KEYS = """
    ALTER TABLE intake_conversation_turns
        DROP CONSTRAINT intake_turns_conversation, DROP CONSTRAINT intake_turns_of_user;
    ALTER TABLE intake_conversations
        DROP CONSTRAINT intake_conversations_user, DROP CONSTRAINT intake_conversations_of_user
"""


def user(**options):
    return models.ForeignKey(
        settings.AUTH_USER_MODEL,
        db_constraint=False,
        db_index=False,
        on_delete=django.db.models.deletion.CASCADE,
        **options,
    )


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
        migrations.CreateModel(
            name="Session",
            fields=[
                (
                    "session_key",
                    models.CharField(max_length=40, primary_key=True, serialize=False, verbose_name="session key"),
                ),
                ("session_data", models.TextField(verbose_name="session data")),
                ("expire_date", models.DateTimeField(db_index=True, verbose_name="expire date")),
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
        migrations.RunSQL(KEYS, NO_KEYS),
    ]
