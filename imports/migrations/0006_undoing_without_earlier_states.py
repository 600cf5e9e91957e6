"""An item says which import made it longer last, and which texts that replaced: no earlier text is kept."""

from django.db import migrations, models

LENGTHENED = """
    UPDATE imported_items AS item SET lengthened_by = change.last, replaced = change.hashes
      FROM (SELECT user_id, item_id, (array_agg(import_id ORDER BY id DESC))[1] AS last,
                   string_agg(content_hash, ''::bytea ORDER BY id) AS hashes
              FROM imported_changes GROUP BY user_id, item_id) AS change
     WHERE item.user_id = change.user_id AND item.id = change.item_id
"""


class Migration(migrations.Migration):
    dependencies = [("imports", "0005_projects_and_their_documents")]

    operations = [
        migrations.AddField("importeditem", "lengthened_by", models.UUIDField(null=True)),
        migrations.AddField("importeditem", "replaced", models.BinaryField(db_default=b"", default=b"")),
        migrations.RunSQL(LENGTHENED, migrations.RunSQL.noop),
        migrations.DeleteModel("ImportedChange"),
    ]
