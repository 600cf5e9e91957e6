"""Switches to another embedding model without any moment at which search finds less than before.

1. The active model stays in use for search; workers use it for new texts.
2. This module makes the next model's rows beside its rows, until every text has them.
3. One statement activates the next model; every process reads this within a second.
4. Texts that were saved in that second get their rows, and the former model's rows are deleted.
"""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from uuid import UUID

from django.db import transaction
from django.db.models import Exists, OuterRef
from django.utils import timezone

from core.isolation.routing import about
from memory import embedders, indexing, vectors
from memory.embedders import Embedder, using
from memory.models import Corpus, Embedding, EmbeddingModel, EmbeddingQuerySet
from memory.sources import SourceKey

# The interval of progress messages, and the wait before texts that cannot be embedded now are retried.
TELL = timedelta(seconds=10)
WAIT_SECONDS = 1.0
# Rows deleted in one transaction.
BATCH = 5_000

PLACE_COLUMNS = ("user_id", "corpus", "source_id", "chunk_index")
IndexedPlace = tuple[int, Corpus, UUID, int]
# With the time of the row that shows the change.
Outdated = tuple[IndexedPlace, datetime]


class PartsRefused(Exception):
    """The next model refused some passages, which a search by meaning would no longer find."""

    def __init__(self, parts: int) -> None:
        self.parts = parts
        super().__init__(f"The next model could not embed {parts:,} parts.")


@dataclass
class Switch:
    """`tell` gets a sentence now and then, `sleep` waits for so many seconds."""

    following: Embedder
    tell: Callable[[str], None]
    sleep: Callable[[float], None] = time.sleep
    _refreshed: set[Outdated] = field(default_factory=set)

    def run(self, *, despite_refused: bool = False) -> None:
        """Raise PartsRefused, and change nothing, unless every passage has a vector (or `despite_refused`)."""
        if embedders.read_active_name() != self.following.name:
            # With missing terms, the next model's indexing would treat the active one's rows as outdated.
            indexing.enqueue_missing(now=timezone.now())
            self._catch_up()
            if (refused := self._rows().quarantined().count()) and not despite_refused:
                raise PartsRefused(refused)
            self._activate()
            self.tell(f"{self.following.name} is active.")
            self.sleep(2 * embedders.ACTIVE_NAME_SECONDS)
        self._catch_up()
        self._delete_others()

    def _rows(self) -> EmbeddingQuerySet:
        return Embedding.objects.of_model(self.following.name)

    def _others(self) -> EmbeddingQuerySet:
        return Embedding.objects.exclude(model=EmbeddingModel.objects.for_embedder(self.following))

    def _catch_up(self) -> None:
        """Until every text has its rows, and every row a vector."""
        with using(self.following):
            while True:
                added = indexing.enqueue_missing(now=timezone.now()) + self._refresh_outdated()
                self._embed()
                if not added:
                    return

    def _refresh_outdated(self) -> int:
        """Texts that changed, or were deleted, after the next model had rows for them; returns their number."""
        outdated = set(self._outdated()) - self._refreshed
        for place, _ in outdated:
            self._refresh(place)
        self._refreshed |= outdated
        return len(outdated)

    def _refresh(self, place: IndexedPlace) -> None:
        with transaction.atomic(), about(place[0]):
            # First because it locks the text, as all code does before it changes the rows. It skips a chunk that has
            # rows and terms already.
            indexing.refresh(SourceKey(*place[1:]), embedder=self.following, now=timezone.now())
            vectors.delete(self._rows().filter(**dict(zip(PLACE_COLUMNS, place, strict=True))))
            indexing.refresh(SourceKey(*place[1:]), embedder=self.following, now=timezone.now())

    def _outdated(self) -> Iterator[Outdated]:
        same_place = {name: OuterRef(name) for name in PLACE_COLUMNS}
        earlier = self._rows().filter(**same_place, created_at__lt=OuterRef("created_at"))
        changed = self._others().filter(Exists(earlier))
        gone = self._rows().filter(~Exists(self._others().filter(**same_place))) if self._others().exists() else None
        for rows in (changed, gone):
            if rows is not None:
                for user_id, corpus, source_id, chunk_index, created_at in rows.values_list(
                    *PLACE_COLUMNS, "created_at"
                ):
                    yield (user_id, Corpus(corpus), source_id, chunk_index), created_at

    def _embed(self) -> None:
        told = timezone.now()
        while self._rows().waiting().exists():
            indexing.quarantine_exhausted(now=timezone.now())
            filled = indexing.embed_pending(until=timezone.now() + TELL)
            if timezone.now() - told >= TELL or not self._rows().waiting().exists():
                self._tell_progress()
                told = timezone.now()
            if not filled.embedded:
                self.sleep(WAIT_SECONDS)

    def _tell_progress(self) -> None:
        rows = self._rows()
        parts, waiting = rows.count(), rows.waiting()
        error = waiting.exclude(last_error="").values_list("last_error", flat=True).first()
        self.tell(f"{parts - waiting.count():,} of {parts:,} parts embedded." + (f" ({error})" if error else ""))

    def _activate(self) -> None:
        model = EmbeddingModel.objects.for_embedder(self.following)
        EmbeddingModel.objects.filter(pk=model.pk).update(activated_at=timezone.now())
        embedders.forget_active_name()

    def _delete_others(self) -> None:
        deleted = 0
        while some := list(self._others().order_by("pk").values_list("pk", flat=True)[:BATCH]):
            deleted += vectors.delete(Embedding.objects.filter(pk__in=some))
        self.tell(f"{deleted:,} rows of other models deleted.")
