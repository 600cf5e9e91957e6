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
from dataclasses import replace
from datetime import UTC, date, tzinfo
from typing import Any, NamedTuple
from uuid import UUID

from asgiref.sync import sync_to_async
from django.db import connections
from django.db.models import Exists
from django.urls import reverse
from pydantic_ai.messages import ModelMessage, ModelRequest, ModelRequestPart, ToolReturnPart, UserPromptPart
from pydantic_ai.models.function import AgentInfo, DeltaToolCall, DeltaToolCalls, FunctionModel

from chat.agent.tools import brought_by
from core.gate import another_turn
from core.isolation.acting import Caller, acting_as
from core.text import shortened
from intake.chats.prompts import PromptPart
from intake.chats.tree import conversation_path
from intake.llm.tokens import tokens_of
from intake.models import Attachment, Turn, User, day_in_words, local_time
from memory.backends.embedders import UNCALIBRATED, get_embedder
from memory.search.excerpts import Segment
from memory.search.literal import NO_TEXT_HAS_WORDS
from memory.search.sources import least_likely
from memory.search.writing import Rarity, written

CHATS, NOTES = "search_chat_history", "search_history"
SHOWN = 10
# Of all quotations together.
TOKENS = 1_500
# Files are found beside everything else: the mark of their calls, and the results that are searched.
FILES, FILES_SEARCHED = "files", 20
# Of notes, and of files.
NOTES_SHOWN = 3
# A question of at most this many words may depend on earlier messages; this many of them are used.
SHORT_WORDS, PROMPTS_BEFORE = 8, 2

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
HOW_TO_ADD = "*Without a model I only quote what you wrote. [Connect one]({}) to have questions answered.*"


def recall_model(
    caller: Caller, quoted: list[PromptPart], *, is_temporary: bool = False, compared: Sequence[tuple[float, Turn]] = ()
) -> FunctionModel:
    """The model for one caller's answer: it quotes only that caller's turns, and says what in `quoted`. Nothing of a
    visitor is searched for.
    """
    here: list[dict[str, Any]] = [
        {"conversationId": str(turn.conversation_id), "turnNumber": turn.turn_number, "relevance": relevance}
        for relevance, turn in compared
    ]
    # A turn of the open chat that has half of the question's words, by their weight, has this relevance.
    close = [match for match in here if match["relevance"] >= 0.25]

    async def recall(messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[str | DeltaToolCalls]:
        *earlier, question = _prompts(messages)
        # The person's last messages before this one, in brief.
        before = " ".join(shortened(" ".join(prompt.split()), 280) for prompt in earlier[-PROMPTS_BEFORE:])
        found = _search_results(messages)
        among = {tool.name for tool in info.function_tools}
        if not among and not close:
            yield MEMORY_IS_OFF
            return
        if caller.is_registered and not found and among & {CHATS, NOTES}:
            queries = _queries(question, before)
            searches: list[tuple[str, dict[str, Any]]] = [
                *((CHATS, {"query": query[:500], "limit": 10, "mode": "hybrid"}) for query in queries),
                *((NOTES, {"query": query, "scope": "memory", "max_results": 3}) for query in queries),
            ]
            yield _calls([search for search in searches if search[0] in among])
            return
        async with another_turn():
            looked_up = await sync_to_async(_look_up, thread_sensitive=False)(
                caller, [*here, *found.get(CHATS, {}).get("results", [])]
            )
        if looked_up.has_files and NOTES in among and not any(map(_is_of_files, _parts_of_run(messages))):
            asked = {"scope": "all", "max_results": FILES_SEARCHED}
            yield _calls([(NOTES, {"query": query, **asked}) for query in _queries(question, before)], f"{FILES}-")
            return
        sentences, sources = _answer_sentences(question, close or here, not close, found, looked_up)
        quoted.extend(sources)
        if not before:
            add = HOW_TO_ADD.format(reverse("intake:staff_models"))
            sentences.append(add if looked_up.is_staff else WITHOUT_A_MODEL)
        for piece in sentences:
            yield piece.replace(SAVED, "") if is_temporary else piece
            # Yield to the event loop, so that each piece is sent separately, as a model's would be.
            await asyncio.sleep(0)

    return FunctionModel(stream_function=recall, model_name="recall")


def _calls(searches: list[tuple[str, dict[str, Any]]], mark: str = "") -> DeltaToolCalls:
    return {
        number: DeltaToolCall(name=name, json_args=json.dumps(arguments), tool_call_id=f"recall-{mark}{number}")
        for number, (name, arguments) in enumerate(searches)
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
    # By the active model.
    far, least = (get_embedder().calibration or UNCALIBRATED).far, least_likely(question)
    return [match for match in results if match["score"] <= far or match.get("relevance", 0.0) >= least]


def _answer_sentences(
    question: str,
    here: list[dict[str, Any]],
    is_only_near: bool,
    found: dict[str, dict[str, Any]],
    looked_up: "_LookedUp",
) -> tuple[list[str], list[PromptPart]]:
    """The quotes from chats and notes. Results that are only the nearest are used if there are no others."""
    chats, notes = found.get(CHATS, {}), found.get(NOTES, {})
    near = _near(question, chats)
    # The results of these calls are always shown, however distant.
    from_chats = _quotes_of_chats(question, near or chats.get("results", []), looked_up)
    noted, files = _noted(notes), found.get(FILES, {})
    from_files = _noted(files, "attachment")
    searched = [
        (_quotes_of_chats(question, here, looked_up), is_only_near),
        (from_chats, not near or bool(chats.get("nothingRelevant"))),
        (noted, bool(notes.get("nothingRelevant"))),
        (from_files, bool(files.get("nothingRelevant"))),
    ]
    if any(quotes and not is_nearest_only for quotes, is_nearest_only in searched):
        head, chosen = CLOSEST, [quotes for quotes, is_nearest_only in searched if not is_nearest_only]
    else:
        head, chosen = (
            f"{NOTHING_ABOUT_IT} This may be related:\n\n",
            # All are only the nearest.
            [quotes[:2] for quotes, _ in searched],
        )
    sentences, sources = _best_first(chosen)
    # The words of the question that no text has, as a tool's note says them.
    said = re.compile(NO_TEXT_HAS_WORDS.format("([^;]+)"))
    notes_of = [results.get("note") or "" for results in (chats, notes, files) if results.get("results")]
    absent = [{*absent_words[1].split(", ")} if (absent_words := said.search(note)) else set() for note in notes_of]
    if absent and (words := set.intersection(*absent)):
        head = f"{head.rstrip()} No text has: {', '.join(sorted(words))}.\n\n"
    return ([head, *sentences], sources) if sentences else ([f"{NOTHING_ABOUT_IT}{SAVED}\n\n"], [])


# The relevance of a result, the text of its quote, and its source.
_Quote = tuple[float, str, PromptPart]


def _best_first(searched: Iterable[list[_Quote]]) -> tuple[list[str], list[PromptPart]]:
    """The quotes of all searches by relevance that fit together, and their sources; those of one search keep their
    order.
    """
    quotes, sources, left = list[str](), list[PromptPart](), TOKENS
    for _, text, source in heapq.merge(*searched, key=lambda quote: -quote[0]):
        if (size := tokens_of(text)) <= left:
            quotes.append(text)
            sources.append(replace(source, tokens=size))
            left -= size
    return quotes, sources


def _quotes_of_chats(question: str, matches: list[dict[str, Any]], looked_up: "_LookedUp") -> list[_Quote]:
    echo = question.casefold()
    turns = [(match, looked_up.turns.get((UUID(match["conversationId"]), match["turnNumber"]))) for match in matches]
    found = [(match, turn) for match, turn in turns if turn is not None]
    rarity = Rarity.of(question, (f"{turn.user_message}\n{turn.assistant_message}" for _, turn in found))
    return [
        _quote(match, turn, looked_up.zone, rarity)
        for match, turn in found
        if turn.user_message.strip().casefold() != echo
    ][:SHOWN]


def _noted(found: dict[str, Any], source: str = "") -> list[_Quote]:
    """The first results, of this source if one is named."""
    results = [result for result in found.get("results", []) if source in ("", result["source"])]
    return [
        _as_quote(result, date.fromisoformat(result["date"]), _place(result), result["excerpt"])
        for result in results[:NOTES_SHOWN]
    ]


def _place(result: dict[str, Any]) -> str:
    if result["source"] == "attachment":
        return _link(result, ", ".join(filter(None, (result["file"], result.get("place")))))
    return "your daily log" if result["source"] == "daily_log" else "your memory"


def _as_quote(result: dict[str, Any], day: date, place: str, *said: str) -> _Quote:
    (source,) = brought_by(CHATS, {}, {"data": {"results": [result]}})
    lines = "\n  >\n  > ".join(map(_in_one_line, said))
    return result.get("relevance", 0.0), f"- **{day_in_words(day)}**, in {place}:\n  > {lines}\n\n", source


def _link(result: dict[str, Any], name: str) -> str:
    """It opens the chat at the message; with its chat the quote is withdrawn."""
    path = conversation_path(UUID(result["conversationId"]), turn_number=result["turnNumber"])
    label = name.translate(str.maketrans("[]\\`\n", "()/' "))
    return f"[{label}]({path})"


def _in_one_line(excerpt: str) -> str:
    """The complete excerpt, because it is cut around the match."""
    # In one line the mark of the first heading or item would make all of it one.
    plain = _LINE_MARK.sub(lambda mark: "· " if mark["item"] else "", excerpt)
    return " ".join(plain.split()).removeprefix("· ")


def _quote(match: dict[str, Any], turn: Turn, zone: tzinfo, rarity: Rarity) -> _Quote:
    """The message, and below it the answer, but an answer of recall mode, which quotes what is found anyway."""
    sides = [Segment(turn.user_message), Segment("" if turn.is_recall else turn.assistant_message)]
    link = _link(match, turn.conversation.title or "Conversation")
    return _as_quote(match, local_time(turn.said_at, zone).date(), link, *written(sides, rarity, TOKENS))


def _prompts(messages: list[ModelMessage]) -> list[str]:
    return [
        part.content.strip()
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
