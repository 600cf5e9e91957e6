"""Asks a life's questions of each surface that they are about, at their own time, and adds up what came of it.

A surface is what a person or an agent uses: the tools as REST and MCP publish them, and the chat's recall mode.
"""

import math
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any
from unittest import mock
from uuid import UUID

from asgiref.sync import async_to_sync
from pydantic_ai.messages import ModelMessage, ModelRequest, ModelResponse, TextPart, UserPromptPart

from agent_tools.tools.chat_history import search_chat_history
from agent_tools.tools.history import search_history
from agent_tools.tools.memory import search_memory
from chat.agent.context import ChatDeps, TextWritten
from chat.agent.loop import answer
from chat.agent.recall import NOTHING_ABOUT_IT
from core.isolation.acting import Caller
from evals import metrics
from evals.datasets.loading import LoadedLife, Report
from evals.datasets.reading import Gold, Life, LifeQuery
from evals.tables import columns, lines
from intake.models import User

RECALL_AT = (1, 5, 10)
IN_WINDOW_AT = 5
BEST_AT = 10
CATEGORY_OF_NO_ANSWER = "unanswerable"
FACTS = ("recall@1", "recall@5", "recall@10", "mrr")

_LINK = re.compile(r"\]\([^)]*?/([0-9a-f-]{36})/?\?turn=(\d+)")
_QUOTE = re.compile(r"^- \*\*.*\n  > .*", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Result:
    """One result: the (kind, id) of what it is of, None where that is not of the data set, and the text it shows."""

    name: tuple[str, str] | None
    text: str

    def is_any_of(self, gold: Iterable[Gold]) -> bool:
        """Of a document only a part that holds the fact counts; a turn and a record are results as a whole."""
        return any(
            self.name == each.key and (each.document is None or _folded(each.contains) in _folded(self.text))
            for each in gold
        )


def _folded(text: str) -> str:
    return " ".join(text.casefold().split())


@dataclass(frozen=True, slots=True)
class Reply:
    """The answer of a surface, the best first. `is_nothing`: it says that it found nothing about the question."""

    results: Sequence[Result]
    is_nothing: bool


Names = dict[Any, tuple[str, str]]
Ask = Callable[[LifeQuery, User, Names, bool], Reply]
"""Ask a question of somebody's memory: with the names of what is stored, and whether to have a second look."""


@dataclass(frozen=True, slots=True)
class Surface:
    """`is_about`: whether a question is for it."""

    name: str
    is_about: Callable[[LifeQuery], bool]
    ask: Ask


@dataclass(frozen=True, slots=True)
class AskedOf:
    """A question and what a surface answered."""

    query: LifeQuery
    reply: Reply

    @property
    def scores(self) -> dict[str, float]:
        """`recall@k`: whether any alternative is among the first k. `mrr`: 1 / the rank of the first of them."""
        rank = self._rank_of(self.query.gold)
        return {**{f"recall@{k}": float(rank <= k) for k in RECALL_AT}, "mrr": 1 / rank}

    @property
    def in_window(self) -> float:
        """Of the first five results, or as many as are right, the share that is."""
        count = min(IN_WINDOW_AT, len(self.query.gold))
        return sum(one.is_any_of(self.query.gold) for one in self.reply.results[:count]) / count

    @property
    def is_newest_first(self) -> bool:
        """Whether the right result stands above each earlier statement."""
        earlier = min((self._rank_of([stale]) for stale in self.query.stale), default=math.inf)
        return self._rank_of(self.query.gold) < earlier

    @property
    def has_best(self) -> bool:
        return self._rank_of(self.query.best) <= BEST_AT

    def _rank_of(self, gold: Iterable[Gold]) -> float:
        """Of the first that is right, from 1 on; infinite if there is none."""
        return next((rank for rank, one in enumerate(self.reply.results, start=1) if one.is_any_of(gold)), math.inf)


def ask(life: Life, loaded: LoadedLife, surface: Surface, *, rerank: bool, report: Report) -> list[AskedOf]:
    answered = []
    for query in filter(surface.is_about, life.queries):
        # The tools look at the clock themselves; for them it is the question's own time.
        with mock.patch("django.utils.timezone.now", return_value=query.now):
            answered.append(AskedOf(query, surface.ask(query, loaded.users[query.user], loaded.names, rerank)))
    report(f"{surface.name}: {len(answered):,} questions answered.")
    return answered


def _chat_history(mode: str) -> Ask:
    def ask(query: LifeQuery, user: User, names: Names, rerank: bool) -> Reply:
        requested = {"query": query.text[:500], "limit": 20, "mode": mode, "rerank": rerank}
        found = search_chat_history.call(requested, user=user)
        results = [Result(names.get((one.conversation_id, one.turn_number)), one.snippet) for one in found.results]
        return Reply(results, is_nothing=bool(found.nothing_relevant) or not results)

    return ask


def _history(query: LifeQuery, user: User, names: Names, rerank: bool) -> Reply:
    """Without sessions: a conversation's title is none of the texts that questions are about."""
    scope = "sessions" if query.sources == ["turns"] else "all"
    found = search_history.call({"query": query.text, "scope": scope, "max_results": 25, "rerank": rerank}, user=user)
    results = [
        Result(
            names.get((one.conversation_id, one.turn_number)) or names.get(one.document_id) or names.get(one.record_id),
            one.excerpt,
        )
        for one in found.results
        if one.source != "session"
    ]
    return Reply(results, is_nothing=bool(found.nothing_relevant) or not results)


def _memory(query: LifeQuery, user: User, names: Names, rerank: bool) -> Reply:
    found = search_memory.call({"query": query.text, "topK": 25}, user=user)
    results = [Result(names.get(one.record.id), one.record.content) for one in found.results]
    return Reply(results, is_nothing=not results)


def _recall(query: LifeQuery, user: User, names: Names, rerank: bool) -> Reply:
    """The quotations of the answer, in their order. A note has no link; it is known by its words."""
    results, written = [], async_to_sync(_written)(query, user)
    for quote in _QUOTE.findall(written):
        if link := _LINK.search(quote):
            name = names.get((UUID(link[1]), int(link[2])))
        else:
            notes = (each for each in query.gold if each.turn is None)
            name = next((each.key for each in notes if _folded(each.contains) in _folded(quote)), None)
        results.append(Result(name, quote))
    return Reply(results, is_nothing=NOTHING_ABOUT_IT in written or not results)


async def _written(query: LifeQuery, user: User) -> str:
    history: list[ModelMessage] = []
    for said in query.context:
        history.append(ModelRequest(parts=[UserPromptPart(said.user_message)]))
        history.append(ModelResponse(parts=[TextPart(said.assistant_message)]))
    deps = ChatDeps(caller=Caller(user_id=user.pk), now=query.now, zone=user.zone)
    events = [event async for event in answer(message=query.text, history=history, deps=deps)]
    return "".join(event.text for event in events if isinstance(event, TextWritten))


def _has_turn(query: LifeQuery) -> bool:
    return not query.gold or any(each.turn for each in query.gold)


SURFACES = (
    Surface("search_chat_history_semantic", _has_turn, _chat_history("semantic")),
    Surface("search_chat_history_hybrid", _has_turn, _chat_history("hybrid")),
    Surface("search_history", lambda _: True, _history),
    Surface("search_memory", lambda query: any(each.record for each in query.gold), _memory),
    Surface("recall", lambda _: True, _recall),
)


def as_data(answered: Sequence[AskedOf]) -> dict[str, Any]:
    """The JSON of one surface: `{overall, categories, sources, false_answers, refused}`.

    `overall`: the mean of the categories. `sources`: the questions with an answer by what answers them, turns or notes,
    which are documents and records. `false_answers`: the share of the questions without an answer of which the
    surface does not say that it found nothing; `refused`: the share of the others of which it does.
    """
    groups: dict[str, list[AskedOf]] = {name: [] for name in sorted({one.query.category for one in answered})}
    for one in answered:
        groups[one.query.category].append(one)
    without_answer = groups.pop(CATEGORY_OF_NO_ANSWER, [])
    categories = {category: _means(members) for category, members in groups.items()}
    with_answer = [one for members in groups.values() for one in members]
    by_source: dict[str, list[AskedOf]] = {}
    for one in with_answer:
        by_source.setdefault("turns" if any(each.turn for each in one.query.gold) else "notes", []).append(one)
    return {
        "overall": {name: metrics.share(each[name] for each in categories.values()) for name in FACTS}
        | {"n": len(with_answer)},
        "categories": categories,
        "sources": {source: _means(by_source[source]) for source in sorted(by_source, reverse=True)},
        "false_answers": metrics.share(not one.reply.is_nothing for one in without_answer),
        "refused": metrics.share(one.reply.is_nothing for one in with_answer),
    } | _more(groups)


def _means(members: Sequence[AskedOf]) -> dict[str, float]:
    return {name: metrics.share(one.scores[name] for one in members) for name in FACTS} | {"n": len(members)}


def _more(groups: dict[str, list[AskedOf]]) -> dict[str, float]:
    more = {}
    if times := [one for one in groups.get("time", []) if one.query.best]:
        more["in_window@5"] = metrics.share(one.in_window for one in times)
        more["best@10"] = metrics.share(one.has_best for one in times)
    if latest := groups.get("latest"):
        more["newest_first"] = metrics.share(one.is_newest_first for one in latest)
    return more


def table(name: str, answered: Sequence[AskedOf]) -> str:
    """Percent, per category, and below them what is asked of some categories alone."""
    data = as_data(answered)
    rows = [[name, "n", *(metrics.HEADINGS[fact] for fact in FACTS)]]
    by_source = {f"in {source}": means for source, means in data["sources"].items()}
    for category, means in {**data["categories"], "overall": data["overall"], **by_source}.items():
        rows.append([category, str(means["n"]), *metrics.percents({fact: means[fact] for fact in FACTS})])
    more = [(fact.replace("_", " "), f"{100 * value:.1f}") for fact, value in data.items() if isinstance(value, float)]
    return f"{columns(rows)}\n{lines(more)}"
