"""Produces one answer: asks the model, runs its tool calls, and streams every event."""

import re
import time
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass, field
from typing import Any

from django.conf import settings
from django.utils.module_loading import import_string
from pydantic_ai import Agent, AgentRunResultEvent
from pydantic_ai.exceptions import (
    AgentRunError,
    ModelAPIError,
    ModelAuthenticationError,
    ModelContextWindowExceededError,
    ModelNotFoundError,
    ModelQuotaExceededError,
    ModelRateLimitError,
    ModelRequestRejectedError,
    UsageLimitExceeded,
)
from pydantic_ai.messages import (
    AgentStreamEvent,
    FunctionToolCallEvent,
    FunctionToolResultEvent,
    ModelMessage,
    PartDeltaEvent,
    PartStartEvent,
    TextPart,
    TextPartDelta,
    ThinkingPart,
    ThinkingPartDelta,
)
from pydantic_ai.models import Model
from pydantic_ai.run import AgentRunResult

from core.errors import RateLimited, RecollectError, TooLarge, Unavailable
from core.ids import uuid7
from core.pg_text import storable, storable_text
from intake.agent.deps import ChatDeps
from intake.agent.events import AgentEvent, AnswerEnded, ReasoningWritten, TextWritten, ToolCalled, ToolReturned
from intake.agent.models import chat_model, model_settings
from intake.agent.prompt import circumstances, introduction
from intake.agent.rounds import BoundedToolset, may_use_tools, settings_of_step, usage_limits


async def answer(
    *, message: str, history: list[ModelMessage], deps: ChatDeps, model: Model | None = None
) -> AsyncGenerator[AgentEvent | AnswerEnded, None]:
    """Stream the events of one answer, by the chat's model unless another is given.

    Raises `RecollectError` with a sentence for the user if the model fails.
    """
    teller = _Teller()
    try:
        chosen = model or chat_model(deps.caller, deps.model, is_temporary=deps.is_temporary)
        async with _agent(deps, chosen).run_stream_events(
            message, message_history=history, deps=deps, usage_limits=usage_limits()
        ) as events:
            async for event in events:
                for told in teller.tell(event):
                    yield told
    except AgentRunError as error:
        raise _in_words(error, is_by_message=_is_longer(message, history)) from error


def _agent(deps: ChatDeps, model: Model) -> Agent[ChatDeps, str]:
    """A malformed call also uses up a round, so its corrections need no other limit."""
    common = model_settings(deps.model, temperature=deps.temperature)
    tools = import_string(settings.CHAT_TOOLSET)(
        deps.caller, uses_memory=deps.uses_memory, may_save=not deps.is_temporary
    )
    return Agent(
        model,
        deps_type=ChatDeps,
        instructions=[
            introduction(deps),
            lambda context: circumstances(deps, may_use_tools=may_use_tools(context)),
        ],
        toolsets=[BoundedToolset(tools)],
        model_settings=lambda context: settings_of_step(context, common),
        retries={"tools": settings.CHAT_TOOL_ROUNDS + 2, "output": 2},
    )


@dataclass
class _Thinking:
    """Counts the thinking time: of finished parts, and of the present one."""

    seconds: float = 0.0
    since: float | None = None
    has_text: bool = False

    def begin(self, text: str) -> list[AgentEvent]:
        self.end()
        self.since = time.monotonic()
        # Thinking after a tool call starts a new paragraph.
        return self.go_on(("\n\n" if self.has_text else "") + text)

    def go_on(self, text: str) -> list[AgentEvent]:
        if not text.strip() and not self.has_text:
            return []
        self.has_text = True
        return [ReasoningWritten(storable_text(text), round(self._until_now(), 1))]

    def end(self) -> None:
        self.seconds, self.since = self._until_now(), None

    def _until_now(self) -> float:
        return self.seconds + (0.0 if self.since is None else time.monotonic() - self.since)


@dataclass
class _Teller:
    """Translates the library's events into this project's."""

    has_text: bool = False
    # The ids of calls without a result, by the vendor's id.
    ids: dict[str, str] = field(default_factory=dict)
    thinking: _Thinking = field(default_factory=_Thinking)

    def tell(self, event: AgentStreamEvent | Any) -> Sequence[AgentEvent | AnswerEnded]:
        match event:
            case FunctionToolCallEvent(part=part):
                id_ = self.ids[part.tool_call_id] = str(uuid7())
                return [ToolCalled(id=id_, name=storable_text(part.tool_name), input=storable(_arguments(part)))]
            case FunctionToolResultEvent(part=part):
                return [_returned(self.ids.pop(part.tool_call_id, part.tool_call_id), part)]
            case AgentRunResultEvent(result=result):
                return [_ended(result)]
        return self._tell_written(event)

    def _tell_written(self, event: AgentStreamEvent | Any) -> list[AgentEvent]:
        match event:
            case PartStartEvent(part=ThinkingPart(content=text)):
                return self.thinking.begin(text)
            case PartDeltaEvent(delta=ThinkingPartDelta(content_delta=text)) if text:
                return self.thinking.go_on(text)
            case PartDeltaEvent(delta=TextPartDelta(content_delta=text)) if text:
                return self._write(text)
            case PartStartEvent(part=part):
                self.thinking.end()
                return self._begin_text(part.content) if isinstance(part, TextPart) else []
        return []

    def _begin_text(self, text: str) -> list[AgentEvent]:
        """Text after a tool call starts a new paragraph."""
        if self.has_text:
            return self._write("\n\n" + text)
        return self._write(text) if text else []

    def _write(self, text: str) -> list[AgentEvent]:
        self.has_text = True
        return [TextWritten(storable_text(text))]


def _ended(result: AgentRunResult[str]) -> AnswerEnded:
    response, usage = result.response, result.usage
    # A vendor that counts no tokens still reports a request as empty.
    is_counted = bool(usage.input_tokens or usage.output_tokens)
    return AnswerEnded(
        model=response.model_name,
        input_tokens=usage.input_tokens if is_counted else None,
        output_tokens=usage.output_tokens if is_counted else None,
        finish_reason=response.finish_reason,
    )


def _returned(id_: str, part: Any) -> ToolReturned:
    if part.outcome != "success":
        return ToolReturned(id_, _failure(part), is_error=True)
    told = part.metadata or {}
    return ToolReturned(id_, told.get("summary", ""), stored=told.get("stored"), place=told.get("place"))


def _arguments(part: Any) -> dict[str, Any]:
    """The call's input as the model wrote it; input that is not a JSON object is shown unchanged."""
    try:
        return dict(part.args_as_dict())
    except (ValueError, AssertionError, TypeError):
        return {"input": str(part.args)}


def _failure(part: Any) -> str:
    """The reason of a failure in a sentence: codes are for programs, and parser messages for the model."""
    reason = re.sub(r"^[a-z_]+: ", "", part.content) if isinstance(part.content, str) else "The call could not be read."
    return "That did not work: " + reason[:300]


class ModelRefused(Unavailable):
    """Unavailable until the settings change."""

    retryable = False


# The sentence for the user; the first match wins. The vendor's own message may contain the key or the prompt.
IN_WORDS: list[tuple[type[AgentRunError], type[RecollectError], str]] = [
    (ModelAuthenticationError, ModelRefused, "The language model refused its key: the operator has to change it."),
    (ModelNotFoundError, ModelRefused, "The language model is not there. Choose another, or tell the operator."),
    (ModelQuotaExceededError, ModelRefused, "The language model's quota is used up."),
    (ModelRateLimitError, RateLimited, "The language model is busy. Try again in a moment."),
    (ModelContextWindowExceededError, TooLarge, "This conversation has grown too long. Start a new one."),
    (ModelRequestRejectedError, ModelRefused, "The language model refused the request."),
    (UsageLimitExceeded, Unavailable, "The model went round in circles with its tools. Ask differently."),
    (ModelAPIError, Unavailable, "The language model is away or broke off. Try again."),
    (AgentRunError, Unavailable, "The language model's answer could not be read. Try again."),
]


def _is_longer(message: str, history: list[ModelMessage]) -> bool:
    """Whether a message that does not fit is itself the reason, more than all that was said before it."""
    parts = (part for before in history for part in before.parts)
    return len(message) > sum(
        len(content) for part in parts if isinstance(content := getattr(part, "content", ""), str)
    )


def _in_words(error: AgentRunError, *, is_by_message: bool) -> RecollectError:
    if is_by_message and isinstance(error, ModelContextWindowExceededError):
        return TooLarge("This message is longer than the model's window.")
    return next(ours(sentence) for theirs, ours, sentence in IN_WORDS if isinstance(error, theirs))
