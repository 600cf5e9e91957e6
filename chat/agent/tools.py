"""The tools of the chat's agent loop: the registry as its toolset, bound to one caller."""

import json
import logging
from contextlib import nullcontext
from functools import cache, partial
from typing import Any

from pydantic_ai import FunctionToolset, ModelRetry, RunContext, ToolReturn
from pydantic_ai import Tool as ModelTool
from pydantic_ai.exceptions import ToolFailed

from agent_tools.registry import StoredByCall, Tool, schema_without
from agent_tools.threads import run_in_thread
from agent_tools.tools import registry
from agent_tools.tools.connectors import fetch
from agent_tools.tools.context import get_context
from chat.agent.context import ChatDeps
from core.errors import AuthenticationRequired, Broken, InvalidInput, RecollectError
from core.gate import another_turn
from core.isolation.acting import Caller, acting_as
from core.responses import as_recollect_error
from intake.models import User

logger = logging.getLogger(__name__)

# The argument by which a search leaves a conversation out.
OWN_SESSION = "excludeSession"
# Arguments that the chat's model does not see. Its person is there to ask, so it need not propose.
NOT_OF_THE_CHAT = frozenset({OWN_SESSION, "propose"})

FOR_A_PERSON = """\
Your tools look into what this person said and kept here.
- `search_chat_history`: what was said in earlier chats, by meaning; `mode` `hybrid` for names, numbers and exact terms.
- `search_history`: chats, saved memories, MEMORY.md, daily logs and attached files together, with dates.
- `search_memory`: only what was saved on purpose: decisions, preferences, lessons, facts.
- `get_conversation`: the turns around a hit. Results are excerpts: read on before you rely on a detail.
- `fetch`: a saved memory, a note or a log whole, by the `id` of a result.
- `read_attachment`: the text of an attached file, by page or part; the prompt or a result may show little of it.
- `list_recent_conversations`: what was talked about lately or in some period, rather than what it was about.
- `save_memory`, `append_daily_log`: when the person asks for something to be remembered or noted. They see what you
  stored, and can undo it; say in a few words that you did.
Search before you answer whenever the question is about something they may have told you before, or when it would make
the answer better. Say when they said it if you use it. If nothing fits, say so; never invent a memory. Where a
result's note says that nothing was found about it, what precedes is only the nearest: take it that they never said it.
If a call is refused, correct it by what the refusal says, or answer without it."""

FOR_A_VISITOR = """\
You are talking to a visitor who has not logged in. Of their earlier chats you have what this prompt shows of them, and
nothing else: call no tool, because for a visitor tools find and store nothing. If they ask for something to be
remembered, say that it becomes possible once they register or log in; what they say here becomes theirs then."""

# The prompt of the chat has its notes already. Results are excerpts, and `fetch` reads a note or a memory whole.
FOR_THE_CHAT = [*(tool for tool in registry if tool is not get_context), fetch]

NOBODY = "nobody is logged in, so there is nobody to remember for. It works once they register or log in."


FOR_A_CHAT_WITHOUT_MEMORY = """\
The person has turned their memory off for this chat: you cannot look into what they said or kept elsewhere, and can
save nothing. Say so if they ask for it."""

NOTHING_IS_KEPT = "\n\nThis chat is temporary: you can look things up, and save nothing."


def toolset(caller: Caller, *, uses_memory: bool = True, may_save: bool = True) -> FunctionToolset[ChatDeps]:
    """No tools without the memory, and none that stores where storing is not allowed."""
    if not uses_memory:
        return FunctionToolset(instructions=FOR_A_CHAT_WITHOUT_MEMORY)
    tools = [_for_model(tool, caller) for tool in FOR_THE_CHAT if may_save or tool.is_read_only]
    if caller.is_registered and not may_save:
        return FunctionToolset(tools, instructions=FOR_A_PERSON + NOTHING_IS_KEPT)
    return FunctionToolset(tools, instructions=FOR_A_PERSON if caller.is_registered else FOR_A_VISITOR)


def described(caller: Caller, *, uses_memory: bool = True, may_save: bool = True) -> str:
    """The tools and the instructions of this toolset, much as the model reads them: by it their tokens are counted."""
    if not uses_memory:
        return FOR_A_CHAT_WITHOUT_MEMORY
    return _described(is_registered=caller.is_registered, may_save=may_save)


@cache
def _described(*, is_registered: bool, may_save: bool) -> str:
    tools = [
        {"name": tool.name, "description": tool.description, "parameters": _schema(tool)}
        for tool in FOR_THE_CHAT
        if may_save or tool.is_read_only
    ]
    text = (FOR_A_PERSON if is_registered else FOR_A_VISITOR) + ("" if may_save else NOTHING_IS_KEPT)
    return text + json.dumps([{"type": "function", "function": tool} for tool in tools], ensure_ascii=False)


def _for_model(tool: Tool[Any, Any], caller: Caller) -> ModelTool[ChatDeps]:
    async def call(ctx: RunContext[ChatDeps], **data: Any) -> ToolReturn[str]:
        try:
            async with another_turn():
                return await run_in_thread(partial(_call, tool, data | _beside_itself(tool, ctx.deps), caller))
        except Exception as error:
            raise _as_retry(error, caller) from error

    return ModelTool.from_schema(
        call, name=tool.name, description=tool.description, json_schema=_schema(tool), takes_ctx=True
    )


def _schema(tool: Tool[Any, Any]) -> dict[str, Any]:
    """The input without what the chat adds by itself, and without what is for agents."""
    schema: dict[str, Any] = schema_without(tool.input_schema, NOT_OF_THE_CHAT)
    return schema


def _beside_itself(tool: Tool[Any, Any], deps: ChatDeps) -> dict[str, Any]:
    """What was said in this chat the model reads anyway: a search would find the question that it is about."""
    is_known = deps.conversation_id is not None and "exclude_session" in tool.input_model.model_fields
    return {OWN_SESSION: str(deps.conversation_id)} if is_known else {}


def _call(tool: Tool[Any, Any], data: dict[str, Any], caller: Caller) -> ToolReturn[str]:
    if "rerank" in tool.input_model.model_fields:
        # A model's answer takes seconds, so reranking is worth some tenths of one.
        data = {"rerank": True, **data}
    user = User.objects.get(pk=caller.user_id) if caller.user_id is not None and not caller.is_visitor else None
    if user is not None:
        user.bound_to = caller.bound_to
    with acting_as(caller) if user and not tool.acts_itself else nullcontext():
        output = tool.call(data, user=user)
        with acting_as(caller) if user else nullcontext():
            metadata: dict[str, Any] = {"summary": tool.summarise(output, user), "data": output.as_data()}
    kept: StoredByCall | None = None if tool.kept is None else tool.kept(tool.read(data), output)
    if kept is not None:
        metadata |= {"stored": kept.text, "place": kept.place}
    return ToolReturn(tool.text_of(output), metadata=metadata)


def _as_retry(error: Exception, caller: Caller) -> ModelRetry | ToolFailed:
    """The model can correct a wrong input; any other failure it must accept."""
    match as_recollect_error(error):
        case None:
            logger.error("A tool of the chat failed", exc_info=error)
            return ToolFailed(_sentence(Broken()))
        case AuthenticationRequired() as known if not caller.is_registered:
            return ToolFailed(f"{_sentence(known)}: {NOBODY}")
        case InvalidInput() as known:
            return ModelRetry(_sentence(known))
        case known:
            return ToolFailed(_sentence(known))


def _sentence(error: RecollectError) -> str:
    """The contract's code and message, with the errors of each field."""
    others = {
        field: [complaint for complaint in complaints if complaint != error.detail]
        for field, complaints in (error.errors or {}).items()
    }
    fields = [f"{field}: {' '.join(complaints)}" for field, complaints in others.items() if complaints]
    return " ".join([f"{error.code}: {error.detail}", *fields])
