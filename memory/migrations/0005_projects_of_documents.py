"""A project's own MEMORY.md and daily logs: a label on documents, which is part of what names them."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("memory", "0004_replaced_records_and_todos"),
    ]

    operations = [
        migrations.AddField(
            "memorydocument",
            "project",
            models.CharField(
                blank=True,
                db_default="",
                default="",
                help_text="Empty for the ones that belong to none.",
                max_length=200,
            ),
        ),
        migrations.RemoveConstraint("memorydocument", "memory_documents_once"),
        migrations.AddConstraint(
            "memorydocument",
            models.UniqueConstraint(
                fields=["user", "kind", "date", "project"],
                condition=~models.Q(kind="note"),
                nulls_distinct=False,
                name="memory_documents_once",
            ),
        ),
        migrations.AddConstraint(
            "memorydocument",
            models.CheckConstraint(
                condition=~models.Q(kind="about") | models.Q(project=""),
                name="memory_documents_one_about_me",
            ),
        ),
        migrations.AddIndex(
            "memorydocument",
            models.Index(
                fields=["user", "project"],
                condition=~models.Q(project=""),
                name="idx_memory_documents_project",
            ),
        ),
    ]
