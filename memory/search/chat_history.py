"""`search_chat_history`: a user's own turns, by meaning alone or in the hybrid ranking (`memory.search.hybrid`).

Also what any search looks into: its scope, narrowed to days and to a project, without a session.
"""

from collections.abc import Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from functools import partial
from uuid import UUID

from django.conf import settings
from django.db.models import Q

from core.errors import NotFound
from core.isolation.acting import binding_of, project_for
from intake.chats.reading import beginnings, off_path
from intake.models import Attachment, Conversation, User
from intake.models.conversations import labels_of
from memory.index import vectors
from memory.index.vectors import Meaning
from memory.left_out import names_of, staying
from memory.models import Corpus, IndexedText, MemoryDocument, MemoryRecord
from memory.models.documents import Hit, Key, Scope
from memory.search.deadline import Deadline, OutOfTime, searching
from memory.search.echoes import READ, restated
from memory.search.hybrid import (
    Found,
    by_terms,
    by_terms_and_meaning,
    embedded,
    find_related,
    is_nearest_only,
    lacking,
)
from memory.search.literal import (
    NO_TIME_FOR_PIECES,
    PIECES_LEFT_OUT,
    LiteralHits,
    Narrowing,
    find_literal,
    newest_in,
    with_literal,
)
from memory.search.query import Query, parse_query
from memory.search.sources import HistoryQuestion
from memory.search.texts import LOOKED_AT, NOW, SEARCHED_LENGTH, passages, read_turns, reranked
from memory.search.time_windows import TimeWindow, find_window, moments_of
from memory.short_ids import id_in

UNKNOWN_CHARACTERS = "The embedding model knows none of the query's characters: only words can find it (mode hybrid)"
WORDS_ALONE = "Search by meaning is not available right now. These results were found by words only"


class SearchMode(StrEnum):
    """`LEXICAL` is not offered to users: it exists for comparisons."""

    LEXICAL = "lexical"
    SEMANTIC = "semantic"
    HYBRID = "hybrid"


@dataclass(frozen=True, slots=True)
class ChatHistory:
    """`matches`: the best first, each a turn with its snippet; in semantic mode by distance alone, without a relevance.

    `pending`: the number of the user's turns without a vector, which only their terms can find.
    `window`: the days that the query itself names, if any. `is_reranked`: whether the reranker ran.
    `has_nothing_relevant`: the results are only the nearest texts, or no text has a quotation; not known in semantic
    mode. `notes`: sentences about how the query was read and what was left out, in English.
    """

    matches: list[Hit]
    pending: int
    window: TimeWindow | None = None
    is_reranked: bool = False
    has_nothing_relevant: bool = False
    notes: tuple[str, ...] = ()


def search_chat_history(
    *,
    user: User,
    query: str,
    limit: int,
    mode: SearchMode = SearchMode.SEMANTIC,
    now: datetime | None = None,
    rerank: bool = False,
    project: str = "",
    exclude_session: str = "",
) -> ChatHistory:
    """The `limit` turns of `user` that answer `query` best, ordered by `mode`; `project` and `exclude_session` as in
    `limited`.

    `rerank` reorders the best results of a hybrid search, if there is a reranker and it is in time.

    A semantic search is the specification's: the distance of the query as it was sent. The others read operators, exact
    pieces and days in it. Turns of a month or a day that a query names are preferred; one that names only a time gets
    its turns in order. Without `now` only dates of the calendar are read, because only the caller knows the meaning of
    "yesterday".

    It acts as the user itself, in short transactions, and asks the models' endpoints between them. While the embedding
    endpoint is left alone (`core.resilience`), a hybrid search goes by terms alone and says so.

    Raises `Unavailable` (retryable) without the embedding model or when the time is up.
    """
    deadline = Deadline(settings.HISTORY_TIMEOUT_SECONDS)
    scope = Scope(user, (Corpus.CHAT,))
    if project or exclude_session or binding_of(user):
        within = partial(limited, scope, project=project, exclude_session=exclude_session)
        scope = searching(user, within, seconds=deadline.left)
    if mode is not SearchMode.SEMANTIC:
        return _ranked(scope, parse_query(query), limit, mode, deadline, now=now, rerank=rerank)
    meaning = embedded(query, needs_vector=True)
    if not meaning.has_direction:
        return ChatHistory([], pending=0, notes=(UNKNOWN_CHARACTERS,))
    nearest = partial(vectors.nearest, scope, meaning, limit=limit, snippet_length=READ)
    hits, pending = searching(user, nearest, seconds=deadline.left)
    hits = [hit for hit in hits if hit.snippet is not None]
    hits = staying(user, hits, names_of)
    return ChatHistory(_with_later(hits, query), pending)


def _ranked(
    everywhere: Scope,
    query: Query,
    limit: int,
    mode: SearchMode,
    deadline: Deadline,
    *,
    now: datetime | None,
    rerank: bool,
) -> ChatHistory:
    """A search by terms or in the hybrid ranking, step by step: each `searching` is a transaction of its own."""
    user, is_hybrid = everywhere.user, mode is SearchMode.HYBRID
    seconds, needs_vector = deadline.left, not is_hybrid
    asked, window = asked_of(everywhere, query, now=now, seconds=seconds, prefers=True, needs_vector=needs_vector)
    query, scope = asked.parsed, asked.scope
    notes = [*query.notes, *([] if asked.meaning.vector is not None else [WORDS_ALONE])]
    literal = LiteralHits()
    if is_hybrid:
        find = partial(find_literal, scope, query, everywhere=everywhere)
        try:
            literal = searching(user, find, seconds=deadline.left / 2)
        except OutOfTime:
            notes.append(NO_TIME_FOR_PIECES)
    if literal.left_out:
        notes.append(PIECES_LEFT_OUT.format(", ".join(literal.left_out)))
    rank = partial(_candidates, asked, literal, is_hybrid=is_hybrid, rerank=rerank and not asked.wants_everything)
    found, literal, passages = searching(user, rank, seconds=deadline.left)
    hits, is_reranked = found.hits, False
    if passages:
        # In a list of turns alone the relevance is the score.
        scored = [hit._replace(score=hit.relevance) for hit in hits]
        hits, is_reranked = reranked(query.text, scored, passages, weight=NOW)
    hits = staying(user, hits, names_of) if user.left_out else hits
    if asked.wants_everything:
        is_nothing = False
        hits = in_order_of_time(hits, scope, newest_first=query.is_listing)
    else:
        is_nothing = is_hybrid and not literal.hits and is_nearest_only(hits, found.calibration)
        hits = sorted(hits, key=lambda hit: -literal.exact[hit.key])
    keys = [hit.key for hit in hits[:limit]]
    shown = searching(user, lambda: beginnings(user=user, keys=keys, length=READ), seconds=deadline.left)
    # A turn that was deleted meanwhile has no beginning, and is no longer a hit.
    matches = [
        hit._replace(snippet=snippet, project=project)
        for hit in hits[:limit]
        if hit.key in shown
        for snippet, project in [shown[hit.key]]
    ]
    return ChatHistory(
        _with_later(matches, query.text),
        found.pending,
        window,
        is_reranked,
        is_nothing or found.lacks_quotation,
        (*notes, *lacking(query, found)),
    )


def asked_of(
    everywhere: Scope, query: Query, *, now: datetime | None, seconds: float, prefers: bool, needs_vector: bool = False
) -> tuple[HistoryQuestion, TimeWindow | None]:
    """The question of a query, and the days that its words name, unless operators do; it `prefers` these days and
    months. One that names nothing but a time wants everything of it, like one of operators alone.
    """
    scope, window = dated(everywhere, query), None
    if now is not None and not scope.is_dated:
        scope, window = searching(scope.user, partial(in_window, scope, query, now=now), seconds=seconds)
    query = query.preferring(window) if prefers else query
    query = query.about(window.topic) if window else query
    meaning = embedded(query.to_embed[:SEARCHED_LENGTH], needs_vector=needs_vector)
    wants_all = query.is_listing or (window is not None and not window.topic)
    return HistoryQuestion(
        parsed=query, scope=scope, everywhere=everywhere, meaning=meaning, wants_everything=wants_all
    ), window


def _candidates(
    asked: HistoryQuestion, literal: LiteralHits, *, is_hybrid: bool, rerank: bool
) -> tuple[Found, LiteralHits, dict[tuple[str, Key], str]]:
    """The hits in their first order, the literal ones that are no echoes, and for the best hits the passages that a
    reranker reads.
    """
    scope, query, meaning = asked.scope, asked.parsed, asked.meaning
    if not is_hybrid:
        return by_terms(scope, query=query.text, meaning=meaning), literal, {}
    found = find_related(scope, query=query, meaning=meaning, literal=literal)
    literal = literal.without({hit.key for hit in found.hits if hit.is_echo})
    hits = _literal_first(asked, literal, found.hits) if literal.hits else found.hits
    hits = sorted(chosen_first(scope.user, hits), key=lambda hit: -hit.relevance)
    passages = _passages(scope, query.text, meaning, hits) if rerank else {}
    return found._replace(hits=hits), literal, passages


def search_conversations(
    *, user: User, message: str, conversations: Collection[UUID], among: Collection[Key], limit: int
) -> list[tuple[Hit, str]]:
    """Those of the turns `among` these conversations that a chat's message is most likely about, each with the passage.

    Without operators, because the message is no query. Of each conversation the newest turns are measured, and what the
    terms and the vectors find of older ones. Nothing if all are merely the nearest. It acts as the user itself. Raises
    what `search_chat_history` raises.
    """
    deadline = Deadline(settings.HISTORY_TIMEOUT_SECONDS)
    scope, query = Scope(user, (Corpus.CHAT,)), Query(message, written=message)
    meaning = embedded(message)

    def find() -> list[tuple[Hit, str]]:
        within = frozenset(conversations)
        narrowing = Narrowing(query, scope, within, newest_in(scope, within))
        found = by_terms_and_meaning(scope, query=message, meaning=meaning, narrowing=narrowing)
        if is_nearest_only(found.hits, found.calibration):
            return []
        hits = [hit for hit in found.hits if hit.key in among][:limit]
        texts = _passages(scope, message, meaning, hits)
        return [(hit, texts["", hit.key]) for hit in hits if ("", hit.key) in texts]

    return searching(user, find, seconds=deadline.left)


def _literal_first(asked: HistoryQuestion, literal: LiteralHits, hits: list[Hit]) -> list[Hit]:
    """The literal matches among the others, with their distances; a narrowed search has those that fit already."""
    others: list[Hit] = []
    if beside := literal.beside({hit.key for hit in hits}, asked.parsed):
        others, *_ = vectors.distances(asked.everywhere, asked.meaning, passages=0, hits=beside)
    every = hits + others
    relevances = with_literal(
        {hit.key: hit.relevance for hit in hits}, [hit.key for hit in every if hit.key in literal.hits]
    )
    return sorted((hit._replace(relevance=relevances[hit.key]) for hit in every), key=lambda hit: -hit.relevance)


def chosen_first(user: User, hits: list[Hit]) -> list[Hit]:
    """Of the best turns, versions that were not chosen count a little less."""
    turns = sorted((hit for hit in hits if hit.corpus == Corpus.CHAT and hit.key[1]), key=lambda hit: -hit.relevance)
    # Only the best turns are checked.
    passed_over = off_path(user=user, keys=[hit.key for hit in turns[:50]])
    # Of two versions with similar relevance, the one on the chosen path of its conversation comes first. The factor is
    # not tuned; it only decides between equals.
    return [hit._replace(relevance=hit.relevance * 0.85) if hit.key in passed_over else hit for hit in hits]


def _passages(scope: Scope, query: str, meaning: Meaning, hits: list[Hit]) -> dict[tuple[str, Key], str]:
    """For each of the best hits, the words for the reranker."""
    keys = [hit.key for hit in hits[:LOOKED_AT]]
    spans = vectors.nearest_passages(scope, meaning, keys)
    turns = {("", key): sides for key, *_, sides in read_turns(scope.user, keys, query=query, passages=spans)}
    return passages(query, hits[:LOOKED_AT], turns)


def in_window(scope: Scope, query: Query, *, now: datetime) -> tuple[Scope, TimeWindow | None]:
    """The days that the query itself names, if the scope has texts of them; and the scope, narrowed to them if the
    query names nothing else: otherwise their texts are only preferred.

    A time within quotation marks is text.
    """
    window = find_window(query.text, today=lambda: scope.user.local_time(now).date())
    if window is None or any(window.words.lower() in words.lower() for words in query.quotations):
        return scope, None
    since, until = moments_of(*window.days, scope.user.zone)
    narrowed = replace(scope, since=since, until=until)
    if not IndexedText.objects.in_scope(narrowed).exists():
        return scope, None
    return scope if window.topic else narrowed, window


def in_order_of_time(hits: Sequence[Hit], scope: Scope, *, newest_first: bool) -> list[Hit]:
    """Those outside the days of the scope, which only contain the query as it was sent, come last."""
    in_order = sorted(hits, key=lambda hit: hit.at, reverse=newest_first)
    since, until = scope.since or datetime.min.replace(tzinfo=UTC), scope.until or datetime.max.replace(tzinfo=UTC)
    return sorted(in_order, key=lambda hit: not since <= hit.at < until)


def dated(scope: Scope, query: Query) -> Scope:
    """The scope within the days of the query's operators."""
    if query.before is None and query.after is None:
        return scope
    last = query.before and query.before - timedelta(days=1)
    since, until = moments_of(query.after, last, scope.user.zone)
    return replace(
        scope,
        since=max(filter(None, (scope.since, since)), default=None),
        until=min(filter(None, (scope.until, until)), default=None),
    )


def limited(scope: Scope, *, project: str = "", is_open: bool = False, exclude_session: str = "") -> Scope:
    """The scope without a session's own conversation and its files, and with nothing but the texts of a project: its
    chats, their files, its records and its documents. With a hyphen before the name, with everything but those.

    `is_open`: also texts of no project; so it only leaves out other projects. A caller who is bound to a project looks
    into this one.
    """
    user = scope.user
    own = conversations_named(user, exclude_session) if exclude_session else set()
    project = project_for(user, project)
    if is_without(project):
        return replace(scope, hidden=_sources_of(user, labels_of(user, project[1:]), also=own))
    if not project:
        return replace(scope, hidden=_sources_of(user, (), also=own) if own else ())
    labels = labels_of(user, project) | ({""} if is_open else set())
    return replace(scope, only=_sources_of(user, labels, without=own))


def is_without(project: str | None) -> bool:
    """Whether it names everything but a project. No project's name begins with a hyphen."""
    return bool(project) and str(project).startswith("-")


def _sources_of(
    user: User, labels: Collection[str], *, also: Collection[UUID] = (), without: Collection[UUID] = ()
) -> tuple[UUID, ...]:
    """The chats with these labels, their files, records and documents; and other chats, with their files."""
    labelled = Conversation.objects.for_user(user).filter(project__in=labels)
    chats = {*labelled.values_list("pk", flat=True), *also} - {*without}
    files = Attachment.objects.for_user(user).filter(conversation_id__in=chats)
    return (
        *chats,
        *files.values_list("pk", flat=True),
        *MemoryRecord.objects.for_user(user).filter(project_id__in=labels).values_list("pk", flat=True),
        *MemoryDocument.objects.for_user(user).filter(project__in=labels).values_list("pk", flat=True),
    )


def conversations_named(user: User, session: str) -> set[UUID]:
    """The conversations of a session, by an id here or the session's own in its product."""
    named = Q(external_id=session)
    with suppress(NotFound):
        named |= Q(pk=id_in(Conversation.objects.for_user(user), session))
    return set(Conversation.objects.for_user(user).filter(named).values_list("pk", flat=True))


def projects_of(user: User, conversations: Collection[UUID | None]) -> dict[UUID | None, str]:
    """The projects of those of these conversations that have one."""
    rows = Conversation.objects.for_user(user).filter(pk__in=filter(None, conversations)).exclude(project="")
    return dict(rows.values_list("pk", "project"))


def _with_later(hits: Sequence[Hit], query: str) -> list[Hit]:
    """Each with the turn in which its user says otherwise, and its snippet no longer than shown."""
    later = restated(query, [(hit.key, hit.at, hit.snippet or "") for hit in hits])
    return [hit._replace(snippet=(hit.snippet or "")[:200], later=later.get(hit.key)) for hit in hits]
