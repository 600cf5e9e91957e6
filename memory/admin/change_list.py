"""The list of embeddings at any size: an indexed order, a limited count, and no vectors loaded.

And what lies near a vector: the way to see that an embedding means something without reading its text.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any
from uuid import UUID

from django.contrib.admin.views.main import ChangeList
from django.core.paginator import Paginator
from django.db.models import F, FloatField, Func, IntegerField, QuerySet, Subquery
from django.http import HttpRequest
from pgvector.django import CosineDistance

from core.isolation.routing import about
from memory.health import CAP, Precision, Quantity, count_up_to_cap, estimated_count
from memory.models import Embedding

NEWEST_FIRST = ("-created_at", "-id")
AS_TRIED = ("next_attempt_at", "id")
NEWEST_QUARANTINED_FIRST = ("-quarantined_at", "-id")
NEIGHBOURS = 10
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
        if self._counted.precision is Precision.EXACT:
            return None
        return Quantity(max(estimated_count(self.object_list), CAP), Precision.ABOUT)


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


@dataclass(frozen=True, slots=True)
class Neighbour:
    """A row of another source; `distance` is the cosine distance, 0 for the same direction, 1 for unrelated."""

    pk: int
    source_id: UUID
    chunk_index: int
    part: int
    distance: float


def nearest_neighbours(embedding: Embedding) -> list[Neighbour]:
    """The nearest rows of the same user, corpus and model, exactly, without other passages of the same text.

    Their vectors do not leave the database.
    """
    if embedding.embedded_at is None:
        return []
    vector = Subquery(Embedding.objects.filter(pk=embedding.pk).values("vector"))
    comparable = Embedding.objects.filter(
        user=embedding.user_id, corpus=embedding.corpus, model=embedding.model_id, vector__isnull=False
    )
    others = comparable.exclude(source_id=embedding.source_id, chunk_index=embedding.chunk_index)
    nearest = others.annotate(distance=CosineDistance("vector", vector)).order_by("distance", "pk")[:NEIGHBOURS]
    with about(embedding.user_id):
        return [Neighbour(*row) for row in nearest.values_list("pk", "source_id", "chunk_index", "part", F("distance"))]
