"""`search_history`: asks every source, each within its time, and makes one list of what they found."""

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import date, datetime

from django.conf import settings
from django.db import InterfaceError, OperationalError

from core.errors import RecollectError, SearchFailed
from intake.models import User
from intake.services import without_nul
from intake.zones import zone_of
from memory.embedders import EmbedderError, get_embedder
from memory.errors import EmbeddingModelAway
from memory.models import Corpus
from memory.models.corpora import Scope
from memory.search.history.choosing import HistoryResult, choose
from memory.search.history.memories import CORPORA, Memories
from memory.search.history.messages import Messages
from memory.search.history.patience import OutOfTime, Patience, at_most
from memory.search.history.ranking import rank
from memory.search.history.requests import ENGINE_LENGTH, HistoryRequest, HistoryScope, within
from memory.search.history.sessions import Sessions
from memory.search.history.sources import Asked, Hit, Source
from memory.vectors import count_pending

SOURCES: dict[HistoryScope, tuple[Source, ...]] = {
    HistoryScope.ALL: (Memories(), Messages(), Sessions()),
    HistoryScope.MEMORY: (Memories(),),
    HistoryScope.DAILY_LOG: (Memories(),),
    HistoryScope.SESSIONS: (Messages(), Sessions()),
}
CORPORA_IN: dict[HistoryScope, tuple[Corpus, ...]] = {
    HistoryScope.ALL: (*CORPORA, Corpus.CHAT),
    HistoryScope.MEMORY: CORPORA,
    HistoryScope.DAILY_LOG: (Corpus.DAILY_LOG,),
    HistoryScope.SESSIONS: (Corpus.CHAT,),
}
# What reading the best results may take after sources that used up the time: it is a few rows, by their keys.
SECONDS_TO_READ = 2.0

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class History:
    """`results`: the best first. `unfinished`: the sources that were not searched to the end, by name.

    `pending`: how many of the texts in scope have no vector yet, and so are found by their words alone.
    """

    results: list[HistoryResult]
    unfinished: list[str]
    pending: int

    def by_day(self) -> list[tuple[date, list[int]]]:
        """Which of `results` are of each day: the newest day first, the best of it first."""
        days = sorted({result.reference.day for result in self.results}, reverse=True)
        return [
            (day, [index for index, result in enumerate(self.results) if result.reference.day == day]) for day in days
        ]


def search_history(request: HistoryRequest, *, user: User, now: datetime) -> History:
    """What `user` said and wrote down that answers the request, from every source in its scope (FEAT-032).

    1. Each source finds its hits in its share of the time; one that does not is named in `unfinished`.
    2. The hits become one ranking: by their source's best, its weight, their age.
    3. From the top, texts are read, and those that repeat a better one dropped, until there are enough.

    Raises `EmbeddingModelAway` (retryable), and `SearchFailed` when a source fails.
    """
    patience = Patience(settings.HISTORY_TIMEOUT_SECONDS)
    asked = _asked(request, user)
    sources = SOURCES[request.scope]
    found = dict(_searched(sources, asked, patience))
    hits = [hit for those in found.values() for hit in those or []]
    ranked = rank(hits, weights=settings.HISTORY_WEIGHTS, rate=settings.HISTORY_DECAY_RATE, now=now)
    unfinished = [name for name, those in found.items() if those is None]
    try:
        with _failing_as("what was found could not be read"), at_most(max(patience.left, SECONDS_TO_READ)):
            results = choose(ranked, asked, sources=sources, limit=request.max_results)
            return History(
                results, unfinished, pending=count_pending(Scope(user, CORPORA_IN[asked.scope]), model=asked.model)
            )
    except OutOfTime as error:
        raise SearchFailed("Search failed: what was found could not be read in time.") from error


def _asked(request: HistoryRequest, user: User) -> Asked:
    embedder = get_embedder()
    query = without_nul(request.query).strip()
    zone = zone_of(user)
    try:
        vector = embedder.embed_query(query[:ENGINE_LENGTH])
    except EmbedderError as error:
        raise EmbeddingModelAway from error
    return Asked(
        user=user,
        query=query,
        scope=request.scope,
        period=within(request, zone),
        zone=zone,
        vector=vector,
        model=embedder.name,
    )


def _searched(sources: Sequence[Source], asked: Asked, patience: Patience) -> Iterator[tuple[str, list[Hit] | None]]:
    """One after the other, since each takes a connection; None for a source that was not done in time.

    What is left of the time is dealt out evenly: a slow source takes nothing from those after it, and a quick one
    leaves them its share.
    """
    for index, source in enumerate(sources):
        yield source.name, _found(source, asked, seconds=patience.left / (len(sources) - index))


def _found(source: Source, asked: Asked, *, seconds: float) -> list[Hit] | None:
    try:
        with _failing_as(f"{source.name} could not be searched"), at_most(seconds):
            return source.find(asked)
    except OutOfTime:
        logger.warning("search_history: %s could not be searched in time", source.name)
        return None


@contextmanager
def _failing_as(sentence: str) -> Iterator[None]:
    """What nobody expected becomes the contract's error; the log names its kind, for its words may be a person's."""
    try:
        yield
    except (RecollectError, OutOfTime, OperationalError, InterfaceError):
        raise
    except Exception as error:
        logger.error("search_history: %s (%s)", sentence, type(error).__name__)
        raise SearchFailed(f"Search failed: {sentence}.") from error
