"""Tools of MCP servers over Streamable HTTP: lists them, and calls one, each time in a session of its own.

A session belongs to one call: it is opened, used and closed in one task, so that a stop reaches it and none can expire.
Before each call the server is asked for its list again: a tool that is described otherwise than when its person allowed
it is not called.
"""

import json
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from functools import partial
from hashlib import sha256
from typing import Any, TypeVar
from urllib.parse import urlsplit, urlunsplit

import httpx2
from mcp import Client
from mcp.client.auth.utils import extract_field_from_www_auth, extract_scope_from_www_auth
from mcp.client.streamable_http import streamable_http_client
from mcp_types import Tool as ListedTool
from pydantic_ai import RunContext, ToolReturn
from pydantic_ai.exceptions import ToolFailed

from agent_tools.registry import plain_schema
from agent_tools.threads import run_in_thread
from agent_tools.tools import registry
from agent_tools.tools.connectors import fetch
from chat.agent.context import ChatDeps, ChatTool
from chat.agent.logins import UNREACHABLE, LogInFirst, WiderAccess, access_token, ask_for, forget, origin_for, within
from chat.agent.pausing import texts_in
from core.errors import InvalidInput, RecollectError, Unavailable
from core.isolation.acting import Caller, acting_as
from core.pinned import pinned_client
from core.text import capped, pg_text, pg_value
from core.text import gettext_noop as _
from intake.chats.consent import is_allowed
from intake.chats.prompts import PAGE, Prompt
from intake.chats.tree import turns_of_chat
from intake.llm.language_models import opened_key
from intake.models import Conversation, ToolServer, Turn

CALL_SECONDS = 120.0
MOST_TOOLS = 100
FIRST = _("This tool is not yours: it may do anything with what it gets.")
AFTER_OTHERS = _("Words that others have written are in this chat, and may have asked for this call.")
OUR_TOOLS = frozenset(tool.name for tool in (*registry, fetch))
T = TypeVar("T")
_NO_NAME = re.compile(r"[^a-zA-Z0-9_-]+")


def canonical(address: str) -> str:
    """The address by which consent is bound. Raises `InvalidInput`."""
    parts = urlsplit(address.strip())
    try:
        host, port = (parts.hostname or "").encode("idna").decode().lower(), parts.port
    except ValueError:
        host, port = "", None
    if parts.scheme not in ("http", "https") or not host or parts.username is not None or parts.fragment:
        raise InvalidInput(_("Enter an address such as https://example.org/mcp."))
    host = f"[{host}]" if ":" in host else host
    is_usual = port is None or port == {"http": 80, "https": 443}[parts.scheme]
    return urlunsplit((parts.scheme, host if is_usual else f"{host}:{port}", parts.path.rstrip("/"), parts.query, ""))


async def list_tools(server: ToolServer, caller: Caller) -> list[dict[str, Any]]:
    """As a row keeps them; a tool that no model could call is left out. Raises `LogInFirst`, `Unavailable`."""

    async def listed(token: str) -> list[dict[str, Any]]:
        async with _session(server, 20.0, token) as client:
            return await _listed(client)

    return await _as_person(server, caller, listed)


def tools_of_server(server: ToolServer, taken: set[str]) -> list[ChatTool]:
    """`taken`: the names that the model knows already."""
    return [_as_tool(server, listed, _name(f"{server.name}_{listed['name']}", taken)) for listed in server.tools]


def _as_tool(server: ToolServer, listed: dict[str, Any], name: str) -> ChatTool:
    async def asks(ctx: RunContext[ChatDeps], data: dict[str, Any]) -> str | None:
        return await run_in_thread(partial(_why_asked, tool, data, ctx.deps))

    async def call(ctx: RunContext[ChatDeps], data: dict[str, Any]) -> ToolReturn[str]:
        use = partial(_as_person, server, ctx.deps.caller, partial(_call, server, tool, data))
        try:
            return await use()
        except Unavailable as error:
            if tool.acts or isinstance(error, LogInFirst):
                raise
        return await use()

    tool = ChatTool(
        name=name,
        description=listed["description"],
        schema=listed["schema"],
        origin=server.name,
        acts=not listed["reads"],
        call=call,
        asks=asks,
        address=server.address,
        own_name=listed["name"],
        destroys=listed["destroys"],
    )
    return tool


def _why_asked(tool: ChatTool, data: dict[str, Any], deps: ChatDeps) -> str | None:
    with acting_as(deps.caller):
        about = {"address": tool.address, "tool": tool.own_name, "fingerprint": tool.fingerprint}
        if not is_allowed(caller=deps.caller, conversation_id=deps.conversation_id, **about):
            return FIRST
        # As words: every letter of a message stands in it, too.
        sent = (each for each in texts_in(data, json.dumps(tool.schema)) if each)
        if all(re.search(rf"(?<!\w){re.escape(each)}(?!\w)", deps.message, re.I) for each in (tool.origin, *sent)):
            return None
        # A file, or the result of a tool from elsewhere, may also be in an earlier turn of this chat.
        turns = turns_of_chat(deps.caller, deps.conversation_id)
        chats = Conversation.objects.for_caller(deps.caller).filter(pk__in={turn.conversation_id for turn in turns})
        # In an imported chat, or that of another program, anything may be others' words.
        has_read = deps.foreign or any(map(_has_others, turns)) or chats.exclude(source="chat").exists()
        return AFTER_OTHERS if has_read else None


def _has_others(turn: Turn) -> bool:
    """Whether a turn has words that others have written: a file, a page, or an answer of a tool that is not ours."""
    is_foreign = any("summary" in call and call.get("name") not in OUR_TOOLS for call in turn.tool_calls)
    brought = any(part.kind in ("file", PAGE) for part in Prompt.of(turn.prompt).parts)
    return bool(turn.attachment_count) or is_foreign or brought


class _Unauthorized(Unavailable):
    """The server refused the request without a log-in, or with this token: it has done nothing."""


async def _as_person(server: ToolServer, caller: Caller, use: Callable[[str], Awaitable[T]]) -> T:
    """`use` with the person's token, and once more with a new one if the server refuses it. Raises `LogInFirst`."""
    token = await access_token(server, caller) if server.is_connected else ""
    try:
        try:
            return await use(token)
        except _Unauthorized:
            token = await access_token(server, caller, refused=token)
        return await use(token)
    except _Unauthorized:
        await forget(server, caller, token)
        raise LogInFirst from None
    except WiderAccess as error:
        await ask_for(server, caller, error.scope)
        raise


async def _call(server: ToolServer, tool: ChatTool, data: dict[str, Any], token: str) -> ToolReturn[str]:
    async with _session(server, CALL_SECONDS, token) as client:
        now = {each["name"]: each for each in await _listed(client)}.get(tool.own_name)
        as_allowed = {"description": tool.description, "schema": tool.schema, "destroys": tool.destroys}
        if now is None or not as_allowed.items() <= now.items():
            raise ToolFailed("changed: The server describes this tool otherwise now. The person has to list its tools.")
        result = await client.call_tool(tool.own_name, data)
    parts = [part.text if part.type == "text" else f"({part.type})" for part in result.content]
    if not parts and result.structured_content is not None:
        parts = [json.dumps(result.structured_content, ensure_ascii=False)]
    text = capped(pg_text("\n\n".join(parts)), 100_000)
    if result.is_error:
        raise ToolFailed(f"refused: {text[:2_000]}")
    return ToolReturn(text, metadata={"summary": capped(text, 300), "data": {}, "shows": []})


@asynccontextmanager
async def _session(server: ToolServer, seconds: float, token: str) -> AsyncIterator[Client]:
    """Raises `Unavailable` with a sentence about the failure: no connection, a refused key, too much time or bytes."""
    # With a client, the key is its secret, which only the log-in sends.
    key = "" if token or server.client_id else opened_key(server.sealed) or ""
    headers = {"Authorization": f"Bearer {token or key}"} if token or key else {}
    if key and server.header:
        headers = {server.header: key}
    origin, noted = origin_for(server), list[httpx2.Response]()
    try:
        async with (
            within(server.address, seconds),
            pinned_client(seconds=seconds, most=1_000_000, origin=origin, headers=headers, secret=headers) as http,
            _noting(http, noted),
            Client(streamable_http_client(server.address, http_client=http), cache=None) as client,
        ):
            yield client
    except Exception as error:
        # Which may be in the group that it is raised from.
        raise _in_words(error, noted, has_key=bool(key)) from None


def _in_words(error: BaseException, noted: list[httpx2.Response], *, has_key: bool) -> Exception:
    """Task groups wrap the cause, once each; the protocol's library keeps the status to itself."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    if isinstance(error, RecollectError | ToolFailed):
        return error
    if isinstance(error, TimeoutError):
        return Unavailable(UNREACHABLE, reason="it took too long")
    last = noted[-1] if noted and not has_key else httpx2.Response(200)
    if last.status_code == 401:
        return _Unauthorized()
    if last.status_code == 403 and extract_field_from_www_auth(last, "error") == "insufficient_scope":
        return WiderAccess(extract_scope_from_www_auth(last))
    if {401, 403} & {each.status_code for each in noted}:
        return Unavailable(UNREACHABLE, reason="it does not accept the key")
    return Unavailable(UNREACHABLE, reason=capped(pg_text(str(error)), 200) or type(error).__name__)


@asynccontextmanager
async def _noting(http: httpx2.AsyncClient, noted: list[httpx2.Response]) -> AsyncIterator[None]:
    """Until the tool is called: what comes beside or after that says nothing of the call."""
    is_called = False

    async def note(response: httpx2.Response) -> None:
        nonlocal is_called
        if response.request.method == "POST" and not is_called and not response.is_redirect:
            noted.append(response)
            is_called = b'"tools/call"' in response.request.content

    http.event_hooks = {"response": [note]}
    yield


async def _listed(client: Client) -> list[dict[str, Any]]:
    found, cursor = list[ListedTool](), None
    while len(found) < MOST_TOOLS:
        page = await client.list_tools(cursor=cursor)
        found, cursor = found + page.tools, page.next_cursor
        if not cursor:
            break
    kept = []
    for tool in found[:MOST_TOOLS]:
        with suppress(ValueError, KeyError, TypeError, AttributeError, RecursionError):
            schema = plain_schema(tool.input_schema)
            if len(json.dumps(schema)) > 20_000 or len(tool.name) > 200:
                continue
            about = tool.annotations
            reads = bool(about and about.read_only_hint)
            kept.append(
                {
                    "name": pg_text(tool.name),
                    "description": pg_text((tool.description or tool.title or tool.name)[:4_000]),
                    "schema": pg_value(schema),
                    "reads": reads,
                    # As the protocol says: it may, where the server says nothing of it.
                    "destroys": not (reads or (about and about.destructive_hint is False)),
                }
            )
    return kept


def _name(wanted: str, taken: set[str]) -> str:
    """As every vendor accepts it, and no other tool has."""
    name = plain = _NO_NAME.sub("_", wanted).strip("_")[:64] or "tool"
    while name in taken:
        name = f"{plain[:55]}_{sha256(f'{wanted} {name}'.encode()).hexdigest()[:8]}"
    taken.add(name)
    return name
