"""Asks a life's questions of each surface that they are about, at their own time, and adds up what came of it.

A surface is what a person or an agent uses: the tools as REST and MCP publish them, and the chat's recall mode.

An agent reads one text with a budget. Its coverage is the share of the questions of which every needed fact is within
the budget: listed if the text names its turn, note or record by an id or by the place and day that recall mode gives,
shown if it has the words.
"""

import math
import re
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from typing import Any
from unittest import mock
from uuid import UUID
from zoneinfo import ZoneInfo

from asgiref.sync import async_to_sync
from pydantic_ai.messages import ModelMessage, ModelRequest, ModelResponse, TextPart, UserPromptPart

from agent_tools.registry import Tool
from agent_tools.tools.chat_history import search_chat_history
from agent_tools.tools.context import get_context
from agent_tools.tools.history import search_history
from agent_tools.tools.memory import search_memory
from chat.agent.context import ChatDeps, TextWritten
from chat.agent.loop import answer
from chat.agent.recall import NOTHING_ABOUT_IT
from core.isolation.acting import Caller
from evals import metrics
from evals.datasets.loading import LoadedLife, Report
from evals.datasets.reading import Gold, Life, LifeQuery, TurnRow
from evals.tables import columns, lines
from intake.llm.tokens import tokens_of
from intake.models import User, day_in_words, local_time
from memory.search.fusion import RUN, Fingerprint

RECALL_AT = (1, 5, 10)
IN_WINDOW_AT = 5
BEST_AT = 10
CATEGORY_OF_NO_ANSWER = "unanswerable"
FACTS = ("recall@1", "recall@5", "recall@10", "mrr")
BUDGETS = (1_500, 3_000)
# A turn is shown if the text has this share of the words of one of its sides, in runs.
SHOWN_SHARE = 0.8

_LINK = re.compile(r"\]\([^)]*?/([0-9a-f-]{36})/?\?turn=(\d+)")
_ID = re.compile(r"(?<![0-9a-f-])([0-9a-f]{8,32})(?:/(\d+)|/?\?turn=(\d+))?(?!\w)")
_NOTED = re.compile(r"^- \*\*(.+)\*\*, in your (daily log|memory):$", re.MULTILINE)
_QUOTE = re.compile(r"^- \*\*.*(?:\n  >.*)+", re.MULTILINE)


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
    """The answer of a surface, the best first. `is_nothing`: it says that it found nothing about the question.
    `texts`: what an agent reads of it, by the budget.
    """

    results: Sequence[Result]
    is_nothing: bool
    texts: Mapping[int, str] = field(default_factory=dict)


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
class Covered:
    """Whether a text within a budget has every fact that its question needs."""

    listed: bool
    shown: bool
    tokens: int


@dataclass(frozen=True, slots=True)
class AskedOf:
    """A question, what a surface answered, and by the budget how much of the answer it covers."""

    query: LifeQuery
    reply: Reply
    covered: Mapping[int, Covered] = field(default_factory=dict)

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
            reply = surface.ask(query, loaded.users[query.user], loaded.names, rerank)
        covered = {budget: cover(query, text, budget, life, loaded.names) for budget, text in reply.texts.items()}
        answered.append(AskedOf(query, reply, covered if query.gold else {}))
    report(f"{surface.name}: {len(answered):,} questions answered.")
    return answered


def cover(query: LifeQuery, text: str, budget: int, life: Life, names: Names) -> Covered:
    """What the text has of the question's facts, as far as the budget goes."""
    if tokens_of(text) > budget:
        text = text[: bisect_right(range(len(text)), budget, key=lambda length: tokens_of(text[:length])) - 1]
    ids = _ID.findall(text.replace("-", ""))
    turns = {(digits[-8:], int(one or other or 0)) for digits, one, other in ids}
    sources = {source for source, _ in turns}
    listed = {
        name
        for stored, name in names.items()
        if ((stored[0].hex[-8:], stored[1]) in turns if isinstance(stored, tuple) else stored.hex[-8:] in sources)
    }
    noted = set(_NOTED.findall(text))
    listed |= {name for day, place, name in _notes(life, query) if (day_in_words(day), place) in noted}
    folded, runs = _folded(text), Fingerprint.of(text).runs
    shown = [_is_shown(gold, folded, runs, life.turns_by_name.get((query.user, gold.turn))) for gold in query.gold]
    enough = all if query.needs_all else any
    return Covered(enough(gold.key in listed for gold in query.gold), enough(shown), tokens_of(text))


def _notes(life: Life, query: LifeQuery) -> Iterator[tuple[date, str, tuple[str, str]]]:
    """The day, the place and the name of each note of the person: MEMORY.md is of the day when it was written."""
    zone = ZoneInfo(query.timezone)
    for row in life.documents:
        if row.user == query.user:
            day = row.day or local_time(life.ends[row.user], zone).date()
            yield day, "daily log" if row.day else "memory", ("document", row.id)
    for record in life.records:
        if record.user == query.user:
            yield local_time(record.created_at, zone).date(), "memory", ("record", record.id)


def _is_shown(gold: Gold, folded: str, runs: frozenset[tuple[str, ...]], turn: TurnRow | None) -> bool:
    """Whether the text has the fact in its words, or nearly all words of one side of its turn in runs of three."""
    if gold.contains:
        return _folded(gold.contains) in folded
    for side in (turn.user_message, turn.assistant_message) if turn else ():
        words = Fingerprint.of(side).words
        covered = [False] * len(words)
        for start in range(len(words) - RUN + 1):
            if words[start : start + RUN] in runs:
                covered[start : start + RUN] = [True] * RUN
        if words and sum(covered) >= SHOWN_SHARE * len(words):
            return True
    return False


def _texts(tool: Tool[Any, Any], requested: Mapping[str, Any], user: User) -> dict[int, str]:
    return {budget: tool.text_of(tool.call({**requested, "maxTokens": budget}, user=user)) for budget in BUDGETS}


def _chat_history(mode: str) -> Ask:
    def ask(query: LifeQuery, user: User, names: Names, rerank: bool) -> Reply:
        requested = {"query": query.text[:500], "limit": 20, "mode": mode, "rerank": rerank}
        found = search_chat_history.call(requested, user=user)
        results = [Result(names.get((one.conversation_id, one.turn_number)), one.snippet) for one in found.results]
        is_nothing = bool(found.nothing_relevant) or not results
        return Reply(results, is_nothing, _texts(search_chat_history, requested, user))

    return ask


def _history(query: LifeQuery, user: User, names: Names, rerank: bool) -> Reply:
    """Without sessions: a conversation's title is none of the texts that questions are about."""
    scope = "sessions" if query.sources == ["turns"] else "all"
    requested = {"query": query.text, "scope": scope, "max_results": 25, "rerank": rerank}
    found = search_history.call(requested, user=user)
    results = [
        Result(
            names.get((one.conversation_id, one.turn_number)) or names.get(one.document_id) or names.get(one.record_id),
            one.excerpt,
        )
        for one in found.results
        if one.source != "session"
    ]
    return Reply(results, bool(found.nothing_relevant) or not results, _texts(search_history, requested, user))


def _memory(query: LifeQuery, user: User, names: Names, rerank: bool) -> Reply:
    requested = {"query": query.text, "topK": 25}
    found = search_memory.call(requested, user=user)
    results = [Result(names.get(one.record.id), one.record.content) for one in found.results]
    return Reply(results, not results, _texts(search_memory, requested, user))


def _context(query: LifeQuery, user: User, names: Names, rerank: bool) -> Reply:
    """Beside a prompt, with the tool's own budget."""
    found = get_context.call({"for": "prompt", "query": query.text[:800]}, user=user)
    results = []
    for id_ in found.ids:
        source, _, turn = id_.removeprefix("file:").partition("/")
        key = UUID(source.partition(":")[0])
        results.append(Result(names.get((key, int(turn)) if turn else key), found.text))
    return Reply(results, found.nothing, dict.fromkeys(BUDGETS, found.text))


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
    return Reply(results, NOTHING_ABOUT_IT in written or not results, dict.fromkeys(BUDGETS, written))


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
    Surface("get_context", lambda _: True, _context),
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
        "coverage": {str(budget): _coverage(with_answer, budget) for budget in BUDGETS},
    } | _more(groups)


def _coverage(answered: Sequence[AskedOf], budget: int) -> dict[str, Any]:
    """`{listed, shown, tokens, by_turns: {"1": {listed, shown, n}, "2": …, "3+": …}}`."""
    of_all = [(one.query.needed, one.covered[budget]) for one in answered if budget in one.covered]
    by_turns = {}
    for name in sorted({needed for needed, _ in of_all}):
        group = [covered for needed, covered in of_all if needed == name]
        by_turns[name] = {**_shares(group), "n": len(group)}
    return {
        **_shares([covered for _, covered in of_all]),
        "tokens": round(sum(covered.tokens for _, covered in of_all) / max(1, len(of_all))),
        "by_turns": by_turns,
    }


def _shares(group: Sequence[Covered]) -> dict[str, float]:
    return {name: metrics.share(getattr(one, name) for one in group) for name in ("listed", "shown")}


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
    for budget, covered in data["coverage"].items():
        by_turns = covered["by_turns"].items()
        for fact in ("listed", "shown"):
            groups = ", ".join(f"{100 * group[fact]:.1f} of {turns} (n = {group['n']})" for turns, group in by_turns)
            beside = f" in {covered['tokens']:,} tokens; by turns needed: {groups}"
            more.append((f"all@{budget} {fact}", f"{100 * covered[fact]:.1f}{beside}"))
    return f"{columns(rows)}\n{lines(more)}"
