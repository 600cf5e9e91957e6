"""The suites `echo`, of questions that were asked before, and `recall` and `recall-nothing`, of `get_context`.

`echo`: 24 facts, each said once in a life with other chats. Then agents asked the question: once or ten times, and
answered it, answered half of it, or did not; of those who answered, every second searched the memory for it. The turn
in which the fact was said must stay the first result.

`recall`: 50 facts of earlier sessions and chats. The text that an agent gets for a session or beside the question must
contain the answer. `recall-nothing`: 50 prompts about nothing that was stored must get nothing.
"""

import json
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path
from uuid import UUID

from agent_tools.tools.chat_history import search_chat_history
from agent_tools.tools.context import prompt_context, session_context, text_of
from agent_tools.tools.history import search_history
from core.isolation.acting import acting_as
from evals.datasets.loading import embed_all, load_turns
from evals.datasets.reading import TurnRow
from evals.demo import load_notes, read_demo
from evals.vec02 import Verdict
from intake.models import Conversation, Turn, User

FACTS = Path(__file__).parent / "datasets" / "echoes.jsonl"
BEGINNING = datetime.fromisoformat("2026-01-05T09:00:00+00:00")
NOW = BEGINNING + timedelta(days=200)
OUTCOMES = ("answered", "half", "missed")
TIMES = (1, 10)
SEARCHES = ("search_chat_history", "search_history")
SEARCHED = [{"name": "search_chat_history", "input": {}}]
NOBODY_ASKED = "never"
AT_LEAST = 0.95

Fact = dict[str, str]


def run() -> list[Verdict]:
    """A verdict for each fact, outcome, number of times and search; only for facts that are first without any echo."""
    facts: list[Fact] = [json.loads(line) for line in FACTS.read_text().splitlines()]
    lives = {f"{outcome} {times}x": (outcome, times) for times in TIMES for outcome in OUTCOMES}
    rows = [
        *_life(NOBODY_ASKED, facts),
        *(row for name, (outcome, times) in lives.items() for row in _life(name, facts, outcome, times)),
    ]
    loaded = load_turns(rows, report=lambda line: None)
    _mark_searches(loaded.users)
    embed_all(report=lambda line: None)
    places = {origin: key for key, origin in loaded.origins.items()}

    def stays_first(search: str, name: str, number: int) -> bool:
        return _first(search, loaded.users[name], facts[number]) == places[_conversation(name, number), 1]

    return [
        Verdict(
            f"{search}, {name}",
            facts[number]["question"],
            failure=None if stays_first(search, name, number) else f"{facts[number]['question']} Another is first.",
        )
        for search in SEARCHES
        for number in range(len(facts))
        if stays_first(search, NOBODY_ASKED, number)
        for name in lives
    ]


def _conversation(life: str, number: int) -> str:
    return f"{life}: fact {number}"


def _life(name: str, facts: list[Fact], outcome: str = "", times: int = 0) -> Iterator[TurnRow]:
    def turn(conversation: str, at: datetime, message: str, answer: str) -> TurnRow:
        return TurnRow(
            user=name, conversation=conversation, turn=1, at=at, user_message=message, assistant_message=answer
        )

    for place, other in enumerate(read_demo()):
        at = BEGINNING + timedelta(days=place)
        yield turn(f"{name}: other {place}", at, other.user_message, other.assistant_message)
    for number, fact in enumerate(facts):
        at = BEGINNING + timedelta(days=3 * number, hours=2)
        yield turn(_conversation(name, number), at, fact["message"], fact["reply"])
    for time in range(times):
        for number, fact in enumerate(facts):
            at = NOW - timedelta(days=2 * (times - time), minutes=number)
            yield turn(f"{name}: echo {number} {time}", at, fact["question"], fact[outcome])


def _mark_searches(users: dict[str, User]) -> None:
    """Every second agent that answered had searched."""
    for name, user in users.items():
        if name.startswith("answered"):
            with acting_as(user):
                asked = Turn.objects.for_user(user).filter(said_at__gte=NOW - timedelta(days=2 * max(TIMES) + 1))
                for turn in asked.order_by("said_at")[::2]:
                    Turn.objects.for_user(user).filter(pk=turn.pk).update(tool_calls=SEARCHED)


def _first(search: str, user: User, fact: Fact) -> tuple[UUID | None, int] | None:
    query = fact["question"]
    if search == "search_history":
        found = search_history.call({"query": query, "scope": "sessions"}, user=user).results
        turns = [(each.conversation_id, each.turn_number) for each in found if each.turn_number is not None]
    else:
        results = search_chat_history.call({"query": query, "mode": "hybrid"}, user=user).results
        turns = [(each.conversation_id, each.turn_number) for each in results]
    return turns[0] if turns else None


# --- The suites `recall` and `recall-nothing` ---

SESSIONS = FACTS.with_name("recall.jsonl")
ABOUT_NOTHING = FACTS.with_name("recall_nothing.txt")
# As the hooks ask.
SESSION_TOKENS, PROMPT_TOKENS = 780, 280
RECALLED, QUIET = 0.8, 0.9
AGENT = "agent"


def recall() -> list[Verdict]:
    """A verdict for each question: whether the text for the session or the text beside the question has the answer."""
    user, facts = _sessions()
    return [_recalled(user, number, fact) for number, fact in enumerate(facts, start=1)]


def recall_nothing() -> list[Verdict]:
    """A verdict for each prompt about nothing that was stored, in each project in turn."""
    user, facts = _sessions()
    projects = sorted({fact["project"] for fact in facts})
    prompts = ABOUT_NOTHING.read_text().splitlines()
    return [
        _kept_quiet(user, number, prompt, projects[number % len(projects)])
        for number, prompt in enumerate(prompts, start=1)
    ]


def _sessions() -> tuple[User, list[Fact]]:
    """A user with the demo's chats and notes, and with a conversation of two turns for each fact."""
    facts: list[Fact] = [json.loads(line) for line in SESSIONS.read_text().splitlines()]
    rows = list(_life(AGENT, []))
    for number, fact in enumerate(facts):
        at = BEGINNING + timedelta(days=3 * number, hours=2)
        turns = ((fact["message"], fact["reply"]), (fact["next"], "Done."))
        rows += [
            TurnRow(
                user=AGENT, conversation=str(number), turn=place, at=at, user_message=message, assistant_message=answer
            )
            for place, (message, answer) in enumerate(turns, start=1)
        ]
    loaded = load_turns(rows, report=lambda line: None)
    user = loaded.users[AGENT]
    with acting_as(user):
        load_notes(user, now=NOW)
        for (pk, _), (name, _turn) in loaded.origins.items():
            if name.isdigit():
                Conversation.objects.for_user(user).filter(pk=pk).update(project=facts[int(name)]["project"])
    embed_all(report=lambda line: None)
    return user, facts


def _beside(user: User, prompt: str, project: str) -> str:
    lines = prompt_context(
        user=user, query=prompt, project=project or None, session=None, max_tokens=PROMPT_TOKENS, now=NOW
    )
    return text_of(lines)


def _recalled(user: User, number: int, fact: Fact) -> Verdict:
    project = fact["project"] or None
    pack = session_context(user=user, project=project, session=None, max_tokens=SESSION_TOKENS, now=NOW)
    has_answer = any(
        fact["contains"] in text for text in (text_of(pack), _beside(user, fact["question"], fact["project"]))
    )
    failure = None if has_answer else f"{fact['question']} {fact['contains']!r} is in neither text."
    return Verdict(f"RECALL-{number:02}", fact["question"], failure)


def _kept_quiet(user: User, number: int, prompt: str, project: str) -> Verdict:
    text = _beside(user, prompt, project)
    return Verdict(f"NOTHING-{number:02}", prompt, f"{prompt} It got: {text}" if text else None)
