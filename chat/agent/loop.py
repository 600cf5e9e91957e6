"""Produces one answer: asks the model, runs its tool calls within limits, and streams every event."""

import json
import logging
import math
import re
import time
from collections.abc import AsyncGenerator, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from typing import Any

from django.conf import settings
from pydantic_ai import Agent, AgentRunResultEvent, ModelRetry, RunContext, ToolReturn
from pydantic_ai.direct import model_request_stream
from pydantic_ai.exceptions import (
    AgentRunError,
    ApprovalRequired,
    ModelAPIError,
    ModelAuthenticationError,
    ModelConnectionError,
    ModelContextWindowExceededError,
    ModelNotFoundError,
    ModelQuotaExceededError,
    ModelRateLimitError,
    ModelRequestRejectedError,
    ModelRequestTimeout,
    ModelTimeoutError,
    OutputTokenLimitExceeded,
    ToolFailed,
    UsageLimitExceeded,
    UserError,
)
from pydantic_ai.messages import (
    AgentStreamEvent,
    FunctionToolCallEvent,
    FunctionToolResultEvent,
    ModelMessage,
    ModelMessagesTypeAdapter,
    ModelResponse,
    PartDeltaEvent,
    PartStartEvent,
    TextPart,
    TextPartDelta,
    ThinkingPart,
    ThinkingPartDelta,
    UserContent,
)
from pydantic_ai.models import Model, ModelRequestParameters
from pydantic_ai.settings import ModelSettings
from pydantic_ai.tools import DeferredToolRequests
from pydantic_ai.toolsets import AbstractToolset, FunctionToolset, ToolsetTool, WrapperToolset
from pydantic_ai.usage import UsageBase, UsageLimits

from agent_tools.threads import run_in_thread
from chat.agent import pausing
from chat.agent.context import (
    AgentEvent,
    AnswerEnded,
    ChatDeps,
    ChatTool,
    ReasoningWritten,
    TextWritten,
    ToolCalled,
    ToolReturned,
)
from chat.agent.prompt import ExceedsWindow, instructions
from chat.agent.recall import recall_model
from chat.agent.tools import brought_by, tools_of, toolset, with_numbers
from core.errors import InvalidInput, RateLimited, RecollectError, Unavailable
from core.ids import uuid7
from core.text import Sentence, capped, in_page_language, pg_text, pg_value
from core.text import gettext_noop as _
from intake.chats.prompts import PromptPart
from intake.llm.language_models import LanguageModel, is_recall_mode
from intake.llm.model_servers import ASSUMED
from intake.llm.models import language_model, model_settings
from intake.llm.tokens import TOKENS_OF_A_MESSAGE, cut_middle, tokens_of
from intake.llm.windows import window_of
from intake.models import PausedTurn
from intake.models.tools import Pause

# The number of steps with tool calls in one answer; then the model has to answer.
TOOL_BUDGET = 8
TOOL_BUDGET_USED = "limit_reached: No more tools for this answer. Answer with what you have."
NO_OBJECT = "validation_error: The input must be a JSON object."
CHANGED = _("The tool's description has changed since you were asked.")
NOT_ASKED = "The person must be asked first, and cannot be now: tell them, or go on without it."
NOT_AGAIN = "That is enough tries: do without it."
# A result that would have to be shorter, in tokens, is none.
LEAST_FOR_A_RESULT = 100


class RepeatedCall(Exception):
    """The model makes a successful call once more. Its text is the line for people about the call's result."""


def step_of(context: RunContext[ChatDeps]) -> int:
    """A step is one request to the model. Those before a pause count."""
    return context.deps.steps_before + context.run_step


def may_use_tools(context: RunContext[ChatDeps]) -> bool:
    """Steps within the rounds may call tools; the next one must answer."""
    return step_of(context) <= TOOL_BUDGET


@dataclass
class BoundedToolset(WrapperToolset[ChatDeps]):
    """The tools that are `offered` within these limits, which are judged before the person is asked. `summaries` are
    those of the successful calls, by name and input; `brought` the sources of their results; `spent` the tokens of the
    results, by step.
    """

    offered: dict[str, ChatTool] = field(default_factory=dict)
    summaries: dict[str, list[str]] = field(default_factory=dict)
    brought: list[PromptPart] = field(default_factory=list)
    spent: dict[int, int] = field(default_factory=dict)

    async def get_tools(self, ctx: RunContext[ChatDeps]) -> dict[str, ToolsetTool[ChatDeps]]:
        if step_of(ctx) > TOOL_BUDGET + 1:
            return {}
        return await super().get_tools(ctx)

    async def call_tool(
        self, name: str, tool_args: dict[str, Any], ctx: RunContext[ChatDeps], tool: ToolsetTool[ChatDeps]
    ) -> Any:
        # The tokens that are left of the model's window, after what this answer has written and found.
        room = ctx.deps.results_tokens
        if room is not None:
            written = (part for message in ctx.messages[ctx.deps.history_length :] for part in message.parts)
            room -= sum(map(_tokens_of_part, written)) + self.spent.get(step_of(ctx), 0)
        if not may_use_tools(ctx) or (room is not None and room < LEAST_FOR_A_RESULT):
            raise ToolFailed(TOOL_BUDGET_USED)
        try:
            if not isinstance(tool_args, dict):
                # Vendors' libraries accept any JSON.
                raise ModelRetry(NO_OBJECT)
            earlier = self.summaries.setdefault(json.dumps([name, tool_args], sort_keys=True, default=str), [])
            # A model that makes the same successful call a third time will not stop by itself.
            if len(earlier) >= 2:
                raise RepeatedCall(earlier[-1])
            await self._ask(self.offered[name], tool_args, ctx)
            try:
                result = await super().call_tool(name, tool_args, ctx, tool)
            finally:
                # A refusal is in its words, too.
                if (origin := self.offered[name].origin) != "memory":
                    ctx.deps.foreign.append(origin)
            earlier.append((result.metadata or {}).get("summary", ""))
        except ModelRetry as error:
            # A call may be corrected twice before the model loses its tool.
            if ctx.retry < 2:
                raise
            raise ToolFailed(f"{error.message} {NOT_AGAIN}") from error
        # The model reads the result between markers, as much as fits; people read the same, and our own code the data.
        text = str(result.return_value)
        text = text if room is None else cut_middle(text, room - LEAST_FOR_A_RESULT // 2)
        numbered = [*(part for part in ctx.deps.beyond if part.number), *self.brought]
        text, sources = with_numbers(text, brought_by(name, tool_args, result.metadata or {}), numbered)
        if room is None:
            # Recall mode says itself what it quotes.
            sources = [replace(part, used=False, number=0) for part in sources]
        self.brought += sources
        if any(part.kind in ("file", "page") for part in sources):
            ctx.deps.foreign.append(origin)
        marked = ctx.deps.untrusted.around(text, keeps_tags=True)
        whole = PromptPart.of("result", text)
        self.spent[step_of(ctx)] = self.spent.get(step_of(ctx), 0) + tokens_of(marked)
        return ToolReturn(marked, metadata={**(result.metadata or {}), "found": text, "sources": [whole, *sources]})

    async def _ask(self, tool: ChatTool, data: dict[str, Any], ctx: RunContext[ChatDeps]) -> None:
        """Raises `ApprovalRequired` unless the person has allowed this tool; `ToolFailed` where nobody can be asked."""
        if tool.asks is None:
            return
        if len(json.dumps(data, ensure_ascii=False)) > LONGEST_INPUT:
            # Nobody could read it whole before they allow it.
            raise ToolFailed(f"too_long: All arguments have at most {LONGEST_INPUT:,} characters.")
        why: str | None = CHANGED
        if not ctx.tool_call_approved:
            why = await tool.asks(ctx, data)
        elif ctx.tool_call_metadata == {"fingerprint": tool.fingerprint, "address": tool.address}:
            return
        if why is not None and not ctx.deps.can_ask:
            raise ToolFailed(f"{why} {NOT_ASKED}")
        if why is not None:
            # It compares all that was recalled with all that is sent.
            raise ApprovalRequired(metadata=await run_in_thread(partial(pausing.approval_of, tool, why, data, ctx)))

    @property
    def counted(self) -> dict[str, Any]:
        """As a pause keeps it."""
        spent = [*self.spent.items()]
        return {"summaries": self.summaries, "brought": [asdict(part) for part in self.brought], "spent": spent}


def _tokens_of_part(part: Any) -> int:
    total = TOKENS_OF_A_MESSAGE
    for value in (getattr(part, "content", None), getattr(part, "args", None)):
        total += tokens_of(value if isinstance(value, str) else json.dumps(value, default=str)) if value else 0
    return total


logger = logging.getLogger(__name__)
Output = str | None | DeferredToolRequests

# Of a call, in characters: each is rendered at every view of its chat, and translated.
LONGEST_SUMMARY = 4_000
LONGEST_INPUT = 150_000


async def answer(
    *,
    message: str | Sequence[UserContent],
    history: list[ModelMessage],
    deps: ChatDeps,
    model: Model | None = None,
    paused: PausedTurn | None = None,
) -> AsyncGenerator[AgentEvent | AnswerEnded | Pause, None]:
    """Stream the events of one answer, by the chat's model unless another is given.

    It ends with a `Pause` where calls wait for the person; `paused` is one to go on from, in place of a message.

    Raises `RecollectError` with a sentence for the user if the model fails.
    """
    teller, begun_at = _Teller(), time.monotonic()
    tools: AbstractToolset[ChatDeps] = toolset(deps) if deps.has_tools else FunctionToolset()
    bounded = BoundedToolset(tools, {tool.name: tool for tool in tools_of(deps)})
    teller.others = {name: tool for name, tool in bounded.offered.items() if tool.address}
    if paused is not None:
        history, teller.calls = (
            ModelMessagesTypeAdapter.validate_python(paused.state["messages"]),
            pausing.calls_of(paused),
        )
        written = (part for each in history[deps.history_length :] for part in each.parts)
        teller.resumed, teller.has_text = {*teller.calls}, any(isinstance(part, TextPart) for part in written)
        state = paused.state
        bounded.summaries, bounded.spent = state["summaries"], dict(map(tuple, state["spent"]))
        bounded.brought = [PromptPart(**part) for part in state["brought"]]
    try:
        chosen = model
        if chosen is None and is_recall_mode():
            chosen = recall_model(deps.caller, deps.quoted, is_temporary=deps.is_temporary, compared=deps.compared)
        async with _agent(deps, chosen or language_model(deps.model), bounded).run_stream_events(
            message if paused is None else None,
            message_history=history,
            deferred_tool_results=None if paused is None else pausing.results_of(paused),
            deps=deps,
            # After the rounds, one request must answer in words. If the model does not, another one has no tools.
            usage_limits=UsageLimits(request_limit=TOOL_BUDGET + 2 - deps.steps_before),
        ) as events:
            async for event in events:
                for outcome in teller.tell(event):
                    yield outcome
                if isinstance(event, AgentRunResultEvent) and isinstance(event.result.output, DeferredToolRequests):
                    yield pausing.pause_of(
                        event.result.output,
                        event.result.all_messages(),
                        calls=teller.calls,
                        deps=deps,
                        step=deps.steps_before + event.result.usage.requests,
                        counted=bounded.counted,
                    )
    except RepeatedCall as repeated:
        _log_failure(deps.model, "RepeatedCall", begun_at)
        # The answer ends with the result that the model has.
        for outcome in teller.begin_text(f"{STOPPED_REPEATING}\n\n{repeated}".strip()):
            yield outcome
        yield AnswerEnded(None, None, None, finish_reason=None)
    except AgentRunError as error:
        _log_failure(deps.model, _kind_of(error), begun_at)
        # Whether a message that does not fit is itself the reason, more than all that was said before it.
        parts = (part for before in history for part in before.parts)
        is_longer = _characters(message) > sum(_characters(getattr(part, "content", "")) for part in parts)
        raise _failure_of(error, deps.model, is_by_message=is_longer, sees_reasons=deps.sees_reasons) from error


async def complete(
    *,
    messages: list[ModelMessage],
    model: LanguageModel,
    settings: ModelSettings,
    parameters: ModelRequestParameters,
    sees_reasons: bool,
) -> AsyncGenerator[AgentEvent | AnswerEnded, None]:
    """Stream one request's answer, for a program that brings its own messages and runs its own tools.

    A call of them is a `ToolCalled` by the vendor's own id. Raises as `answer`.
    """
    teller, begun_at = _Teller(), time.monotonic()
    try:
        async with model_request_stream(
            language_model(model), messages, model_settings=settings, model_request_parameters=parameters
        ) as response:
            async for event in response:
                for outcome in teller.tell(event):
                    yield outcome
            whole = response.get()
    except UserError as error:
        # Of tools or settings that fit no request.
        raise InvalidInput(str(error)) from error
    except AgentRunError as error:
        _log_failure(model, _kind_of(error), begun_at)
        raise _failure_of(error, model, sees_reasons=sees_reasons) from error
    for call in whole.tool_calls:
        yield ToolCalled(call.tool_call_id, call.tool_name, _arguments(call))
    yield _ended(whole, whole.usage)


def _log_failure(model: LanguageModel | None, kind: str, begun_at: float) -> None:
    """Without the server's words, which may contain the user's or a key."""
    if model is not None:
        seconds = time.monotonic() - begun_at
        logger.warning("The model %s at %s failed after %.1f s (%s)", model.own_name, model.host, seconds, kind)


def _agent(deps: ChatDeps, model: Model, tools: BoundedToolset) -> Agent[ChatDeps, Output]:
    """A malformed call also uses up a round, so its corrections need no other limit.

    No text at all is a valid output for the library, so that `_require_words` decides what it means.
    """
    common = model_settings(deps.model, temperature=deps.temperature)
    agent: Agent[ChatDeps, Output] = Agent(
        model,
        deps_type=ChatDeps,
        output_type=[str, type(None), DeferredToolRequests] if deps.can_ask else [str, type(None)],
        instructions=[
            instructions(deps)[0],
            lambda context: instructions(deps, may_use_tools=may_use_tools(context))[1],
        ],
        toolsets=[tools],
        # The tools stay listed, because some vendors refuse a history of calls without them; but no call is allowed.
        model_settings=lambda context: (
            common if may_use_tools(context) else ModelSettings(**common, tool_choice="none")
        ),
        retries={"tools": TOOL_BUDGET + 2, "output": 1},
    )
    agent.output_validator(_require_words)
    return agent


# Of a window: a prompt of so much leaves no room for a word.
FULL = 0.95


def _require_words(context: RunContext[ChatDeps], output: Output) -> Output:
    """A model that has thought or called tools is asked once more; one that sent nothing at all would send it again."""
    if isinstance(output, DeferredToolRequests) or (output and output.strip()):
        return output
    last = context.messages[-1].parts if context.messages else []
    thoughts = (part for part in last if isinstance(part, ThinkingPart))
    has_worked = step_of(context) > 1 or any(part.has_content() for part in thoughts)
    if has_worked and context.retry == 0:
        raise ModelRetry("Answer in words now.")
    raise SentNothing(is_full=_is_full(context))


def _is_full(context: RunContext[ChatDeps]) -> bool:
    """Whether the window was full before the first word: the server has counted, and says no reason for its end; or has
    counted about as much as the window holds.
    """
    response = context.messages[-1] if context.messages else None
    if not isinstance(response, ModelResponse) or not response.usage.input_tokens:
        return False
    model = context.deps.model
    window = ASSUMED if model is None else window_of(model)
    is_near = not window.is_assumed and response.usage.input_tokens >= FULL * window.tokens
    # The library itself says `stop` where the server says nothing.
    return is_near or not (response.provider_details or {}).get("finish_reason")


@dataclass
class _Teller:
    """Translates the library's events into this project's, and counts the thinking time.

    `thought_seconds`: of the finished parts; `thinks_since`: when the present one began.
    """

    has_text: bool = False
    has_thought: bool = False
    thought_seconds: float = 0.0
    thinks_since: float | None = None
    # The calls without a result, by the vendor's id.
    calls: dict[str, ToolCalled] = field(default_factory=dict)
    # Those of `calls` that were told of before the pause.
    resumed: set[str] = field(default_factory=set)
    # Of the tools from elsewhere.
    others: dict[str, ChatTool] = field(default_factory=dict)

    def tell(self, event: AgentStreamEvent | Any) -> Sequence[AgentEvent | AnswerEnded]:
        match event:
            case FunctionToolCallEvent(part=part) if part.tool_call_id in self.resumed:
                self.resumed.discard(part.tool_call_id)
                return []
            case FunctionToolCallEvent(part=part):
                input_ = _bounded(pg_value(_arguments(part)))
                other = self.others.get(part.tool_name)
                of_server = (other.origin, other.own_name or other.name) if other is not None else ()
                call = ToolCalled(str(uuid7()), pg_text(part.tool_name), input_, *of_server)
                self.calls[part.tool_call_id] = call
                return [call]
            case FunctionToolResultEvent(part=part):
                # A vendor may have given two calls one id.
                known = self.calls.pop(part.tool_call_id, None)
                return [_returned(known or ToolCalled(part.tool_call_id, pg_text(part.tool_name), {}), part)]
            case AgentRunResultEvent(result=result):
                requests = result.output
                asked = pausing.asked_of(requests, self.calls) if isinstance(requests, DeferredToolRequests) else []
                first = next((each for each in result.new_messages() if isinstance(each, ModelResponse)), None)
                # What the server counted for the prompt alone; None if it did not count.
                counted = first.usage.input_tokens or None if first is not None else None
                return [*asked, replace(_ended(result.response, result.usage), first_input_tokens=counted)]
        return self._tell_written(event)

    def _tell_written(self, event: AgentStreamEvent | Any) -> list[AgentEvent]:
        match event:
            case PartStartEvent(part=ThinkingPart(content=text)):
                self.thought_seconds, self.thinks_since = self._thought_until_now(), time.monotonic()
                # Thinking after a tool call starts a new paragraph.
                return self._think(("\n\n" if self.has_thought else "") + text)
            case PartDeltaEvent(delta=ThinkingPartDelta(content_delta=text)) if text:
                return self._think(text)
            case PartDeltaEvent(delta=TextPartDelta(content_delta=text)) if text:
                return self._write(text)
            case PartStartEvent(part=part):
                self.thought_seconds, self.thinks_since = self._thought_until_now(), None
                return self.begin_text(part.content) if isinstance(part, TextPart) else []
        return []

    def _think(self, text: str) -> list[AgentEvent]:
        if not text.strip() and not self.has_thought:
            return []
        self.has_thought = True
        return [ReasoningWritten(pg_text(text), round(self._thought_until_now(), 1))]

    def _thought_until_now(self) -> float:
        return self.thought_seconds + (0.0 if self.thinks_since is None else time.monotonic() - self.thinks_since)

    def begin_text(self, text: str) -> list[AgentEvent]:
        """Text after a tool call starts a new paragraph."""
        if self.has_text:
            return self._write("\n\n" + text)
        return self._write(text) if text else []

    def _write(self, text: str) -> list[AgentEvent]:
        self.has_text = True
        return [TextWritten(pg_text(text))]


def _ended(response: ModelResponse, usage: UsageBase) -> AnswerEnded:
    # A vendor that counts no tokens still reports a request as empty.
    read, written = (
        (usage.input_tokens, usage.output_tokens) if usage.input_tokens or usage.output_tokens else (None, None)
    )
    return AnswerEnded(response.model_name, read, written, response.finish_reason)


def _returned(call: ToolCalled, part: Any) -> ToolReturned:
    if part.outcome == "denied":
        return ToolReturned(call, Sentence(_("You did not allow it.")), is_error=True)
    if part.outcome != "success":
        return ToolReturned(call, _failure(part), is_error=True)
    outcome = part.metadata or {}
    summary = outcome.get("summary", "")
    return ToolReturned(
        call,
        summary if len(summary) <= LONGEST_SUMMARY else capped(summary, LONGEST_SUMMARY),
        stored=outcome.get("stored"),
        place=outcome.get("place"),
        sources=tuple(
            replace(part, id=call.id[-12:]) if part.kind == "result" else part for part in outcome.get("sources", ())
        ),
        # Of a call that stores something the stored text is shown.
        found=None if "stored" in outcome or "found" not in outcome else pg_text(capped(outcome["found"], 8_000)),
        shows=outcome.get("shows", []),
    )


def _arguments(part: Any) -> dict[str, Any]:
    """The call's input as the model wrote it; input that is not a JSON object is shown unchanged."""
    try:
        return dict(part.args_as_dict())
    except (ValueError, AssertionError, TypeError):
        return {"input": str(part.args)}


def _bounded(input_: dict[str, Any]) -> dict[str, Any]:
    """No tool takes an input as long as this, so the beginning is enough to see what the model sent."""
    written = json.dumps(input_, ensure_ascii=False)
    return input_ if len(written) <= LONGEST_INPUT else {"input": capped(written, LONGEST_INPUT)}


def _failure(part: Any) -> str:
    """The reason of a failure in a sentence: codes are for programs, and parser messages for the model."""
    reason = re.sub(r"^[a-z_]+: ", "", part.content) if isinstance(part.content, str) else "The call could not be read."
    return Sentence(_("That did not work: %(reason)s"), reason=Sentence(pg_text(reason)[:300]))


UNREACHABLE = _("The model's server cannot be reached. Ask your administrator to check its address.")
# A piece that looks like a key: servers repeat the one that they refuse.
_KEY = re.compile(r"\b(?:sk|pk|gsk|hf|xai|key|Bearer)[-_ ][\w-]{6,}")


class ModelFailed(Unavailable):
    """Another model may answer."""

    about = "model"


class ModelRefused(ModelFailed):
    """Unavailable until the settings change."""

    retryable = False


class SentNothing(AgentRunError):
    """The server ended its answer without a word, a thought or a call. `is_full`: its model's window had no room."""

    def __init__(self, *, is_full: bool = False) -> None:
        super().__init__("The model sent nothing.")
        self.is_full = is_full


STOPPED_REPEATING = "The model asked for the same thing again and again, and so it was stopped. This is what it found:"
TOO_SLOW = _("The model did not answer within %(count)s seconds. Try again.")
# Servers that name no code for it: llama.cpp, Ollama, LM Studio, vLLM, TGI, MLX.
_WINDOW = re.compile(
    r"context[ _-]?(?:length|size|window|limit)|exceed_context|n_ctx|too many tokens|prompt is too long"
    r"|input (?:is|length|tokens?)\b.{0,40}(?:too long|exceed|maximum)|max(?:imum)?[ _](?:input|sequence|model)[ _]len",
    re.IGNORECASE | re.DOTALL,
)
CANNOT_CHAT = _("%(model)s cannot chat. Choose another one.")
# The sentence for the user; the first match wins. The vendor's own message may contain the key or the prompt.
IN_WORDS: list[tuple[type[AgentRunError], type[RecollectError], str]] = [
    (ModelAuthenticationError, ModelRefused, _("The API key for this model is not accepted. Ask your administrator.")),
    (
        ModelNotFoundError,
        ModelRefused,
        _("This model is not available. Choose another one, or ask your administrator."),
    ),
    (
        ModelQuotaExceededError,
        ModelRefused,
        _("The quota of this model is used up. Choose another one, or ask your administrator."),
    ),
    (
        SentNothing,
        ModelRefused,
        _("The model returned an empty answer. Rephrase your question, or choose another model."),
    ),
    (ModelRequestRejectedError, ModelRefused, _("This model cannot answer this. Choose another one.")),
    (UsageLimitExceeded, Unavailable, _("The model kept repeating the same search. Rephrase your question.")),
    (ModelRequestTimeout, ModelFailed, TOO_SLOW),
    (ModelTimeoutError, ModelFailed, TOO_SLOW),
    (ModelAPIError, ModelFailed, _("The model stopped responding. Try again.")),
    (AgentRunError, Unavailable, _("The model's answer could not be read. Try again.")),
]


def explained(error: AgentRunError, model: LanguageModel) -> str:
    """For staff, in the page's language: what failed, and the server's own words without the key."""
    return f"{in_page_language(_sentence_for(error, model).detail)} {_reason(error, model)}"


def _characters(content: Any) -> int:
    """Of a text, or of those among several contents."""
    return len(content) if isinstance(content, str) else sum(len(each) for each in content if isinstance(each, str))


def _failure_of(
    error: AgentRunError, model: LanguageModel | None, *, is_by_message: bool = False, sees_reasons: bool
) -> RecollectError:
    failure = _sentence_for(error, model, is_by_message=is_by_message)
    if sees_reasons:
        failure.reason = _reason(error, model)
    return failure


def _sentence_for(error: AgentRunError, model: LanguageModel | None, *, is_by_message: bool = False) -> RecollectError:
    is_about_window = isinstance(error, ModelAPIError) and _WINDOW.search(_words_of(error))
    is_full = isinstance(error, SentNothing) and error.is_full
    # The window was full before the first word.
    is_cut = isinstance(error, OutputTokenLimitExceeded)
    if is_about_window or is_full or is_cut or isinstance(error, ModelContextWindowExceededError):
        window = window_of(model, asks=False) if model else ASSUMED
        return ExceedsWindow(window, is_by_message=is_by_message and not is_cut)
    if isinstance(error, ModelConnectionError) and error.phase == "connect":
        return ModelFailed(UNREACHABLE)
    # Ollama's words, and OpenAI's.
    if isinstance(error, ModelAPIError) and re.search("does not support chat|not a chat model", _words_of(error)):
        return ModelRefused(CANNOT_CHAT, model=model.title if model else error.model_name)
    if isinstance(error, ModelRateLimitError):
        return RateLimited(
            _("The model is busy. Try again in a moment."), retry_after=math.ceil(error.retry_after or 0)
        )
    kind, message = next((ours, message) for theirs, ours, message in IN_WORDS if isinstance(error, theirs))
    return kind(message, count=f"{settings.LLM_TIMEOUT_SECONDS:g}") if message == TOO_SLOW else kind(message)


def _kind_of(error: AgentRunError) -> str:
    """The library's name of the failure, with the status and the code of the server's response."""
    status, code = getattr(error, "status_code", None), getattr(error, "provider_error_code", None)
    return " ".join(str(each)[:100] for each in (type(error).__name__.lstrip("_"), status, code) if each)


def _words_of(error: AgentRunError) -> str:
    """The server's own words. An error without a body was worded by the library."""
    body = getattr(error, "body", None)
    if body is None:
        return str(error)
    return body if isinstance(body, str) else json.dumps(body, ensure_ascii=False, default=str)


def _reason(error: AgentRunError, model: LanguageModel | None) -> str:
    words = pg_text(_words_of(error))
    if model is not None and model.api_key:
        words = words.replace(model.api_key, "…")
    return _KEY.sub("…", words)[:1_000]
