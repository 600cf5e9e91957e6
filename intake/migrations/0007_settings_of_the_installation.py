"""Settings that staff change in the browser: one row each. Every role reads them, and only staff write them."""

import django.utils.timezone
from django.db import migrations, models

from core.isolation.policies import EVERYTHING, READ, grant


class Migration(migrations.Migration):
    dependencies = [
        ("intake", "0006_projects_of_conversations"),
    ]

    operations = [
        migrations.CreateModel(
            name="InstallationSetting",
            fields=[
                ("name", models.CharField(max_length=40, primary_key=True, serialize=False)),
                ("value", models.JSONField()),
                ("changed_at", models.DateTimeField(default=django.utils.timezone.now, editable=False)),
            ],
            options={"db_table": "installation_settings"},
        ),
        grant("installation_settings", web=READ, worker=READ, staff=EVERYTHING),
    ]
