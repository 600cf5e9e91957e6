"""Recall mode: without a language model the same agent loop runs, with this model in the model's place.

It calls the search tool with the person's message and answers with what was found: dates, links, their own words.
"""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any
from uuid import UUID

from asgiref.sync import sync_to_async
from django.db import connections
from django.utils import timezone
from pydantic_ai.messages import ModelMessage, ModelRequest, ToolReturnPart, UserPromptPart
from pydantic_ai.models.function import AgentInfo, DeltaToolCall, DeltaToolCalls, FunctionModel

from intake.acting import acting_as
from intake.links import conversation_path
from intake.models import Turn
from intake.models.conversations import Caller

SEARCH_TOOL = "search_chat_history"
# Beyond this cosine distance the built-in embedding model's matches are mostly chance.
FAR = 0.75
QUOTE_LENGTH = 280
SHOWN = 5

HOW_TO_ADD = (
    "*No language model is configured, so this is recall mode: I look up what you said and quote it. "
    "Set `LLM_MODEL` (and `LLM_BASE_URL` or `LLM_API_KEY`) to have your questions answered.*"
)


def recall_model(caller: Caller) -> FunctionModel:
    """The model for one caller's answer: what it quotes it looks up among that caller's turns alone."""

    async def recall(messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[str | DeltaToolCalls]:
        question = _question(messages)
        found = _search_result(messages)
        if found is None and any(tool.name == SEARCH_TOOL for tool in info.function_tools):
            arguments = json.dumps({"query": question[:500], "limit": 10, "mode": "hybrid"})
            yield {0: DeltaToolCall(name=SEARCH_TOOL, json_args=arguments, tool_call_id="recall-1")}
            return
        matches = [match for match in (found or {}).get("results", []) if match["score"] <= FAR]
        turns = await sync_to_async(_turns, thread_sensitive=False)(caller, matches)
        for piece in _answer(question, matches, turns, note=(found or {}).get("note")):
            yield piece
            # Hand the loop back, so that each piece leaves on its own as a model's would.
            await asyncio.sleep(0)

    return FunctionModel(stream_function=recall, model_name="recall")


def _answer(
    question: str, matches: list[dict[str, Any]], turns: dict[tuple[UUID, int], Turn], *, note: str | None
) -> list[str]:
    echo = question.casefold()
    quoted = [
        _quote(turn)
        for match in matches
        if (turn := turns.get((UUID(match["conversationId"]), match["turnNumber"])))
        and turn.user_message.strip().casefold() != echo
    ][:SHOWN]
    if note == "user identity required":
        opening = "Saved in this browser. Register or log in, and it becomes part of your searchable memory.\n\n"
    elif quoted:
        opening = "Here is what you said that comes closest:\n\n"
    else:
        opening = "Saved. I found nothing earlier that comes close to it.\n\n"
    return [opening, *quoted, HOW_TO_ADD]


def _quote(turn: Turn) -> str:
    said = timezone.localtime(turn.said_at)
    title = turn.conversation.title.translate(str.maketrans("[]\\`", "()/'")) or "Conversation"
    words = " ".join(turn.user_message.split())
    words = words if len(words) <= QUOTE_LENGTH else words[:QUOTE_LENGTH].rsplit(" ", 1)[0] + "…"
    link = conversation_path(turn.conversation_id, turn_number=turn.turn_number)
    return f"- **{said.day} {said:%B %Y}**, in [{title}]({link}):\n  > {words}\n\n"


def _question(messages: list[ModelMessage]) -> str:
    prompts = [
        part.content
        for message in messages
        if isinstance(message, ModelRequest)
        for part in message.parts
        if isinstance(part, UserPromptPart) and isinstance(part.content, str)
    ]
    return prompts[-1].strip()


def _search_result(messages: list[ModelMessage]) -> dict[str, Any] | None:
    """What the search of this run gave: `{}` when it failed, None when there was none yet."""
    last = messages[-1]
    for part in last.parts:
        if isinstance(part, ToolReturnPart):
            return dict(part.content) if isinstance(part.content, dict) else {}
    return None


def _turns(caller: Caller, matches: list[dict[str, Any]]) -> dict[tuple[UUID, int], Turn]:
    keys = [(UUID(match["conversationId"]), match["turnNumber"]) for match in matches]
    turns = Turn.objects.for_caller(caller).with_keys(keys).select_related("conversation")
    try:
        with acting_as(caller):
            return {(turn.conversation_id, turn.turn_number): turn for turn in turns}
    finally:
        connections.close_all()
