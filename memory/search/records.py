"""`search_memory`: a user's own memory records, nearest in meaning first, filtered by type, project and tags."""

import logging
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from uuid import UUID

from django.db.models import Q

from core.errors import SearchFailed
from core.isolation.acting import acting_as, project_for
from intake.models import User
from intake.models.conversations import labels_of
from memory.backends.embedders import get_embedder
from memory.index import scoring, vectors
from memory.index.vectors import Meaning
from memory.left_out import staying
from memory.models import Corpus, MemoryRecord
from memory.models.documents import Scope, closed_sources
from memory.records import RecordOutput
from memory.search.fusion import Fingerprint
from memory.search.texts import SEARCHED_LENGTH

logger = logging.getLogger(__name__)

# One query must not load more than this of a user's records into memory, each up to 32,000 characters long.
MAX_TOP_K = 50
# The best records by words are compared with a new one. With a larger share of their words in common they are nearly
# the same.
COMPARED = 5
NEARLY = 0.8


@dataclass(frozen=True, slots=True, kw_only=True)
class MemorySearchQuery:
    """The query and its filters. An empty filter or None narrows nothing; conditions combine with AND.

    `min_similarity` is between 0 and 1; `top_k` is at least 1, and more than 50 is taken for 50. A record fits if it
    is of any of the `types` and has any of the `tags`. `include_replaced`: also finds one that another record replaces,
    or whose last day is over.
    """

    text: str
    top_k: int = 10
    min_similarity: float = 0.0
    types: Sequence[str] = ()
    project_id: str | None = None
    tags: Sequence[str] = ()
    include_replaced: bool = False


@dataclass(frozen=True, slots=True)
class MemorySearchResult:
    """A record with its similarity to the query: 0 for unrelated, 1 for identical."""

    record: RecordOutput
    similarity: float


class MemorySearchError(SearchFailed):
    """The search failed. `cause` is for programs: its message may describe the inside of the system."""

    def __init__(self, message: str, cause: Exception) -> None:
        super().__init__(message)
        self.cause = cause


def build_filter(query: MemorySearchQuery, *, labels: Collection[str] = ()) -> Q | None:
    """Any of the types, and the project, and any of the tags: a condition on `MemoryRecord`.

    Empty values and None add no condition; None if there is no condition. `labels`: the project's other names.
    """
    conditions = []
    if query.types:
        conditions.append(Q(type__in=list(query.types)))
    if query.project_id:
        named = query.project_id.removeprefix("-")
        project = Q(project_id__in=sorted({named, *labels})) if labels else Q(project_id=named)
        conditions.append(~project if query.project_id.startswith("-") else project)
    if query.tags:
        conditions.append(Q(tags__overlap=list(query.tags)))
    return Q(*conditions) if conditions else None


def search_memory(query: MemorySearchQuery, *, user: User) -> list[MemorySearchResult]:
    """The records of `user` nearest to `query.text`, best first. Every failure raises `MemorySearchError`.

    A record is as near as its nearest passage, and one without a vector is not found yet. The function acts as `user`
    itself, so it needs no request.
    """
    with _failing_as_search():
        embedder = get_embedder()
        if query.top_k < 1:
            raise ValueError(f"top_k must be at least 1, not {query.top_k}.")
        if query.top_k > MAX_TOP_K:
            logger.warning("search_memory: top_k is %d; it is taken for %d, the most there is.", query.top_k, MAX_TOP_K)
        meaning = Meaning(embedder, embedder.embed_query(query.text))
        with acting_as(user):
            nearest = _nearest(query, user=user, meaning=meaning)
            # A cosine distance is in 0..2. This assumes vectors of length 1, as every Embedder promises. Related texts
            # are in 0..1; a larger distance is a similarity below 0, and so below any threshold. Rounding to half
            # precision can make a distance slightly less than 0.
            similarities = {pk: min(1.0, 1.0 - distance) for pk, distance in nearest.items()}
            near = [pk for pk, each in similarities.items() if each >= max(0.0, query.min_similarity)]
            near = staying(user, near, lambda pk: [str(pk)])
            good = {pk: similarities[pk] for pk in near}
            # A record that was deleted meanwhile is no result.
            records = MemoryRecord.objects.for_user(user).with_replacement(user).in_bulk(good)
            return [
                MemorySearchResult(RecordOutput.model_validate(records[pk]), good[pk]) for pk in good if pk in records
            ]


def floor_of_relevance() -> float | None:
    """The similarity below which the active model's results are mostly chance; None for one without tuned numbers."""
    calibration = get_embedder().calibration
    return None if calibration is None else 1.0 - calibration.far


def find_nearly_same(*, user: User, content: str, project_id: str) -> list[UUID]:
    """The records of the same project that share nearly all of their words with this text, in the same runs.

    By their words: a vector would be a call of a model, and the caller is in a transaction.
    """
    scope = Scope(user, (Corpus.RECORD,))
    hits = scoring.score(scope, query=content[:SEARCHED_LENGTH], limit=COMPARED).hits
    rows = MemoryRecord.objects.for_user(user).filter(pk__in=[hit.key[0] for hit in hits], project_id=project_id)
    texts = {pk: Fingerprint.of(text) for pk, text in rows.values_list("pk", "content")}
    own = Fingerprint.of(content)
    return [
        pk
        for pk in dict.fromkeys(hit.key[0] for hit in hits)
        if pk in texts and min(own.share_in(texts[pk]), texts[pk].share_in(own)) > NEARLY
    ]


def count_pending(*, user: User) -> int:
    """The number of the user's records that wait for a vector and cannot be found yet. Raises `MemorySearchError`."""
    with _failing_as_search(), acting_as(user):
        return vectors.count_pending(Scope(user, (Corpus.RECORD,)), model=get_embedder().name)


@contextmanager
def _failing_as_search() -> Iterator[None]:
    try:
        yield
    except Exception as error:
        raise MemorySearchError("The memory records could not be searched.", error) from error


def _nearest(query: MemorySearchQuery, *, user: User, meaning: Meaning) -> dict[UUID, float]:
    """The distances of the nearest records, the nearest first."""
    query = replace(query, project_id=project_for(user, query.project_id or ""))
    named = (query.project_id or "").removeprefix("-")
    condition = build_filter(query, labels=labels_of(user, named) if named else ())
    scope = Scope(user, (Corpus.RECORD,), includes_replaced=query.include_replaced)
    if condition is not None:
        # Matching records are found however many others are nearer.
        fitting = MemoryRecord.objects.for_user(user).filter(condition)
        if not query.project_id or query.project_id.startswith("-"):
            fitting = fitting.exclude(pk__in=closed_sources(user))
        scope = replace(scope, only=tuple(fitting.values_list("pk", flat=True)))
    hits, _ = vectors.nearest(scope, meaning, limit=min(query.top_k, MAX_TOP_K))
    return {hit.key[0]: hit.distance for hit in hits if hit.distance is not None}
