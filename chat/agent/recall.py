"""Recall mode: without a language model, the same agent loop runs with this model in its place.

It calls the search tools with the user's message and quotes the results: from chats, with dates and links, and from
notes, and from files if the user has any. They are searched separately, so that none crowds out another, and shown as
one list, the most relevant first. Turns that no search finds, of the open chat and of a visitor, come by their words.
"""

import asyncio
import heapq
import json
import re
from collections.abc import AsyncIterator, Iterable, Sequence
from datetime import UTC, date, tzinfo
from typing import Any, NamedTuple
from uuid import UUID

from asgiref.sync import sync_to_async
from django.db import connections
from django.db.models import Exists
from pydantic_ai.messages import ModelMessage, ModelRequest, ModelRequestPart, ToolReturnPart, UserPromptPart
from pydantic_ai.models.function import AgentInfo, DeltaToolCall, DeltaToolCalls, FunctionModel

from core.gate import another_turn
from core.isolation.acting import Caller, acting_as
from core.text import shortened
from intake.chats.tree import conversation_path
from intake.models import Attachment, Turn, User, day_in_words, local_time
from memory.backends.embedders import UNCALIBRATED, get_embedder
from memory.search.sources import least_likely

CHATS, NOTES = "search_chat_history", "search_history"
QUOTE_LENGTH = 280
SHOWN = 5
NOTES_SHOWN = 3
# Files are found beside everything else: the mark of their calls, the results that are searched, and those that are
# shown.
FILES, FILES_SEARCHED, FILES_SHOWN = "files", 20, 3
# A question of at most this many words may depend on earlier messages; this many of them are used.
SHORT_WORDS, PROMPTS_BEFORE = 8, 2
# The number of results from each search when all are only the nearest.
NEAREST_SHOWN = 2
# The relevance of a turn of the open chat that has half of the question's words, by their weight.
HALF_OF_THE_WORDS = 0.25

SAVED = " Your message is saved."
CLOSEST = "Here is what you said or noted that comes closest:\n\n"
NOTHING_ABOUT_IT = "Nothing earlier about this."
MEMORY_IS_OFF = "*Your memory is off in this chat, and without a language model there is nothing else to answer from.*"
# Of a heading or an item; and lines that are only marks, around code and in a table.
_LINE_MARK = re.compile(
    r"^[^\S\n]*+(?:(?:#{1,6}|(?P<item>[-*+](?:[^\S\n]+\[[ xX]\])?|\d{1,3}[.)]))[^\S\n]+"
    r"|(?:`{3}[^`\n]*|~{3}[^\n]*)$|\|[-:| ]*+$)",
    re.MULTILINE,
)
# Once a chat. The second sentence is for users who can change the configuration.
WITHOUT_A_MODEL = "*Without a model I only quote what you wrote.*"
HOW_TO_ADD = "*Without a model I only quote what you wrote. Connect one at /staff/models/ to have questions answered.*"


def recall_model(
    caller: Caller, *, is_temporary: bool = False, compared: Sequence[tuple[float, Turn]] = ()
) -> FunctionModel:
    """The model for one caller's answer: it quotes only that caller's turns. Nothing of a visitor is searched for."""
    here: list[dict[str, Any]] = [
        {"conversationId": str(turn.conversation_id), "turnNumber": turn.turn_number, "relevance": relevance}
        for relevance, turn in compared
    ]
    close = [match for match in here if match["relevance"] >= HALF_OF_THE_WORDS]

    async def recall(messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[str | DeltaToolCalls]:
        question = _question(messages)
        found = _search_results(messages)
        among = {tool.name for tool in info.function_tools}
        if not among and not close:
            yield MEMORY_IS_OFF
            return
        if caller.is_registered and not found and (calls := _searches(question, _earlier_messages(messages), among)):
            yield calls
            return
        async with another_turn():
            looked_up = await sync_to_async(_look_up, thread_sensitive=False)(
                caller, [*here, *found.get(CHATS, {}).get("results", [])]
            )
        if looked_up.has_files and NOTES in among and not any(map(_is_of_files, _parts_of_run(messages))):
            yield _searches_of_files(question, _earlier_messages(messages))
            return
        sentences = _answer_sentences(question, close or here, not close, found, looked_up)
        if not _earlier_messages(messages):
            sentences.append(HOW_TO_ADD if looked_up.is_staff else WITHOUT_A_MODEL)
        for piece in sentences:
            yield piece.replace(SAVED, "") if is_temporary else piece
            # Yield to the event loop, so that each piece is sent separately, as a model's would be.
            await asyncio.sleep(0)

    return FunctionModel(stream_function=recall, model_name="recall")


def _searches(question: str, before: str, among: set[str]) -> DeltaToolCalls:
    queries = _queries(question, before)
    searches = [(CHATS, {"query": query[:500], "limit": 10, "mode": "hybrid"}) for query in queries]
    searches += [(NOTES, {"query": query, "scope": "memory", "max_results": NOTES_SHOWN}) for query in queries]
    return {
        number: DeltaToolCall(name=name, json_args=json.dumps(arguments), tool_call_id=f"recall-{number}")
        for number, (name, arguments) in enumerate(searches)
        if name in among
    }


def _searches_of_files(question: str, before: str) -> DeltaToolCalls:
    asked = [{"query": query, "scope": "all", "max_results": FILES_SEARCHED} for query in _queries(question, before)]
    return {
        number: DeltaToolCall(name=NOTES, json_args=json.dumps(arguments), tool_call_id=f"recall-{FILES}-{number}")
        for number, arguments in enumerate(asked)
    }


def _queries(question: str, before: str) -> list[str]:
    """A short question ("and how much was it?") is also searched together with the preceding messages."""
    is_short = before and len(question.split()) <= SHORT_WORDS
    return [question, f"{before} {question}"] if is_short else [question]


def _near(question: str, chats: dict[str, Any]) -> list[dict[str, Any]]:
    """Drop results by chance, unless the question names their days or all results are only the nearest."""
    results = chats.get("results", [])
    if "interpreted" in chats or "nothingRelevant" in chats:
        return list(results)
    return [
        match
        for match in results
        if _is_related(question=question, distance=match["score"], relevance=match.get("relevance", 0.0))
    ]


def _is_related(*, question: str, distance: float, relevance: float) -> bool:
    """Whether a match of `search_chat_history` is more than chance, by the active model."""
    far = (get_embedder().calibration or UNCALIBRATED).far
    return distance <= far or relevance >= least_likely(question)


def _answer_sentences(
    question: str,
    here: list[dict[str, Any]],
    is_only_near: bool,
    found: dict[str, dict[str, Any]],
    looked_up: "_LookedUp",
) -> list[str]:
    """The quotes from chats and notes. Results that are only the nearest are used if there are no others."""
    chats, notes = found.get(CHATS, {}), found.get(NOTES, {})
    near = _near(question, chats)
    # The results of these calls are always shown, however distant.
    from_chats = _quotes_of_chats(question, near or chats.get("results", []), looked_up)
    noted, files = _noted(notes), found.get(FILES, {})
    from_files = _quotes_of_files(files)
    searched = [
        (_quotes_of_chats(question, here, looked_up), is_only_near),
        (from_chats, not near or bool(chats.get("nothingRelevant"))),
        (noted, bool(notes.get("nothingRelevant"))),
        (from_files, bool(files.get("nothingRelevant"))),
    ]
    if any(quotes and not is_nearest_only for quotes, is_nearest_only in searched):
        return [CLOSEST, *_best_first(quotes for quotes, is_nearest_only in searched if not is_nearest_only)]
    if nearest := _best_first(quotes[:NEAREST_SHOWN] for quotes, _ in searched):
        return [f"{NOTHING_ABOUT_IT} This may be related:\n\n", *nearest]
    return [f"{NOTHING_ABOUT_IT}{SAVED}\n\n"]


# The relevance of a result and the text of its quote.
_Quote = tuple[float, str]


def _best_first(searched: Iterable[list[_Quote]]) -> list[str]:
    """The quotes of all searches by relevance; those of one search keep their order."""
    return [text for _, text in heapq.merge(*searched, key=lambda quote: -quote[0])]


def _quotes_of_chats(question: str, matches: list[dict[str, Any]], looked_up: "_LookedUp") -> list[_Quote]:
    echo = question.casefold()
    return [
        (match.get("relevance", 0.0), _quote(turn, looked_up.zone))
        for match in matches
        if (turn := looked_up.turns.get((UUID(match["conversationId"]), match["turnNumber"])))
        and turn.user_message.strip().casefold() != echo
    ][:SHOWN]


def _noted(found: dict[str, Any]) -> list[_Quote]:
    results = found.get("results", [])[:NOTES_SHOWN]
    return [(result.get("relevance", 0.0), _quote_note(result)) for result in results]


def _quotes_of_files(found: dict[str, Any]) -> list[_Quote]:
    results = [result for result in found.get("results", []) if result["source"] == "attachment"]
    return [(result.get("relevance", 0.0), _quote_file(result)) for result in results[:FILES_SHOWN]]


def _quote_file(result: dict[str, Any]) -> str:
    """The link opens the chat at the message; with its chat the quote is withdrawn."""
    name = _label(", ".join(filter(None, (result["file"], result.get("place")))))
    link = conversation_path(UUID(result["conversationId"]), turn_number=result["turnNumber"])
    day = day_in_words(date.fromisoformat(result["date"]))
    return f"- **{day}**, in [{name}]({link}):\n  > {_in_one_line(result['excerpt'])}\n\n"


def _quote_note(result: dict[str, Any]) -> str:
    place = "your daily log" if result["source"] == "daily_log" else "your memory"
    day = day_in_words(date.fromisoformat(result["date"]))
    return f"- **{day}**, in {place}:\n  > {_in_one_line(result['excerpt'])}\n\n"


def _in_one_line(excerpt: str) -> str:
    """The complete excerpt, because it is cut around the match."""
    # In one line the mark of the first heading or item would make all of it one.
    plain = _LINE_MARK.sub(lambda mark: "· " if mark["item"] else "", excerpt)
    return " ".join(plain.split()).removeprefix("· ")


def _label(title: str) -> str:
    return title.translate(str.maketrans("[]\\`\n", "()/' "))


def _quote(turn: Turn, zone: tzinfo) -> str:
    day = day_in_words(local_time(turn.said_at, zone).date())
    title = _label(turn.conversation.title) or "Conversation"
    link = conversation_path(turn.conversation_id, turn_number=turn.turn_number)
    return f"- **{day}**, in [{title}]({link}):\n  > {_shortened(turn.user_message)}\n\n"


def _shortened(text: str) -> str:
    return shortened(" ".join(text.split()), QUOTE_LENGTH)


def _question(messages: list[ModelMessage]) -> str:
    return _prompts(messages)[-1].strip()


def _earlier_messages(messages: list[ModelMessage]) -> str:
    """The person's last messages before this one, in brief."""
    return " ".join(_shortened(prompt) for prompt in _prompts(messages)[-1 - PROMPTS_BEFORE : -1])


def _prompts(messages: list[ModelMessage]) -> list[str]:
    return [
        part.content
        for message in messages
        if isinstance(message, ModelRequest)
        for part in message.parts
        if isinstance(part, UserPromptPart) and isinstance(part.content, str)
    ]


def _search_results(messages: list[ModelMessage]) -> dict[str, dict[str, Any]]:
    """The results of this run's searches, by tool, the better of two; those of files by themselves. Without failed
    searches; empty before any.
    """
    found: dict[str, dict[str, Any]] = {}
    for part in _parts_of_run(messages):
        if isinstance(part, ToolReturnPart):
            data = (part.metadata or {}).get("data", {})
            name = FILES if _is_of_files(part) else part.tool_name
            if name not in found or _relevance(data) > _relevance(found[name]):
                found[name] = data
    return found


def _parts_of_run(messages: list[ModelMessage]) -> list[ModelRequestPart]:
    """What came back since the user's message."""
    parts: list[ModelRequestPart] = []
    for message in reversed(messages):
        if isinstance(message, ModelRequest):
            if any(isinstance(part, UserPromptPart) for part in message.parts):
                break
            parts = [*message.parts, *parts]
    return parts


def _is_of_files(part: ModelRequestPart) -> bool:
    return str(getattr(part, "tool_call_id", "")).startswith(f"recall-{FILES}")


def _relevance(found: dict[str, Any]) -> float:
    """The best result's."""
    return max((result.get("relevance", 0.0) for result in found.get("results", [])), default=0.0)


class _LookedUp(NamedTuple):
    """`turns`: by their keys. `zone`: the caller's; a visitor has none but UTC."""

    turns: dict[tuple[UUID, int], Turn]
    zone: tzinfo
    is_staff: bool
    has_files: bool


def _look_up(caller: Caller, matches: list[dict[str, Any]]) -> _LookedUp:
    keys = [(UUID(match["conversationId"]), match["turnNumber"]) for match in matches]
    turns = Turn.objects.for_caller(caller).with_keys(keys).select_related("conversation")
    files = Attachment.objects.filter(user=caller.user_id, conversation_id__isnull=False, parts__gt=0)
    users = User.objects.annotate(has_files=Exists(files))
    try:
        with acting_as(caller):
            user = users.filter(pk=caller.user_id or 0).first() if caller.is_registered else None
            return _LookedUp(
                turns={(turn.conversation_id, turn.turn_number): turn for turn in turns},
                zone=UTC if user is None else user.zone,
                is_staff=user is not None and user.is_staff,
                has_files=user is not None and user.has_files,
            )
    finally:
        connections.close_all()
