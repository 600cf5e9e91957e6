"""Which token began an import, so that it may take back its own without the scope `delete`."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("imports", "0002_keys_and_isolation")]

    operations = [
        migrations.AddField(
            model_name="import",
            name="begun_by",
            field=models.CharField(blank=True, db_default="", default="", editable=False, max_length=32),
        ),
    ]
