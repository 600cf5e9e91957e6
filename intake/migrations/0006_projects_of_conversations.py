"""A label on conversations: the repository or folder that they are about, by which searches are limited."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("intake", "0005_attachments"),
    ]

    operations = [
        migrations.AddField(
            model_name="conversation",
            name="project",
            field=models.CharField(blank=True, db_default="", default="", max_length=200),
        ),
        migrations.AddIndex(
            model_name="conversation",
            index=models.Index(
                condition=models.Q(("project", ""), _negated=True),
                fields=["user", "project"],
                name="idx_ic_user_project",
            ),
        ),
    ]
