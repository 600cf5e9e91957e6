"""The stored data of the map and the timeline: the layout, a point for each text, and typical words.

A worker makes all of it from vectors and postings, and it can be lost. The row of a map is also its job: it says when
its owner last looked, and up to which text it was drawn.
"""

from django.conf import settings
from django.db import models

# The length of a side of the square that contains the points.
SIDE = 32_767


class MemoryMap(models.Model):
    """The map of one user: the layout for placing new texts, and the progress of the drawing."""

    class Method(models.TextChoices):
        SVD = "svd"
        TSNE = "tsne", "t-SNE"

    user = models.OneToOneField(
        settings.AUTH_USER_MODEL, on_delete=models.CASCADE, primary_key=True, db_constraint=False
    )
    asked_at = models.DateTimeField(help_text="When the owner last looked, to the hour.")
    due_at = models.DateTimeField(help_text="It is not drawn before: what takes long is drawn seldom.")
    claimed_until = models.DateTimeField(null=True, help_text="A worker draws it.")
    drawn_at = models.DateTimeField(null=True)
    method = models.CharField(max_length=8, choices=Method, default=Method.SVD)
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
    user = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, db_index=False, db_constraint=False)
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

    class Kind(models.TextChoices):
        MONTH = "month"
        CLUSTER = "cluster"

    pk = models.CompositePrimaryKey("user_id", "kind", "bucket", "rank")
    user = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, db_index=False, db_constraint=False)
    kind = models.CharField(max_length=8, choices=Kind)
    bucket = models.IntegerField(help_text="A month as 202603, or a cluster's number.")
    rank = models.PositiveSmallIntegerField()
    word = models.TextField()
    texts = models.PositiveIntegerField(help_text="How many texts of the month or cluster have the term.")
    text = models.ForeignKey("memory.IndexedText", on_delete=models.DO_NOTHING, db_index=False, db_constraint=False)

    class Meta:
        db_table = "telling_words"

    def __str__(self) -> str:
        return f"{self.kind} {self.bucket}: {self.rank}"
