"""The tools of the chat's agent loop: the registry as its toolset, bound to one caller."""

import json
import logging
import re
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from functools import cache, partial
from typing import Any

from pydantic_ai import FunctionToolset, ModelRetry, RunContext, ToolReturn
from pydantic_ai import Tool as ModelTool
from pydantic_ai.exceptions import ToolFailed

from agent_tools.registry import StoredByCall, Tool, schema_without
from agent_tools.threads import run_in_thread
from agent_tools.tools import registry
from agent_tools.tools.connectors import fetch
from agent_tools.tools.context import get_context, words_left_out
from agent_tools.tools.wording import file_id
from chat.agent.context import ChatDeps, ChatTool
from chat.agent.servers import tools_of_server
from chat.agent.web import FOR_THE_WEB, OPEN_PAGE, WEB_TOOLS
from core.errors import AuthenticationRequired, Broken, InvalidInput, RecollectError
from core.gate import another_turn
from core.isolation.acting import Caller, acting_as
from core.responses import as_recollect_error
from core.text import ELLIPSIS
from intake.chats.prompts import PromptPart
from intake.llm.tokens import tokens_of
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


def tools_of(deps: ChatDeps) -> list[ChatTool]:
    """The tools of this answer: no memory where it is off, none that stores in a temporary chat, and others' only where
    the person can be asked.
    """
    offered = (
        [tool for tool in map(_of_registry, FOR_THE_CHAT) if not (tool.acts and deps.is_temporary)]
        if deps.uses_memory
        else []
    )
    offered += WEB_TOOLS if deps.uses_web else ()
    # Our own names are ours where they are not offered, too: a result is read by its tool's name, also in a later turn.
    names = {tool.name for tool in FOR_THE_CHAT} | {tool.name for tool in WEB_TOOLS}
    for server in deps.servers:
        offered += tools_of_server(server, names)
    return offered


def instructions_of(deps: ChatDeps) -> str:
    """How to use these tools."""
    of_web = FOR_THE_WEB if deps.uses_web else ""
    if not deps.uses_memory:
        return FOR_A_CHAT_WITHOUT_MEMORY + of_web
    if not deps.caller.is_registered:
        return FOR_A_VISITOR
    return FOR_A_PERSON + (NOTHING_IS_KEPT if deps.is_temporary else "") + of_web


def described(deps: ChatDeps) -> str:
    """The tools and their instructions, much as the model reads them: by it their tokens are counted."""
    functions = [
        {"name": tool.name, "description": tool.description, "parameters": tool.schema} for tool in tools_of(deps)
    ]
    tools = [{"type": "function", "function": each} for each in functions]
    return instructions_of(deps) + (json.dumps(tools, ensure_ascii=False) if tools else "")


def toolset(deps: ChatDeps) -> FunctionToolset[ChatDeps]:
    return FunctionToolset([*map(_for_model, tools_of(deps))], instructions=instructions_of(deps))


def _for_model(tool: ChatTool) -> ModelTool[ChatDeps]:
    async def call(ctx: RunContext[ChatDeps], **data: Any) -> ToolReturn[str]:
        try:
            return await tool.call(ctx, data)
        except ToolFailed:
            raise
        except Exception as error:
            raise _as_retry(error, ctx.deps.caller) from error

    return ModelTool.from_schema(
        call, name=tool.name, description=tool.description, json_schema=tool.schema, takes_ctx=True
    )


@cache
def _of_registry(tool: Tool[Any, Any]) -> ChatTool:
    async def call(ctx: RunContext[ChatDeps], data: dict[str, Any]) -> ToolReturn[str]:
        # The model reads this chat anyway: a search would find the question that it is about.
        if ctx.deps.conversation_id is not None and "exclude_session" in tool.input_model.model_fields:
            data |= {OWN_SESSION: str(ctx.deps.conversation_id)}
        async with another_turn():
            return await run_in_thread(partial(_call, tool, data, ctx.deps.caller, ctx.deps.left_out))

    # The input without what the chat adds by itself, and without what is for agents.
    schema: dict[str, Any] = schema_without(tool.input_schema, NOT_OF_THE_CHAT)
    return ChatTool(
        name=tool.name,
        description=tool.description,
        schema=schema,
        origin="memory",
        acts=not tool.is_read_only,
        call=call,
    )


def _call(tool: Tool[Any, Any], data: dict[str, Any], caller: Caller, left_out: frozenset[str]) -> ToolReturn[str]:
    if "rerank" in tool.input_model.model_fields:
        # A model's answer takes seconds, so reranking is worth some tenths of one.
        data = {"rerank": True, **data}
    user = User.objects.get(pk=caller.user_id) if caller.user_id is not None and not caller.is_visitor else None
    if user is not None:
        user.bound_to, user.left_out = caller.bound_to, left_out
    with acting_as(caller) if user and not tool.acts_itself else nullcontext():
        output = tool.call(data, user=user)
        with acting_as(caller) if user else nullcontext():
            metadata: dict[str, Any] = {"summary": tool.summarise(output, user), "data": output.as_data()}
            metadata["shows"] = tool.sources_of(output)
    kept: StoredByCall | None = None if tool.kept is None else tool.kept(tool.read(data), output)
    if kept is not None:
        metadata |= {"stored": kept.text, "place": kept.place}
    text = tool.text_of(output)
    if user is not None and left_out:
        # A search may find a note by another of its lines.
        with acting_as(caller):
            hidden = "|".join(map(re.escape, filter(None, words_left_out(user, left_out)))) or "(?!)"
        hide = partial(re.compile(rf"(?<!\w)(?:{hidden})(?!\w)").sub, ELLIPSIS)

        def hidden_in(row: dict[str, Any]) -> dict[str, Any]:
            return {name: hide(value) if isinstance(value, str) else value for name, value in row.items()}

        text, metadata["data"] = hide(text), json.loads(json.dumps(metadata["data"]), object_hook=hidden_in)
    return ToolReturn(text, metadata=metadata)


# A result's id on a line of its own, as tools write it; stored text has no line like it.
_ID_LINE = re.compile(r"^id: (\S+)$", re.MULTILINE)
_PAGE = re.compile(r"/(c|records)/([0-9a-f-]{36})/(?:\?turn=(\d+))?")


def brought_by(name: str, arguments: dict[str, Any], metadata: Mapping[str, Any]) -> list[PromptPart]:
    """The sources of a tool's result, by the ids in its data."""
    data: dict[str, Any] = metadata.get("data") or {}
    if name == "read_attachment":
        # It may be the end of an id, and name a part.
        _, end, part = f"file:{arguments['attachmentId'].lower().removeprefix('file:')}:".split(":")[:3]
        ids = (id_ for id_ in metadata["shows"] if id_.replace("-", "").endswith(end.replace("-", "")))
        return [PromptPart("file", file_id(id_, int(float(arguments.get("from") or part or 0)))) for id_ in ids]
    if name == OPEN_PAGE:
        return [PromptPart("page", id_) for id_ in metadata.get("pages", ())]
    if name == "fetch" and (page := _PAGE.search(data.get("url", ""))):
        kind = "turn" if page[1] == "c" else "record"
        return [PromptPart(kind, "/".join(filter(None, page.groups()[1:])))]
    if name == "get_conversation":
        return [PromptPart("turn", data["conversationId"])]
    sources = []
    for result in data.get("results", ()):
        if id_ := result.get("attachmentId"):
            sources.append(PromptPart("file", file_id(id_, result.get("part"))))
        elif id_ := result.get("conversationId"):
            turn = result.get("turnNumber")
            sources.append(PromptPart("turn", f"{id_}/{turn}" if turn else id_))
        elif id_ := result.get("recordId") or result.get("record", {}).get("id"):
            sources.append(PromptPart("record", str(id_)))
        elif id_ := result.get("documentId"):
            sources.append(PromptPart("notes", str(id_)))
    return sources


def with_numbers(
    text: str, sources: Sequence[PromptPart], numbered: Sequence[PromptPart]
) -> tuple[str, list[PromptPart]]:
    """A result with a number after each id, which goes on from those that were given before; and its sources with
    these numbers. A source whose id is not in it did not fit.
    """
    numbers, shown, start = {part.source: part.number for part in numbered if part.number}, {}, 0

    def write(line: re.Match[str]) -> str:
        nonlocal start
        end = line[1].removeprefix("file:").replace("-", "")
        part = next((each for each in sources if each.source.replace("-", "").endswith(end)), None)
        block, start = text[start : line.end()], line.end()
        if part is None:
            return line[0]
        number = numbers.setdefault(part.source, len(numbers) + 1)
        shown[part.source] = replace(part, number=number, tokens=tokens_of(block))
        return f"{line[0]}, cited as [{number}]"

    written = _ID_LINE.sub(write, text)
    has_ids = bool(start)
    return written, [shown.get(each.source) or replace(each, used=not has_ids) for each in sources]


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
