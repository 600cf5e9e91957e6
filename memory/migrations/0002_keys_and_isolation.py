"""What Django does not say of these tables: keys that begin with the user, what goes with what, and who may do what."""

from django.db import migrations

from core.isolation.policies import EVERYTHING, grant, isolate
from memory.models.embeddings import SLOTS

KEYS = """
    ALTER TABLE memory_documents DROP CONSTRAINT memory_documents_pkey, ADD PRIMARY KEY (user_id, id),
        ADD CONSTRAINT memory_documents_user FOREIGN KEY (user_id) REFERENCES users ON DELETE CASCADE;
    ALTER TABLE memory_document_versions DROP CONSTRAINT memory_document_versions_pkey, ADD PRIMARY KEY (user_id, id),
        ADD CONSTRAINT memory_document_versions_document
            FOREIGN KEY (user_id, document_id) REFERENCES memory_documents (user_id, id) ON DELETE CASCADE;
    ALTER TABLE memory_records DROP CONSTRAINT memory_records_pkey, ADD PRIMARY KEY (user_id, id),
        ADD CONSTRAINT memory_records_user FOREIGN KEY (user_id) REFERENCES users ON DELETE CASCADE;
    ALTER TABLE indexed_texts DROP CONSTRAINT indexed_texts_pkey, ADD PRIMARY KEY (user_id, id);
    ALTER TABLE pending_terms DROP CONSTRAINT pending_terms_pkey, ADD PRIMARY KEY (user_id, text_id),
        ADD CONSTRAINT pending_terms_text
            FOREIGN KEY (user_id, text_id) REFERENCES indexed_texts (user_id, id) ON DELETE CASCADE;
    ALTER TABLE term_segments DROP CONSTRAINT term_segments_pkey, ADD PRIMARY KEY (user_id, id),
        ADD CONSTRAINT term_segments_user FOREIGN KEY (user_id) REFERENCES users ON DELETE CASCADE;
    ALTER TABLE term_blocks
        ADD CONSTRAINT term_blocks_segment
            FOREIGN KEY (user_id, segment_id) REFERENCES term_segments (user_id, id) ON DELETE CASCADE;
    ALTER TABLE embedding_blocks DROP CONSTRAINT embedding_blocks_pkey, ADD PRIMARY KEY (user_id, id) INCLUDE (model_id),
        ADD CONSTRAINT embedding_blocks_user FOREIGN KEY (user_id) REFERENCES users ON DELETE CASCADE;
    ALTER TABLE embeddings DROP CONSTRAINT embeddings_pkey, ADD PRIMARY KEY (user_id, id),
        ADD CONSTRAINT embeddings_block
            FOREIGN KEY (user_id, block_id) REFERENCES embedding_blocks (user_id, id) ON DELETE SET NULL (block_id);
    ALTER TABLE memory_maps
        ADD CONSTRAINT memory_maps_user FOREIGN KEY (user_id) REFERENCES users ON DELETE CASCADE;
    ALTER TABLE map_points DROP CONSTRAINT map_points_pkey, ADD PRIMARY KEY (user_id, text_id),
        ADD CONSTRAINT map_points_text
            FOREIGN KEY (user_id, text_id) REFERENCES indexed_texts (user_id, id) ON DELETE CASCADE;
    ALTER TABLE telling_words
        ADD CONSTRAINT telling_words_text
            FOREIGN KEY (user_id, text_id) REFERENCES indexed_texts (user_id, id) ON DELETE CASCADE;
    CREATE INDEX idx_telling_words_text ON telling_words (user_id, text_id);
    -- Workers and staff, who act as nobody, find these by their ids.
    CREATE INDEX idx_memory_documents_id ON memory_documents (id);
    CREATE INDEX idx_memory_records_id ON memory_records (id);
    CREATE INDEX idx_embeddings_id ON embeddings (id);
    CREATE INDEX idx_embeddings_block ON embeddings (user_id, block_id) WHERE block_id IS NOT NULL
"""

# A foreign key needs a column for each table that it may lead to; of these three a row has one.
SOURCES = """
    ALTER TABLE {table}
        ADD conversation_id uuid GENERATED ALWAYS AS (CASE WHEN corpus = 'chat' THEN source_id END) STORED,
        ADD document_id uuid
            GENERATED ALWAYS AS (CASE WHEN corpus IN ('memory', 'daily_log') THEN source_id END) STORED,
        ADD record_id uuid GENERATED ALWAYS AS (CASE WHEN corpus = 'record' THEN source_id END) STORED;
    ALTER TABLE {table}
        ADD CONSTRAINT {table}_turn FOREIGN KEY (user_id, conversation_id, chunk_index)
            REFERENCES intake_conversation_turns (user_id, conversation_id, turn_number) ON DELETE CASCADE,
        ADD CONSTRAINT {table}_document
            FOREIGN KEY (user_id, document_id) REFERENCES memory_documents (user_id, id) ON DELETE CASCADE,
        ADD CONSTRAINT {table}_record
            FOREIGN KEY (user_id, record_id) REFERENCES memory_records (user_id, id) ON DELETE CASCADE;
    CREATE INDEX idx_{table}_turn ON {table} (user_id, conversation_id, chunk_index) WHERE conversation_id IS NOT NULL;
    CREATE INDEX idx_{table}_document ON {table} (user_id, document_id) WHERE document_id IS NOT NULL;
    CREATE INDEX idx_{table}_record ON {table} (user_id, record_id) WHERE record_id IS NOT NULL
"""

STORAGE = [
    # Neither compressed nor moved elsewhere: a block is read as it stands.
    "ALTER TABLE embedding_blocks " + ", ".join(f"ALTER v{slot} SET STORAGE PLAIN" for slot in range(SLOTS)),
    # A pending row is written while somebody waits, and read once or twice.
    "ALTER TABLE pending_terms SET (toast_tuple_target = 8160)",
    # Every array of a block is compressed, and stays in its row. Those of a segment are read whole by every search.
    "ALTER TABLE term_blocks SET (toast_tuple_target = 128), "
    + ", ".join(f"ALTER {array} SET STORAGE MAIN" for array in ("lexemes", "ends", "ordinals", "said", "answered")),
    "ALTER TABLE term_segments "
    + ", ".join(f"ALTER {array} SET STORAGE EXTERNAL" for array in ("text_ids", "said_lengths", "answered_lengths")),
    # Scans stay index-only while pages are marked all-visible, which only a vacuum does: after every few thousand rows,
    # not after a fifth of a table.
    """
    ALTER TABLE embeddings SET (
        autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000,
        autovacuum_vacuum_insert_scale_factor = 0, autovacuum_vacuum_insert_threshold = 5000,
        autovacuum_analyze_scale_factor = 0.02);
    ALTER TABLE indexed_texts SET (
        autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000,
        autovacuum_vacuum_insert_scale_factor = 0, autovacuum_vacuum_insert_threshold = 5000,
        autovacuum_analyze_scale_factor = 0.02);
    ALTER TABLE term_blocks SET (autovacuum_vacuum_scale_factor = 0.1, autovacuum_analyze_scale_factor = 0.1);
    ALTER TABLE term_segments SET (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 200);
    ALTER TABLE embedding_blocks SET (
        autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000, autovacuum_analyze_scale_factor = 0.02);
    ALTER TABLE pending_terms SET (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000)
    """,
]

# What becomes of a row while its vector is made; whose it is and what it stands for never changes.
PROGRESS = "UPDATE (vector, embedded_at, attempts, last_error, next_attempt_at, quarantined_at)"
PACKED = "UPDATE (block_id)"
# To lock a row takes the right to change some column: one that little depends on.
LOCK = "UPDATE (created_at)"
LOCK_TEXT = "UPDATE (configuration)"
LOCK_BLOCK = "UPDATE (t0)"


class Migration(migrations.Migration):
    dependencies = [
        ("memory", "0001_documents_records_and_their_index"),
    ]

    operations = [
        migrations.RunSQL(KEYS, migrations.RunSQL.noop),
        migrations.RunSQL(SOURCES.format(table="indexed_texts"), migrations.RunSQL.noop),
        migrations.RunSQL(SOURCES.format(table="embeddings"), migrations.RunSQL.noop),
        migrations.RunSQL(STORAGE, migrations.RunSQL.noop),
        isolate("memory_documents", worker=["SELECT", LOCK]),
        isolate("memory_document_versions"),
        isolate("memory_records", worker=["SELECT", LOCK]),
        # Words are text: staff see none of them.
        isolate("indexed_texts", worker=["SELECT", "INSERT", "DELETE", LOCK_TEXT]),
        isolate("pending_terms", worker=EVERYTHING),
        isolate("term_segments", worker=EVERYTHING),
        isolate("term_blocks", worker=["SELECT", "INSERT", "DELETE"]),
        isolate("deleted_texts", worker=["SELECT", "INSERT", "DELETE"]),
        isolate(
            "embeddings",
            worker=["SELECT", "INSERT", "DELETE", PROGRESS, PACKED],
            staff=["SELECT", PROGRESS, PACKED],
        ),
        # Staff send rows back to the queue, and so remove the blocks that hold their vectors.
        isolate(
            "embedding_blocks",
            worker=["SELECT", "INSERT", "DELETE", LOCK_BLOCK],
            staff=["SELECT", "DELETE", LOCK_BLOCK],
        ),
        # A person's look makes the map's row, a worker draws it and drops it when nobody looks any more.
        isolate("memory_maps", worker=["SELECT", "UPDATE", "DELETE"]),
        isolate("map_points", worker=EVERYTHING),
        isolate("telling_words", worker=["SELECT", "INSERT", "DELETE"]),
        # The command that switches models is a worker's.
        grant(
            "embedding_models",
            web=["SELECT", "INSERT"],
            worker=["SELECT", "INSERT", "UPDATE (activated_at)"],
            staff=["SELECT"],
        ),
    ]
