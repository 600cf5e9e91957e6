"""Puts a saved text into the index: its words at once, and a row for each part that waits for its vector."""

import logging
from collections.abc import Set
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Any

from django.conf import settings
from django.db import transaction
from django.db.models import Exists, OuterRef, QuerySet
from django.utils import timezone

from core.isolation.acting import acting_as
from core.isolation.caller import Caller
from memory import nudging, terms, vectors
from memory.embedders import Embedder, EmbedderError, get_embedder
from memory.indexing import new_texts
from memory.indexing.new_texts import Begun
from memory.models import Embedding, EmbeddingModel, EmbeddingQuerySet, IndexedText
from memory.models.corpora import Place
from memory.sources import READERS, Entry, Reader, Source, SourceKey, Text, content_hash, cut

logger = logging.getLogger(__name__)

# By content hash: what a vector that is made already leaves behind for the same text in another place.
Vectors = dict[bytes, dict[str, Any]]


@dataclass(frozen=True, slots=True)
class _Part:
    """A part that must have a row."""

    source: Source
    number: int
    content_hash: bytes

    @property
    def place(self) -> tuple[int, int]:
        return self.source.key.chunk_index, self.number

    def row(self, model: EmbeddingModel, *, now: datetime) -> dict[str, Any]:
        return {
            "user_id": self.source.user_id,
            "corpus": self.source.key.corpus,
            "source_id": self.source.key.source_id,
            "chunk_index": self.source.key.chunk_index,
            "part": self.number,
            "model": model,
            "length": len(self.source.parts[self.number]),
            "content_hash": self.content_hash,
            "said_at": self.source.said_at,
            "next_attempt_at": now,
        }


def begin(entry: Entry) -> Begun | None:
    """Begin to index a turn that the same transaction is storing; `index` goes on. None while there is no model."""
    try:
        return new_texts.begin(entry, embedder=get_embedder())
    except EmbedderError:  # `index` says so
        return None


def index(entry: Entry, *, now: datetime, begun: Begun | None = None) -> None:
    """Index texts, also while there is no model to cut them up for.

    Must run in the transaction that saves them: then there is no moment at which one is kept without the other.
    `begun` is of use if it is of this very entry.
    """
    with suppress(EmbedderError):  # said below
        if entry.place.chunk_index is not None and _index_new(entry, begun, now=now):
            return
    changed = terms.add(entry)
    try:
        _bring_up_to_date(entry, changed, embedder=get_embedder(), now=now)
    except EmbedderError:
        # What was said is kept and found by its words; `index_missing` queues it once the model is mended.
        logger.exception("A text was saved without being queued for indexing")
        if changed:
            Embedding.objects.at(entry.place).delete()


def enqueue(entry: Entry, *, embedder: Embedder, now: datetime) -> bool:
    """Make the words and the rows at a place match its texts; returns whether any were missing."""
    changed = terms.add(entry)
    return _bring_up_to_date(entry, changed, embedder=embedder, now=now) or bool(changed)


def forget(place: Place) -> None:
    """Remove every row of what is gone."""
    terms.delete(place)
    vectors.delete(place)


def refresh(key: SourceKey, *, embedder: Embedder, now: datetime) -> None:
    """Index a text as it stands now. Its row is locked, so that what is read cannot be older than what is indexed."""
    reader = READERS[key.corpus]
    with transaction.atomic():
        for row in _locked(reader.rows_of([key])):
            enqueue(reader.entry(row), embedder=embedder, now=now)


def enqueue_missing(*, now: datetime) -> int:
    """Index whatever lacks words, or rows of the current model; returns how many turns, documents and records."""
    embedder = get_embedder()
    return sum(_enqueue_missing(reader, embedder=embedder, now=now) for reader in READERS.values())


def _enqueue_missing(reader: Reader[Any], *, embedder: Embedder, now: datetime) -> int:
    indexed = 0
    for pk in _unknown(reader, embedder).values_list("pk", flat=True).iterator(chunk_size=500):
        with transaction.atomic():
            for row in _locked(reader.rows().filter(pk=pk)):
                indexed += enqueue(reader.entry(row), embedder=embedder, now=now)
    return indexed


def _unknown(reader: Reader[Any], embedder: Embedder) -> QuerySet[Any]:
    place = {column: OuterRef(field) for column, field in {"user": "user", **reader.columns}.items()}
    embedded = Embedding.objects.in_corpus(reader.corpus).of_model(embedder.name).filter(**place)
    worded = IndexedText.objects.in_corpus(reader.corpus).filter(configuration=settings.TEXT_SEARCH_CONFIG, **place)
    return reader.rows().filter(~Exists(embedded) | ~Exists(worded)).order_by("pk")


def _locked(rows: QuerySet[Any]) -> QuerySet[Any]:
    return rows.select_for_update(no_key=True, of=("self",))


def _index_new(entry: Entry, begun: Begun | None, *, now: datetime) -> bool:
    """Returns whether the text was new, and so is indexed."""
    (text,) = entry.texts
    embedder = get_embedder()
    if begun is not None and begun.entry == entry:
        otherwise = partial(_mend, text, embedder)
        if new_texts.finish(begun, embedder=embedder, otherwise=otherwise, now=now):
            return True
    is_indexed, is_whole = new_texts.index(text, embedder=embedder, now=now)
    if is_indexed and not is_whole:
        _bring_up_to_date(entry, {text.key.chunk_index}, embedder=embedder, now=now)
    return is_indexed


def _mend(text: Text, embedder: Embedder) -> None:
    """The parts of a text that is saved, when its place had some already: its words do not tell that."""
    reader = READERS[text.key.corpus]
    with acting_as(Caller(user_id=text.user_id)):
        for row in _locked(reader.rows_of([text.key])):
            _bring_up_to_date(reader.entry(row), {text.key.chunk_index}, embedder=embedder, now=timezone.now())


def _bring_up_to_date(entry: Entry, changed: Set[int], *, embedder: Embedder, now: datetime) -> bool:
    """Make the rows at a place match its texts; returns whether any were missing.

    A chunk that has rows and whose words are as they were is not cut into parts again, so that what is appended to a
    long log costs what it costs at the end of a short one.
    """
    if changed and entry.place.chunk_index is None:
        # Another model's rows would speak of chunks that are elsewhere now.
        Embedding.objects.at(entry.place).exclude(model__name=embedder.name).delete()
    model = EmbeddingModel.objects.for_embedder(embedder)
    rows = Embedding.objects.at(entry.place).filter(model=model)
    known = {
        (chunk_index, part): (pk, bytes(known_as))
        for pk, chunk_index, part, known_as in rows.values_list("pk", "chunk_index", "part", "content_hash")
    }
    texts = {text.key.chunk_index: text for text in entry.texts}
    left_alone = {chunk_index for chunk_index, _ in known if chunk_index in texts} - changed
    wanted = {
        part.place: part
        for chunk_index, text in texts.items()
        if chunk_index not in left_alone
        for part in _parts(cut(text, embedder))
    }
    fitting = {place for place, part in wanted.items() if place in known and known[place][1] == part.content_hash}
    stale = [pk for place, (pk, _) in known.items() if place[0] not in left_alone and place not in fitting]
    missing = [part for place, part in wanted.items() if place not in fitting]
    _replace(rows, stale, missing, model=model, now=now)
    return bool(missing)


def _replace(
    rows: EmbeddingQuerySet, stale: list[int], missing: list[_Part], *, model: EmbeddingModel, now: datetime
) -> None:
    """Put the missing rows in the stale ones' place; one whose text only moved takes its vector along."""
    made = _vectors(rows.filter(pk__in=stale), missing) if stale and missing else {}
    if stale:
        rows.filter(pk__in=stale).delete()
    Embedding.objects.bulk_create(
        [Embedding(**part.row(model, now=now), **made.get(part.content_hash, {})) for part in missing],
        ignore_conflicts=True,
    )
    if any(part.content_hash not in made for part in missing):
        transaction.on_commit(nudging.nudge, robust=True)


def _vectors(stale: EmbeddingQuerySet, missing: list[_Part]) -> Vectors:
    embedded = stale.filter(content_hash__in=[part.content_hash for part in missing]).exclude(vector=None)
    return {
        bytes(row.content_hash): {"vector": row.vector, "embedded_at": row.embedded_at, "attempts": row.attempts}
        for row in embedded
    }


def _parts(source: Source) -> list[_Part]:
    return [_Part(source, number, content_hash(text)) for number, text in enumerate(source.parts)]
