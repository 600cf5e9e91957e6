import django.db.models.deletion
import django.utils.timezone
from django.conf import settings
from django.db import migrations, models

from core.isolation.policies import VISITOR, isolate


class Migration(migrations.Migration):
    dependencies = [
        ("intake", "0004_isolation"),
    ]

    operations = [
        migrations.CreateModel(
            name="IdempotentAnswer",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("session_key", models.CharField(blank=True, default="", editable=False, max_length=64)),
                ("key", models.CharField(max_length=255)),
                ("request_digest", models.CharField(max_length=64)),
                ("answer", models.TextField(blank=True, default="")),
                ("created_at", models.DateTimeField(default=django.utils.timezone.now, editable=False)),
                (
                    "user",
                    models.ForeignKey(
                        blank=True,
                        db_index=False,
                        null=True,
                        on_delete=django.db.models.deletion.CASCADE,
                        to=settings.AUTH_USER_MODEL,
                    ),
                ),
            ],
            options={"db_table": "intake_idempotent_answers"},
        ),
        migrations.AddConstraint(
            model_name="idempotentanswer",
            constraint=models.UniqueConstraint(
                fields=("user", "session_key", "key"), name="intake_idempotent_answers_once", nulls_distinct=False
            ),
        ),
        isolate("intake_idempotent_answers", visitor=f"session_key = {VISITOR}"),
    ]
