"""One answer: the model is asked, its tool calls are made, and everything that happens is told as it happens."""

from collections.abc import AsyncIterator
from typing import Any

from django.conf import settings
from django.utils.module_loading import import_string
from pydantic_ai import Agent
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
from pydantic_ai.usage import UsageLimits

from intake.agent.deps import ChatDeps
from intake.agent.events import AgentEvent, TextWritten, ToolCalled, ToolReturned
from intake.agent.models import chat_model, model_settings
from intake.agent.prompt import instructions
from intake.errors import RateLimited, RecollectError, TooLarge, Unavailable

# More rounds than any sensible answer needs, few enough that a confused model ends soon.
MODEL_REQUESTS = 8


async def answer(*, message: str, history: list[ModelMessage], deps: ChatDeps) -> AsyncIterator[AgentEvent]:
    """Stream the events of one answer. Raises `RecollectError` when the model fails, in words for the person."""
    agent: Agent[ChatDeps, str] = Agent(
        chat_model(deps.caller),
        deps_type=ChatDeps,
        instructions=instructions(now=deps.now),
        toolsets=[import_string(settings.CHAT_TOOLSET)(deps.caller)],
        model_settings=model_settings(),
        retries=2,
    )
    limits = UsageLimits(request_limit=MODEL_REQUESTS)
    try:
        async with agent.run_stream_events(message, message_history=history, deps=deps, usage_limits=limits) as events:
            has_text = False
            async for event in events:
                for told in _translate(event, has_text=has_text):
                    has_text = has_text or isinstance(told, TextWritten)
                    yield told
    except AgentRunError as error:
        raise _in_words(error) from error


def _translate(event: AgentStreamEvent | Any, *, has_text: bool) -> list[AgentEvent]:
    match event:
        case PartStartEvent(part=TextPart(content=text)):
            # Text after a tool call is a paragraph of its own.
            return [TextWritten("\n\n" + text if has_text else text)] if text or has_text else []
        case PartDeltaEvent(delta=TextPartDelta(content_delta=text)) if text:
            return [TextWritten(text)]
        case FunctionToolCallEvent(part=part):
            return [ToolCalled(id=part.tool_call_id, name=part.tool_name, input=_arguments(part))]
        case FunctionToolResultEvent(part=part):
            succeeded = part.outcome == "success"
            summary = (part.metadata or {}).get("summary") if succeeded else None
            return [ToolReturned(part.tool_call_id, summary or _failure(part), is_error=not succeeded)]
        case _:
            return []


def _arguments(part: Any) -> dict[str, Any]:
    """The call's input as the model wrote it; what is no JSON object is shown as it came."""
    try:
        return dict(part.args_as_dict())
    except (ValueError, AssertionError, TypeError):
        return {"input": str(part.args)}


def _failure(part: Any) -> str:
    return "That did not work: " + str(part.content)[:300]


class ModelRefused(Unavailable):
    """Away until somebody changes the settings."""

    retryable = False


# What to tell the person, the first that fits; the vendor's own words may hold the key or the prompt.
IN_WORDS: list[tuple[type[AgentRunError], type[RecollectError], str]] = [
    (ModelAuthenticationError, ModelRefused, "The language model refused the key. Check LLM_API_KEY."),
    (ModelNotFoundError, ModelRefused, "The language model is not there. Check LLM_MODEL and LLM_BASE_URL."),
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
