"""`search_chat_history`: a user's own turns, by meaning alone or by terms and meaning together.

The hybrid ranking is for any corpora, and `search_history` uses it too: one statement for the terms, one for the
vectors, then the arithmetic of `memory.search.fusion`.
"""

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from enum import StrEnum
from typing import NamedTuple, TypeVar
from uuid import UUID

from django.conf import settings

from core.errors import SearchFailed, Unavailable
from intake.chats.reading import beginnings, off_path
from intake.models import User
from memory.backends.embedders import (
    TUNED,
    UNCALIBRATED,
    Calibration,
    Embedder,
    EmbedderError,
    EmbedderLeftAlone,
    Vector,
    get_embedder,
)
from memory.chunking import PassageSpan
from memory.index import terms, vectors
from memory.index.terms import TermHit
from memory.index.trigrams import containing
from memory.index.vectors import Distances, MeasuredText
from memory.models import Corpus, IndexedText
from memory.models.documents import Key, PlainKey, Scope
from memory.search.deadline import Deadline, OutOfTime, searching
from memory.search.fusion import Candidate, fuse
from memory.search.texts import LOOKED_AT, passages, read_turns, second_scores, together
from memory.search.time_windows import TimeWindow, find_window, moments_of

T = TypeVar("T")

SNIPPET_LENGTH = 200
# The distance of a turn that was found by its terms and has no vector yet: neither near nor far.
DISTANCE_UNKNOWN = 1.0
# Results below this relevance are only the nearest. Of the questions with an answer, at most three in a hundred have
# all their results below it (`run_evals --surface`, `refused`).
RELATED = 0.003
# The candidates of each retriever: several times the largest limit, so that it includes a text that is good only in
# both.
TEXTS_BY_TERMS = 100
PASSAGES_BY_MEANING = 100
# A model without tuned numbers is measured on a user's vectors if this many of their texts have one.
MEASURED_TEXTS = 50

# A query's exact pieces beyond these are left out, and the answer says so.
MOST_PIECES = 8
# Turns that contain a literal piece of the query: several times the largest limit.
LITERAL = 100
# The factor for the relevance of a turn that is not on the chosen path of its conversation: of two versions with
# similar relevance, the chosen one comes first. It is not tuned; it only decides between equals.
NOT_CHOSEN = 0.85
# The number of best turns for which this is checked.
LOOKED_FOR_VERSIONS = 50
_QUOTED = re.compile(r'"([^"]+)"|“([^“”]+)”|„([^„“”]+)[“”]|«([^«»]+)»')
# A file's name, and an amount with its unit: 10mg, 24-hour.
_FILE = re.compile(r"(?<![\w.-])[\w.-]*\w\.[a-zA-Z]\w{1,4}")
_AMOUNT = re.compile(r"\d[\d.,]*-?[^\W\d_]+")

NO_TERMS = TermHit(("", 0), score=0.0, said_score=0.0)


WORDS_ALONE = "The embedding model is away for the moment: found by words alone"
PIECES_LEFT_OUT = f"Of the quotations and identifiers only the first {MOST_PIECES} were searched literally, not: {{}}"
NO_TIME_FOR_PIECES = "The quotations and identifiers could not be searched literally in time"


class EmbeddingModelAway(Unavailable):
    default_detail = "The embedding model is away for the moment. Try again shortly."


class SearchMode(StrEnum):
    """`LEXICAL` is not offered to users: it exists for comparisons."""

    LEXICAL = "lexical"
    SEMANTIC = "semantic"
    HYBRID = "hybrid"


@dataclass(frozen=True, slots=True)
class ChatMatch:
    """One turn with any number of passages. `score` is the cosine distance of its nearest one: lower is closer.

    A turn without a vector has the score 1. `relevance`: how likely it is the wanted one, 0 to 1; None in semantic
    mode, which ranks by distance alone.
    """

    conversation_id: UUID
    turn_number: int
    snippet: str
    score: float
    relevance: float | None = None


@dataclass(frozen=True, slots=True)
class ChatHistory:
    """`pending`: the number of the user's turns without a vector, which only their terms can find.

    `window`: the days that the query itself names, if any. `is_reranked`: whether the reranker ran.
    `has_nothing_relevant`: the results are only the nearest texts; unknown, and so False, in semantic mode. `notes`:
    sentences about what was left out, in English.
    """

    matches: list[ChatMatch]
    pending: int
    window: TimeWindow | None = None
    is_reranked: bool = False
    has_nothing_relevant: bool = False
    notes: tuple[str, ...] = ()


class Found(NamedTuple):
    """A text that a retriever found, and its relevance: how likely it is the wanted one, 0 to 1.

    `shares_terms`: whether it was found by its terms. `has_only`: whether it is the user's only text with one of the
    query's terms.
    """

    text: MeasuredText
    relevance: float
    shares_terms: bool
    has_only: bool = False

    @property
    def key(self) -> Key:
        source, place = self.text.key
        return (UUID(source), place)

    @property
    def distance(self) -> float | None:
        """The cosine distance of its nearest passage, None without a vector."""
        return self.text.distance

    @property
    def said_at(self) -> datetime:
        return datetime.fromtimestamp(self.text.said_at, UTC)


class FoundTexts(NamedTuple):
    """Texts, the best first. `pending`: how many of the scope's corpora have a passage without a vector.

    `calibration` is the one for their distances.
    """

    texts: list[Found]
    pending: int
    calibration: Calibration


def search_chat_history(
    *,
    user: User,
    query: str,
    limit: int,
    mode: SearchMode = SearchMode.SEMANTIC,
    now: datetime | None = None,
    rerank: bool = False,
) -> ChatHistory:
    """The `limit` turns of `user` that answer `query` best, ordered by `mode`.

    `rerank` reorders the best results of a hybrid search, if there is a reranker and it is in time.

    A query that names a time is searched among those days; one that names only a time gets their turns in order.
    Without `now` dates are not read, because only the caller knows the meaning of "yesterday".

    It acts as the user itself, in short transactions, and asks the models' endpoints between them. While the embedding
    endpoint is left alone (`core.resilience`), a hybrid search goes by terms alone and says so.

    Raises `EmbeddingModelAway` and `TooManySearches` (both retryable), and `SearchFailed` when the time is up.
    """
    deadline = Deadline(settings.HISTORY_TIMEOUT_SECONDS)
    try:
        return _Search(user, limit, mode, deadline).run(query, now=now, rerank=rerank)
    except OutOfTime as error:
        raise SearchFailed("Search failed: it took too long.") from error


@dataclass(frozen=True)
class _Search:
    """One search, step by step: each `_step` is a transaction of its own."""

    user: User
    limit: int
    mode: SearchMode
    deadline: Deadline

    def _step(self, work: Callable[[], T], *, share: float = 1.0) -> T:
        """In at most this share of the time that is left."""

        return searching(self.user, work, seconds=self.deadline.left * share)

    def run(self, query: str, *, now: datetime | None, rerank: bool) -> ChatHistory:
        scope, window = Scope(self.user, (Corpus.CHAT,)), None
        if now is not None:
            scope, window = self._step(lambda: in_window(scope, query, now=now))
        query = query if window is None else window.topic or query
        embedder, vector = embedded(query, needs_vector=self.mode is not SearchMode.HYBRID)
        if self.mode is SearchMode.SEMANTIC and vector is not None:
            found = self._step(lambda: _by_meaning(scope, embedder, vector, limit=self.limit))
            return replace(found, window=window)
        asks_for_a_time = window is not None and not window.topic
        is_ranked = self.mode is SearchMode.HYBRID and not asks_for_a_time
        notes = [] if vector is not None else [WORDS_ALONE]
        found_texts, passages = self._step(
            lambda: self._candidates(scope, query, vector, embedder, is_ranked=is_ranked, rerank=rerank)
        )
        texts, is_reranked = found_texts.texts, False
        if asks_for_a_time:
            texts = sorted(texts, key=lambda each: each.said_at)
        if passages:
            texts, is_reranked = _reranked(query, texts, passages)
        if is_ranked:
            texts = self._exact_first(scope, texts, query, notes)
        is_nothing = is_ranked and is_nearest_only(texts, found_texts.calibration)
        matches = self._step(lambda: _matches(self.user, texts[: self.limit]))
        return ChatHistory(matches, found_texts.pending, window, is_reranked, is_nothing, tuple(notes))

    def _candidates(
        self, scope: Scope, query: str, vector: Vector | None, embedder: Embedder, *, is_ranked: bool, rerank: bool
    ) -> tuple[FoundTexts, dict[Key, str]]:
        """The texts in their first order, and for the best of them the passages that a reranker reads."""
        rank = by_terms if self.mode is SearchMode.LEXICAL else by_terms_and_meaning
        found = rank(scope, query=query, vector=vector, embedder=embedder)
        if not is_ranked:
            return found, {}
        found = found._replace(texts=_chosen_first(self.user, found.texts))
        return found, _passages(scope, query, vector, embedder, found.texts) if rerank else {}

    def _exact_first(self, scope: Scope, texts: list[Found], query: str, notes: list[str]) -> list[Found]:
        """Those that have all of the exact pieces, then those that have one, then the others; each group in its
        order.
        """
        pieces, left_out = searched_pieces(query)
        if left_out:
            notes.append(PIECES_LEFT_OUT.format(", ".join(left_out)))
        if not pieces:
            return texts
        try:
            having = self._step(lambda: containing(scope, texts=pieces, limit=LITERAL), share=0.5)
        except OutOfTime:
            notes.append(NO_TIME_FOR_PIECES)
            return texts
        sets = [set(keys) for keys in having]
        return sorted(texts, key=lambda each: -sum(each.key in keys for keys in sets))


def _chosen_first(user: User, texts: list[Found]) -> list[Found]:
    """The best of them reordered, with versions that were not chosen below those that were."""
    first = texts[:LOOKED_FOR_VERSIONS]
    passed_over = off_path(user=user, keys=[text.key for text in first])
    if not passed_over:
        return texts
    again = [
        text._replace(relevance=text.relevance * NOT_CHOSEN) if text.key in passed_over else text for text in texts
    ]
    return sorted(again, key=lambda text: -text.relevance)


def is_nearest_only(texts: Sequence[Found], calibration: Calibration) -> bool:
    """Whether none of them is likely to be relevant, nor near in meaning.

    The second condition is for small histories: no term is rare there, so shared terms mean little.
    """
    return not any(
        text.relevance >= RELATED or (text.distance is not None and text.distance <= calibration.far) for text in texts
    )


def _passages(
    scope: Scope, query: str, vector: Vector | None, embedder: Embedder, texts: list[Found]
) -> dict[Key, str]:
    """For each of the best texts, the words for the reranker. A turn that was deleted meanwhile has none."""
    keys = [text.key for text in texts[:LOOKED_AT]]
    spans = nearest_passages(scope, vector, embedder, keys)
    turns = {turn.key: turn.segments for turn in read_turns(scope.user, keys, query=query, passages=spans)}
    return dict(zip(turns, passages(query, list(turns.values())), strict=True))


def _reranked(query: str, texts: list[Found], passages: Mapping[Key, str]) -> tuple[list[Found], bool]:
    """The best of them in their new order, before the others in their old one; and whether the reranker ran."""
    first = [text for text in texts[:LOOKED_AT] if text.key in passages]
    scores = second_scores(query, [passages[text.key] for text in first])
    again = [
        text._replace(relevance=together(text.relevance, score)) for text, score in zip(first, scores, strict=False)
    ]
    again.sort(key=lambda text: -text.relevance)
    last = again[-1].relevance if again else 1.0
    others = [text._replace(relevance=min(last, text.relevance)) for text in first[len(again) :] + texts[LOOKED_AT:]]
    return again + others, bool(again)


def in_window(scope: Scope, query: str, *, now: datetime) -> tuple[Scope, TimeWindow | None]:
    """The days that the query itself names, if the scope has texts of them; and the scope narrowed to them."""
    window = find_window(query, today=lambda: scope.user.local_time(now).date())
    if window is None:
        return scope, None
    since, until = moments_of(*window.days, scope.user.zone)
    narrowed = replace(scope, since=since, until=until)
    return (narrowed, window) if IndexedText.objects.in_scope(narrowed).exists() else (scope, None)


def searched_pieces(query: str) -> tuple[list[str], list[str]]:
    """The exact pieces that are searched, and those beyond `MOST_PIECES` that are left out."""
    pieces = list(dict.fromkeys(exact_pieces(query)))
    return pieces[:MOST_PIECES], pieces[MOST_PIECES:]


def exact_pieces(query: str) -> list[str]:
    """The literal pieces of a query: quotations and identifiers."""
    quoted = ["".join(groups) for groups in _QUOTED.findall(query)]
    words = [word.strip(".,;:!?()[]{}'") for word in _QUOTED.sub(" ", query).split()]
    return [piece for piece in map(str.strip, quoted) if piece] + [word for word in words if _is_identifier(word)]


def _is_identifier(word: str) -> bool:
    """An order number, an error code, an e-mail address, a file, a name_with_underscores; not an amount or a date."""
    if "://" in word or "@" in word[1:-1] or "_" in word[1:-1] or _FILE.fullmatch(word):
        return True
    letters, digits = sum(map(str.isalpha, word)), sum(map(str.isdigit, word))
    return letters > 0 and digits > 0 and letters + digits > 3 and not _AMOUNT.fullmatch(word)  # noqa: PLR2004


def embedded(query: str, *, needs_vector: bool = False) -> tuple[Embedder, Vector | None]:
    """The active model and its vector of the query; None while its endpoint is left alone, unless one is needed.

    It may ask an endpoint, so it must not run in a transaction. Raises `EmbeddingModelAway`.
    """
    try:
        embedder = get_embedder()
        return embedder, embedder.embed_query(query)
    except EmbedderLeftAlone as error:
        if needs_vector:
            raise EmbeddingModelAway from error
        return embedder, None
    except EmbedderError as error:
        raise EmbeddingModelAway from error


def by_terms(scope: Scope, *, query: str, vector: Vector | None, embedder: Embedder) -> FoundTexts:
    """The texts that share terms with the query, the best first by BM25F alone."""
    hits = terms.score(scope, query=query, limit=TEXTS_BY_TERMS).hits
    measured = vectors.distances(
        scope,
        model=embedder.name,
        vector=vector,
        passages=0,
        further=further_of(embedder),
        also=[hit.key for hit in hits],
    )
    texts = {text.key: text for text in measured.texts}
    ranked = [Found(texts[hit.key], hit.score, shares_terms=True) for hit in hits if hit.key in texts]
    return FoundTexts(ranked, measured.pending, _calibration(embedder, measured))


class Gathered(NamedTuple):
    """The results of both retrievers for the candidates, before ranking; see `fuse` for its figures."""

    candidates: list[Candidate]
    ideal: float
    unrelated: float
    calibration: Calibration
    hits: dict[PlainKey, TermHit]
    measured: Distances


def gather(scope: Scope, *, query: str, vector: Vector | None, embedder: Embedder) -> Gathered:
    """The best texts by terms and those of the nearest passages."""
    best, ideal = terms.score(scope, query=query, limit=TEXTS_BY_TERMS)
    hits = {hit.key: hit for hit in best}
    measured = vectors.distances(
        scope,
        model=embedder.name,
        vector=vector,
        passages=PASSAGES_BY_MEANING,
        further=further_of(embedder),
        also=hits,
    )
    candidates = [_candidate(text, hits.get(text.key, NO_TERMS)) for text in measured.texts]
    unrelated = 0.0 if measured.unrelated is None else measured.unrelated
    return Gathered(candidates, ideal, unrelated, _calibration(embedder, measured), hits, measured)


def by_terms_and_meaning(scope: Scope, *, query: str, vector: Vector | None, embedder: Embedder) -> FoundTexts:
    """The texts that either retriever found, the most relevant first."""
    found = gather(scope, query=query, vector=vector, embedder=embedder)
    fused = fuse(found.candidates, ideal=found.ideal, unrelated=found.unrelated, calibration=found.calibration)
    texts = {text.key: text for text in found.measured.texts}
    only = {key for key, hit in found.hits.items() if hit.has_only}
    ranked = [Found(texts[key], fused[key], key in found.hits, key in only) for key in fused]
    return FoundTexts(ranked, found.measured.pending, found.calibration)


def _calibration(embedder: Embedder, measured: Distances) -> Calibration:
    if embedder.calibration is not None:
        return embedder.calibration
    having_vector = sum(text.distance is not None for text in measured.texts)
    if measured.unrelated is None or having_vector < MEASURED_TEXTS:
        return UNCALIBRATED
    return Calibration.measured(measured.unrelated)


def nearest_passages(
    scope: Scope, vector: Vector | None, embedder: Embedder, keys: Collection[Key]
) -> dict[Key, PassageSpan]:
    """For each of these texts of `scope`, the passage nearest to the query in meaning; none without a vector."""
    if vector is None:
        return {}
    further = further_of(embedder)
    return vectors.nearest_passages(scope, model=embedder.name, vector=vector, further=further, keys=keys)


def further_of(embedder: Embedder) -> float:
    """The added distance of a further passage, before the model's distances are measured."""
    return (embedder.calibration or TUNED).further


def _candidate(text: MeasuredText, hit: TermHit) -> Candidate:
    return Candidate(text.key, text.terms, hit.score, hit.said_score, text.distance, text.said_distance)


def _by_meaning(scope: Scope, embedder: Embedder, vector: Vector, *, limit: int) -> ChatHistory:
    nearest = vectors.nearest(
        scope,
        model=embedder.name,
        vector=vector,
        limit=limit,
        further=further_of(embedder),
        beginning_length=SNIPPET_LENGTH,
    )
    matches = [
        ChatMatch(text.source_id, text.chunk_index, snippet=text.beginning, score=text.distance)
        for text in nearest.texts
        if text.beginning is not None
    ]
    return ChatHistory(matches, pending=nearest.pending)


def _matches(user: User, ranked: Sequence[Found]) -> list[ChatMatch]:
    # A turn that was deleted meanwhile has no beginning, and is no longer a match.
    snippets = beginnings(user=user, keys=[one.key for one in ranked], length=SNIPPET_LENGTH)
    return [
        ChatMatch(
            *one.key,
            snippet=snippets[one.key],
            score=DISTANCE_UNKNOWN if one.distance is None else one.distance,
            relevance=one.relevance,
        )
        for one in ranked
        if one.key in snippets
    ]
