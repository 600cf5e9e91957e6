"""The sidebar of the list of embeddings: choices that are known beforehand, or read from the two ends of an index."""

from collections.abc import Iterator
from datetime import datetime
from typing import Any

from django.contrib import admin
from django.contrib.admin.options import IncorrectLookupParameters
from django.contrib.admin.views.main import ChangeList
from django.db.models import Max, Min, QuerySet
from django.http import HttpRequest
from django.utils import timezone

from memory.admin.periods import Period
from memory.models import Embedding, EmbeddingQuerySet

Choices = list[tuple[str, str]]


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
    """Year, month, day. Django's own `date_hierarchy` would ask the whole table which of them occur."""

    title = "time of creation"
    parameter_name = "created"

    def lookups(self, request: HttpRequest, model_admin: Any) -> Choices:
        ends = Embedding.objects.aggregate(first=Min("created_at"), last=Max("created_at"))
        if ends["first"] is None:
            return []
        first, last = timezone.localtime(ends["first"]), timezone.localtime(ends["last"])
        chosen = self._period()
        inside = chosen.parts() if chosen else (Period(year) for year in range(last.year, first.year - 1, -1))
        offered = [*(chosen.line() if chosen else ()), *(part for part in inside if _overlaps(part, first, last))]
        return [(str(period), period.label) for period in offered]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Embedding]) -> QuerySet[Embedding]:
        period = self._period()
        if period is None:
            return queryset
        return queryset.filter(created_at__gte=period.start, created_at__lt=period.end)

    def choices(self, changelist: ChangeList) -> Iterator[Any]:
        for choice in super().choices(changelist):
            yield {**choice, "display": "Any time"} if choice["display"] == "All" else choice

    def _period(self) -> Period | None:
        value = self.value()
        try:
            return Period.parse(value) if value else None
        except (TypeError, ValueError, OverflowError) as error:
            raise IncorrectLookupParameters from error


def _overlaps(period: Period, first: datetime, last: datetime) -> bool:
    return period.start <= last and period.end > first
