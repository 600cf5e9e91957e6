"""Reranks the best results: a reranker reads the query together with each of their passages.

    relevance = 1 / (1 + exp(-(BEFORE * log odds before + NOW * the reranker's log odds + INTERCEPT)))

Both scores count. The reranker is better on conversations between two people, the first ranking on long technical ones,
and both together are better than each alone everywhere (docs/decisions/0021).
"""

import logging
from collections.abc import Iterable, Sequence
from math import exp, log

from django.conf import settings

from memory.rerankers import RerankerError, get_reranker
from memory.search.excerpts import Segment, matching, show
from memory.search.ranking import SHARPNESS
from memory.search.texts import Inflections

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

    Empty without a reranker, or if it fails; the search then keeps its first order.
    """
    try:
        reranker = get_reranker()
        if reranker is None or not texts:
            return []
        return reranker.scores(query, texts, seconds=settings.RERANK_SECONDS)
    except RerankerError as error:
        logger.warning("The results are not reranked: %s", error)
        return []


def passages(query: str, texts: Sequence[Iterable[Segment]]) -> list[str]:
    """For each text the words that its excerpt shows."""
    matcher = Inflections(query).matcher_for(segment.text for segments in texts for segment in segments)
    return [show(matching(list(segments), matcher), matcher).own_words for segments in texts]


def together(before: float, score: float, *, weight: float = NOW) -> float:
    """Combines both scores of one text: a relevance or a score from 0 to 1, and the reranker's log odds."""
    before = min(1 - NEARLY, max(NEARLY, before))
    log_odds = BEFORE * log(before / (1 - before)) + weight * min(SURE, max(-SURE, score)) + INTERCEPT
    return 1 / (1 + exp(-log_odds))
