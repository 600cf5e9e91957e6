"""Puts a data set's questions to the production search, mode by mode, and adds up what came of it."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from core.isolation.acting import acting_as
from evals import metrics
from evals.datasets.loading import Loaded, Report
from evals.datasets.reading import Dataset, QueryRow
from evals.metrics import Scores
from evals.tables import columns
from memory.search import SearchMode, search_chat_history

LIMIT = 25
REPORT_EVERY = 250
# Reciprocal rank fusion, a yardstick for hybrid: with the constant of the method's paper, and as many
# results of each ranking as such systems take.
RANK_FUSION = "rank fusion"
RANK_FUSION_K = 60
RANK_FUSION_DEPTH = 100
# These ask for an order, a summary or obedience, not for turns that are like the question.
NOT_IN_HEADLINE = frozenset({"event_ordering", "summarization", "instruction_following"})
WITH_INTERVALS = ("overall", "headline")
# Their gold turns state different values of one thing.
RESTATED = frozenset({"knowledge_update", "contradiction_resolution"})

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


def answer(
    dataset: Dataset, loaded: Loaded, mode: SearchMode, *, rerank: bool = False, report: Report
) -> list[Answered]:
    """Ask every query as its person."""
    limit = LIMIT if mode is SearchMode.HYBRID else RANK_FUSION_DEPTH
    answered = []
    for number, query in enumerate(dataset.queries, start=1):
        with acting_as(user := loaded.users[query.user]):
            found = search_chat_history(user=user, query=query.text, limit=limit, mode=mode, rerank=rerank)
        ranking = [loaded.origins[hit.key] for hit in found.matches]
        answered.append(Answered.of(query, ranking))
        if number % REPORT_EVERY == 0 or number == len(dataset.queries):
            report(f"{mode}: {number:,} of {len(dataset.queries):,} queries answered.")
    return answered


def rank_fusion(lexical: Iterable[Answered], semantic: Iterable[Answered]) -> list[Answered]:
    """Reciprocal rank fusion of the two retrievers' answers to the same queries.

    Source: G. Cormack, C. Clarke and S. Büttcher, Reciprocal Rank Fusion outperforms Condorcet (2009).
    """
    fused = []
    for one, other in zip(lexical, semantic, strict=True):
        scores: dict[TurnKey, float] = defaultdict(float)
        for ranking in (one.ranking, other.ranking):
            for rank, key in enumerate(ranking, start=1):
                scores[key] += 1 / (RANK_FUSION_K + rank)
        fused.append(Answered.of(one.query, sorted(scores, key=lambda key: -scores[key])))
    return fused


def with_rank_fusion(by_mode: dict[SearchMode, list[Answered]]) -> dict[str, list[Answered]]:
    """The answers by mode and, if both retrievers were asked, by what fuses their ranks."""
    named = {str(mode): answered for mode, answered in by_mode.items()}
    if {SearchMode.LEXICAL, SearchMode.SEMANTIC} <= by_mode.keys():
        named[RANK_FUSION] = rank_fusion(by_mode[SearchMode.LEXICAL], by_mode[SearchMode.SEMANTIC])
    return named


def as_data(dataset: Dataset, named: dict[str, list[Answered]]) -> dict[str, Any]:
    """The JSON that machines read: `{dataset, turns, queries, modes: {mode: {overall, headline, categories}}}`.

    With rank fusion also `rank_fusion: {overall, headline, categories}`. A mode has `newest_first` too if the data set
    has questions of the categories in `RESTATED`.
    """
    modes = {name: _means(answered) | newest_first(dataset, answered) for name, answered in named.items()}
    fused = {"rank_fusion": modes.pop(RANK_FUSION)} if RANK_FUSION in modes else {}
    counts = {"turns": len(dataset.turns), "queries": len(dataset.queries)}
    return {"dataset": dataset.name, **counts, "modes": modes, **fused}


def newest_first(dataset: Dataset, answered: Iterable[Answered]) -> dict[str, dict[str, float]]:
    """By category, the share of the queries whose newest gold turn is above each earlier one; empty without any."""
    places = {row.key: place for place, row in enumerate(dataset.turns)}
    by_category = defaultdict(list)
    for one in answered:
        if one.query.category in RESTATED and len(one.query.gold) > 1:
            newest = max(one.query.gold, key=lambda turn: places[one.query.user, *turn])
            first = next((turn for turn in one.ranking if turn in one.query.gold), None)
            by_category[one.query.category].append(first == newest)
    return (
        {"newest_first": {name: metrics.share(by_category[name]) for name in sorted(by_category)}}
        if by_category
        else {}
    )


def table(name: str, answered: Sequence[Answered], newest: Mapping[str, float] = MappingProxyType({})) -> str:
    """Percent, per group of queries; under the two totals, the range they would keep to with other people. `newest`:
    by category, the share of `newest_first`.
    """
    rows = [[name, "n", *metrics.HEADINGS.values()]]
    for group, members in _groups(answered).items():
        if members:
            rows.append([group, str(len(members)), *metrics.percents(metrics.mean(one.scores for one in members))])
        if members and group in WITH_INTERVALS:
            by_person = defaultdict(list)
            for one in members:
                by_person[one.query.user].append(one.scores)
            spans = metrics.confidence_intervals(by_person).values()
            rows.append(["  95 % interval", "", *(f"{100 * low:.0f}-{100 * high:.0f}" for low, high in spans)])
    return "\n".join(
        [columns(rows), *(f"newest first, {category}: {100 * share:.1f}" for category, share in newest.items())]
    )


def _groups(answered: Sequence[Answered]) -> dict[str, list[Answered]]:
    """`overall`, `headline`, then each category by name."""
    named = defaultdict(list)
    for one in answered:
        named[one.query.category].append(one)
    headline = [one for one in answered if one.query.category not in NOT_IN_HEADLINE]
    return {"overall": list(answered), "headline": headline, **dict(sorted(named.items()))}


def _means(answered: Sequence[Answered]) -> dict[str, Any]:
    means = {name: metrics.mean(one.scores for one in members) for name, members in _groups(answered).items()}
    return {"overall": means.pop("overall"), "headline": means.pop("headline"), "categories": means}
