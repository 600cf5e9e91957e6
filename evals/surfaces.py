"""Asks a life's questions of each surface that they are about, at their own time, and adds up what came of it.

A surface is what a person or an agent uses: the tools as REST and MCP publish them, and the chat's recall mode.
"""

import math
import re
from collections import defaultdict
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
from core.isolation.caller import Caller
from evals import metrics
from evals.datasets.lives import Gold, Life, LifeQuery, LoadedLife
from evals.datasets.loading import Report
from intake.agent.deps import ChatDeps
from intake.agent.events import TextWritten
from intake.agent.loop import answer
from intake.agent.recall import NOTHING_ABOUT_IT
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Asking:
    """How a question is asked: of whose memory, and whether the surfaces that can look again shall do so."""

    query: LifeQuery
    user: User
    loaded: LoadedLife
    rerank: bool


@dataclass(frozen=True, slots=True)
class Surface:
    """`is_about`: whether a question is for it."""

    name: str
    is_about: Callable[[LifeQuery], bool]
    ask: Callable[[Asking], Reply]


@dataclass(frozen=True, slots=True)
class AskedOf:
    """A question and what a surface answered."""

    query: LifeQuery
    reply: Reply

    @property
    def results(self) -> Sequence[Result]:
        return self.reply.results

    @property
    def scores(self) -> dict[str, float]:
        """`recall@k`: whether any alternative is among the first k. `mrr`: 1 / the rank of the first of them."""
        rank = next((rank for rank, one in enumerate(self.results, 1) if one.is_any_of(self.query.gold)), None)
        scores = {f"recall@{k}": float(rank is not None and rank <= k) for k in RECALL_AT}
        return scores | {"mrr": 1 / rank if rank else 0.0}

    @property
    def in_window(self) -> float:
        """Of the first five results, or as many as are right, the share that is."""
        count = min(IN_WINDOW_AT, len(self.query.gold))
        return sum(one.is_any_of(self.query.gold) for one in self.results[:count]) / count

    @property
    def has_best(self) -> bool:
        return any(one.is_any_of(self.query.best) for one in self.results[:BEST_AT])

    @property
    def is_newest_first(self) -> bool:
        """Whether the right result stands above each earlier statement."""
        earlier = min((self._rank_of([stale]) for stale in self.query.stale), default=math.inf)
        return self._rank_of(self.query.gold) < earlier

    def _rank_of(self, gold: Iterable[Gold]) -> float:
        return next((rank for rank, one in enumerate(self.results) if one.is_any_of(gold)), math.inf)


def ask(life: Life, loaded: LoadedLife, surface: Surface, *, rerank: bool, report: Report) -> list[AskedOf]:
    answered = []
    for query in filter(surface.is_about, life.queries):
        # The tools look at the clock themselves; for them it is the question's own time.
        with mock.patch("django.utils.timezone.now", return_value=query.now):
            asking = Asking(query=query, user=loaded.users[query.user], loaded=loaded, rerank=rerank)
            answered.append(AskedOf(query, surface.ask(asking)))
    report(f"{surface.name}: {len(answered):,} questions answered.")
    return answered


def _chat_history(mode: str) -> Callable[[Asking], Reply]:
    def ask(asking: Asking) -> Reply:
        wanted = {"query": asking.query.text[:500], "limit": 20, "mode": mode, "rerank": asking.rerank}
        found = search_chat_history.call(wanted, user=asking.user)
        results = [
            Result(asking.loaded.names.get((result.conversation_id, result.turn_number)), result.snippet)
            for result in found.results
        ]
        return Reply(results, is_nothing=bool(found.nothing_relevant) or not results)

    return ask


def _history(asking: Asking) -> Reply:
    """Without sessions: a conversation's title is none of the texts that questions are about."""
    scope = "sessions" if asking.query.sources == ["turns"] else "all"
    wanted = {"query": asking.query.text, "scope": scope, "max_results": 25, "rerank": asking.rerank}
    found = search_history.call(wanted, user=asking.user)
    names = asking.loaded.names
    results = [
        Result(
            names.get((one.conversation_id, one.turn_number)) or names.get(one.document_id) or names.get(one.record_id),
            one.excerpt,
        )
        for one in found.results
        if one.source != "session"
    ]
    return Reply(results, is_nothing=bool(found.nothing_relevant) or not results)


def _memory(asking: Asking) -> Reply:
    found = search_memory.call({"query": asking.query.text, "topK": 25}, user=asking.user)
    results = [Result(asking.loaded.names.get(one.record.id), one.record.content) for one in found.results]
    return Reply(results, is_nothing=not results)


async def _written(query: LifeQuery, user: User) -> str:
    history: list[ModelMessage] = []
    for said in query.context:
        history.append(ModelRequest(parts=[UserPromptPart(said.user_message)]))
        history.append(ModelResponse(parts=[TextPart(said.assistant_message)]))
    deps = ChatDeps(caller=Caller(user_id=user.pk), now=query.now, zone=user.zone)
    events = [event async for event in answer(message=query.text, history=history, deps=deps)]
    return "".join(event.text for event in events if isinstance(event, TextWritten))


def _recall(asking: Asking) -> Reply:
    """The quotations of the answer, in their order. A note has no link; it is known by its words."""
    results = []
    written = async_to_sync(_written)(asking.query, asking.user)
    for quote in _QUOTE.findall(written):
        link = _LINK.search(quote)
        name = asking.loaded.names.get((UUID(link[1]), int(link[2]))) if link else _note_with(quote, asking.query)
        results.append(Result(name, quote))
    return Reply(results, is_nothing=NOTHING_ABOUT_IT in written or not results)


def _note_with(quote: str, query: LifeQuery) -> tuple[str, str] | None:
    held = (each.key for each in query.gold if each.turn is None and _folded(each.contains) in _folded(quote))
    return next(held, None)


def _has_turn(query: LifeQuery) -> bool:
    return not query.gold or any(each.turn for each in query.gold)


SURFACES = (
    Surface("search_chat_history_semantic", _has_turn, _chat_history("semantic")),
    Surface("search_chat_history_hybrid", _has_turn, _chat_history("hybrid")),
    Surface("search_history", lambda _: True, _history),
    Surface("search_memory", lambda query: any(each.record for each in query.gold), _memory),
    Surface("recall", lambda _: True, _recall),
)


def by_category(answered: Sequence[AskedOf]) -> dict[str, list[AskedOf]]:
    groups = defaultdict(list)
    for one in answered:
        groups[one.query.category].append(one)
    return dict(sorted(groups.items()))


def mean_scores(answered: Sequence[AskedOf]) -> dict[str, float]:
    return {name: metrics.share(one.scores[name] for one in answered) for name in FACTS} | {"n": len(answered)}


def as_data(answered: Sequence[AskedOf]) -> dict[str, Any]:
    """The JSON of one surface: `{overall, categories, false_answers, refused}`.

    `overall`: the mean of the categories. `false_answers`: the share of the questions without an answer of which the
    surface does not say that it found nothing; `refused`: the share of the others of which it does.
    """
    groups = by_category(answered)
    without_answer = groups.pop(CATEGORY_OF_NO_ANSWER, [])
    categories = {name: mean_scores(members) for name, members in groups.items()}
    with_answer = [one for members in groups.values() for one in members]
    return {
        "overall": {name: metrics.share(each[name] for each in categories.values()) for name in FACTS}
        | {"n": len(with_answer)},
        "categories": categories,
        "false_answers": metrics.share(not one.reply.is_nothing for one in without_answer),
        "refused": metrics.share(one.reply.is_nothing for one in with_answer),
    } | _more(groups)


def _more(groups: dict[str, list[AskedOf]]) -> dict[str, float]:
    more = {}
    if times := [one for one in groups.get("time", []) if one.query.best]:
        more["in_window@5"] = metrics.share(one.in_window for one in times)
        more["best@10"] = metrics.share(one.has_best for one in times)
    if latest := groups.get("latest"):
        more["newest_first"] = metrics.share(one.is_newest_first for one in latest)
    return more
