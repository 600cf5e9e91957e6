"""Reads the texts of hits for excerpts, both sides of a turn and the inflected forms of the query's words, and reranks
the best of them.
"""

import logging
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from math import exp, log
from types import MappingProxyType

from django.conf import settings
from django.db import connection
from django.db.models import Case, F, Value, When
from django.db.models.functions import Coalesce, Greatest, Lower, NullIf, StrIndex, Substr

from intake.models import Turn, User
from intake.models.conversations import OPEN
from memory.backends.rerankers import RerankerError, get_reranker
from memory.chunking import ASSISTANT_LABEL, USER_LABEL, PassageSpan, Side
from memory.index.terms import ENGLISH, configuration_of, indexed_form, language_of
from memory.models.documents import Hit, Key
from memory.search.echoes import telling_sides
from memory.search.excerpts import Highlight, Matcher, Segment, matching, own_words, show
from memory.search.fusion import SHARPNESS, with_exact_first

# The part of a message that is read; of a longer one, around the literal query, or the found passage.
STRETCH = 32_000
# The part of a query that is searched: more than an embedding model reads, and no more terms than a search can look up.
SEARCHED_LENGTH = 2_000

_SAME = """
WITH asked AS MATERIALIZED (
    SELECT configuration, tsvector_to_array(to_tsvector(configuration::regconfig, %(query)s)) AS lexemes
      FROM (SELECT DISTINCT unnest(%(configurations)s::text[]) AS configuration) AS each
)
SELECT word
  FROM unnest(%(configurations)s::text[], %(words)s::text[], %(forms)s::text[]) AS candidate(configuration, word, form)
  JOIN asked USING (configuration)
 WHERE tsvector_to_array(to_tsvector(configuration::regconfig, form)) && lexemes
"""


def read_turns(
    user: User, keys: Collection[Key], *, query: str, passages: Mapping[Key, PassageSpan] = MappingProxyType({})
) -> Iterator[tuple[Key, datetime, str, list[Segment]]]:
    """Those of the keys that are the user's turns, without turns that are being answered: for each its key, its time,
    the title of its conversation, and both sides. An answer that only quotes the user's history is empty here, because
    it was not searched either.

    `passages`: for each, the passage that is nearest to the query in meaning.
    """
    turns = Turn.objects.for_user(user).with_keys(keys).exclude(status__in=OPEN)
    piece = query.strip()[:SEARCHED_LENGTH]
    sides = {
        side: {key: span for key, span in passages.items() if span.side is side} for side in (Side.USER, Side.ASSISTANT)
    }
    user_from = _first("user_message", piece, sides[Side.USER])
    assistant_from = _first("assistant_message", piece, sides[Side.ASSISTANT])
    rows = turns.annotate(
        user_from=user_from,
        assistant_from=assistant_from,
        said=Substr(F("user_message"), user_from, STRETCH),
        answered=Substr(F("assistant_message"), assistant_from, STRETCH),
    )
    columns = ("conversation_id", "turn_number", "said_at", "conversation__title", "is_recall")
    for source, number, said_at, title, is_recall, said, user_start, answered, assistant_start in rows.values_list(
        *columns, "said", "user_from", "answered", "assistant_from"
    ):
        key = (source, number)
        user_passage = passage_in(said, sides[Side.USER].get(key), user_start - 1)
        assistant_passage = passage_in(answered, sides[Side.ASSISTANT].get(key), assistant_start - 1)
        segments = [
            Segment(said, before=USER_LABEL, passage=user_passage),
            Segment("" if is_recall else answered, before=ASSISTANT_LABEL, passage=assistant_passage),
        ]
        yield key, said_at, title, segments


def passage_in(text: str, span: PassageSpan | None, start: int = 0) -> Highlight | None:
    """The position of the passage in a text that begins at `start` of its side; None if it is outside, or the whole
    text.
    """
    if span is None or span.side is Side.WHOLE:
        return None
    first, last = span.start - start, span.end - start
    is_all = first <= 0 and last >= len(text.rstrip())
    return None if is_all or first < 0 or last > len(text) else (first, last)


def _first(column: str, piece: str, spans: Mapping[Key, PassageSpan]) -> Greatest:
    """The first character to read, counted from 1."""
    deep = [
        When(conversation_id=source, turn_number=number, then=Value(span.start))
        for (source, number), span in spans.items()
        if span.end > STRETCH
    ]
    passage = Case(*deep, default=Value(0)) if deep else Value(0)
    literal = NullIf(StrIndex(Lower(column), Lower(Value(piece))), Value(0))
    return Greatest(Value(1), Coalesce(literal, passage) - Value(STRETCH // 2))


class Inflections:
    """Learns from texts; each word is looked up once per language."""

    def __init__(self, query: str, *, exact: Sequence[str] = ()) -> None:
        self._query = query
        self._asked: set[tuple[str, str]] = set()
        self._known: set[str] = set()
        self._matcher = Matcher.of(query, exact=exact)

    def matcher_for(self, texts: Iterable[str]) -> Matcher:
        """Knows every word of these texts that is a form of one of the query's."""
        candidates = {
            (language, word)
            for text in texts
            # Once for each text: telling a language takes longer than anything else here.
            for language in (configuration_of(text),)
            for word in self._matcher.candidates([text])
        }
        new = candidates - self._asked
        if new:
            self._asked |= new
            self._known |= self._same(new)
        return self._matcher.knowing(self._known)

    def _same(self, candidates: set[tuple[str, str]]) -> set[str]:
        languages, words = (list(column) for column in zip(*candidates, strict=True))
        with connection.cursor() as cursor:
            cursor.execute(
                _SAME,
                {
                    "configurations": languages,
                    "query": indexed_form(self._query[:SEARCHED_LENGTH]),
                    "words": words,
                    "forms": [indexed_form(word) for word in words],
                },
            )
            return {word for (word,) in cursor.fetchall()}


# A reranker reads the query together with each of the best passages:
#
#     relevance = 1 / (1 + exp(-(BEFORE * log odds before + NOW * the reranker's log odds + INTERCEPT)))
#
# Both scores count. The reranker is better on conversations between two people, the first ranking on long technical
# ones, and both together are better than each alone everywhere (docs/decisions/0009).

# The candidates for reranking: few right ones come after them, and the time grows with their number.
LOOKED_AT = 20
BEFORE, NOW, INTERCEPT = 0.5, 0.25, -1.1
# For a score, which is a relevance raised to this power, with weight and age.
NOW_BESIDE_SCORE = NOW * SHARPNESS
# Beyond these log odds a reranker's certainty has no more effect.
SURE = 8.0
# The limit of the first ranking's certainty.
NEARLY = 1e-6

logger = logging.getLogger(__name__)


def second_scores(query: str, texts: Sequence[str]) -> list[float]:
    """The reranker's log odds of the first `passages`: of fewer than all if the time was up. Asks an endpoint.

    Empty without a reranker, or if it fails or does not read the query's language; the search then keeps its first
    order.
    """
    try:
        reranker = get_reranker()
        if reranker is None or not texts:
            return []
        # A query whose language cannot be told is English too, if most of its letters are in English words.
        letters = [character for character in query if character.isalpha()]
        is_english = 2 * sum(map(str.isascii, letters)) >= len(letters) and language_of(query) == ENGLISH
        if reranker.reads_english_alone and not is_english:
            return []
        return reranker.scores(query, texts, seconds=settings.RERANK_SECONDS)
    except RerankerError as error:
        logger.warning("The results are not reranked: %s", error)
        return []


def passages(
    query: str, hits: Iterable[Hit], texts: Mapping[tuple[str, Key], list[Segment]]
) -> dict[tuple[str, Key], str]:
    """For each of these hits, the words that its excerpt shows. A text that was deleted meanwhile has none."""
    sides = {
        (hit.source, hit.key): telling_sides(hit, texts[hit.source, hit.key])
        for hit in hits
        if (hit.source, hit.key) in texts
    }
    matcher = Inflections(query).matcher_for(segment.text for segments in sides.values() for segment in segments)
    return {place: own_words(show(matching(segments, matcher), matcher)[1]) for place, segments in sides.items()}


def reranked(
    query: str, hits: list[Hit], passages: Mapping[tuple[str, Key], str], *, weight: float
) -> tuple[list[Hit], bool]:
    """Those with a passage in their new order, before the others in their old one; and whether the reranker ran.

    The reranker counts beside the complete score, and not before weight and age: as a relevance it would outweigh both.
    """
    first = [hit for hit in hits if (hit.source, hit.key) in passages]
    scores = second_scores(query, [passages[hit.source, hit.key] for hit in first]) if first else []
    if not scores:
        return hits, False
    again = with_exact_first(
        hit._replace(relevance=together(hit.relevance, second), score=together(hit.score, second, weight=weight))
        for hit, second in zip(first, scores, strict=False)
    )
    again = with_clear_first(first, again)
    score, relevance = again[-1].score, min(hit.relevance for hit in again)
    others = first[len(again) :] + [hit for hit in hits if (hit.source, hit.key) not in passages]
    return again + [
        hit._replace(relevance=min(relevance, hit.relevance), score=min(score, hit.score)) for hit in others
    ], True


def with_clear_first(before: Sequence[Hit], again: Sequence[Hit]) -> list[Hit]:
    """`again`, the reranked hits; the first one of `before` stays first if terms and meaning agree that it is the one.

    The reranker reads only the beginning of long texts, and errs where both retrievers are sure.
    """
    first = before[0]
    nearest = min((hit.distance for hit in before if hit.distance is not None), default=None)
    is_clear = (
        # A first hit that is at least this likely, by terms and by meaning alike, is not reranked.
        first.relevance >= 0.8
        and first.distance is not None
        and first.distance == nearest
        and all(first.lexical >= hit.lexical for hit in before)
    )
    kept = next((hit for hit in again if hit.key == first.key and hit.source == first.source), None)
    if not is_clear or kept is None:
        return list(again)
    raised = kept._replace(relevance=max(hit.relevance for hit in again), score=max(hit.score for hit in again))
    return [raised, *(hit for hit in again if hit is not kept)]


def together(before: float, score: float, *, weight: float = NOW) -> float:
    """Combines both scores of one text: a relevance or a score from 0 to 1, and the reranker's log odds."""
    before = min(1 - NEARLY, max(NEARLY, before))
    log_odds = BEFORE * log(before / (1 - before)) + weight * min(SURE, max(-SURE, score)) + INTERCEPT
    return 1 / (1 + exp(-log_odds))
