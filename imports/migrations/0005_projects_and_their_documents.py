"""Projects among what an import brings, and the documents of projects, whose place names their label too."""

from django.db import migrations, models

KINDS = [
    ("conversation", "Conversation"),
    ("turn", "Turn"),
    ("document", "Document"),
    ("record", "Record"),
    ("project", "Project"),
]


class Migration(migrations.Migration):
    dependencies = [
        ("imports", "0004_where_the_turns_of_an_export_went"),
    ]

    operations = [
        migrations.AlterField("importeditem", "kind", models.CharField(choices=KINDS, max_length=16)),
        migrations.AlterField(
            "importentry",
            "kind",
            models.CharField(choices=[kind for kind in KINDS if kind[0] != "turn"], max_length=16),
        ),
        # Longer, which rewrites no row.
        migrations.AlterField("importeditem", "place", models.CharField(blank=True, default="", max_length=217)),
    ]
