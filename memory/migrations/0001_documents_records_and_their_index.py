import django.contrib.postgres.fields
import django.db.models.deletion
import django.utils.timezone
import pgvector.django.halfvec
from django.conf import settings
from django.db import migrations, models

import core.ids
import memory.models.postings

# Not by IF NOT EXISTS: on a cluster that asks for the rights of the extension's owner, on each node.
VECTOR = """
DO $$ BEGIN
    IF NOT EXISTS (SELECT FROM pg_extension WHERE extname = 'vector') THEN CREATE EXTENSION vector; END IF;
END $$
"""


class Migration(migrations.Migration):
    initial = True

    dependencies = [
        ("intake", "0004_isolation"),
    ]

    operations = [
        # Backwards it stays: only a superuser may drop it.
        migrations.RunSQL(VECTOR, migrations.RunSQL.noop),
        migrations.CreateModel(
            name="EmbeddingModel",
            fields=[
                ("id", models.SmallAutoField(primary_key=True, serialize=False)),
                ("name", models.CharField(max_length=200, unique=True)),
                ("dimensions", models.PositiveIntegerField()),
                ("created_at", models.DateTimeField(auto_now_add=True)),
                (
                    "activated_at",
                    models.DateTimeField(blank=True, help_text="When it took another model's place.", null=True),
                ),
            ],
            options={
                "db_table": "embedding_models",
            },
        ),
        migrations.CreateModel(
            name="MemoryDocument",
            fields=[
                ("id", models.UUIDField(default=core.ids.uuid7, editable=False, primary_key=True, serialize=False)),
                (
                    "user",
                    models.ForeignKey(
                        db_constraint=False,
                        db_index=False,
                        on_delete=django.db.models.deletion.CASCADE,
                        to=settings.AUTH_USER_MODEL,
                    ),
                ),
                (
                    "kind",
                    models.CharField(
                        choices=[
                            ("memory", "MEMORY.md"),
                            ("daily_log", "Daily Log"),
                            ("about", "About me"),
                            ("note", "note"),
                        ],
                        max_length=16,
                    ),
                ),
                ("date", models.DateField(blank=True, help_text="The day of a log; other kinds have none.", null=True)),
                ("title", models.CharField(blank=True, default="", help_text="Of a note.", max_length=300)),
                ("content", models.TextField(blank=True, default="", help_text="Markdown.")),
                ("version", models.PositiveIntegerField(default=1, help_text="Counts up with every write.")),
                ("created_at", models.DateTimeField(default=django.utils.timezone.now)),
                ("updated_at", models.DateTimeField(default=django.utils.timezone.now)),
            ],
            options={
                "db_table": "memory_documents",
                "indexes": [
                    models.Index(
                        condition=models.Q(("kind", "note")),
                        fields=["user", "-updated_at", "-id"],
                        name="idx_memory_documents_notes",
                    )
                ],
                "constraints": [
                    models.UniqueConstraint(
                        condition=models.Q(("kind", "note"), _negated=True),
                        fields=("user", "kind", "date"),
                        name="memory_documents_once",
                        nulls_distinct=False,
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            models.Q(("date__isnull", True), ("kind__in", ["memory", "about", "note"])),
                            models.Q(("date__isnull", False), ("kind", "daily_log")),
                            _connector="OR",
                        ),
                        name="memory_documents_logs_have_dates",
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            name="MemoryDocumentVersion",
            fields=[
                ("id", models.UUIDField(default=core.ids.uuid7, editable=False, primary_key=True, serialize=False)),
                (
                    "user",
                    models.ForeignKey(
                        db_constraint=False,
                        db_index=False,
                        on_delete=django.db.models.deletion.CASCADE,
                        to=settings.AUTH_USER_MODEL,
                    ),
                ),
                (
                    "document",
                    models.ForeignKey(
                        db_constraint=False,
                        db_index=False,
                        on_delete=django.db.models.deletion.DO_NOTHING,
                        to="memory.memorydocument",
                    ),
                ),
                (
                    "version",
                    models.PositiveIntegerField(help_text="The document's, when this was written over."),
                ),
                ("content", models.TextField(blank=True)),
                ("written_at", models.DateTimeField(help_text="When the document came to hold this.")),
            ],
            options={
                "db_table": "memory_document_versions",
                "constraints": [
                    models.UniqueConstraint(
                        fields=("user", "document", "version"), name="memory_document_versions_once"
                    )
                ],
            },
        ),
        migrations.CreateModel(
            name="MemoryRecord",
            fields=[
                ("id", models.UUIDField(default=core.ids.uuid7, editable=False, primary_key=True, serialize=False)),
                (
                    "user",
                    models.ForeignKey(
                        db_constraint=False,
                        db_index=False,
                        on_delete=django.db.models.deletion.CASCADE,
                        to=settings.AUTH_USER_MODEL,
                    ),
                ),
                ("content", models.TextField()),
                ("type", models.CharField(help_text="For example ARCHITECTURAL_DECISION.", max_length=100)),
                ("project_id", models.CharField(blank=True, default="", help_text="Empty for none.", max_length=200)),
                (
                    "tags",
                    django.contrib.postgres.fields.ArrayField(
                        base_field=models.CharField(max_length=100), blank=True, default=list, size=None
                    ),
                ),
                ("created_at", models.DateTimeField(default=django.utils.timezone.now)),
            ],
            options={
                "db_table": "memory_records",
                "indexes": [
                    models.Index(fields=["user", "created_at", "id"], name="idx_memory_records_recent"),
                    models.Index(fields=["user", "type"], name="idx_memory_records_type"),
                    models.Index(
                        condition=models.Q(("project_id", ""), _negated=True),
                        fields=["user", "project_id"],
                        name="idx_memory_records_project",
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            name="IndexedText",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                (
                    "user",
                    models.ForeignKey(
                        db_constraint=False,
                        db_index=False,
                        on_delete=django.db.models.deletion.CASCADE,
                        to=settings.AUTH_USER_MODEL,
                    ),
                ),
                (
                    "corpus",
                    models.CharField(
                        choices=[
                            ("chat", "Chat"),
                            ("memory", "MEMORY.md"),
                            ("daily_log", "Daily Log"),
                            ("record", "Record"),
                        ],
                        max_length=16,
                    ),
                ),
                ("source_id", models.UUIDField(help_text="For chat: the conversation.")),
                ("chunk_index", models.PositiveIntegerField(help_text="For chat: the turn number.")),
                ("said_at", models.DateTimeField()),
                (
                    "said_length",
                    models.PositiveIntegerField(help_text="Words on the person's side, stop words not counted."),
                ),
                ("answered_length", models.PositiveIntegerField(help_text="Words on the assistant's side.")),
                (
                    "configuration",
                    models.CharField(help_text="The text-search configuration that found the words.", max_length=63),
                ),
                ("content_hash", models.BinaryField(help_text="BLAKE2b-128 of both sides.", max_length=16)),
                (
                    "signature",
                    memory.models.postings.SignatureField(
                        help_text="Which stretches of three characters it may contain: see memory.trigrams."
                    ),
                ),
            ],
            options={
                "db_table": "indexed_texts",
                "indexes": [
                    models.Index(
                        fields=["user", "corpus"],
                        include=("source_id", "chunk_index", "said_at", "signature"),
                        name="idx_indexed_texts_signatures",
                    ),
                    models.Index(
                        condition=models.Q(("configuration", "english"), _negated=True),
                        fields=["user", "configuration"],
                        name="idx_indexed_texts_languages",
                    ),
                ],
                "constraints": [
                    models.UniqueConstraint(
                        fields=("user", "corpus", "source_id", "chunk_index"),
                        include=("id", "said_at", "said_length", "answered_length"),
                        name="indexed_texts_once",
                    )
                ],
            },
        ),
        migrations.CreateModel(
            name="DeletedText",
            fields=[
                (
                    "pk",
                    models.CompositePrimaryKey(
                        "user_id", "text_id", blank=True, editable=False, primary_key=True, serialize=False
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
                ("text_id", models.BigIntegerField()),
                (
                    "corpus",
                    models.CharField(
                        choices=[
                            ("chat", "Chat"),
                            ("memory", "MEMORY.md"),
                            ("daily_log", "Daily Log"),
                            ("record", "Record"),
                        ],
                        max_length=16,
                    ),
                ),
            ],
            options={
                "db_table": "deleted_texts",
            },
        ),
        migrations.CreateModel(
            name="PendingTerms",
            fields=[
                (
                    "text",
                    models.OneToOneField(
                        db_constraint=False,
                        on_delete=django.db.models.deletion.DO_NOTHING,
                        primary_key=True,
                        serialize=False,
                        to="memory.indexedtext",
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
                (
                    "corpus",
                    models.CharField(
                        choices=[
                            ("chat", "Chat"),
                            ("memory", "MEMORY.md"),
                            ("daily_log", "Daily Log"),
                            ("record", "Record"),
                        ],
                        max_length=16,
                    ),
                ),
                ("said_length", models.PositiveIntegerField()),
                ("answered_length", models.PositiveIntegerField()),
                ("lexemes", django.contrib.postgres.fields.ArrayField(base_field=models.TextField(), size=None)),
                (
                    "said",
                    django.contrib.postgres.fields.ArrayField(base_field=models.PositiveSmallIntegerField(), size=None),
                ),
                (
                    "answered",
                    django.contrib.postgres.fields.ArrayField(base_field=models.PositiveSmallIntegerField(), size=None),
                ),
            ],
            options={
                "db_table": "pending_terms",
                "verbose_name_plural": "pending terms",
                "indexes": [models.Index(fields=["user", "corpus"], name="idx_pending_terms")],
            },
        ),
        migrations.CreateModel(
            name="TermSegment",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                (
                    "user",
                    models.ForeignKey(
                        db_constraint=False,
                        db_index=False,
                        on_delete=django.db.models.deletion.CASCADE,
                        to=settings.AUTH_USER_MODEL,
                    ),
                ),
                (
                    "corpus",
                    models.CharField(
                        choices=[
                            ("chat", "Chat"),
                            ("memory", "MEMORY.md"),
                            ("daily_log", "Daily Log"),
                            ("record", "Record"),
                        ],
                        max_length=16,
                    ),
                ),
                ("texts", models.PositiveSmallIntegerField(help_text="How many.")),
                ("said_length", models.BigIntegerField(help_text="Of all its texts together.")),
                ("answered_length", models.BigIntegerField()),
                ("text_ids", django.contrib.postgres.fields.ArrayField(base_field=models.BigIntegerField(), size=None)),
                (
                    "said_lengths",
                    django.contrib.postgres.fields.ArrayField(base_field=models.PositiveIntegerField(), size=None),
                ),
                (
                    "answered_lengths",
                    django.contrib.postgres.fields.ArrayField(base_field=models.PositiveIntegerField(), size=None),
                ),
            ],
            options={
                "db_table": "term_segments",
            },
        ),
        migrations.CreateModel(
            name="TermBlock",
            fields=[
                (
                    "pk",
                    models.CompositePrimaryKey(
                        "user_id",
                        "segment_id",
                        "first_lexeme",
                        blank=True,
                        editable=False,
                        primary_key=True,
                        serialize=False,
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
                (
                    "segment",
                    models.ForeignKey(
                        db_constraint=False,
                        db_index=False,
                        on_delete=django.db.models.deletion.DO_NOTHING,
                        to="memory.termsegment",
                    ),
                ),
                ("first_lexeme", models.TextField(db_collation="C")),
                ("lexemes", django.contrib.postgres.fields.ArrayField(base_field=models.TextField(), size=None)),
                (
                    "ends",
                    django.contrib.postgres.fields.ArrayField(base_field=models.PositiveIntegerField(), size=None),
                ),
                (
                    "ordinals",
                    django.contrib.postgres.fields.ArrayField(base_field=models.PositiveSmallIntegerField(), size=None),
                ),
                (
                    "said",
                    django.contrib.postgres.fields.ArrayField(base_field=models.PositiveSmallIntegerField(), size=None),
                ),
                (
                    "answered",
                    django.contrib.postgres.fields.ArrayField(base_field=models.PositiveSmallIntegerField(), size=None),
                ),
            ],
            options={
                "db_table": "term_blocks",
            },
        ),
        migrations.CreateModel(
            name="VectorBlock",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                (
                    "user",
                    models.ForeignKey(
                        db_constraint=False,
                        db_index=False,
                        on_delete=django.db.models.deletion.CASCADE,
                        to=settings.AUTH_USER_MODEL,
                    ),
                ),
                (
                    "corpus",
                    models.CharField(
                        choices=[
                            ("chat", "Chat"),
                            ("memory", "MEMORY.md"),
                            ("daily_log", "Daily Log"),
                            ("record", "Record"),
                        ],
                        max_length=16,
                    ),
                ),
                (
                    "model",
                    models.ForeignKey(
                        db_index=False, on_delete=django.db.models.deletion.PROTECT, to="memory.embeddingmodel"
                    ),
                ),
                ("is_further", models.BooleanField(default=False)),
                ("p0", models.BigIntegerField(null=True)),
                ("p1", models.BigIntegerField(null=True)),
                ("p2", models.BigIntegerField(null=True)),
                ("p3", models.BigIntegerField(null=True)),
                ("p4", models.BigIntegerField(null=True)),
                ("p5", models.BigIntegerField(null=True)),
                ("p6", models.BigIntegerField(null=True)),
                ("p7", models.BigIntegerField(null=True)),
                ("p8", models.BigIntegerField(null=True)),
                ("p9", models.BigIntegerField(null=True)),
                ("t0", models.DateTimeField(null=True)),
                ("t1", models.DateTimeField(null=True)),
                ("t2", models.DateTimeField(null=True)),
                ("t3", models.DateTimeField(null=True)),
                ("t4", models.DateTimeField(null=True)),
                ("t5", models.DateTimeField(null=True)),
                ("t6", models.DateTimeField(null=True)),
                ("t7", models.DateTimeField(null=True)),
                ("t8", models.DateTimeField(null=True)),
                ("t9", models.DateTimeField(null=True)),
                ("v0", pgvector.django.halfvec.HalfVectorField(null=True)),
                ("v1", pgvector.django.halfvec.HalfVectorField(null=True)),
                ("v2", pgvector.django.halfvec.HalfVectorField(null=True)),
                ("v3", pgvector.django.halfvec.HalfVectorField(null=True)),
                ("v4", pgvector.django.halfvec.HalfVectorField(null=True)),
                ("v5", pgvector.django.halfvec.HalfVectorField(null=True)),
                ("v6", pgvector.django.halfvec.HalfVectorField(null=True)),
                ("v7", pgvector.django.halfvec.HalfVectorField(null=True)),
                ("v8", pgvector.django.halfvec.HalfVectorField(null=True)),
                ("v9", pgvector.django.halfvec.HalfVectorField(null=True)),
            ],
            options={
                "db_table": "embedding_blocks",
                "indexes": [models.Index(fields=["user", "corpus", "model"], name="idx_embedding_blocks_scan")],
            },
        ),
        migrations.CreateModel(
            name="Embedding",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                (
                    "user",
                    models.ForeignKey(
                        db_constraint=False,
                        db_index=False,
                        on_delete=django.db.models.deletion.CASCADE,
                        to=settings.AUTH_USER_MODEL,
                    ),
                ),
                (
                    "corpus",
                    models.CharField(
                        choices=[
                            ("chat", "Chat"),
                            ("memory", "MEMORY.md"),
                            ("daily_log", "Daily Log"),
                            ("record", "Record"),
                        ],
                        max_length=16,
                    ),
                ),
                ("source_id", models.UUIDField(help_text="For chat: the conversation.")),
                ("chunk_index", models.PositiveIntegerField(help_text="For chat: the turn number.")),
                (
                    "part",
                    models.PositiveSmallIntegerField(default=0, help_text="A long text is embedded in several parts."),
                ),
                (
                    "side",
                    models.PositiveSmallIntegerField(
                        choices=[(0, "Both sides"), (1, "The user's"), (2, "The assistant's")],
                        default=0,
                        help_text="What of the text the part is of.",
                    ),
                ),
                (
                    "start",
                    models.PositiveIntegerField(
                        default=0, help_text="Where the part begins, in characters of its side."
                    ),
                ),
                (
                    "is_further",
                    models.BooleanField(
                        default=False,
                        help_text="Further on in a long text: embedded later, and counted as a little less near.",
                    ),
                ),
                (
                    "cutting_rules",
                    models.PositiveSmallIntegerField(
                        default=1, help_text="By which rules the text was cut into parts."
                    ),
                ),
                (
                    "model",
                    models.ForeignKey(
                        db_index=False, on_delete=django.db.models.deletion.PROTECT, to="memory.embeddingmodel"
                    ),
                ),
                ("visibility", models.CharField(default="AUTHENTICATED", max_length=16)),
                ("vector", pgvector.django.halfvec.HalfVectorField(blank=True, null=True)),
                (
                    "block",
                    models.ForeignKey(
                        db_constraint=False,
                        db_index=False,
                        editable=False,
                        null=True,
                        on_delete=django.db.models.deletion.DO_NOTHING,
                        to="memory.vectorblock",
                    ),
                ),
                ("length", models.PositiveIntegerField(help_text="Characters in the part.")),
                ("content_hash", models.BinaryField(help_text="BLAKE2b-128 of the part's text.", max_length=16)),
                ("said_at", models.DateTimeField()),
                ("created_at", models.DateTimeField(auto_now_add=True)),
                ("embedded_at", models.DateTimeField(blank=True, null=True)),
                ("attempts", models.PositiveSmallIntegerField(default=0)),
                ("last_error", models.TextField(blank=True, default="")),
                ("next_attempt_at", models.DateTimeField(default=django.utils.timezone.now)),
                ("quarantined_at", models.DateTimeField(blank=True, null=True)),
            ],
            options={
                "db_table": "embeddings",
                "indexes": [
                    models.Index(
                        condition=models.Q(("block", None), ("vector__isnull", False)),
                        fields=["user", "corpus", "model"],
                        name="idx_embeddings_loose",
                    ),
                    models.Index(
                        condition=models.Q(("quarantined_at__isnull", True), ("vector__isnull", True)),
                        fields=["next_attempt_at", "id"],
                        name="idx_embeddings_waiting",
                    ),
                    models.Index(
                        condition=models.Q(("quarantined_at__isnull", True), ("vector__isnull", True)),
                        fields=["user", "is_further", "-said_at", "id"],
                        name="idx_embeddings_in_turns",
                    ),
                    models.Index(
                        condition=models.Q(("vector__isnull", True)),
                        fields=["user", "corpus", "source_id", "chunk_index"],
                        name="idx_embeddings_unfilled",
                    ),
                    models.Index(
                        fields=["created_at", "id", "corpus", "model", "attempts"], name="idx_embeddings_listed"
                    ),
                    models.Index(
                        condition=models.Q(
                            ("quarantined_at__isnull", True),
                            ("vector__isnull", True),
                            models.Q(("last_error", ""), _negated=True),
                        ),
                        fields=["next_attempt_at", "id"],
                        name="idx_embeddings_failed",
                    ),
                    models.Index(
                        condition=models.Q(("quarantined_at__isnull", False), ("vector__isnull", True)),
                        fields=["quarantined_at", "id"],
                        name="idx_embeddings_quarantined",
                    ),
                    models.Index(
                        condition=models.Q(("embedded_at__isnull", False)),
                        fields=["embedded_at"],
                        name="idx_embeddings_embedded",
                    ),
                ],
                "constraints": [
                    models.UniqueConstraint(
                        fields=("user", "corpus", "source_id", "chunk_index", "part", "model"),
                        name="embeddings_part_once",
                    )
                ],
            },
        ),
        migrations.CreateModel(
            name="MemoryMap",
            fields=[
                (
                    "user",
                    models.OneToOneField(
                        db_constraint=False,
                        on_delete=django.db.models.deletion.CASCADE,
                        primary_key=True,
                        serialize=False,
                        to=settings.AUTH_USER_MODEL,
                    ),
                ),
                ("asked_at", models.DateTimeField(help_text="When the owner last looked, to the hour.")),
                ("due_at", models.DateTimeField(help_text="It is not drawn before: what takes long is drawn seldom.")),
                ("claimed_until", models.DateTimeField(help_text="A worker draws it.", null=True)),
                ("drawn_at", models.DateTimeField(null=True)),
                (
                    "method",
                    models.CharField(choices=[("svd", "Svd"), ("tsne", "t-SNE")], default="svd", max_length=8),
                ),
                (
                    "model",
                    models.ForeignKey(
                        db_index=False,
                        null=True,
                        on_delete=django.db.models.deletion.PROTECT,
                        to="memory.embeddingmodel",
                    ),
                ),
                (
                    "layout",
                    models.BinaryField(
                        default=b"", help_text="Axes and clusters, as memory.overview.layout writes them."
                    ),
                ),
                (
                    "laid_out",
                    models.PositiveIntegerField(default=0, help_text="How many points the layout was made of."),
                ),
                (
                    "placed",
                    models.PositiveIntegerField(
                        default=0, help_text="How many points there were when it was drawn last."
                    ),
                ),
                (
                    "through_text",
                    models.BigIntegerField(default=0, help_text="The latest text that was there then."),
                ),
                ("waiting", models.PositiveIntegerField(default=0, help_text="Texts that had no vector yet.")),
            ],
            options={
                "db_table": "memory_maps",
            },
        ),
        migrations.CreateModel(
            name="MapPoint",
            fields=[
                (
                    "text",
                    models.OneToOneField(
                        db_constraint=False,
                        on_delete=django.db.models.deletion.DO_NOTHING,
                        primary_key=True,
                        serialize=False,
                        to="memory.indexedtext",
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
                ("x", models.PositiveSmallIntegerField()),
                ("y", models.PositiveSmallIntegerField(help_text="Downwards.")),
                ("cluster", models.PositiveSmallIntegerField()),
            ],
            options={
                "db_table": "map_points",
            },
        ),
        migrations.CreateModel(
            name="TellingWord",
            fields=[
                (
                    "pk",
                    models.CompositePrimaryKey(
                        "user_id",
                        "kind",
                        "bucket",
                        "rank",
                        blank=True,
                        editable=False,
                        primary_key=True,
                        serialize=False,
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
                ("kind", models.CharField(choices=[("month", "Month"), ("cluster", "Cluster")], max_length=8)),
                ("bucket", models.IntegerField(help_text="A month as 202603, or a cluster's number.")),
                ("rank", models.PositiveSmallIntegerField()),
                ("word", models.TextField()),
                (
                    "texts",
                    models.PositiveIntegerField(help_text="How many texts of the month or cluster have the term."),
                ),
                (
                    "text",
                    models.ForeignKey(
                        db_constraint=False,
                        db_index=False,
                        on_delete=django.db.models.deletion.DO_NOTHING,
                        to="memory.indexedtext",
                    ),
                ),
            ],
            options={
                "db_table": "telling_words",
            },
        ),
    ]
