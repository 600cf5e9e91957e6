"""Puts a data set's questions to the production search, mode by mode, and adds up what came of it."""

from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from evals import metrics
from evals.datasets import Dataset, Loaded, QueryRow
from evals.metrics import Interval, Scores
from intake.acting import acting_as
from intake.models import User
from memory.search import SearchMode, search_chat_history

LIMIT = 25
ALL_MODES = "all"
# These ask for an order, a summary or obedience, not for turns that are like the question.
NOT_IN_HEADLINE = frozenset({"event_ordering", "summarization", "instruction_following"})

Report = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Answered:
    """A query, and how well the search did on it."""

    query: QueryRow
    scores: Scores


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


def answer(dataset: Dataset, loaded: Loaded, mode: SearchMode, *, report: Report) -> list[Answered]:
    """Ask every query as its person."""
    answered = []
    for number, query in enumerate(dataset.queries, start=1):
        ranked = [loaded.origins[key] for key in _search(mode, loaded.users[query.user], query.text)]
        answered.append(Answered(query, metrics.score(ranked, query.gold)))
        if number % 250 == 0 or number == len(dataset.queries):
            report(f"{mode}: {number:,} of {len(dataset.queries):,} queries answered.")
    return answered


def _search(mode: SearchMode, user: User, text: str) -> list[tuple[Any, int]]:
    with acting_as(user):
        found = search_chat_history(user=user, query=text, limit=LIMIT, mode=mode)
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
    """The JSON that machines read: `{dataset, turns, queries, modes: {mode: {overall, headline, categories}}}`."""
    return {
        "dataset": dataset.name,
        "turns": len(dataset.turns),
        "queries": len(dataset.queries),
        "modes": {str(mode): _mode_as_data(answered) for mode, answered in by_mode.items()},
    }


def _mode_as_data(answered: list[Answered]) -> dict[str, Any]:
    overall, headline, *categories = groups(answered).items()
    return {
        "overall": mean(overall[1]),
        "headline": mean(headline[1]),
        "categories": {name: mean(members) for name, members in categories},
    }
