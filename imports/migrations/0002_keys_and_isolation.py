"""Keys that begin with the user, what goes with what, and who may do what."""

from django.db import migrations

from core.isolation.policies import EVERYTHING, grant, isolate

# An item outlives its import: removed from the list, it is still known what came in.
KEYS = """
    ALTER TABLE imports DROP CONSTRAINT imports_pkey, ADD PRIMARY KEY (user_id, id),
        ADD CONSTRAINT imports_user FOREIGN KEY (user_id) REFERENCES users ON DELETE CASCADE;
    ALTER TABLE import_entries DROP CONSTRAINT import_entries_pkey, ADD PRIMARY KEY (user_id, id),
        ADD CONSTRAINT import_entries_import
            FOREIGN KEY (user_id, import_id) REFERENCES imports (user_id, id) ON DELETE CASCADE;
    ALTER TABLE imported_items DROP CONSTRAINT imported_items_pkey, ADD PRIMARY KEY (user_id, id),
        ADD CONSTRAINT imported_items_user FOREIGN KEY (user_id) REFERENCES users ON DELETE CASCADE,
        ADD CONSTRAINT imported_items_import
            FOREIGN KEY (user_id, import_id) REFERENCES imports (user_id, id) ON DELETE SET NULL (import_id);
    ALTER TABLE imported_changes DROP CONSTRAINT imported_changes_pkey, ADD PRIMARY KEY (user_id, id),
        ADD CONSTRAINT imported_changes_item
            FOREIGN KEY (user_id, item_id) REFERENCES imported_items (user_id, id) ON DELETE CASCADE,
        ADD CONSTRAINT imported_changes_import
            FOREIGN KEY (user_id, import_id) REFERENCES imports (user_id, id) ON DELETE CASCADE,
        ADD CONSTRAINT imported_changes_turn
            FOREIGN KEY (user_id, turn_id) REFERENCES intake_conversation_turns (user_id, id) ON DELETE CASCADE,
        ADD CONSTRAINT imported_changes_note
            FOREIGN KEY (user_id, row_id) REFERENCES memory_documents (user_id, id) ON DELETE CASCADE;
    ALTER TABLE import_jobs DROP CONSTRAINT import_jobs_pkey, ADD PRIMARY KEY (user_id, id),
        ADD CONSTRAINT import_jobs_import
            FOREIGN KEY (user_id, import_id) REFERENCES imports (user_id, id) ON DELETE CASCADE
"""


class Migration(migrations.Migration):
    dependencies = [
        ("imports", "0001_imports_and_what_they_brought"),
        # Of turns and notes: what is kept of one goes with it.
        ("intake", "0004_isolation"),
        ("memory", "0002_keys_and_isolation"),
    ]

    operations = [
        migrations.RunSQL(KEYS, migrations.RunSQL.noop),
        isolate("imports"),
        isolate("import_entries"),
        isolate("imported_items"),
        isolate("imported_changes"),
        # The importing worker is the web role: it finds a job before it knows as whom to act.
        grant("import_jobs", web=EVERYTHING),
    ]
