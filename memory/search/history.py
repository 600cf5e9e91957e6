"""`search_history`: searches every source, each with a time limit, and merges the results into one list (FEAT-032)."""

import logging
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import date, datetime
from functools import partial
from math import inf
from typing import TypeVar
from uuid import UUID

from django.conf import settings
from django.db import InterfaceError, OperationalError

from core.errors import RecollectError, SearchFailed
from core.isolation.acting import binding_of
from core.text import Sentence
from core.text import gettext_noop as _
from intake.chats.services import without_nul
from intake.models import User
from memory.index.vectors import count_pending
from memory.left_out import names_of, staying
from memory.models import Corpus
from memory.models.documents import Hit, Key, Scope
from memory.search.chat_history import (
    asked_of,
    chosen_first,
    dated,
    in_order_of_time,
    limited,
    projects_of,
)
from memory.search.deadline import Deadline, OutOfTime, searching
from memory.search.echoes import restated, telling_sides
from memory.search.excerpts import Excerpt, Piece, matching, own_words, show
from memory.search.fusion import Fingerprint, rank
from memory.search.hybrid import RELATED, lacking
from memory.search.query import Query, parse_query
from memory.search.sources import (
    ATTACHMENTS,
    BEST,
    CORPORA_IN,
    MEMORIES,
    MESSAGES,
    SESSIONS,
    HistoryQuestion,
    HistoryScope,
    HistorySource,
    HitText,
    Kind,
    Reference,
)
from memory.search.texts import (
    NOW_BESIDE_SCORE,
    Inflections,
    reranked,
)
from memory.search.texts import passages as passages_of
from memory.search.time_windows import TimeWindow, moments_of

T = TypeVar("T")

DEFAULT_RESULTS = 10
MAX_RESULTS = 50
# A result with a larger share of its words, in runs, in a better one repeats that one.
REPEATS = 0.8
# A session names a conversation, a message a place in it: neither replaces the other, although a title often repeats
# the first message and a preview the last one.
DIFFERENT_THINGS = {Kind.MESSAGE, Kind.SESSION}
SOURCES: dict[HistoryScope, tuple[HistorySource, ...]] = {
    HistoryScope.ALL: (MEMORIES, MESSAGES, SESSIONS, ATTACHMENTS),
    HistoryScope.MEMORY: (MEMORIES,),
    HistoryScope.DAILY_LOG: (MEMORIES,),
    HistoryScope.SESSIONS: (MESSAGES, SESSIONS),
    HistoryScope.NOTES: (MEMORIES,),
    HistoryScope.FILES: (ATTACHMENTS,),
}
# What is counted apart in a scope.
PARTS = {
    HistoryScope.ALL: (HistoryScope.SESSIONS, HistoryScope.NOTES, HistoryScope.DAILY_LOG, HistoryScope.FILES),
    HistoryScope.MEMORY: (HistoryScope.NOTES, HistoryScope.DAILY_LOG),
}
# The candidates for reranking: more than for chats alone, because weight and age change their order.
LOOKED_AT = 30
# If the sources have used up the time, the best results are read all the same: it is a few rows, by their keys.
SECONDS_TO_READ = 2.0

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryRequest:
    """`date_from` and `date_to` are days in the user's time zone, both included; None leaves that side open.

    `reads_time`: without either, dates in the query itself count, such as "last Tuesday". `rerank`: reorders the best
    results, if there is a reranker and it is in time. `project` and `exclude_session` limit it as `limited` does;
    `is_open`: also to texts of no project. `include_replaced`: also finds records that another one replaces, or whose
    last day is over.
    """

    query: str
    scope: HistoryScope = HistoryScope.ALL
    date_from: date | None = None
    date_to: date | None = None
    max_results: int = DEFAULT_RESULTS
    reads_time: bool = True
    rerank: bool = False
    project: str = ""
    is_open: bool = False
    exclude_session: str = ""
    include_replaced: bool = False

    def __post_init__(self) -> None:
        if not without_nul(self.query).strip():
            raise ValueError("A search needs a query.")
        if not 1 <= self.max_results <= MAX_RESULTS:
            raise ValueError(f"From 1 to {MAX_RESULTS} results.")


@dataclass(frozen=True, slots=True)
class HistoryMatch:
    """`excerpt` is one text; `pieces` are the same by segment, for a page that shows them separately.

    `score`: its share of its source's best relevance, by its source's weight and its age; it never rises in a list.
    `relevance`, 0 to 1, is how likely it is the wanted one, without its source and age. `is_far`:
    its meaning is beyond the model's `Calibration.near`. `later`: the turn in which its user says otherwise.
    """

    reference: Reference
    score: float
    relevance: float
    excerpt: Excerpt
    pieces: Sequence[Piece]
    is_far: bool = False
    later: Reference | None = None


Stated = tuple[Key, datetime, str]
"""A turn, its time, and its user's message."""

Counts = Mapping[HistoryScope, tuple[int, bool]]
"""A number of things by scope, and whether there may be more of them."""


@dataclass(frozen=True, slots=True)
class History:
    """`results`: the best first. `unfinished`: the sources that were not searched completely, by name.

    `pending`: the number of texts in scope without a vector, which only their words can find. `window`: the days that
    the query itself names, if any. `preferred`: its words for the times that are preferred. `is_reranked`: whether the
    reranker ran. `has_nothing_relevant`: the results are only the nearest texts. `is_by_meaning_alone`: no text in
    scope has any of the query's words. `is_by_words_alone`: the embedding model's endpoint is left alone. `left_out`:
    the exact pieces of the query that were not searched.
    `counts`: for the scope and each part of it that was searched, how many chats, notes, logs and files were found, and
    whether there may be more.
    `query`: it with its operators. `lacking`: sentences about operators that no text fulfils, in English;
    `lacks_quotation`: no text has its quotations; `lacks_title`: no chat its title; `absent`: its words in no text.
    """

    results: list[HistoryMatch]
    unfinished: list[str]
    pending: int
    window: TimeWindow | None = None
    preferred: Sequence[str] = ()
    is_reranked: bool = False
    has_nothing_relevant: bool = False
    is_by_meaning_alone: bool = False
    is_by_words_alone: bool = False
    left_out: Sequence[str] = ()
    counts: Counts = field(default_factory=dict)
    query: Query | None = None
    lacking: Sequence[str] = ()
    lacks_quotation: bool = False
    lacks_title: bool = False
    absent: Sequence[str] = ()

    def by_day(self) -> list[tuple[date, list[int]]]:
        """The indexes of `results` by day: the newest day first, the best of it first."""
        days = sorted({result.reference.day for result in self.results}, reverse=True)
        return [
            (day, [index for index, result in enumerate(self.results) if result.reference.day == day]) for day in days
        ]


def search_history(request: HistoryRequest, *, user: User, now: datetime) -> History:
    """The messages and notes of `user` that answer the request, from every source in its scope (FEAT-032).

    1. Each source finds its hits in its share of the time; one that does not is named in `unfinished`.
    2. The hits become one ranking: by their source's best, its weight, their age.
    3. From the top, texts are read, and those that repeat a better one dropped, until there are enough.

    Texts of the days that a query names ("the roof, three weeks ago") are preferred; a query that says nothing else
    ("what did we talk about yesterday") gets what was said then, in order.

    It acts as the user itself, in short transactions, and asks the models' endpoints between them. While the embedding
    endpoint is left alone (`core.resilience`) it goes by words alone.

    Raises `Unavailable` (retryable) without the embedding model or if what was found is not read in time, and
    `SearchFailed` when a source fails.
    """
    deadline = Deadline(settings.HISTORY_TIMEOUT_SECONDS)
    asked, window = _asked(request, user, now, deadline)
    sources = SOURCES[request.scope]
    found = _searched(sources, asked, deadline)
    unfinished = [name for name, those in found.items() if those is None]
    files = asked.of_files if found.get(ATTACHMENTS.name) is not None else None
    hits = _quoting(found, asked, files)
    hits = staying(user, hits, names_of)
    ranked, passages = _reading(user, deadline, lambda: _ranked(hits, asked, sources, rerank=request.rerank, now=now))
    ranked, is_reranked = reranked(asked.query, ranked, passages, weight=NOW_BESIDE_SCORE)

    lacks_quotation = asked.found.lacks_quotation and (files is None or files.found.lacks_quotation)
    absent = tuple(word for word in asked.found.absent if files is None or word in files.found.absent)
    whole = asked.found._replace(absent=absent)

    counted = asked.scope
    if files is not None and files is not asked:
        counted = replace(counted, corpora=(*counted.corpora, *files.scope.corpora))

    def read() -> History:
        results = _labelled(user, choose(ranked, asked, sources=sources, limit=request.max_results))
        literal = asked.literal_in_time
        has_nothing_relevant = lacks_quotation or (
            asked.has_nothing_near
            and not (literal and literal.hits)
            and all(found.relevance < RELATED for found in results)
            and (files is None or (files.has_nothing_near and not files.literal.hits))
        )
        listed = ranked
        if len(results) < request.max_results:
            # Without those that only repeat a better one.
            places = [each.reference for each in results]
            ids = {each.attachment_id or each.conversation_id or each.document_id or each.record_id for each in places}
            listed = [hit for hit in ranked if hit.key[0] in ids]
        relevant = ([], set()) if has_nothing_relevant else (listed, _cut_scopes(found, asked))
        return History(
            results,
            unfinished,
            pending=count_pending(counted, model=asked.meaning.embedder.name),
            window=window,
            preferred=() if asked.wants_everything else asked.parsed.times.words,
            is_reranked=is_reranked,
            has_nothing_relevant=has_nothing_relevant,
            is_by_meaning_alone=bool(hits)
            and not (asked.wants_everything or unfinished or any(hit.shares_terms for hit in hits)),
            is_by_words_alone=asked.meaning.vector is None,
            left_out=literal.left_out if literal else (),
            counts=_counts(request.scope, *relevant),
            query=asked.parsed,
            lacking=lacking(asked.parsed, whole) if lacks_quotation == asked.found.lacks_quotation else (),
            absent=whole.absent,
            lacks_quotation=lacks_quotation,
            lacks_title=asked.found.lacks_title,
        )

    return _reading(user, deadline, read)


def _counts(scope: HistoryScope, hits: Sequence[Hit], cut: Collection[HistoryScope]) -> Counts:
    """The number of things, not of hits: a chat with ten messages is one."""
    things: dict[HistoryScope, set[UUID]] = defaultdict(set)
    of_source = {ATTACHMENTS.name: HistoryScope.FILES, MEMORIES.name: HistoryScope.NOTES}
    for hit in hits:
        is_log = hit.corpus == Corpus.DAILY_LOG
        part = HistoryScope.DAILY_LOG if is_log else of_source.get(hit.source, HistoryScope.SESSIONS)
        things[part].add(hit.key[0])
    counts = {part: (len(things[part]), part in cut) for part in PARTS.get(scope, (scope,))}
    if scope in PARTS:
        counts[scope] = sum(count for count, _ in counts.values()), any(is_cut for _, is_cut in counts.values())
    return counts


def _cut_scopes(found: Mapping[str, list[Hit] | None], asked: HistoryQuestion) -> set[HistoryScope]:
    """The scopes in which more may be relevant than the sources found, or that were not searched completely."""
    cut = {HistoryScope.SESSIONS} if len(found.get(SESSIONS.name) or ()) >= BEST else set()
    if any(those is None for name, those in found.items() if name != ATTACHMENTS.name) or asked.is_cut:
        cut |= {HistoryScope.SESSIONS, HistoryScope.NOTES, HistoryScope.DAILY_LOG}
    if ATTACHMENTS.name in found and (found[ATTACHMENTS.name] is None or asked.of_files.is_cut):
        cut.add(HistoryScope.FILES)
    return cut


def _labelled(user: User, results: list[HistoryMatch]) -> list[HistoryMatch]:
    """With the projects of their conversations."""
    places = [each.reference for each in results]
    projects = projects_of(user, {place.conversation_id for place in places})
    return [
        replace(each, reference=replace(place, project=projects.get(place.conversation_id, place.project)))
        for each, place in zip(results, places, strict=True)
    ]


def _quoting(found: Mapping[str, list[Hit] | None], asked: HistoryQuestion, files: HistoryQuestion | None) -> list[Hit]:
    """All hits; if only the files or only the other texts have the quotation, without those of the other side: they are
    merely the nearest.
    """
    is_either = files is None or files.found.lacks_quotation == asked.found.lacks_quotation
    return [
        hit
        for name, those in found.items()
        for hit in those or []
        if is_either or (name == ATTACHMENTS.name) == asked.found.lacks_quotation
    ]


def _reading(user: User, deadline: Deadline, work: Callable[[], T]) -> T:
    """Read what was found, in what is left of the time. Raises `SearchFailed`, and `OutOfTime`."""
    with _failing_as(_("Search failed: what was found could not be read.")):
        return searching(user, work, seconds=max(deadline.left, SECONDS_TO_READ))


def _ranked(
    hits: list[Hit], asked: HistoryQuestion, sources: Collection[HistorySource], *, rerank: bool, now: datetime
) -> tuple[list[Hit], dict[tuple[str, Key], str]]:
    """The hits in their first order, and for the best of them the passages that a reranker reads."""
    hits = chosen_first(asked.user, hits)
    ranked = rank(hits, weights=settings.HISTORY_WEIGHTS, rate=settings.HISTORY_DECAY_RATE, now=now)
    if asked.wants_everything:
        return in_order_of_time(ranked, asked.scope, newest_first=asked.parsed.is_listing), {}
    if not rerank:
        return ranked, {}
    texts = {place: sides for place, (_, sides) in _read(ranked[:LOOKED_AT], asked, sources).items()}
    return ranked, passages_of(asked.query, ranked[:LOOKED_AT], texts)


def _asked(
    request: HistoryRequest, user: User, now: datetime, deadline: Deadline
) -> tuple[HistoryQuestion, TimeWindow | None]:
    query = parse_query(without_nul(request.query))
    since, until = moments_of(request.date_from, request.date_to, user.zone)
    everywhere = Scope(user, CORPORA_IN[request.scope], since, until, includes_replaced=request.include_replaced)
    if request.project or request.exclude_session or binding_of(user):
        limit = partial(limited, everywhere, project=request.project, is_open=request.is_open)
        everywhere = _reading(user, deadline, lambda: limit(exclude_session=request.exclude_session))
    is_dated = dated(everywhere, query).is_dated
    with _failing_as(_("Search failed: the query could not be read.")):
        return asked_of(
            everywhere,
            query,
            now=now if request.reads_time else None,
            seconds=max(deadline.left, SECONDS_TO_READ),
            prefers=request.reads_time and not is_dated,
        )


def _searched(
    sources: Sequence[HistorySource], asked: HistoryQuestion, deadline: Deadline
) -> dict[str, list[Hit] | None]:
    """One after the other, because each takes a connection; None for a source that was not done in time.

    The remaining time is divided evenly: a slow source takes nothing from the later ones, and a fast one leaves them
    its share.
    """
    found: dict[str, list[Hit] | None] = {}
    for index, source in enumerate(sources):
        if source.is_searched(asked):
            seconds = deadline.left / (len(sources) - index)
            try:
                message = _("Search failed: %(source)s could not be searched.")
                with _failing_as(Sentence(message, source=Sentence(source.name))):
                    found[source.name] = searching(asked.user, partial(source.find, asked), seconds=seconds)
            except OutOfTime:
                logger.warning("search_history: %s could not be searched in time", source.name)
                found[source.name] = None
    return found


@contextmanager
def _failing_as(sentence: str) -> Iterator[None]:
    """Unexpected errors become the contract's error; the log names only their kind, because the message may contain
    users' text.
    """
    try:
        yield
    except (RecollectError, OperationalError, InterfaceError):
        raise
    except Exception as error:
        logger.error("%s (%s)", sentence, type(error).__name__)
        raise SearchFailed(sentence) from error


def choose(
    ranked: Sequence[Hit], asked: HistoryQuestion, *, sources: Collection[HistorySource], limit: int
) -> list[HistoryMatch]:
    """The first `limit` results that repeat no better one, in order. Reads only texts up to the last of them. Messages
    of which their user says otherwise in another of them are marked.
    """
    # Some more are read at a time than requested, for those that are dropped.
    chosen = _distinct(_shown(ranked, asked, sources, at_once=limit + 5), limit)
    turns = {stated[0]: result for result, stated in chosen if stated is not None}
    later = restated(asked.query, [stated for _, stated in chosen if stated is not None])
    return [
        replace(result, later=turns[later[stated[0]][0]].reference)
        if stated is not None and stated[0] in later
        else result
        for result, stated in chosen
    ]


def _distinct(
    shown: Iterator[tuple[HistoryMatch, str, Hit, Stated | None]], limit: int
) -> list[tuple[HistoryMatch, Stated | None]]:
    """The first `limit` that repeat no better one. Of two of a kind that say the same, the newer one is shown, in the
    place of the better one; that stays below it if it says more.
    """
    chosen: list[tuple[HistoryMatch, Fingerprint, Hit, Stated | None]] = []
    while len(chosen) < limit and (each := next(shown, None)):
        result, words, hit, stated = each
        kind, fingerprint = result.reference.kind, Fingerprint.of(words)
        for place, (better, others, before, _stated) in enumerate(chosen):
            if {kind, better.reference.kind} != DIFFERENT_THINGS and fingerprint.share_in(others) > REPEATS:
                if kind is better.reference.kind and hit.at > before.at and not hit.is_echo:
                    end = place + (others.share_in(fingerprint) > REPEATS)
                    chosen[place:end] = [(replace(result, score=better.score), fingerprint, hit, stated)]
                break
        else:
            chosen.append((result, fingerprint, hit, stated))
    return [(result, stated) for result, _, _, stated in chosen]


def _shown(
    ranked: Sequence[Hit], asked: HistoryQuestion, sources: Collection[HistorySource], *, at_once: int
) -> Iterator[tuple[HistoryMatch, str, Hit, Stated | None]]:
    """Each with its words for the comparison and its hit, and a turn with its user's message; without deleted texts."""
    # If the query names only a time, its words are in no text.
    lowest = inf
    inflections = Inflections("" if asked.wants_everything else asked.query, exact=asked.exact)
    for start in range(0, len(ranked), at_once):
        batch = ranked[start : start + at_once]
        texts = _read(batch, asked, sources)
        matcher = inflections.matcher_for(segment.text for _, segments in texts.values() for segment in segments)
        for hit in batch:
            if (hit.source, hit.key) in texts:
                reference, segments = texts[hit.source, hit.key]
                is_message = reference.kind is Kind.MESSAGE
                stated = (hit.key, hit.at, segments[0].text) if is_message else None
                segments = telling_sides(hit, segments)
                # Of a message only the matching sides are shown.
                excerpt, pieces = show(matching(segments, matcher) if is_message else segments, matcher)
                far = asked.is_far(hit)
                lowest = min(lowest, hit.printed)
                match = HistoryMatch(reference, lowest, hit.relevance, excerpt, pieces, is_far=far)
                yield match, own_words(pieces), hit, stated


def _read(
    batch: Sequence[Hit], asked: HistoryQuestion, sources: Collection[HistorySource]
) -> Mapping[tuple[str, Key], HitText]:
    """A query or two for each source with a hit in the batch."""
    keys: dict[str, list[Key]] = defaultdict(list)
    for hit in batch:
        keys[hit.source].append(hit.key)
    return {
        (source.name, key): text
        for source in sources
        if source.name in keys
        for key, text in source.read(keys[source.name], asked).items()
    }
