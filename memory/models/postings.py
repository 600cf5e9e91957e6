"""The words of the index: which of a person's texts a word stands in, and how often on whose side.

A search for words reads the postings of the query's words and nothing else, so that it costs what they match, not what
the person has; and a person's statistics are theirs alone.
"""

from typing import Self

from django.conf import settings
from django.contrib.postgres.fields import ArrayField
from django.db import models
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.models import Q

from intake.models import User
from memory.models.corpora import Corpus, Place, Scope


class SignatureField(models.Field):  # type: ignore[type-arg]  # subscriptable in the stubs only
    """A bit string of any length, in hexadecimal with an x before it as PostgreSQL reads it."""

    def db_type(self, connection: BaseDatabaseWrapper) -> str:
        return "varbit"


class IndexedTextQuerySet(models.QuerySet["IndexedText"]):
    def for_user(self, user: User) -> Self:
        return self.filter(user=user)

    def in_corpus(self, corpus: Corpus) -> Self:
        return self.filter(corpus=corpus)

    def in_scope(self, scope: Scope) -> Self:
        rows = self.for_user(scope.user).filter(corpus__in=scope.corpora)
        rows = rows if scope.since is None else rows.filter(said_at__gte=scope.since)
        return rows if scope.until is None else rows.filter(said_at__lt=scope.until)

    def at(self, place: Place) -> Self:
        rows = self.filter(user_id=place.user_id, corpus=place.corpus, source_id=place.source_id)
        return rows if place.chunk_index is None else rows.filter(chunk_index=place.chunk_index)

    def other_than(self, *, content_hash: bytes, configuration: str) -> Self:
        """Those whose words are of another text, or were found by other rules."""
        return self.exclude(content_hash=content_hash, configuration=configuration)


class IndexedText(models.Model):
    """A text whose words are in the index; also one without any, so that it is known to be there."""

    user = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, db_index=False, db_constraint=False)
    corpus = models.CharField(max_length=16, choices=Corpus)
    source_id = models.UUIDField(help_text="For chat: the conversation.")
    chunk_index = models.PositiveIntegerField(help_text="For chat: the turn number.")
    said_at = models.DateTimeField()
    said_length = models.PositiveIntegerField(help_text="Words on the person's side, stop words not counted.")
    answered_length = models.PositiveIntegerField(help_text="Words on the assistant's side.")
    configuration = models.CharField(max_length=63, help_text="The text-search configuration that found the words.")
    content_hash = models.BinaryField(max_length=16, help_text="BLAKE2b-128 of both sides.")
    signature = SignatureField(help_text="Which stretches of three characters it may contain: see memory.trigrams.")

    objects = IndexedTextQuerySet.as_manager()

    class Meta:
        db_table = "indexed_texts"
        constraints = [
            # It also answers when a text was said and how long it is, without visiting the row.
            models.UniqueConstraint(
                fields=["user", "corpus", "source_id", "chunk_index"],
                include=["id", "said_at", "said_length", "answered_length"],
                name="indexed_texts_once",
            ),
        ]
        indexes = [
            # What may contain a piece of text, without visiting the rows.
            models.Index(
                fields=["user", "corpus"],
                include=["source_id", "chunk_index", "said_at", "signature"],
                name="idx_indexed_texts_signatures",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.corpus}:{self.source_id}:{self.chunk_index}"


class UnpostedWords(models.Model):
    """The words of a text that was saved a moment ago, all in one row, until a worker puts them among the postings.

    A text without words has a row as well, and is counted by it. Word k is `lexemes[k]`, which the person's side has
    `said[k]` times and the assistant's `answered[k]` times; a word may be there twice, once for each side.
    """

    text = models.OneToOneField(IndexedText, on_delete=models.DO_NOTHING, primary_key=True, db_constraint=False)
    user = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, db_index=False, db_constraint=False)
    corpus = models.CharField(max_length=16, choices=Corpus)
    said_length = models.PositiveIntegerField()
    answered_length = models.PositiveIntegerField()
    lexemes = ArrayField(models.TextField())
    said = ArrayField(models.PositiveSmallIntegerField())
    answered = ArrayField(models.PositiveSmallIntegerField())

    class Meta:
        db_table = "unposted_words"
        indexes = [models.Index(fields=["user", "corpus"], name="idx_unposted_words")]

    def __str__(self) -> str:
        return str(self.text_id)


class TextTotals(models.Model):
    """How many texts of a person's are posted, and how long both sides of them are together.

    Counted by workers and by deletions rather than by each search, which would read an entry of every text. Those
    that are not posted yet a search adds itself, so that nobody who saves has to wait for this row.
    """

    user = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, db_index=False, db_constraint=False)
    corpus = models.CharField(max_length=16, choices=Corpus)
    texts = models.BigIntegerField(default=0)
    said_length = models.BigIntegerField(default=0)
    answered_length = models.BigIntegerField(default=0)

    class Meta:
        db_table = "text_totals"
        constraints = [models.UniqueConstraint(fields=["user", "corpus"], name="text_totals_once")]

    def __str__(self) -> str:
        return f"{self.texts} of {self.corpus}"


class Posting(models.Model):
    """A word of a text: narrow, for a person has hundreds of times as many as texts."""

    pk = models.CompositePrimaryKey("user_id", "text_id", "lexeme")
    # A migration makes the foreign key to the text, (user_id, text_id), which takes its words along.
    user = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, db_index=False, db_constraint=False)
    text = models.ForeignKey(IndexedText, on_delete=models.DO_NOTHING, db_index=False, db_constraint=False)
    said = models.PositiveSmallIntegerField(help_text="How often the person's side has the word.")
    answered = models.PositiveSmallIntegerField(help_text="How often the assistant's side has it.")
    # The text's lengths again, so that a score needs nothing but the index.
    said_length = models.PositiveIntegerField()
    answered_length = models.PositiveIntegerField()
    corpus = models.CharField(max_length=16, choices=Corpus)
    lexeme = models.TextField()

    class Meta:
        db_table = "postings"
        constraints = [
            models.CheckConstraint(condition=Q(said__gt=0) | Q(answered__gt=0), name="postings_stand_for_a_word"),
        ]
        indexes = [
            models.Index(
                fields=["user", "corpus", "lexeme"],
                include=["text", "said", "answered", "said_length", "answered_length"],
                name="idx_postings_scan",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.text_id}:{self.lexeme}"
