"""Limits the tools of one answer: the numbers of rounds, corrections and repetitions. Marks every result as data."""

import json
from dataclasses import dataclass, field
from typing import Any

from django.conf import settings
from pydantic_ai import ModelRetry, RunContext, ToolReturn
from pydantic_ai.exceptions import ToolFailed
from pydantic_ai.settings import ModelSettings
from pydantic_ai.toolsets import ToolsetTool, WrapperToolset
from pydantic_ai.usage import UsageLimits

from intake.agent.deps import ChatDeps
from intake.agent.told import as_text

# How often one call may be corrected before the model loses its tool.
MOST_CORRECTIONS = 2
# How often one answer may make the same successful call: a model that makes it again will not stop by itself.
MOST_REPETITIONS = 2
NO_MORE_ROUNDS = "limit_reached: No more tools for this answer. Answer with what you have."
NO_OBJECT = "validation_error: The input must be a JSON object."
NOT_AGAIN = "That is enough tries: do without it."


class RepeatedCall(Exception):
    """The model makes a successful call once more. `summary` is the line for people about its result."""

    def __init__(self, summary: str) -> None:
        super().__init__(summary)
        self.summary = summary


def may_use_tools(context: RunContext[ChatDeps]) -> bool:
    """A step is one request to the model. Steps within the rounds may call tools; the next one must answer."""
    return bool(context.run_step <= settings.CHAT_TOOL_ROUNDS)


def usage_limits() -> UsageLimits:
    """After the rounds, one request must answer in words. If the model does not, another one has no tools."""
    return UsageLimits(request_limit=settings.CHAT_TOOL_ROUNDS + 2)


def settings_of_step(context: RunContext[ChatDeps], common: ModelSettings) -> ModelSettings:
    """The tools stay listed, because some vendors refuse a history of calls without them; but no call is allowed."""
    return common if may_use_tools(context) else ModelSettings(**common, tool_choice="none")


@dataclass
class BoundedToolset(WrapperToolset[ChatDeps]):
    """The caller's tools within these limits. `summaries` are those of the successful calls, by name and input."""

    summaries: dict[str, list[str]] = field(default_factory=dict)

    async def get_tools(self, ctx: RunContext[ChatDeps]) -> dict[str, ToolsetTool[ChatDeps]]:
        if ctx.run_step > settings.CHAT_TOOL_ROUNDS + 1:
            return {}
        return await super().get_tools(ctx)

    async def call_tool(
        self, name: str, tool_args: dict[str, Any], ctx: RunContext[ChatDeps], tool: ToolsetTool[ChatDeps]
    ) -> Any:
        if not may_use_tools(ctx):
            raise ToolFailed(NO_MORE_ROUNDS)
        try:
            if not isinstance(tool_args, dict):
                # Vendors' libraries accept any JSON.
                raise ModelRetry(NO_OBJECT)
            earlier = self.summaries.setdefault(json.dumps([name, tool_args], sort_keys=True, default=str), [])
            if len(earlier) >= MOST_REPETITIONS:
                raise RepeatedCall(earlier[-1])
            result = await super().call_tool(name, tool_args, ctx, tool)
            earlier.append((result.metadata or {}).get("summary", ""))
        except ModelRetry as error:
            if ctx.retry < MOST_CORRECTIONS:
                raise
            raise ToolFailed(f"{error.message} {NOT_AGAIN}") from error
        return _as_data(result, ctx.deps)


def _as_data(result: ToolReturn[Any], deps: ChatDeps) -> ToolReturn[str]:
    """The model reads the result between markers; our own code reads it unchanged from the metadata."""
    read = deps.fence.around(as_text(result.return_value))
    return ToolReturn(read, metadata={**(result.metadata or {}), "data": result.return_value})
