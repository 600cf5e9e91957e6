"""The health of the index in figures, and the switch to another embedding model.

The health of the index, in figures that cost the same for a thousand rows and for a million.

Every count has a limit: a set is read up to `CAP` rows along an index. A larger one is shown as such ("10,000+") or
estimated by the query planner ("about 970,000").
"""

import json
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Literal, TypeVar

from django.db import transaction
from django.db.models import Count, Exists, OuterRef, QuerySet
from django.utils import timezone

from core.citus.routing import about
from memory import index
from memory.backends import embedders
from memory.backends.embedders import Embedder, EmbedderError, using
from memory.index.sources import SourceKey
from memory.models import Corpus, Embedding, EmbeddingModel, EmbeddingQuerySet

T = TypeVar("T")

CAP = 10_000


Precision = Literal["exact", "at least", "about"]


@dataclass(frozen=True, slots=True)
class Quantity:
    """A number of rows, and its accuracy."""

    value: int
    precision: Precision = "exact"

    @classmethod
    def up_to_cap(cls, seen: int) -> "Quantity":
        """For a count that stopped at `CAP + 1`."""
        return cls(CAP, "at least") if seen > CAP else cls(seen)

    def __str__(self) -> str:
        if self.precision == "about":
            # An estimate is not more accurate than three digits.
            return f"about {round(self.value, 3 - len(str(self.value))):,}"
        return f"{self.value:,}+" if self.precision == "at least" else f"{self.value:,}"


@dataclass(frozen=True, slots=True)
class EmbeddingRate:
    """The number of vectors made in the `seconds` before now."""

    vectors: int
    seconds: float

    @property
    def per_minute(self) -> float:
        return self.vectors * 60 / self.seconds

    @property
    def per_second(self) -> float:
        return self.vectors / self.seconds


@dataclass(frozen=True, slots=True)
class Share:
    """The part of the index of one model or corpus; `failed` is contained in `waiting`."""

    name: str
    embedded: Quantity
    waiting: Quantity
    failed: Quantity
    quarantined: Quantity


@dataclass(frozen=True, slots=True)
class IndexHealth:
    """The whole index. `due_since` is the time when the first row of the queue became due, None if none is due.

    `errors`: as the workers describe them (never with a user's text), with the number of rows that each stopped last.
    `seconds_left`: until the queue is empty at the `recent` speed; None if it is empty, or nothing was embedded.
    """

    waiting: Quantity
    failed: Quantity
    quarantined: Quantity
    due_since: datetime | None
    last_minute: EmbeddingRate
    last_hour: EmbeddingRate
    by_model: tuple[Share, ...]
    by_corpus: tuple[Share, ...]
    errors: tuple[tuple[str, Quantity], ...]

    @property
    def seconds_left(self) -> float | None:
        speed = self.recent.per_second
        return self.waiting.value / speed if self.waiting.value and speed else None

    @property
    def recent(self) -> EmbeddingRate:
        """Of the last minute, or, if nothing was embedded in it, of the last hour: a slow model makes few vectors."""
        return self.last_minute if self.last_minute.vectors else self.last_hour

    @property
    def slowness(self) -> str:
        """For staff, a sentence if the queue takes more than half an hour at the present speed; else empty."""
        left = self.seconds_left
        if left is None or left < timedelta(minutes=30).total_seconds():
            return ""
        more = "at least " if self.waiting.precision == "at least" else ""
        return f"slow: {self.recent.per_second:.2g} texts/s, {more}{_in_words(left)} left"


UnfilledGroup = tuple[int, str, str, int]
"""The model's id, the corpus and the last error that rows have in common, and their number."""
Unfilled = tuple[Sequence[UnfilledGroup], Sequence[UnfilledGroup], Sequence[UnfilledGroup]]
"""The rows without a vector, which wait, failed or are quarantined: each by its partial index, up to `CAP + 1`."""


def index_health(*, now: datetime) -> IndexHealth:
    """The state of the index, in a few limited queries for each model and corpus."""
    queue = Embedding.objects.waiting().order_by("next_attempt_at", "id")
    stopped = Embedding.objects.quarantined().order_by("-quarantined_at", "-id")
    unfilled = _grouped(queue), _grouped(queue.exclude(last_error="")), _grouped(stopped)
    waiting, failed, quarantined = (Quantity.up_to_cap(_total(groups)) for groups in unfilled)
    of_models = [_tally((model_id, rows) for model_id, _, _, rows in groups) for groups in unfilled]
    of_corpora = [_tally((corpus, rows) for _, corpus, _, rows in groups) for groups in unfilled]
    return IndexHealth(
        waiting=waiting,
        failed=failed,
        quarantined=quarantined,
        due_since=queue.filter(next_attempt_at__lte=now).values_list("next_attempt_at", flat=True).first(),
        last_minute=_rate(now=now, window=timedelta(minutes=1)),
        last_hour=_rate(now=now, window=timedelta(hours=1)),
        by_model=tuple(
            _share(model.name, model.pk, Embedding.objects.filter(model=model), of_models)
            for model in EmbeddingModel.objects.order_by("-pk")
        ),
        by_corpus=tuple(
            _share(corpus.label, corpus.value, Embedding.objects.in_corpus(corpus), of_corpora) for corpus in Corpus
        ),
        errors=_errors(unfilled),
    )


def count_up_to_cap(rows: QuerySet[Any, Any]) -> Quantity:
    """An exact count up to `CAP`."""
    return Quantity.up_to_cap(rows.order_by()[: CAP + 1].count())


def estimated_count(rows: QuerySet[Any, Any]) -> int:
    """The planner's estimate of the query's rows, from the statistics of `ANALYZE`: it reads no row."""
    (plan,) = json.loads(rows.order_by().explain(format="json"))
    return int(plan["Plan"]["Plan Rows"])


def count_or_estimate(rows: QuerySet[Any, Any]) -> Quantity:
    """An exact count for few rows, an estimate for more."""
    estimate = estimated_count(rows)
    if estimate <= 2 * CAP:
        counted = count_up_to_cap(rows)
        if counted.precision == "exact":
            return counted
    return Quantity(estimate, "about")


def _in_words(seconds: float) -> str:
    for size, unit in ((86_400, "d"), (3600, "h"), (60, "min")):
        if seconds >= size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s"


def _grouped(embeddings: QuerySet[Embedding]) -> list[UnfilledGroup]:
    first = Embedding.objects.filter(pk__in=embeddings.values("pk")[: CAP + 1]).order_by()
    return list(first.values_list("model_id", "corpus", "last_error").annotate(rows=Count("pk")))


def _total(groups: Iterable[UnfilledGroup]) -> int:
    return sum(rows for *_, rows in groups)


def _rate(*, now: datetime, window: timedelta) -> EmbeddingRate:
    """Over the window, or over the time of the latest `CAP` vectors if these do not fill it."""
    recent = Embedding.objects.filter(embedded_at__gt=now - window, embedded_at__lte=now).order_by("-embedded_at")
    vectors = recent[:CAP].count()
    (oldest,) = recent.values_list("embedded_at", flat=True)[CAP - 1 : CAP] or (None,)
    span = window if oldest is None else now - oldest
    return EmbeddingRate(vectors=vectors, seconds=max(span.total_seconds(), 1.0))


def _tally(pairs: "Iterable[tuple[T, int]]") -> "Counter[T]":
    tally: Counter[T] = Counter()
    for key, rows in pairs:
        tally[key] += rows
    return tally


def _share(name: str, key: T, rows: QuerySet[Embedding], tallies: "Iterable[Counter[T]]") -> Share:
    """A count that stopped at the limit gives only a minimum for each key."""
    waiting, failed, quarantined = (
        Quantity(min(tally[key], CAP), "at least" if tally.total() > CAP else "exact") for tally in tallies
    )
    embedded = count_or_estimate(rows.exclude(vector=None))
    return Share(name=name, embedded=embedded, waiting=waiting, failed=failed, quarantined=quarantined)


def _errors(unfilled: Unfilled) -> tuple[tuple[str, Quantity], ...]:
    _, failed, quarantined = unfilled
    is_cut_short = max(_total(failed), _total(quarantined)) > CAP
    precision: Precision = "at least" if is_cut_short else "exact"
    # A row without an error: its worker died each time before it could write one.
    stopped = (*failed, *quarantined)
    tally = _tally((error or "The worker died", rows) for _, _, error, rows in stopped)
    return tuple((error, Quantity(rows, precision)) for error, rows in tally.most_common(10))


# How `Switch` changes the embedding model without any moment at which search finds less than before:
#
# 1. The active model stays in use for search; workers use it for new texts.
# 2. This module makes the next model's rows beside its rows, until every text has them.
# 3. One statement activates the next model; every process reads this within a second.
# 4. Texts that were saved in that second get their rows, and the former model's rows are deleted.

# The interval of progress messages, and the wait before texts that cannot be embedded now are retried.
TELL = timedelta(seconds=10)
# A search by meaning would no longer find these.
REFUSED = "The next model could not embed {:,} parts. The admin shows them; --despite-refused switches all the same."

PLACE_COLUMNS = ("user_id", "corpus", "source_id", "chunk_index")
Outdated = tuple[SourceKey, datetime]
"""A text, and the time of the row that shows its change."""


@dataclass
class Switch:
    """`tell` gets a sentence now and then, `sleep` waits for so many seconds."""

    following: Embedder
    tell: Callable[[str], None]
    sleep: Callable[[float], None] = time.sleep
    _refreshed: set[Outdated] = field(default_factory=set)

    def run(self, *, despite_refused: bool = False) -> None:
        """Raise EmbedderError, and change nothing, unless every passage has a vector (or `despite_refused`)."""
        if embedders.read_active_name() != self.following.name:
            # With missing terms, the next model's indexing would treat the active one's rows as outdated.
            index.enqueue_missing(now=timezone.now())
            self._catch_up()
            if (refused := self._rows().quarantined().count()) and not despite_refused:
                raise EmbedderError(REFUSED.format(refused))
            model = EmbeddingModel.named(self.following.name, self.following.dimensions)
            EmbeddingModel.objects.filter(pk=model.pk).update(activated_at=timezone.now())
            embedders.forget_active_name()
            self.tell(f"{self.following.name} is active.")
            self.sleep(2 * embedders.ACTIVE_NAME_SECONDS)
        self._catch_up()
        deleted = 0
        # Each of these transactions stays short.
        while some := list(self._others().order_by("pk").values_list("pk", flat=True)[:5_000]):
            deleted += Embedding.objects.filter(pk__in=some).delete()[0]
        self.tell(f"{deleted:,} rows of other models deleted.")

    def _rows(self) -> EmbeddingQuerySet:
        return Embedding.objects.of_model(self.following.name)

    def _others(self) -> EmbeddingQuerySet:
        return Embedding.objects.exclude(model=EmbeddingModel.named(self.following.name, self.following.dimensions))

    def _catch_up(self) -> None:
        """Until every text has its rows, and every row a vector."""
        with using(self.following):
            while True:
                added = index.enqueue_missing(now=timezone.now()) + self._refresh_outdated()
                self._embed()
                if not added:
                    return

    def _refresh_outdated(self) -> int:
        """Texts that changed, or were deleted, after the next model had rows for them; returns their number."""
        outdated = set(self._outdated()) - self._refreshed
        for key, _ in outdated:
            self._refresh(key)
        self._refreshed |= outdated
        return len(outdated)

    def _refresh(self, key: SourceKey) -> None:
        with transaction.atomic(), about(key.user_id):
            # First because it locks the text, as all code does before it changes the rows. It skips a chunk that has
            # rows and terms already.
            index.refresh(key, embedder=self.following, now=timezone.now())
            self._rows().at(key).delete()
            index.refresh(key, embedder=self.following, now=timezone.now())

    def _outdated(self) -> Iterator[Outdated]:
        same_place = {name: OuterRef(name) for name in PLACE_COLUMNS}
        earlier = self._rows().filter(**same_place, created_at__lt=OuterRef("created_at"))
        changed = self._others().filter(Exists(earlier))
        gone = self._rows().filter(~Exists(self._others().filter(**same_place))) if self._others().exists() else None
        for rows in (changed, gone):
            if rows is not None:
                for user_id, corpus, *place, created_at in rows.values_list(*PLACE_COLUMNS, "created_at"):
                    yield SourceKey(user_id, Corpus(corpus), *place), created_at

    def _embed(self) -> None:
        reported_at = timezone.now()
        while self._rows().waiting().exists():
            index.quarantine_exhausted(now=timezone.now())
            embedded = index.embed_pending(until=timezone.now() + TELL)
            if timezone.now() - reported_at >= TELL or not self._rows().waiting().exists():
                rows = self._rows()
                parts, waiting = rows.count(), rows.waiting()
                error = waiting.exclude(last_error="").values_list("last_error", flat=True).first()
                progress = f"{parts - waiting.count():,} of {parts:,} parts embedded."
                self.tell(progress + (f" ({error})" if error else ""))
                reported_at = timezone.now()
            if not embedded:
                self.sleep(1.0)
