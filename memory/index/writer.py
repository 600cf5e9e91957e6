"""The writer of the index, in the transaction of a save; and the message that wakes a worker.

The only writer of the index: updates a text's terms and pending rows in the transaction that saves the text.

1. `terms.add` stores the terms, so that searches by words find the text from then on.
2. Each passage for the model gets a row without a vector. These pending rows are the workers' queue.
3. After the commit a worker is woken.
"""

import logging
import os
import threading
import time
from collections import defaultdict
from collections.abc import Collection, Sequence, Set
from datetime import datetime
from typing import Any

from celery import current_app
from django.db import DatabaseError, transaction
from django.db.models import Exists, OuterRef, QuerySet
from django.utils import timezone

from core.citus.routing import about
from core.isolation.inserting import insert_many
from core.logs import request_id
from intake.models import Attachment
from memory.backends.embedders import Embedder, EmbedderError, get_embedder
from memory.index import terms
from memory.index.sources import READERS, Entry, Reader, SourceKey, Text, content_hash, cut, line_spans, passages_of
from memory.index.terms import RULES, configurations
from memory.models import Embedding, EmbeddingModel, EmbeddingQuerySet, IndexedText
from memory.models.documents import Corpus, Place

# The broker is asked from a thread of its own, so that it delays no request when it is dead or silent. The message
# contains only the id of a request: the pending rows are the queue. Many calls become one message, and the
# sweep makes up for a lost one.

logger = logging.getLogger(__name__)

# The pause after each message: sending one takes a millisecond or two of Python, which a series of saves would wait
# for.
PAUSE_SECONDS = 0.05


class Waker:
    """One thread per process, started with the first call. `task`: the name of the task that it sends; as a string,
    because the tasks import the modules that wake their workers.
    """

    def __init__(self, task: str = "memory.embed_pending") -> None:
        self._task = task
        self._requested = threading.Event()
        self._lock = threading.Lock()
        self._started_in: int | None = None
        self._request_id = ""

    def wake_worker(self) -> None:
        if self._started_in != os.getpid():
            with self._lock:
                if self._started_in != os.getpid():
                    threading.Thread(target=self._run, name="waker", daemon=True).start()
                    self._started_in = os.getpid()
        self._request_id = request_id.get()
        self._requested.set()

    def _run(self) -> None:
        while self._requested.wait():
            self._requested.clear()
            request_id.set(self._request_id)
            try:
                current_app.send_task(self._task, retry=False, ignore_result=True)
            except Exception as error:  # whatever the broker's error, the sweep will find the rows
                logger.warning("No worker could be woken: %s", type(error).__name__)
            time.sleep(PAUSE_SECONDS)


wake_worker = Waker().wake_worker


def index(entry: Entry) -> None:
    """Index texts, even if no model is available to embed them. A fault in it costs the save nothing: the texts are
    queued for a worker, which tries again, counts its attempts and finally quarantines them.

    Must run in the transaction that saves them, so that every saved text is indexed sooner or later. A text waits from
    this moment on, however old it says that it is.
    """
    now = timezone.now()
    try:
        with transaction.atomic():
            changed = terms.add(entry)
            try:
                _write_passages(entry, changed, embedder=get_embedder(), now=now)
            except EmbedderError:
                # The text is saved and can be found by its words; `index_missing` queues it when the model works again.
                logger.exception("A text was saved without being queued for indexing")
                if changed:
                    Embedding.objects.at(entry.place).delete()
    except Exception as error:
        # Without the message, which may quote the text.
        logger.error("A text of %s was saved without its index (%s)", entry.place.source_id, type(error).__name__)
        Embedding.objects.at(entry.place).delete()
        _queue(entry.texts, now=now)


def index_new(entries: Sequence[Entry]) -> None:
    """Index many texts, at places without any index rows, with a few statements.

    Searches by words find them at once. Each text gets one pending row without cutting rules: the worker that claims it
    makes the rows of the text's passages (`refresh`), because cutting takes as long as everything else here.
    """
    texts = [text for entry in entries for text in entry.texts]
    try:
        with transaction.atomic():
            terms.add_many(texts)
    except Exception as error:
        logger.error("%d texts were saved without their terms (%s)", len(texts), type(error).__name__)
    _queue(texts, now=timezone.now())


def _queue(texts: Sequence[Text], *, now: datetime) -> None:
    """A pending row without cutting rules for each text."""
    try:
        embedder = get_embedder()
        model = EmbeddingModel.named(embedder.name, embedder.dimensions)
    except EmbedderError:
        logger.exception("Texts were saved without being queued for indexing")
        return
    # 0 in place of the cutting rules: the text has not been cut into passages yet.
    rows = [
        Embedding(**text.columns(), model=model, length=0, content_hash=b"", cutting_rules=0, next_attempt_at=now)
        for text in texts
    ]
    insert_many(rows, ignore_conflicts=True)
    if rows:
        transaction.on_commit(wake_worker, robust=True)


def enqueue(entry: Entry, *, embedder: Embedder, now: datetime) -> bool:
    """Make the terms and rows at a place match its texts; returns whether any were missing."""
    changed = terms.add(entry)
    return _write_passages(entry, changed, embedder=embedder, now=now) or bool(changed)


def forget(place: Place, *, chunks: Collection[int] | None = None) -> None:
    """Remove every row of deleted texts; `chunks`: only of these chunks of a source.

    A worker removes their terms from the segments.
    """
    terms.delete(place, chunks=chunks)
    rows = Embedding.objects.at(place)
    (rows if chunks is None else rows.filter(chunk_index__in=chunks)).delete()
    transaction.on_commit(wake_worker, robust=True)


def refresh(key: SourceKey, *, embedder: Embedder, now: datetime) -> None:
    """Index the present text. Its row is locked, so that the indexed text is never older than the stored one."""
    reader = READERS[key.corpus]
    with transaction.atomic():
        for row in _locked(reader.rows_of([key])):
            enqueue(reader.entry(row), embedder=embedder, now=now)


def enqueue_missing(*, now: datetime) -> int:
    """Index each text without terms of the current rules, or without rows of the current model and cutting rules.

    Returns the number of turns, documents and records.
    """
    embedder = get_embedder()
    return sum(_enqueue_missing(reader, embedder=embedder, now=now) for reader in READERS.values())


def _enqueue_missing(reader: Reader, *, embedder: Embedder, now: datetime) -> int:
    place = {column: OuterRef(field) for column, field in {"user": "user", **reader.columns}.items()}
    of_model = Embedding.objects.in_corpus(reader.corpus).of_model(embedder.name)
    embedded = of_model.filter(cutting_rules=reader.cutting_rules, **place)
    # The number of the rules by which its terms were found is the beginning of a text's hash.
    following = (int.from_bytes(RULES) + 1).to_bytes(len(RULES))
    of_rules = IndexedText.objects.in_corpus(reader.corpus).filter(content_hash__gte=RULES, content_hash__lt=following)
    with_terms = of_rules.filter(configuration__in=configurations(), **place)
    unknown = reader.rows().filter(~Exists(embedded) | ~Exists(with_terms)).order_by("pk")
    indexed = 0
    for user_id, pk in unknown.values_list("user_id", "pk").iterator(chunk_size=500):
        try:
            with transaction.atomic(), about(user_id):
                for row in _locked(reader.rows().filter(pk=pk)):
                    indexed += enqueue(reader.entry(row), embedder=embedder, now=now)
        except (EmbedderError, DatabaseError):
            raise
        except Exception as error:  # a text that cannot be indexed must not stop the others
            logger.error("The text %s cannot be indexed", pk, exc_info=error)
    return indexed


def _locked(rows: QuerySet[Any]) -> QuerySet[Any]:
    return rows.select_for_update(no_key=True, of=("self",))


def _write_passages(entry: Entry, changed: Set[int], *, embedder: Embedder, now: datetime) -> bool:
    """Make the rows at a place match its texts; returns whether any were missing.

    A chunk with rows and an unchanged text is not cut into passages again, so that an append to a long log is as cheap
    as to a short one; except after a change of the cutting rules, or of a heading in an earlier chunk.
    """
    if changed and entry.place.chunk_index is None:
        # Rows of another model would refer to chunks that have moved.
        Embedding.objects.at(entry.place).exclude(model__name=embedder.name).delete()
    model = EmbeddingModel.named(embedder.name, embedder.dimensions)
    rows = Embedding.objects.at(entry.place).filter(model=model)
    known = {(row.chunk_index, row.part): row for row in rows.defer("vector")}
    texts = {text.key.chunk_index: text for text in entry.texts}
    rules = READERS[entry.place.corpus].cutting_rules
    outdated = {chunk_index for (chunk_index, _), row in known.items() if row.cutting_rules != rules}
    candidates = {chunk_index for chunk_index, _ in known if chunk_index in texts} - changed - outdated
    left_alone = candidates - _under_other_headings([texts[index] for index in candidates], known.values(), embedder)
    about: dict[str, Any] = {"model": model, "cutting_rules": rules, "next_attempt_at": now}
    requested = {
        (chunk_index, number): Embedding(
            **text.columns(),
            **about,
            part=number,
            side=span.side,
            start=span.start,
            length=span.end - span.start,
            is_further=span.is_further,
            content_hash=content_hash(passage),
        )
        for chunk_index, text in texts.items()
        if chunk_index not in left_alone
        for number, (span, passage) in enumerate(cut(text, embedder))
    }
    # A passage that moved within its text gets a new row.
    fitting = {
        place
        for place, made in requested.items()
        if (row := known.get(place)) is not None
        and (bytes(row.content_hash), row.span, row.cutting_rules) == (made.content_hash, made.span, rules)
    }
    stale = rows.filter(
        pk__in=[row.pk for place, row in known.items() if place[0] not in left_alone and place not in fitting]
    )
    missing = [made for place, made in requested.items() if place not in fitting]
    # A text that only moved keeps its vector, and twins share theirs.
    with_vectors = {
        bytes(row.content_hash): row
        for same in ((stale, _twins(entry.place, model)) if missing else ())
        for row in same.filter(content_hash__in=[made.content_hash for made in missing]).exclude(vector=None)
    }
    for made in missing:
        if (row := with_vectors.get(bytes(made.content_hash))) is not None:
            for name in ("vector", "bits", "embedded_at", "attempts"):
                setattr(made, name, getattr(row, name))
    stale.delete()
    # The longest texts have thousands of passages.
    Embedding.objects.bulk_create(missing, ignore_conflicts=True, batch_size=500)
    if any(made.content_hash not in with_vectors for made in missing):
        transaction.on_commit(wake_worker, robust=True)
    return bool(missing)


def _twins(place: Place, model: EmbeddingModel) -> EmbeddingQuerySet:
    """The rows of the same part of the same file in another message: a version of a message has the files of the first.

    Their vectors are those of the same words, so the model need not read a long file again for each version.
    """
    if place.corpus != Corpus.ATTACHMENT:
        return Embedding.objects.none()
    mine = Attachment.objects.filter(user=place.user_id)
    same = mine.filter(sha256__in=mine.filter(pk=place.source_id).values("sha256")).exclude(pk=place.source_id)
    rows = Embedding.objects.in_corpus(Corpus.ATTACHMENT).filter(user_id=place.user_id, model=model)
    return rows.filter(source_id__in=same.values("pk"), chunk_index=place.chunk_index)


def _under_other_headings(texts: Sequence[Text], rows: Collection[Embedding], embedder: Embedder) -> set[int]:
    """The chunks of which a line is read after other headings than when its row was made."""
    hashes: dict[int, set[bytes]] = defaultdict(set)
    for row in rows:
        hashes[row.chunk_index].add(bytes(row.content_hash))
    return {
        text.key.chunk_index
        for text in texts
        for line in passages_of(text, line_spans(text), embedder)
        if content_hash(line) not in hashes[text.key.chunk_index]
    }
