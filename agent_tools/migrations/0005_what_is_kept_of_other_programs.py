"""What is kept of the chats that other programs have with a token."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("agent_tools", "0004_bound_tokens"),
    ]

    operations = [
        migrations.AddField(
            model_name="accesstoken",
            name="keeps",
            field=models.CharField(db_default="chats", default="chats", max_length=10),
        ),
    ]
