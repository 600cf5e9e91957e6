"""Puts a data set's questions to the production search, mode by mode, and adds up what came of it."""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from core.isolation.acting import acting_as
from evals import metrics
from evals.datasets import Dataset, Loaded, QueryRow
from evals.datasets.loading import Report
from evals.metrics import Interval, Scores
from intake.models import User
from memory.search import SearchMode, search_chat_history

LIMIT = 25
ALL_MODES = "all"
# Reciprocal rank fusion, a yardstick for hybrid: with the constant of the method's paper, and as many
# results of each ranking as such systems take.
RANK_FUSION = "rank fusion"
RANK_FUSION_K = 60
RANK_FUSION_DEPTH = 100
# These ask for an order, a summary or obedience, not for turns that are like the question.
NOT_IN_HEADLINE = frozenset({"event_ordering", "summarization", "instruction_following"})

TurnKey = tuple[str, int]
"""A turn by its conversation and number in the data set."""


@dataclass(frozen=True, slots=True)
class Answered:
    """A query, the turns that were found, and how well the first 25 of them answer it."""

    query: QueryRow
    ranking: list[TurnKey]
    scores: Scores

    @classmethod
    def of(cls, query: QueryRow, ranking: list[TurnKey]) -> "Answered":
        return cls(query, ranking, metrics.score(ranking[:LIMIT], query.gold))


class UnknownMode(Exception):
    """The message says which modes there are."""


def modes_named(name: str) -> list[SearchMode]:
    """One mode, or every mode there is for `all`. Raises `UnknownMode`."""
    if name == ALL_MODES:
        return list(SearchMode)
    try:
        return [SearchMode(name)]
    except ValueError:
        raise UnknownMode(f"There is no mode {name!r}; there are: {', '.join([*SearchMode, ALL_MODES])}.") from None


def answer(
    dataset: Dataset, loaded: Loaded, mode: SearchMode, *, rerank: bool = False, report: Report
) -> list[Answered]:
    """Ask every query as its person."""
    answered = []
    for number, query in enumerate(dataset.queries, start=1):
        ranking = [loaded.origins[key] for key in _search(mode, loaded.users[query.user], query.text, rerank)]
        answered.append(Answered.of(query, ranking))
        if number % 250 == 0 or number == len(dataset.queries):
            report(f"{mode}: {number:,} of {len(dataset.queries):,} queries answered.")
    return answered


def rank_fusion(lexical: Iterable[Answered], semantic: Iterable[Answered]) -> list[Answered]:
    """Reciprocal rank fusion of the two retrievers' answers to the same queries.

    Source: G. Cormack, C. Clarke and S. Büttcher, Reciprocal Rank Fusion outperforms Condorcet (2009).
    """
    return [
        Answered.of(one.query, _fused_by_rank(one.ranking, other.ranking))
        for one, other in zip(lexical, semantic, strict=True)
    ]


def _fused_by_rank(*rankings: list[TurnKey]) -> list[TurnKey]:
    scores: dict[TurnKey, float] = defaultdict(float)
    for ranking in rankings:
        for rank, key in enumerate(ranking, start=1):
            scores[key] += 1 / (RANK_FUSION_K + rank)
    return sorted(scores, key=lambda key: -scores[key])


def _search(mode: SearchMode, user: User, text: str, rerank: bool) -> list[tuple[Any, int]]:
    limit = LIMIT if mode is SearchMode.HYBRID else RANK_FUSION_DEPTH
    with acting_as(user):
        found = search_chat_history(user=user, query=text, limit=limit, mode=mode, rerank=rerank)
    return [(match.conversation_id, match.turn_number) for match in found.matches]


def groups(answered: Iterable[Answered]) -> dict[str, list[Answered]]:
    """`overall`, `headline`, then each category by name."""
    every = list(answered)
    named = defaultdict(list)
    for one in every:
        named[one.query.category].append(one)
    headline = [one for one in every if one.query.category not in NOT_IN_HEADLINE]
    return {"overall": every, "headline": headline, **dict(sorted(named.items()))}


def mean(answered: Iterable[Answered]) -> Scores:
    return metrics.mean(one.scores for one in answered)


def intervals(answered: Iterable[Answered]) -> dict[str, Interval]:
    by_person = defaultdict(list)
    for one in answered:
        by_person[one.query.user].append(one.scores)
    return metrics.confidence_intervals(by_person)


def as_data(dataset: Dataset, by_mode: dict[SearchMode, list[Answered]]) -> dict[str, Any]:
    """The JSON that machines read: `{dataset, turns, queries, modes: {mode: {overall, headline, categories}}}`.

    With both legs among the modes also `rank_fusion: {overall, headline, categories}`.
    """
    data = {
        "dataset": dataset.name,
        "turns": len(dataset.turns),
        "queries": len(dataset.queries),
        "modes": {str(mode): _mode_as_data(answered) for mode, answered in by_mode.items()},
    }
    if legs := both_legs(by_mode):
        data["rank_fusion"] = _mode_as_data(rank_fusion(*legs))
    return data


def both_legs(by_mode: dict[SearchMode, list[Answered]]) -> tuple[list[Answered], list[Answered]] | None:
    """The answers of words alone and of meaning alone, if both were asked."""
    if {SearchMode.LEXICAL, SearchMode.SEMANTIC} <= by_mode.keys():
        return by_mode[SearchMode.LEXICAL], by_mode[SearchMode.SEMANTIC]
    return None


def _mode_as_data(answered: list[Answered]) -> dict[str, Any]:
    overall, headline, *categories = groups(answered).items()
    return {
        "overall": mean(overall[1]),
        "headline": mean(headline[1]),
        "categories": {name: mean(members) for name, members in categories},
    }
