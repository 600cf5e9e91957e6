"""The vectors of the index, and the stored data of the map and the timeline.

The vectors of the index: one row per passage, pending until a worker stores its vector.
"""

from datetime import datetime
from typing import Self

from django.conf import settings
from django.db import models
from django.db.models import F, Q, Subquery
from django.utils import timezone
from pgvector.django import HalfVectorField

from intake.models.users import owner
from memory.chunking import CUTTING_RULES, PassageSpan, Side
from memory.models.documents import Corpus, IndexQuerySet
from memory.models.postings import SignatureField

# Of the vector blocks that migrations make and remove.
SLOTS = 10
SIDES = [(Side.WHOLE, "Both sides"), (Side.USER, "The user's"), (Side.ASSISTANT, "The assistant's")]


class EmbeddingModel(models.Model):
    """A model that made vectors: vectors of different models are never compared."""

    id = models.SmallAutoField(primary_key=True)
    name = models.CharField(max_length=200, unique=True)
    dimensions = models.PositiveIntegerField()
    created_at = models.DateTimeField(auto_now_add=True)
    activated_at = models.DateTimeField(null=True, blank=True, help_text="When it took another model's place.")

    class Meta:
        db_table = "embedding_models"

    def __str__(self) -> str:
        return self.name

    @classmethod
    def named(cls, name: str, dimensions: int) -> "EmbeddingModel":
        """The row of this model, created on its first use."""
        model, _ = cls.objects.get_or_create(name=name, defaults={"dimensions": dimensions})
        return model

    @classmethod
    def active(cls) -> "models.QuerySet[EmbeddingModel]":
        """The model of the last switch, which is one statement; before any, the first that was used."""
        return cls.objects.order_by(F("activated_at").desc(nulls_last=True), "pk")[:1]


class EmbeddingQuerySet(IndexQuerySet["Embedding"]):
    def of_model(self, name: str) -> Self:
        """By the model's name; a subquery and not a join, so that a scan needs only its index."""
        return self.filter(model=Subquery(EmbeddingModel.objects.filter(name=name).values("pk")))

    def waiting(self) -> Self:
        """Without a vector, and not quarantined."""
        return self.filter(vector=None, quarantined_at=None)

    def due(self, now: datetime) -> Self:
        return self.waiting().filter(next_attempt_at__lte=now, attempts__lt=settings.EMBEDDING_MAX_ATTEMPTS)

    def quarantined(self) -> Self:
        return self.filter(vector=None).exclude(quarantined_at=None)


class Embedding(models.Model):
    VISIBILITY = "AUTHENTICATED"

    user = owner()
    corpus = models.CharField(max_length=16, choices=Corpus)
    source_id = models.UUIDField(help_text="For chat: the conversation.")
    chunk_index = models.PositiveIntegerField(help_text="For chat: the turn number.")
    part = models.PositiveSmallIntegerField(default=0, help_text="A long text is embedded in several parts.")
    side = models.PositiveSmallIntegerField(
        default=Side.WHOLE, choices=SIDES, help_text="What of the text the part is of."
    )
    start = models.PositiveIntegerField(default=0, help_text="Where the part begins, in characters of its side.")
    is_further = models.BooleanField(
        default=False, help_text="Further on in a long text: embedded later, and counted as a little less near."
    )
    cutting_rules = models.PositiveSmallIntegerField(
        default=CUTTING_RULES, help_text="By which rules the text was cut into parts."
    )
    model = models.ForeignKey(EmbeddingModel, on_delete=models.PROTECT, db_index=False)
    visibility = models.CharField(max_length=16, default=VISIBILITY)
    # Of any size, so that two models' vectors can coexist during a switch.
    vector = HalfVectorField(null=True, blank=True)
    # As many as the vector has dimensions, as a constraint of a migration sees to.
    bits = SignatureField(null=True, editable=False, help_text="Signs of the rotated vector: see memory.index.vectors.")
    length = models.PositiveIntegerField(help_text="Characters in the part.")
    content_hash = models.BinaryField(max_length=16, help_text="BLAKE2b-128 of the part's text.")
    said_at = models.DateTimeField()
    created_at = models.DateTimeField(auto_now_add=True)
    embedded_at = models.DateTimeField(null=True, blank=True)
    attempts = models.PositiveSmallIntegerField(default=0)
    last_error = models.TextField(blank=True, default="")
    next_attempt_at = models.DateTimeField(default=timezone.now)
    quarantined_at = models.DateTimeField(null=True, blank=True)

    objects = EmbeddingQuerySet.as_manager()

    class Meta:
        db_table = "embeddings"
        constraints = [
            models.UniqueConstraint(
                fields=["user", "corpus", "source_id", "chunk_index", "part", "model"], name="embeddings_part_once"
            ),
        ]
        indexes = [
            # What a search scans, without visiting the rows: the bits, and what it narrows by. The time is not in the
            # key: a worker takes the newest first, and such an order leaves pages half empty.
            models.Index(
                fields=["user", "corpus", "model"],
                include=["id", "source_id", "said_at", "is_further", "bits"],
                condition=Q(bits__isnull=False),
                name="idx_embeddings_bits",
            ),
            # The vectors from before there were bits.
            models.Index(
                fields=["user", "model", "corpus"],
                condition=Q(vector__isnull=False, bits=None),
                name="idx_embeddings_without_bits",
            ),
            models.Index(
                fields=["next_attempt_at", "id"],
                condition=Q(vector__isnull=True, quarantined_at__isnull=True),
                name="idx_embeddings_waiting",
            ),
            # What of a user has no vector, in the order in which a worker takes it: the newest first, and further
            # passages of a long text last.
            models.Index(
                fields=["user", "is_further", "-said_at", "id"],
                condition=Q(vector__isnull=True),
                name="idx_embeddings_unfilled",
            ),
            # Staff's list, newest first; filters use the index, without visiting the rows.
            models.Index(fields=["created_at", "id", "corpus", "model", "attempts"], name="idx_embeddings_listed"),
            models.Index(
                fields=["next_attempt_at", "id"],
                condition=Q(vector__isnull=True, quarantined_at__isnull=True) & ~Q(last_error=""),
                name="idx_embeddings_failed",
            ),
            models.Index(
                fields=["quarantined_at", "id"],
                condition=Q(vector__isnull=True, quarantined_at__isnull=False),
                name="idx_embeddings_quarantined",
            ),
            models.Index(
                fields=["embedded_at"], condition=Q(embedded_at__isnull=False), name="idx_embeddings_embedded"
            ),
        ]

    def __str__(self) -> str:
        return f"{self.corpus}:{self.source_id}:{self.chunk_index}:{self.part}"

    @property
    def span(self) -> PassageSpan:
        return PassageSpan(Side(self.side), self.start, self.start + self.length, self.is_further)

    @property
    def state(self) -> str:
        if self.embedded_at:
            return "embedded"
        return "quarantined" if self.quarantined_at else "waiting"


# The map and the timeline: a layout, a point for each text, and typical words. A worker makes all of it from vectors
# and postings, and it can be lost. The row of a map is also its job: it says when its owner last looked, and up to
# which text it was drawn.

# The length of a side of the square that contains the points.
SIDE = 32_767


class MemoryMap(models.Model):
    """The map of one user: the layout for placing new texts, and the progress of the drawing."""

    SVD = "svd"
    # The second is no longer made: such a map of an earlier version is drawn anew.
    METHODS = [(SVD, "Svd"), ("tsne", "t-SNE")]

    user = models.OneToOneField(
        settings.AUTH_USER_MODEL, on_delete=models.CASCADE, primary_key=True, db_constraint=False
    )
    asked_at = models.DateTimeField(help_text="When the owner last looked, to the hour.")
    due_at = models.DateTimeField(help_text="It is not drawn before: what takes long is drawn seldom.")
    claimed_until = models.DateTimeField(null=True, help_text="A worker draws it.")
    drawn_at = models.DateTimeField(null=True)
    method = models.CharField(max_length=8, choices=METHODS, default=SVD)
    model = models.ForeignKey("memory.EmbeddingModel", null=True, on_delete=models.PROTECT, db_index=False)
    layout = models.BinaryField(default=b"", help_text="Axes and clusters, as memory.overview.layout writes them.")
    laid_out = models.PositiveIntegerField(default=0, help_text="How many points the layout was made of.")
    placed = models.PositiveIntegerField(default=0, help_text="How many points there were when it was drawn last.")
    through_text = models.BigIntegerField(default=0, help_text="The latest text that was there then.")
    waiting = models.PositiveIntegerField(default=0, help_text="Texts that had no vector yet.")

    class Meta:
        db_table = "memory_maps"

    def __str__(self) -> str:
        return str(self.user_id)


class MapPoint(models.Model):
    """The position of a text on its owner's map. A migration creates the foreign key; it cascades from the text."""

    text = models.OneToOneField(
        "memory.IndexedText", on_delete=models.DO_NOTHING, primary_key=True, db_constraint=False
    )
    user = owner()
    x = models.PositiveSmallIntegerField()
    y = models.PositiveSmallIntegerField(help_text="Downwards.")
    cluster = models.PositiveSmallIntegerField()

    class Meta:
        db_table = "map_points"

    def __str__(self) -> str:
        return str(self.text_id)


class TellingWord(models.Model):
    """A word that is typical of a month or a cluster, compared with the rest of the user's history.

    It is spelled as in the text `text`, and is deleted with that text, so that no word of a deleted text is shown.
    """

    MONTH, CLUSTER = "month", "cluster"
    KINDS = [(MONTH, "Month"), (CLUSTER, "Cluster")]

    pk = models.CompositePrimaryKey("user_id", "kind", "bucket", "rank")
    user = owner()
    kind = models.CharField(max_length=8, choices=KINDS)
    bucket = models.IntegerField(help_text="A month as 202603, or a cluster's number.")
    rank = models.PositiveSmallIntegerField()
    word = models.TextField()
    texts = models.PositiveIntegerField(help_text="How many texts of the month or cluster have the term.")
    text = models.ForeignKey("memory.IndexedText", on_delete=models.DO_NOTHING, db_index=False, db_constraint=False)

    class Meta:
        db_table = "telling_words"

    def __str__(self) -> str:
        return f"{self.kind} {self.bucket}: {self.rank}"
