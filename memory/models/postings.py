"""The inverted index: the texts of a user that contain a term, with its frequency on each side.

A user's index has a few segments, like Lucene's: each contains the postings of some texts, sorted by term and cut into
blocks. A search reads one block of each segment for each of its terms, so its cost depends on the matches and not on
the size of the history.
"""

from typing import Self

from django.contrib.postgres.fields import ArrayField
from django.db import models
from django.db.backends.base.base import BaseDatabaseWrapper

from intake.models.users import owner
from memory.models.documents import Corpus, IndexQuerySet, Scope, closed_sources, past_records


class SignatureField(models.Field):  # type: ignore[type-arg]  # subscriptable in the stubs only
    """A bit string of any length, in hexadecimal with an x before it as PostgreSQL reads it."""

    def db_type(self, connection: BaseDatabaseWrapper) -> str:
        return "varbit"


class IndexedTextQuerySet(IndexQuerySet["IndexedText"]):
    def in_scope(self, scope: Scope) -> Self:
        rows = self.for_user(scope.user).filter(corpus__in=scope.corpora)
        rows = rows if scope.only is None else rows.filter(source_id__in=scope.only)
        rows = rows.exclude(source_id__in=scope.hidden) if scope.hidden else rows
        if scope.hides_past:
            rows = rows.exclude(source_id__in=past_records(scope.user, today=scope.today))
        if scope.hides_closed:
            rows = rows.exclude(source_id__in=closed_sources(scope.user))
        rows = rows if scope.since is None else rows.filter(said_at__gte=scope.since)
        return rows if scope.until is None else rows.filter(said_at__lt=scope.until)


class IndexedText(models.Model):
    """A text in the index; also one without terms, so that it is known to be indexed."""

    user = owner()
    corpus = models.CharField(max_length=16, choices=Corpus)
    source_id = models.UUIDField(help_text="For chat: the conversation.")
    chunk_index = models.PositiveIntegerField(help_text="For chat: the turn number.")
    said_at = models.DateTimeField()
    said_length = models.PositiveIntegerField(help_text="Words on the person's side, stop words not counted.")
    answered_length = models.PositiveIntegerField(help_text="Words on the assistant's side.")
    configuration = models.CharField(max_length=63, help_text="The text-search configuration that found the words.")
    # In place of its first four bytes stands the number of the rules that found the words (`memory.index.terms.RULES`).
    content_hash = models.BinaryField(max_length=16, help_text="BLAKE2b-128 of both sides.")
    signature = SignatureField(help_text="Which stretches of three characters it may contain: see memory.trigrams.")

    objects = IndexedTextQuerySet.as_manager()

    class Meta:
        db_table = "indexed_texts"
        constraints = [
            # Also returns the time and length of a text without visiting the row.
            models.UniqueConstraint(
                fields=["user", "corpus", "source_id", "chunk_index"],
                include=["id", "said_at", "said_length", "answered_length"],
                name="indexed_texts_once",
            ),
        ]
        indexes = [
            # The languages of a user's texts. English texts, the majority, are not in this index.
            models.Index(
                fields=["user", "configuration"],
                condition=~models.Q(configuration="english"),
                name="idx_indexed_texts_languages",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.corpus}:{self.source_id}:{self.chunk_index}"


class PendingTerms(models.Model):
    """The terms of a newly saved text, in one row, until a worker flushes them into a segment.

    A text without terms has a row too, which counts the text. Term k is `lexemes[k]`; the user's side contains it
    `said[k]` times and the assistant's `answered[k]` times. A term may occur twice, once for each side.
    """

    text = models.OneToOneField(IndexedText, on_delete=models.DO_NOTHING, primary_key=True, db_constraint=False)
    user = owner()
    corpus = models.CharField(max_length=16, choices=Corpus)
    said_length = models.PositiveIntegerField()
    answered_length = models.PositiveIntegerField()
    lexemes = ArrayField(models.TextField())
    said = ArrayField(models.PositiveSmallIntegerField())
    answered = ArrayField(models.PositiveSmallIntegerField())

    class Meta:
        db_table = "pending_terms"
        verbose_name_plural = "pending terms"
        indexes = [models.Index(fields=["user", "corpus"], name="idx_pending_terms")]

    def __str__(self) -> str:
        return str(self.text_id)


class TermSegment(models.Model):
    """A part of a user's inverted index: its texts, by their ordinals from 1, and their lengths.

    It is written once. Deleted texts stay in it, marked by `DeletedText`, until it is merged or rewritten.
    """

    user = owner()
    corpus = models.CharField(max_length=16, choices=Corpus)
    texts = models.PositiveSmallIntegerField(help_text="How many.")
    said_length = models.BigIntegerField(help_text="Of all its texts together.")
    answered_length = models.BigIntegerField()
    text_ids = ArrayField(models.BigIntegerField())
    said_lengths = ArrayField(models.PositiveIntegerField())
    answered_lengths = ArrayField(models.PositiveIntegerField())

    class Meta:
        db_table = "term_segments"

    def __str__(self) -> str:
        return f"{self.texts} of {self.corpus}"


class TermBlock(models.Model):
    """Neighbouring terms of a segment with all of their postings, one term after the other.

    Those of `lexemes[k]` end at `ends[k]` and begin after those of the previous term. A posting is a text's ordinal in
    the segment, and the term's frequency on the user's side (`said`) and on the assistant's (`answered`).
    """

    pk = models.CompositePrimaryKey("user_id", "segment_id", "first_lexeme")
    # A migration creates the foreign key, (user_id, segment_id), which deletes the blocks with the segment.
    user = owner()
    segment = models.ForeignKey(TermSegment, on_delete=models.DO_NOTHING, db_index=False, db_constraint=False)
    first_lexeme = models.TextField(db_collation="C")
    lexemes = ArrayField(models.TextField())
    ends = ArrayField(models.PositiveIntegerField())
    ordinals = ArrayField(models.PositiveSmallIntegerField())
    said = ArrayField(models.PositiveSmallIntegerField())
    answered = ArrayField(models.PositiveSmallIntegerField())

    class Meta:
        db_table = "term_blocks"

    def __str__(self) -> str:
        return f"{self.segment_id}:{self.first_lexeme}"


class DeletedText(models.Model):
    """A tombstone: a deleted text that still has postings. A search skips them.

    `memory.index.terms` writes it with the deletion; a sweep writes it for rows that the database itself deleted.
    """

    pk = models.CompositePrimaryKey("user_id", "text_id")
    user = owner()
    text_id = models.BigIntegerField()
    corpus = models.CharField(max_length=16, choices=Corpus)

    class Meta:
        db_table = "deleted_texts"

    def __str__(self) -> str:
        return str(self.text_id)
