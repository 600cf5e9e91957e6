"""The lines that a person has left out of the context of agents, by their digests."""

import django.contrib.postgres.fields
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("intake", "0008_what_is_hidden_at_home"),
    ]

    operations = [
        migrations.AddField(
            model_name="chatpreferences",
            name="left_out",
            field=django.contrib.postgres.fields.ArrayField(
                base_field=models.CharField(max_length=32), blank=True, db_default=[], default=list, size=None
            ),
        ),
    ]
