"""The project of a token, to which belongs what it appends."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("agent_tools", "0001_access_tokens"),
    ]

    operations = [
        migrations.AddField(
            model_name="accesstoken",
            name="project",
            field=models.CharField(blank=True, db_default="", default="", max_length=200),
        ),
    ]
