"""Recall mode: without a language model the same agent loop runs, with this model in the model's place.

It calls the search tools with the person's message and answers with what was found: in their chats, with dates and
links, and in what they noted. Chats and notes are asked for each on its own, so that neither crowds out the other.
"""

import asyncio
import json
import math
from collections.abc import AsyncIterator
from datetime import date
from typing import Any
from uuid import UUID

from asgiref.sync import sync_to_async
from django.conf import settings
from django.db import connections
from django.utils import timezone
from django.utils.module_loading import import_string
from pydantic_ai.messages import ModelMessage, ModelRequest, ToolReturnPart, UserPromptPart
from pydantic_ai.models.function import AgentInfo, DeltaToolCall, DeltaToolCalls, FunctionModel

from core.isolation.acting import acting_as
from core.isolation.caller import Caller
from intake.links import conversation_path
from intake.models import Turn

CHATS, NOTES = "search_chat_history", "search_history"
QUOTE_LENGTH = 280
SHOWN = 5
NOTES_SHOWN = 3

HOW_TO_ADD = (
    "*No language model is configured, so this is recall mode: I look up what you said and quote it. "
    "Set `LLM_MODEL` (and `LLM_BASE_URL` or `LLM_API_KEY`) to have your questions answered.*"
)


def recall_model(caller: Caller) -> FunctionModel:
    """The model for one caller's answer: what it quotes it looks up among that caller's turns alone."""

    async def recall(messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[str | DeltaToolCalls]:
        question = _question(messages)
        found = _search_results(messages)
        if not found and (calls := _searches(question, among={tool.name for tool in info.function_tools})):
            yield calls
            return
        chats = found.get(CHATS, {})
        # What was said on the days that the question names is never too far from it.
        far = math.inf if "interpreted" in chats else import_string(settings.CHAT_FAR_DISTANCE)()
        matches = [match for match in chats.get("results", []) if match["score"] <= far]
        turns = await sync_to_async(_turns, thread_sensitive=False)(caller, matches)
        said, noted = _said(question, matches, turns), _noted(found.get(NOTES, {}))
        for piece in [_opening(said, noted, note=chats.get("note")), *said, *noted, HOW_TO_ADD]:
            yield piece
            # Hand the loop back, so that each piece leaves on its own as a model's would.
            await asyncio.sleep(0)

    return FunctionModel(stream_function=recall, model_name="recall")


def _searches(question: str, *, among: set[str]) -> DeltaToolCalls:
    searches: dict[str, dict[str, Any]] = {
        CHATS: {"query": question[:500], "limit": 10, "mode": "hybrid"},
        NOTES: {"query": question, "scope": "memory", "max_results": NOTES_SHOWN},
    }
    return {
        number: DeltaToolCall(name=name, json_args=json.dumps(arguments), tool_call_id=f"recall-{number}")
        for number, (name, arguments) in enumerate(searches.items())
        if name in among
    }


def _opening(said: list[str], noted: list[str], *, note: str | None) -> str:
    if note == "user identity required":
        return "Saved in this browser. Register or log in, and it becomes part of your searchable memory.\n\n"
    if said:
        return "Here is what you said that comes closest:\n\n"
    if noted:
        return "Here is what you noted that comes closest:\n\n"
    return "Saved. I found nothing earlier that comes close to it.\n\n"


def _said(question: str, matches: list[dict[str, Any]], turns: dict[tuple[UUID, int], Turn]) -> list[str]:
    echo = question.casefold()
    return [
        _quote(turn)
        for match in matches
        if (turn := turns.get((UUID(match["conversationId"]), match["turnNumber"])))
        and turn.user_message.strip().casefold() != echo
    ][:SHOWN]


def _noted(found: dict[str, Any]) -> list[str]:
    return [_quote_note(result) for result in found.get("results", [])[:NOTES_SHOWN]]


def _quote_note(result: dict[str, Any]) -> str:
    day = date.fromisoformat(result["date"])
    place = "your daily log" if result["source"] == "daily_log" else "your memory"
    return f"- **{day.day} {day:%B %Y}**, in {place}:\n  > {_shortened(result['excerpt'])}\n\n"


def _quote(turn: Turn) -> str:
    said = timezone.localtime(turn.said_at)
    title = turn.conversation.title.translate(str.maketrans("[]\\`", "()/'")) or "Conversation"
    link = conversation_path(turn.conversation_id, turn_number=turn.turn_number)
    return f"- **{said.day} {said:%B %Y}**, in [{title}]({link}):\n  > {_shortened(turn.user_message)}\n\n"


def _shortened(text: str) -> str:
    words = " ".join(text.split())
    return words if len(words) <= QUOTE_LENGTH else words[:QUOTE_LENGTH].rsplit(" ", 1)[0] + "…"


def _question(messages: list[ModelMessage]) -> str:
    prompts = [
        part.content
        for message in messages
        if isinstance(message, ModelRequest)
        for part in message.parts
        if isinstance(part, UserPromptPart) and isinstance(part.content, str)
    ]
    return prompts[-1].strip()


def _search_results(messages: list[ModelMessage]) -> dict[str, dict[str, Any]]:
    """What the searches of this run gave, by tool: nothing of one that failed; empty when there was none yet."""
    returned = [part for part in messages[-1].parts if isinstance(part, ToolReturnPart)]
    return {part.tool_name: (part.metadata or {}).get("data", {}) for part in returned}


def _turns(caller: Caller, matches: list[dict[str, Any]]) -> dict[tuple[UUID, int], Turn]:
    keys = [(UUID(match["conversationId"]), match["turnNumber"]) for match in matches]
    turns = Turn.objects.for_caller(caller).with_keys(keys).select_related("conversation")
    try:
        with acting_as(caller):
            return {(turn.conversation_id, turn.turn_number): turn for turn in turns}
    finally:
        connections.close_all()
