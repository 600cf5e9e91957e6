from django.db import migrations, models

from core.isolation.policies import grant


class Migration(migrations.Migration):
    dependencies = [
        ("memory", "0007_words_without_checks"),
    ]

    operations = [
        migrations.AddField(
            model_name="embeddingmodel",
            name="activated_at",
            field=models.DateTimeField(blank=True, help_text="When it took another model's place.", null=True),
        ),
        # The command that switches is a worker's. Backwards, the column takes the right along.
        grant("embedding_models", worker=["UPDATE (activated_at)"]),
    ]
