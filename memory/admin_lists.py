"""The admin's list of embeddings at any size, and its filters.

The list of embeddings at any size: an indexed order, a limited count, and no vectors loaded.

And what lies near a vector: the way to see that an embedding means something without reading its text.
"""

from calendar import monthrange
from collections.abc import Iterator, Mapping, Sequence
from datetime import date, datetime, timedelta
from functools import cached_property
from typing import Any
from uuid import UUID

from django.contrib import admin
from django.contrib.admin.options import IncorrectLookupParameters
from django.contrib.admin.views.main import ChangeList
from django.core.paginator import Paginator
from django.db.models import FloatField, Func, IntegerField, Max, Min, QuerySet, Subquery
from django.http import HttpRequest
from django.utils import timezone
from django.utils.formats import date_format
from pgvector.django import CosineDistance

from core.citus.routing import about
from memory.index.health import CAP, Quantity, count_up_to_cap, estimated_count
from memory.models import Embedding, EmbeddingQuerySet

NEWEST_FIRST = ("-created_at", "-id")
AS_TRIED = ("next_attempt_at", "id")
NEWEST_QUARANTINED_FIRST = ("-quarantined_at", "-id")
BY_SOURCE = ("-user_id", "-corpus", "-source_id", "-chunk_index", "-part", "-model_id")


class EmbeddingChangeList(ChangeList):
    """Each filter has one order: that of the index which finds its rows.

    With another order, the planner would scan the whole table for rare rows.
    """

    def get_ordering(self, request: HttpRequest, queryset: QuerySet[Embedding]) -> list[Any]:
        if self.query.strip():
            return list(BY_SOURCE)
        by_state = {"waiting": AS_TRIED, "failed": AS_TRIED, "quarantined": NEWEST_QUARANTINED_FIRST}
        return list(by_state.get(self.params.get("state", ""), NEWEST_FIRST))

    def get_results(self, request: HttpRequest) -> None:
        """First the page's ids, then its rows: vectors are evaluated only for those rows."""
        super().get_results(request)
        # The number is at the bottom of the list, with its limit; beside the search box it would look exact.
        self.full_result_count = self.result_count
        ids = self.result_list.values_list("pk", flat=True)[: self.list_per_page]
        self.result_list = measured(list(ids))


class BoundedPaginator(Paginator):  # type: ignore[type-arg]
    """Pages through the first 10,000 rows; a filter leads to further ones."""

    object_list: QuerySet[Embedding]

    @cached_property
    def _counted(self) -> Quantity:
        return count_up_to_cap(self.object_list)

    @cached_property
    def count(self) -> int:
        return self._counted.value

    @cached_property
    def beyond(self) -> Quantity | None:
        """The approximate total, if not all rows can be paged through."""
        if self._counted.precision == "exact":
            return None
        return Quantity(max(estimated_count(self.object_list), CAP), "about")


def measured(ids: Sequence[int]) -> list[Embedding]:
    """These rows in this order, each with the `dimensions` and the `norm` of its vector, without the vector."""
    rows = (
        Embedding.objects.filter(pk__in=ids)
        .select_related("user", "model")
        .defer("vector", "content_hash", "user__password")
        .annotate(
            dimensions=Func("vector", function="vector_dims", output_field=IntegerField()),
            norm=Func("vector", function="l2_norm", output_field=FloatField()),
        )
    )
    by_id = {row.pk: row for row in rows}
    return [by_id[pk] for pk in ids if pk in by_id]


def as_source_id(text: str) -> UUID | None:
    try:
        return UUID(text)
    except ValueError:
        return None


def nearest_neighbours(embedding: Embedding) -> Sequence[Mapping[str, Any]]:
    """The nearest rows of the same user, corpus and model, exactly, without other passages of the same text.

    Each has `pk`, `source_id`, `chunk_index`, `part` and `distance`, the cosine distance: 0 for the same direction, 1
    for unrelated. Their vectors do not leave the database.
    """
    if embedding.embedded_at is None:
        return []
    vector = Subquery(Embedding.objects.filter(pk=embedding.pk).values("vector"))
    comparable = Embedding.objects.filter(
        user=embedding.user_id, corpus=embedding.corpus, model=embedding.model_id, vector__isnull=False
    )
    others = comparable.exclude(source_id=embedding.source_id, chunk_index=embedding.chunk_index)
    nearest = others.annotate(distance=CosineDistance("vector", vector)).order_by("distance", "pk")[:10]
    with about(embedding.user_id):
        return list(nearest.values("pk", "source_id", "chunk_index", "part", "distance"))


Choices = list[tuple[str, str]]


Period = tuple[int, ...]
"""A year, a month or a day, in the site's time zone: (2026,), (2026, 11) or (2026, 11, 5)."""


def _start(period: Period) -> datetime:
    """Raises `ValueError` for a date that does not exist."""
    year, month, day = (*period, 1, 1)[:3]
    return timezone.make_aware(datetime(year, month, day))  # noqa: DTZ001 - made aware here


def _end(period: Period) -> datetime:
    """The start of the next one."""
    match period:
        case year, month, day:
            following = date(year, month, day) + timedelta(days=1)
            return _start((following.year, following.month, following.day))
        case year, month:
            return _start((year + month // 12, month % 12 + 1))
    return _start((period[0] + 1,))


def _parts(period: Period) -> list[Period]:
    """A year's months or a month's days, newest first; a day has none."""
    if len(period) == 3:
        return []
    last = 12 if len(period) == 1 else monthrange(*period)[1]
    return [(*period, number) for number in range(last, 0, -1)]


def _label(period: Period) -> str:
    if len(period) == 1:
        return str(period[0])
    return date_format(_start(period), "YEAR_MONTH_FORMAT" if len(period) == 2 else "DATE_FORMAT")


class StateFilter(admin.SimpleListFilter):
    title = "state"
    parameter_name = "state"

    def lookups(self, request: HttpRequest, model_admin: Any) -> Choices:
        return [
            ("embedded", "Embedded"),
            ("waiting", "Waiting"),
            ("failed", "Waiting, failed before"),
            ("quarantined", "Quarantined"),
        ]

    def queryset(self, request: HttpRequest, queryset: EmbeddingQuerySet) -> EmbeddingQuerySet:  # type: ignore[override]
        match self.value():
            case "embedded":
                return queryset.exclude(vector=None)
            case "waiting":
                return queryset.waiting()
            case "failed":
                return queryset.waiting().exclude(last_error="")
            case "quarantined":
                return queryset.quarantined()
            case _:
                return queryset


class AttemptsFilter(admin.SimpleListFilter):
    title = "attempts"
    parameter_name = "attempts"

    def lookups(self, request: HttpRequest, model_admin: Any) -> Choices:
        return [("1", "At least one"), ("2", "More than one")]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Embedding]) -> QuerySet[Embedding]:
        least = self.value()
        return queryset.filter(attempts__gte=int(least)) if least in ("1", "2") else queryset


class CreatedFilter(admin.SimpleListFilter):
    """Year, month, day. Django's own `date_hierarchy` would scan the whole table for the existing dates."""

    title = "time of creation"
    parameter_name = "created"

    def lookups(self, request: HttpRequest, model_admin: Any) -> Choices:
        ends = Embedding.objects.aggregate(first=Min("created_at"), last=Max("created_at"))
        if ends["first"] is None:
            return []
        first, last = timezone.localtime(ends["first"]), timezone.localtime(ends["last"])
        chosen = self._period()
        inside = _parts(chosen) if chosen else [(year,) for year in range(last.year, first.year - 1, -1)]
        offered = [
            *(chosen[:length] for length in range(1, len(chosen) + 1)),
            *(part for part in inside if _start(part) <= last and _end(part) > first),
        ]
        return [("-".join(f"{number:02}" for number in period), _label(period)) for period in offered]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Embedding]) -> QuerySet[Embedding]:
        period = self._period()
        return queryset.filter(created_at__gte=_start(period), created_at__lt=_end(period)) if period else queryset

    def choices(self, changelist: ChangeList) -> Iterator[Any]:
        for choice in super().choices(changelist):
            yield {**choice, "display": "Any time"} if choice["display"] == "All" else choice

    def _period(self) -> Period:
        """Empty for any time."""
        try:
            period = tuple(int(number) for number in value.split("-", 2)) if (value := self.value()) else ()
            for bound in (_start, _end) if period else ():
                bound(period)
        except (TypeError, ValueError, OverflowError) as error:
            raise IncorrectLookupParameters from error
        return period
