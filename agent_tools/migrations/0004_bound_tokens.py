"""Tokens that are bound to their project and see nothing else."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("agent_tools", "0003_what_tokens_got"),
    ]

    operations = [
        migrations.AddField(
            model_name="accesstoken",
            name="is_bound",
            field=models.BooleanField(db_default=False, default=False),
        ),
    ]
