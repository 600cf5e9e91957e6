import django.db.models.deletion
import django.utils.timezone
from django.conf import settings
from django.db import migrations, models

import core.ids


def give_public_ids(apps, schema_editor):
    """One by one: a default would be made once and given to every row there is."""
    access_tokens = apps.get_model("agent_tools", "AccessToken")
    for digest in access_tokens.objects.values_list("digest", flat=True).iterator():
        access_tokens.objects.filter(digest=digest).update(public_id=core.ids.uuid7())


class Migration(migrations.Migration):
    dependencies = [
        ("agent_tools", "0001_access_tokens"),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.AddField(
            model_name="accesstoken",
            name="public_id",
            field=models.UUIDField(null=True, editable=False),
        ),
        migrations.RunPython(give_public_ids, migrations.RunPython.noop, elidable=True),
        migrations.AlterField(
            model_name="accesstoken",
            name="public_id",
            field=models.UUIDField(default=core.ids.uuid7, editable=False, unique=True),
        ),
        migrations.AddField(
            model_name="accesstoken",
            name="last_used_at",
            field=models.DateTimeField(blank=True, editable=False, null=True),
        ),
        migrations.CreateModel(
            name="IdempotentAnswer",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("key", models.CharField(max_length=255)),
                ("request_digest", models.CharField(max_length=64)),
                ("answer", models.TextField(blank=True, default="")),
                ("created_at", models.DateTimeField(default=django.utils.timezone.now, editable=False)),
                (
                    "user",
                    models.ForeignKey(
                        db_index=False, on_delete=django.db.models.deletion.CASCADE, to=settings.AUTH_USER_MODEL
                    ),
                ),
            ],
            options={"db_table": "idempotent_answers"},
        ),
        migrations.AddConstraint(
            model_name="idempotentanswer",
            constraint=models.UniqueConstraint(fields=("user", "key"), name="idempotent_answers_once"),
        ),
    ]
