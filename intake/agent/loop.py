"""One answer: the model is asked, its tool calls are made, and everything that happens is told as it happens."""

import re
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
)
from pydantic_ai.models import Model
from pydantic_ai.run import AgentRunResult

from core.errors import RateLimited, RecollectError, TooLarge, Unavailable
from core.ids import uuid7
from core.pg_text import storable, storable_text
from intake.agent.deps import ChatDeps
from intake.agent.events import AgentEvent, AnswerEnded, TextWritten, ToolCalled, ToolReturned
from intake.agent.models import chat_model, model_settings
from intake.agent.prompt import circumstances, introduction
from intake.agent.rounds import BoundedToolset, may_use_tools, settings_of_step, usage_limits


async def answer(
    *, message: str, history: list[ModelMessage], deps: ChatDeps, model: Model | None = None
) -> AsyncGenerator[AgentEvent | AnswerEnded, None]:
    """Stream the events of one answer, by the model of the settings unless another is given.

    Raises `RecollectError` when the model fails, in words for the person.
    """
    teller = _Teller()
    try:
        async with _agent(deps, model or chat_model(deps.caller)).run_stream_events(
            message, message_history=history, deps=deps, usage_limits=usage_limits()
        ) as events:
            async for event in events:
                for told in teller.tell(event):
                    yield told
    except AgentRunError as error:
        raise _in_words(error) from error


def _agent(deps: ChatDeps, model: Model) -> Agent[ChatDeps, str]:
    """A call that cannot even be read costs a round, too: its corrections need no other bound."""
    common = model_settings()
    return Agent(
        model,
        deps_type=ChatDeps,
        instructions=[
            introduction(),
            lambda context: circumstances(deps, may_use_tools=may_use_tools(context)),
        ],
        toolsets=[BoundedToolset(import_string(settings.CHAT_TOOLSET)(deps.caller))],
        model_settings=lambda context: settings_of_step(context, common),
        retries={"tools": settings.CHAT_TOOL_ROUNDS + 2, "output": 2},
    )


@dataclass
class _Teller:
    """Tells the library's events in this project's words."""

    has_text: bool = False
    # The ids of the calls that have no result yet, by the vendor's.
    ids: dict[str, str] = field(default_factory=dict)

    def tell(self, event: AgentStreamEvent | Any) -> Sequence[AgentEvent | AnswerEnded]:
        match event:
            case PartStartEvent(part=TextPart(content=text)):
                return self._begin_text(text)
            case PartDeltaEvent(delta=TextPartDelta(content_delta=text)) if text:
                return self._write(text)
            case FunctionToolCallEvent(part=part):
                id_ = self.ids[part.tool_call_id] = str(uuid7())
                return [ToolCalled(id=id_, name=storable_text(part.tool_name), input=storable(_arguments(part)))]
            case FunctionToolResultEvent(part=part):
                return [_returned(self.ids.pop(part.tool_call_id, part.tool_call_id), part)]
            case AgentRunResultEvent(result=result):
                return [_ended(result)]
            case _:
                return []

    def _begin_text(self, text: str) -> list[AgentEvent]:
        """Text after a tool call is a paragraph of its own."""
        if self.has_text:
            return self._write("\n\n" + text)
        return self._write(text) if text else []

    def _write(self, text: str) -> list[AgentEvent]:
        self.has_text = True
        return [TextWritten(storable_text(text))]


def _ended(result: AgentRunResult[str]) -> AnswerEnded:
    response, usage = result.response, result.usage
    # A vendor that counts nothing counts no request as empty.
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
    """The call's input as the model wrote it; what is no JSON object is shown as it came."""
    try:
        return dict(part.args_as_dict())
    except (ValueError, AssertionError, TypeError):
        return {"input": str(part.args)}


def _failure(part: Any) -> str:
    """Why it did not work, in a sentence: codes are for programs, and a parser's complaint for the model."""
    reason = re.sub(r"^[a-z_]+: ", "", part.content) if isinstance(part.content, str) else "The call could not be read."
    return "That did not work: " + reason[:300]


class ModelRefused(Unavailable):
    """Away until somebody changes the settings."""

    retryable = False


# What to tell the person, the first that fits; the vendor's own words may hold the key or the prompt.
IN_WORDS: list[tuple[type[AgentRunError], type[RecollectError], str]] = [
    (ModelAuthenticationError, ModelRefused, "The language model refused its key: the operator has to change it."),
    (ModelNotFoundError, ModelRefused, "The language model is not there: the operator has to change it."),
    (ModelQuotaExceededError, ModelRefused, "The language model's quota is used up."),
    (ModelRateLimitError, RateLimited, "The language model is busy. Try again in a moment."),
    (ModelContextWindowExceededError, TooLarge, "This conversation has grown too long. Start a new one."),
    (ModelRequestRejectedError, ModelRefused, "The language model refused the request."),
    (UsageLimitExceeded, Unavailable, "The model went round in circles with its tools. Ask differently."),
    (ModelAPIError, Unavailable, "The language model is away or broke off. Try again."),
    (AgentRunError, Unavailable, "The language model's answer could not be read. Try again."),
]


def _in_words(error: AgentRunError) -> RecollectError:
    return next(ours(sentence) for theirs, ours, sentence in IN_WORDS if isinstance(error, theirs))
