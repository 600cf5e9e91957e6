from django.conf import settings
from django.db import migrations, models
from django.db.models.deletion import CASCADE, DO_NOTHING, PROTECT
from pgvector.django import HalfVectorField

from core.isolation.policies import EVERYTHING, grant, isolate

SLOTS = range(10)

SLOT_COLUMNS = ", ".join(f"{column}{slot}" for column in "ptv" for slot in SLOTS)
KEYS = ", ".join(f"p{slot}" for slot in SLOTS)
EMPTIED = ", ".join(
    f"{column}{slot} = CASE WHEN p{slot} = ANY({{gone}}) THEN NULL ELSE {column}{slot} END"
    for slot in SLOTS
    for column in "ptv"
)

# A vector leaves its block in the statement that deletes or empties its row, whoever makes it: what was deleted must
# not be found, and a copy of it must not stay. Blocks are locked in one order, so that two who delete at once wait for
# each other and not in a circle.
ONE_LEAVES = f"""
CREATE FUNCTION embedding_leaves_its_block() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    UPDATE embedding_blocks SET {EMPTIED.format(gone="ARRAY[OLD.id]")} WHERE id = OLD.block_id;
    DELETE FROM embedding_blocks WHERE id = OLD.block_id AND num_nonnulls({KEYS}) = 0;
    NEW.block_id := NULL;
    RETURN NEW;
END $$
"""  # noqa: S608
MANY_LEAVE = f"""
CREATE FUNCTION embeddings_leave_their_blocks() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NOT EXISTS (SELECT FROM gone WHERE block_id IS NOT NULL) THEN
        RETURN NULL;
    END IF;
    PERFORM FROM embedding_blocks
      WHERE id IN (SELECT block_id FROM gone) ORDER BY id FOR UPDATE;
    DELETE FROM embedding_blocks AS block
     USING (SELECT block_id, count(*) AS parts FROM gone GROUP BY block_id) AS emptied
     WHERE block.id = emptied.block_id AND emptied.parts >= num_nonnulls({KEYS});
    UPDATE embedding_blocks AS block SET {EMPTIED.format(gone="emptied.parts")}
      FROM (SELECT block_id, array_agg(id) AS parts FROM gone GROUP BY block_id) AS emptied
     WHERE block.id = emptied.block_id;
    RETURN NULL;
END $$
"""  # noqa: S608
TRIGGERS = (
    ONE_LEAVES,
    MANY_LEAVE,
    """
    CREATE TRIGGER emptied_leaves_its_block BEFORE UPDATE OF vector ON embeddings
        FOR EACH ROW WHEN (OLD.block_id IS NOT NULL) EXECUTE FUNCTION embedding_leaves_its_block()
    """,
    """
    CREATE TRIGGER deleted_leave_their_blocks AFTER DELETE ON embeddings
        REFERENCING OLD TABLE AS gone FOR EACH STATEMENT EXECUTE FUNCTION embeddings_leave_their_blocks()
    """,
)
NO_TRIGGERS = (
    "DROP TRIGGER deleted_leave_their_blocks ON embeddings",
    "DROP TRIGGER emptied_leaves_its_block ON embeddings",
    "DROP FUNCTION embeddings_leave_their_blocks()",
    "DROP FUNCTION embedding_leaves_its_block()",
)

# Neither compressed nor moved elsewhere: a block is read as it stands.
IN_LINE = "ALTER TABLE embedding_blocks " + ", ".join(f"ALTER v{slot} SET STORAGE PLAIN" for slot in SLOTS)
# A block is written once, and changes when something of it is deleted.
VACUUM = """
ALTER TABLE embedding_blocks SET (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000,
                                  autovacuum_analyze_scale_factor = 0.02)
"""


class Migration(migrations.Migration):
    dependencies = [
        ("memory", "0008_switch_embedding_models"),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.CreateModel(
            name="VectorBlock",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("user", models.ForeignKey(db_index=False, on_delete=CASCADE, to=settings.AUTH_USER_MODEL)),
                (
                    "corpus",
                    models.CharField(
                        choices=[
                            ("chat", "Chat"),
                            ("memory", "MEMORY.md"),
                            ("daily_log", "Daily Log"),
                            ("record", "Record"),
                        ],
                        max_length=16,
                    ),
                ),
                ("model", models.ForeignKey(db_index=False, on_delete=PROTECT, to="memory.embeddingmodel")),
                *((f"p{slot}", models.BigIntegerField(null=True)) for slot in SLOTS),
                *((f"t{slot}", models.DateTimeField(null=True)) for slot in SLOTS),
                *((f"v{slot}", HalfVectorField(null=True)) for slot in SLOTS),
            ],
            options={
                "db_table": "embedding_blocks",
                "indexes": [models.Index(fields=["user", "corpus", "model"], name="idx_embedding_blocks_scan")],
            },
        ),
        migrations.RunSQL(IN_LINE, migrations.RunSQL.noop),
        migrations.RunSQL(VACUUM, migrations.RunSQL.noop),
        # Staff send rows back to the queue, and so out of their blocks.
        isolate("embedding_blocks", worker=EVERYTHING, staff=["SELECT", f"UPDATE ({SLOT_COLUMNS})", "DELETE"]),
        migrations.AddField(
            model_name="embedding",
            name="block",
            field=models.ForeignKey(
                db_constraint=False,
                db_index=False,
                editable=False,
                null=True,
                on_delete=DO_NOTHING,
                to="memory.vectorblock",
            ),
        ),
        # Backwards, the column takes the right along.
        migrations.RunSQL(grant("embeddings", worker=["UPDATE (block_id)"]).sql, migrations.RunSQL.noop),
        migrations.RunSQL([*TRIGGERS], [*NO_TRIGGERS]),
        migrations.AddIndex(
            model_name="embedding",
            index=models.Index(
                condition=models.Q(("block", None), ("vector__isnull", False)),
                fields=["user", "corpus", "model"],
                name="idx_embeddings_loose",
            ),
        ),
        migrations.RemoveIndex(model_name="embedding", name="idx_embeddings_scan"),
    ]
