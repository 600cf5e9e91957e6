"""Files of messages: the attachments, their bytes in pieces, and the texts that a worker reads from them."""

import django.db.models.deletion
import django.utils.timezone
from django.conf import settings
from django.db import migrations, models

import core.ids
from core.isolation.policies import isolate

KEYS = """
    ALTER TABLE attachments DROP CONSTRAINT attachments_pkey, ADD PRIMARY KEY (user_id, id);
    -- Workers, who act as nobody, find it by its id.
    CREATE INDEX idx_attachments_id ON attachments (id)
"""
# Tables of a cluster that is distributed already are placed here: Citus makes no foreign key from a table that has no
# place yet. On every other server this does nothing.
PLACES = """
    DO $$
    BEGIN
        IF EXISTS (SELECT FROM pg_extension WHERE extname = 'citus') THEN
            IF EXISTS (SELECT FROM pg_dist_partition
                        WHERE logicalrelid = 'intake_conversation_turns'::regclass AND partmethod = 'h') THEN
                PERFORM create_distributed_table('attachments', 'user_id', colocate_with => 'intake_conversation_turns');
                PERFORM create_distributed_table('attachment_pieces', 'user_id', colocate_with => 'attachments');
                PERFORM create_distributed_table('attachment_texts', 'user_id', colocate_with => 'attachments');
            END IF;
        END IF;
    END
    $$
"""
FOREIGN_KEYS = """
    ALTER TABLE attachments
        ADD CONSTRAINT attachments_user FOREIGN KEY (user_id) REFERENCES users ON DELETE CASCADE,
        -- Not checked while no message names it: then both columns are empty.
        ADD CONSTRAINT attachments_turn FOREIGN KEY (user_id, conversation_id, turn_number)
            REFERENCES intake_conversation_turns (user_id, conversation_id, turn_number) ON DELETE CASCADE;
    ALTER TABLE attachment_pieces
        ADD CONSTRAINT attachment_pieces_user FOREIGN KEY (user_id) REFERENCES users ON DELETE CASCADE;
    ALTER TABLE attachment_texts
        ADD CONSTRAINT attachment_texts_attachment
            FOREIGN KEY (user_id, attachment_id) REFERENCES attachments (user_id, id) ON DELETE CASCADE
"""

# To lock a row takes the right to change some column.
LOCK = "UPDATE (number)"
# A worker changes how far the reading of a file has come, and nothing else of it. It removes only what no message has
# named for a day.
WORKER = f"""
    CREATE POLICY worker_reads ON attachments FOR SELECT TO {settings.DATABASE_ROLES.worker} USING (true);
    CREATE POLICY worker_progress ON attachments FOR UPDATE TO {settings.DATABASE_ROLES.worker} USING (true);
    CREATE POLICY worker_removes_unclaimed ON attachments FOR DELETE TO {settings.DATABASE_ROLES.worker}
        USING (conversation_id IS NULL AND created_at < now() - interval '1 day');
    GRANT SELECT, DELETE, UPDATE (state, error, parts, places, read_at, attempts, next_attempt_at)
       ON attachments TO {settings.DATABASE_ROLES.worker}
"""
NO_WORKER = """
    DROP POLICY worker_reads ON attachments;
    DROP POLICY worker_progress ON attachments;
    DROP POLICY worker_removes_unclaimed ON attachments
"""


def user():
    return models.ForeignKey(
        settings.AUTH_USER_MODEL,
        db_constraint=False,
        db_index=False,
        on_delete=django.db.models.deletion.DO_NOTHING,
    )


def key(*fields):
    return models.CompositePrimaryKey(*fields, blank=True, editable=False, primary_key=True, serialize=False)


class Migration(migrations.Migration):
    dependencies = [
        ("intake", "0004_isolation"),
    ]

    operations = [
        migrations.AddField(
            "turn", "attachment_count", models.PositiveSmallIntegerField(db_default=0, default=0, editable=False)
        ),
        migrations.CreateModel(
            name="Attachment",
            fields=[
                ("id", models.UUIDField(default=core.ids.uuid7, editable=False, primary_key=True, serialize=False)),
                ("conversation_id", models.UUIDField(editable=False, null=True)),
                ("turn_number", models.PositiveIntegerField(editable=False, null=True)),
                ("position", models.PositiveSmallIntegerField(default=0)),
                ("name", models.CharField(max_length=255)),
                ("media_type", models.CharField(max_length=127)),
                ("size", models.BigIntegerField()),
                ("sha256", models.CharField(max_length=64)),
                (
                    "kind",
                    models.CharField(
                        choices=[("file", "File"), ("pasted", "Pasted"), ("imported", "Imported")],
                        default="file",
                        max_length=8,
                    ),
                ),
                (
                    "state",
                    models.CharField(
                        choices=[("waiting", "Waiting"), ("read", "Read"), ("unreadable", "Unreadable")],
                        default="waiting",
                        max_length=10,
                    ),
                ),
                ("error", models.JSONField(blank=True, null=True)),
                ("parts", models.PositiveIntegerField(default=0)),
                ("places", models.JSONField(blank=True, default=list)),
                ("created_at", models.DateTimeField(default=django.utils.timezone.now, editable=False)),
                ("read_at", models.DateTimeField(editable=False, null=True)),
                ("attempts", models.PositiveSmallIntegerField(default=0)),
                ("next_attempt_at", models.DateTimeField(default=django.utils.timezone.now)),
                ("user", user()),
            ],
            options={
                "db_table": "attachments",
                "constraints": [
                    models.CheckConstraint(
                        condition=models.Q(conversation_id=None, turn_number=None)
                        | models.Q(conversation_id__isnull=False, turn_number__isnull=False),
                        name="attachments_of_a_turn_or_of_none",
                    )
                ],
                "indexes": [
                    models.Index(
                        condition=models.Q(conversation_id__isnull=False),
                        fields=["user", "conversation_id", "turn_number"],
                        name="idx_attachments_turn",
                    ),
                    models.Index(fields=["user", "sha256"], include=("size",), name="idx_attachments_content"),
                    models.Index(fields=["user", "-created_at", "-id"], name="idx_attachments_recent"),
                    models.Index(
                        condition=models.Q(state="waiting"), fields=["next_attempt_at"], name="idx_attachments_waiting"
                    ),
                    models.Index(
                        condition=models.Q(conversation_id=None),
                        fields=["created_at"],
                        name="idx_attachments_unclaimed",
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            name="AttachmentPiece",
            fields=[
                ("pk", key("user_id", "sha256", "number")),
                ("sha256", models.CharField(max_length=64)),
                ("number", models.PositiveIntegerField()),
                ("data", models.BinaryField()),
                ("user", user()),
            ],
            options={"db_table": "attachment_pieces"},
        ),
        migrations.CreateModel(
            name="AttachmentText",
            fields=[
                ("pk", key("user_id", "attachment_id", "number")),
                ("number", models.PositiveIntegerField()),
                ("place", models.CharField(blank=True, default="", max_length=200)),
                ("text", models.TextField()),
                (
                    "attachment",
                    models.ForeignKey(
                        db_constraint=False,
                        db_index=False,
                        on_delete=django.db.models.deletion.DO_NOTHING,
                        related_name="texts",
                        to="intake.attachment",
                    ),
                ),
                ("user", user()),
            ],
            options={"db_table": "attachment_texts"},
        ),
        migrations.RunSQL(KEYS, migrations.RunSQL.noop),
        migrations.RunSQL([PLACES], migrations.RunSQL.noop),
        migrations.RunSQL(FOREIGN_KEYS, migrations.RunSQL.noop),
        isolate("attachments"),
        migrations.RunSQL(WORKER, NO_WORKER),
        # Bytes and texts are the user's words: staff see none of them.
        isolate("attachment_pieces", worker=["SELECT", "DELETE", LOCK]),
        isolate("attachment_texts", worker=["SELECT", "INSERT", "DELETE"]),
    ]
