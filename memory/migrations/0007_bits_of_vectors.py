"""Vectors get the signs of their coordinates, and are no longer in blocks.

A worker adds the bits, and the command `migrate` removes the blocks (`memory.index.vectors.retire_blocks`).
"""

from django.conf import settings
from django.db import migrations, models
from django.db.models import Q

from memory.models.postings import SignatureField

ROLES = settings.DATABASE_ROLES
# What the earlier migrations undo.
BLOCKS = """
    CREATE TABLE IF NOT EXISTS embedding_blocks ();
    ALTER TABLE embeddings ADD IF NOT EXISTS block_id bigint
"""
BITS = f"""
    ALTER TABLE embeddings
        ADD CONSTRAINT embeddings_bits_of_the_vector CHECK (length(bits) = vector_dims(vector)) NOT VALID;
    GRANT UPDATE (bits) ON embeddings TO {ROLES.worker}, {ROLES.staff}
"""
# One key for those who know whose a row is, and for workers and staff, who find it by its id. A cluster changes one thing
# at a time.
KEY = [
    "ALTER TABLE embeddings DROP CONSTRAINT embeddings_pkey",
    "ALTER TABLE embeddings ADD CONSTRAINT embeddings_pkey PRIMARY KEY (id, user_id)",
    "DROP INDEX IF EXISTS idx_embeddings_id",
]
# A search for a piece of a text reads the signatures of all, which stay in their rows.
SIGNATURES = "ALTER TABLE indexed_texts SET (toast_tuple_target = 8160)"


class Migration(migrations.Migration):
    dependencies = [
        ("memory", "0006_proposals"),
    ]

    operations = [
        migrations.SeparateDatabaseAndState(
            database_operations=[migrations.RunSQL(migrations.RunSQL.noop, BLOCKS)],
            state_operations=[
                migrations.RemoveIndex("embedding", "idx_embeddings_loose"),
                migrations.RemoveField("embedding", "block"),
                migrations.DeleteModel("VectorBlock"),
            ],
        ),
        migrations.AddField(
            "embedding",
            "bits",
            SignatureField(
                null=True, editable=False, help_text="Signs of the rotated vector: see memory.index.vectors."
            ),
        ),
        migrations.AlterField(
            "embedding",
            "cutting_rules",
            models.PositiveSmallIntegerField(default=2, help_text="By which rules the text was cut into parts."),
        ),
        migrations.RunSQL(BITS, migrations.RunSQL.noop),
        migrations.RunSQL(KEY, migrations.RunSQL.noop),
        migrations.RunSQL(SIGNATURES, migrations.RunSQL.noop),
        migrations.RemoveIndex("indexedtext", "idx_indexed_texts_signatures"),
        migrations.RemoveIndex("embedding", "idx_embeddings_in_turns"),
        migrations.RemoveIndex("embedding", "idx_embeddings_unfilled"),
        migrations.AddIndex(
            "embedding",
            models.Index(
                fields=["user", "is_further", "-said_at", "id"],
                condition=Q(vector__isnull=True),
                name="idx_embeddings_unfilled",
            ),
        ),
        migrations.AddIndex(
            "embedding",
            models.Index(
                fields=["user", "corpus", "model"],
                include=["id", "source_id", "said_at", "is_further", "bits"],
                condition=Q(bits__isnull=False),
                name="idx_embeddings_bits",
            ),
        ),
        migrations.AddIndex(
            "embedding",
            models.Index(
                fields=["user", "model", "corpus"],
                condition=Q(vector__isnull=False, bits=None),
                name="idx_embeddings_without_bits",
            ),
        ),
    ]
