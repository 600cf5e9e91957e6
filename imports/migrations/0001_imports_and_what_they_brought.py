import django.db.models.deletion
import django.utils.timezone
from django.conf import settings
from django.db import migrations, models

import core.ids


class Migration(migrations.Migration):
    initial = True

    dependencies = [
        ("intake", "0004_isolation"),
    ]

    operations = [
        migrations.CreateModel(
            name="Import",
            fields=[
                ("id", models.UUIDField(default=core.ids.uuid7, editable=False, primary_key=True, serialize=False)),
                ("filename", models.CharField(max_length=255)),
                ("product", models.CharField(blank=True, default="", max_length=32)),
                (
                    "state",
                    models.CharField(
                        choices=[
                            ("uploading", "Uploading"),
                            ("reading", "Reading"),
                            ("ready", "Ready"),
                            ("waiting", "Waiting"),
                            ("running", "Running"),
                            ("done", "Done"),
                            ("failed", "Failed"),
                            ("cancelled", "Cancelled"),
                            ("undoing", "Undoing"),
                            ("undone", "Undone"),
                        ],
                        default="uploading",
                        max_length=16,
                    ),
                ),
                ("bytes", models.BigIntegerField()),
                ("bytes_received", models.BigIntegerField(default=0)),
                ("found", models.JSONField(null=True)),
                ("selected", models.JSONField(null=True)),
                ("stored", models.JSONField(null=True)),
                ("progress", models.FloatField(default=0.0, help_text="0 to 1 within the state.")),
                ("first_at", models.DateTimeField(null=True)),
                ("last_at", models.DateTimeField(null=True)),
                ("notices", models.JSONField(default=list)),
                ("skipped", models.JSONField(default=list)),
                ("error", models.TextField(blank=True, default="")),
                ("created_at", models.DateTimeField(default=django.utils.timezone.now)),
                ("updated_at", models.DateTimeField(default=django.utils.timezone.now)),
                ("started_at", models.DateTimeField(null=True)),
                ("finished_at", models.DateTimeField(null=True)),
                (
                    "user",
                    models.ForeignKey(
                        db_constraint=False,
                        db_index=False,
                        on_delete=django.db.models.deletion.CASCADE,
                        to=settings.AUTH_USER_MODEL,
                    ),
                ),
            ],
            options={
                "db_table": "imports",
            },
        ),
        migrations.CreateModel(
            name="ImportedItem",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                (
                    "kind",
                    models.CharField(
                        choices=[
                            ("conversation", "Conversation"),
                            ("turn", "Turn"),
                            ("document", "Document"),
                            ("record", "Record"),
                        ],
                        max_length=16,
                    ),
                ),
                ("key", models.BinaryField(max_length=16)),
                ("content_hash", models.BinaryField(help_text="BLAKE2b-128 of the text as it came in.", max_length=16)),
                ("conversation_id", models.UUIDField(null=True)),
                ("turn_id", models.BigIntegerField(null=True)),
                ("row_id", models.UUIDField(null=True)),
                ("lines", models.TextField(blank=True, default="")),
                ("place", models.CharField(blank=True, default="", max_length=16)),
                (
                    "batch",
                    models.ForeignKey(
                        db_column="import_id",
                        db_constraint=False,
                        db_index=False,
                        null=True,
                        on_delete=django.db.models.deletion.DO_NOTHING,
                        to="imports.import",
                    ),
                ),
                (
                    "user",
                    models.ForeignKey(
                        db_constraint=False,
                        db_index=False,
                        on_delete=django.db.models.deletion.CASCADE,
                        to=settings.AUTH_USER_MODEL,
                    ),
                ),
            ],
            options={
                "db_table": "imported_items",
            },
        ),
        migrations.CreateModel(
            name="ImportEntry",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                (
                    "kind",
                    models.CharField(
                        choices=[("conversation", "Conversation"), ("document", "Document"), ("record", "Record")],
                        max_length=16,
                    ),
                ),
                ("external_id", models.TextField()),
                ("title", models.CharField(blank=True, default="", max_length=300)),
                ("first_at", models.DateTimeField(null=True)),
                ("last_at", models.DateTimeField(null=True)),
                ("turns", models.PositiveIntegerField(default=0)),
                ("versions", models.PositiveIntegerField(default=0)),
                (
                    "status",
                    models.CharField(
                        choices=[("new", "New"), ("longer", "Longer"), ("here", "Here"), ("deleted", "deleted here")],
                        max_length=16,
                    ),
                ),
                ("is_selected", models.BooleanField(default=True)),
                ("stored", models.PositiveIntegerField(default=0)),
                ("conversation_id", models.UUIDField(null=True)),
                (
                    "batch",
                    models.ForeignKey(
                        db_column="import_id",
                        db_constraint=False,
                        db_index=False,
                        on_delete=django.db.models.deletion.DO_NOTHING,
                        to="imports.import",
                    ),
                ),
                (
                    "user",
                    models.ForeignKey(
                        db_constraint=False,
                        db_index=False,
                        on_delete=django.db.models.deletion.CASCADE,
                        to=settings.AUTH_USER_MODEL,
                    ),
                ),
            ],
            options={
                "db_table": "import_entries",
                "verbose_name_plural": "import entries",
            },
        ),
        migrations.CreateModel(
            name="ImportJob",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("import_id", models.UUIDField()),
                ("created_at", models.DateTimeField(default=django.utils.timezone.now)),
                ("due_at", models.DateTimeField(default=django.utils.timezone.now)),
                ("lease", models.UUIDField(null=True)),
                (
                    "attempts",
                    models.PositiveSmallIntegerField(
                        default=0, help_text="How often it was taken since it last got on."
                    ),
                ),
                (
                    "user",
                    models.ForeignKey(
                        db_constraint=False,
                        db_index=False,
                        on_delete=django.db.models.deletion.CASCADE,
                        to=settings.AUTH_USER_MODEL,
                    ),
                ),
            ],
            options={
                "db_table": "import_jobs",
            },
        ),
        migrations.AddIndex(
            model_name="import",
            index=models.Index(fields=["user", "-created_at", "-id"], name="idx_imports_recent"),
        ),
        migrations.AddIndex(
            model_name="importeditem",
            index=models.Index(fields=["user", "batch", "kind", "id"], name="idx_imported_items_of"),
        ),
        migrations.AddIndex(
            model_name="importeditem",
            index=models.Index(
                condition=models.Q(("conversation_id__isnull", False)),
                fields=["user", "conversation_id"],
                name="idx_imported_items_in",
            ),
        ),
        migrations.AddConstraint(
            model_name="importeditem",
            constraint=models.UniqueConstraint(fields=("user", "key"), name="imported_items_once"),
        ),
        migrations.AddIndex(
            model_name="importentry",
            index=models.Index(
                models.F("user"),
                models.F("batch"),
                models.OrderBy(models.F("last_at"), descending=True, nulls_last=True),
                models.F("id"),
                name="idx_import_entries_recent",
            ),
        ),
        migrations.AddConstraint(
            model_name="importentry",
            constraint=models.UniqueConstraint(
                fields=("user", "batch", "kind", "external_id"), name="import_entries_once"
            ),
        ),
        migrations.AddConstraint(
            model_name="importjob",
            constraint=models.UniqueConstraint(fields=("user", "import_id"), name="import_jobs_once"),
        ),
        migrations.AddIndex(
            model_name="importjob",
            index=models.Index(fields=["due_at", "id"], name="idx_import_jobs_due"),
        ),
    ]
