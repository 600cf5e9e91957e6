"""The context that a token got, counted by the day."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("agent_tools", "0002_projects_of_tokens"),
    ]

    operations = [
        migrations.AddField(
            model_name="accesstoken",
            name="got",
            field=models.JSONField(blank=True, db_default={}, default=dict, editable=False),
        ),
    ]
