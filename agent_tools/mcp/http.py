"""The endpoint `/mcp`: authenticates, limits and supervises each request, passes it to the SDK, and cancels a call by
another request.

1. The site: Host and Origin (`agent_tools.oauth.addresses`).
2. The caller: a bearer token, or 401.
3. The message: only POST, one megabyte at most. The server never sends a message first, so GET has no stream, and it
   keeps no session, so there is none to DELETE: any process can answer any request. Official clients send both without
   being asked, so they count under no limit.
4. The response: one JSON document, or one event for a client that accepts only a stream; never cached. The work stops
   when the caller disconnects or the token is revoked.
"""

from asyncio import AbstractEventLoop, get_running_loop
from collections.abc import AsyncIterator, Awaitable, Callable, MutableMapping
from contextlib import asynccontextmanager, nullcontext
from dataclasses import dataclass
from http import HTTPStatus
from io import BytesIO
from secrets import token_urlsafe
from typing import Any
from weakref import WeakKeyDictionary

import anyio
from django.core.exceptions import RequestAborted
from django.core.handlers.asgi import ASGIRequest
from django.db import InterfaceError, OperationalError
from django.utils import timezone
from mcp.server.context import CallNext, HandlerResult
from mcp.server.streamable_http import MCP_SESSION_ID_HEADER, REQUEST_CANCELLED
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp.shared.exceptions import MCPError
from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import JSONResponse

from agent_tools.authentication import Refusal, TokenCaller, TokenRefused, admit, secret_in, verify
from agent_tools.mcp.cancelling import CallsUnderWay, cancelled_id
from agent_tools.mcp.server import Context, build_server
from agent_tools.oauth import addresses
from agent_tools.oauth.addresses import metadata_of, origin_of, resource_of
from agent_tools.registry import Registry
from agent_tools.threads import run_in_thread
from core.errors import AuthenticationRequired, InvalidInput, RecollectError, TooLarge, Unavailable
from core.gate import Gate
from core.rate_limits import client_address, counted_refusal
from core.responses import CHALLENGE, CONTENT_TYPE, as_recollect_error, problem, retry_after
from core.text import with_whole_pairs
from intake.revocation import TokenCheck, wait_for_revocation

ConnectionScope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]

EXCHANGE = "agent_tools.exchange"
JSON, EVENT_STREAM = "application/json", "text/event-stream"
PRIVATE = {"Cache-Control": "private, no-store", "X-Content-Type-Options": "nosniff"}


@dataclass
class Exchange:
    """One request: its caller, and its session, which only separates the ids of different clients."""

    caller: TokenCaller
    session_id: str
    origin: str
    new_session_id: str | None = None
    has_response: bool = False


class McpEndpoint:
    """An ASGI application; it answers while `running`, which may be entered again."""

    def __init__(self, tools: Registry) -> None:
        self._tools = tools
        self._calls = CallsUnderWay()
        # By event loop, of which a process may have several.
        self._managers: WeakKeyDictionary[AbstractEventLoop, StreamableHTTPSessionManager] = WeakKeyDictionary()

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        def lists_few(ctx: Context) -> bool:
            return ctx.request is not None and ctx.request.query_params.get("tools") == "few"

        server = build_server(self._tools, lambda ctx: _exchange(ctx).caller, lists_few=lists_few)
        server.middleware.append(self._keep_track)
        # Host, Origin and size are checked here, before anything is read.
        manager = StreamableHTTPSessionManager(server, json_response=True, stateless=True)
        async with manager.run():
            self._managers[get_running_loop()] = manager
            try:
                yield
            finally:
                del self._managers[get_running_loop()]

    async def __call__(self, scope: ConnectionScope, receive: Receive, send: Send) -> None:
        try:
            await self._answer(scope, receive, _privately(scope, send))
        except RequestAborted:
            return
        except (RecollectError, OperationalError, InterfaceError) as error:
            await _refuse(as_recollect_error(error) or Unavailable(), scope, receive, send)

    async def _answer(self, scope: ConnectionScope, receive: Receive, send: Send) -> None:
        # Blanks around a value are not part of it (RFC 9110, 5.5), and the SDK compares some with the body's.
        scope["headers"] = [(name, value.strip(b" \t")) for name, value in scope["headers"]]
        request = ASGIRequest(dict(scope), BytesIO())
        if misplaced := addresses.refusal(request):
            status, detail = misplaced
            return await _refuse(InvalidInput(detail), scope, receive, send, status=status)
        headers = Headers(scope=scope)
        is_message = scope["method"] == "POST"
        gate: Gate = scope["state"]["gate"]
        key = await gate.key_of(scope)
        caller = await run_in_thread(lambda: _admitted(request, counted=is_message))
        if not is_message:
            detail = "Send a message with POST: this server neither opens streams nor keeps sessions."
            return await _refuse(InvalidInput(detail), scope, receive, send, status=405, headers={"Allow": "POST"})
        send = _as_accepted(scope, headers, send)
        body = await _read(receive)
        scope[EXCHANGE] = exchange = Exchange(
            caller, session_id=headers.get(MCP_SESSION_ID_HEADER, ""), origin=origin_of(request)
        )
        # The SDK, which keeps no session, would drop it. It also makes room for others, and so waits for none of them.
        if (stopped := cancelled_id(body)) is not None:
            self._calls.stop((caller.digest, exchange.session_id, stopped))
        async with gate.turn(key) if stopped is None else nullcontext():
            await self._exchange(scope, body, receive, send)
        return None

    async def _exchange(self, scope: ConnectionScope, body: bytes, receive: Receive, send: Send) -> None:
        """Pass the message to the SDK, as long as the caller is connected and has access."""
        manager = self._managers[get_running_loop()]
        exchange: Exchange = scope[EXCHANGE]
        is_refused = False
        async with anyio.create_task_group() as group:

            async def stop_when_gone() -> None:
                while (await receive())["type"] != "http.disconnect":
                    pass
                group.cancel_scope.cancel()

            async def stop_when_revoked() -> None:
                nonlocal is_refused
                await wait_for_revocation(TokenCheck(exchange.caller))
                is_refused = True
                group.cancel_scope.cancel()

            group.start_soon(stop_when_gone)
            group.start_soon(stop_when_revoked)
            await manager.handle_request(scope, _replay(body), send)
            group.cancel_scope.cancel()
        if is_refused and not exchange.has_response:
            raise TokenRefused(Refusal.UNKNOWN)

    async def _keep_track(self, ctx: Context, call_next: CallNext) -> HandlerResult:
        """The SDK's middleware: issues a session id, and makes calls stoppable."""
        exchange = _exchange(ctx)
        digest, session_id = exchange.caller.digest, exchange.session_id
        if ctx.method == "initialize":
            exchange.new_session_id = token_urlsafe(16)
        if ctx.method != "tools/call" or ctx.request_id is None:
            return await call_next(ctx)
        addresses.origin.set(exchange.origin)
        result: HandlerResult = None
        with self._calls.stoppable((digest, session_id, ctx.request_id)) as scope:
            result = await call_next(ctx)
        if scope.cancelled_caught:
            raise MCPError(code=REQUEST_CANCELLED, message="Request cancelled")
        return result


def _admitted(request: ASGIRequest, *, counted: bool) -> TokenCaller:
    """Raises `TokenRefused`, and for a request that is counted `RateLimited`, by the same limits as REST."""
    address = client_address(request)
    try:
        secret = secret_in(request.META.get("HTTP_AUTHORIZATION"))
        check = admit if counted else verify
        return check(secret, address=address, now=timezone.now(), resource=resource_of(request))
    except TokenRefused as refused:
        raise counted_refusal(refused, address=address) from None


def _exchange(ctx: Context) -> Exchange:
    exchange = ctx.request.scope[EXCHANGE] if ctx.request is not None else None
    assert isinstance(exchange, Exchange), "every request comes through this endpoint"  # noqa: S101 - tells the types what the code around has seen to
    return exchange


async def _read(receive: Receive) -> bytes:
    """The whole body; raises `TooLarge`, or `RequestAborted` if the client disconnected in the middle."""
    body, is_more = b"", True
    while is_more:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise RequestAborted
        body += message.get("body", b"")
        is_more = message.get("more_body", False)
    # The layer in front, which has read it, allows more (config/bodies.py).
    if len(body) > 1024 * 1024:
        raise TooLarge("A message may have 1,048,576 bytes at most.")
    return with_whole_pairs(body)


def _replay(body: bytes) -> Receive:
    """The body again, for the SDK, which learns of a disconnect by being cancelled."""
    messages: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def receive() -> Message:
        if messages:
            return messages.pop()
        await anyio.sleep_forever()
        raise AssertionError("never woken")

    return receive


def _as_accepted(scope: ConnectionScope, headers: Headers, send: Send) -> Send:
    """Answer a client in the form that it accepts; the SDK sends only JSON, and only to clients that name it.

    No Accept header accepts anything (RFC 9110, 12.5.1). The message sent in one event has no other effect.
    """
    accepted = [each.partition(";")[0].strip().lower() for each in ",".join(headers.getlist("accept")).split(",")]
    if accepted != [""] and not set(accepted) & {"*/*", "application/*", JSON, EVENT_STREAM, "text/*"}:
        return send
    scope["headers"] = [each for each in scope["headers"] if each[0] != b"accept"] + [
        (b"accept", f"{JSON}, {EVENT_STREAM}".encode())
    ]
    is_json = accepted == [""] or set(accepted) & {"*/*", "application/*", JSON}
    return send if is_json else _as_an_event(send)


def _as_an_event(send: Send) -> Send:
    """Wraps a complete JSON response; an error's body and an empty one pass unchanged."""
    is_wrapped = False

    async def send_wrapped(message: Message) -> None:
        nonlocal is_wrapped
        if message["type"] == "http.response.start":
            found = MutableHeaders(raw=list(message["headers"]))
            is_wrapped = message["status"] == HTTPStatus.OK and found.get("content-type", "").startswith(JSON)
            if is_wrapped:
                found["content-type"] = EVENT_STREAM
                del found["content-length"]
            message = {**message, "headers": found.raw}
        elif is_wrapped:
            message = {**message, "body": b"event: message\ndata: " + message["body"] + b"\n\n"}
        await send(message)

    return send_wrapped


def _privately(scope: ConnectionScope, send: Send) -> Send:
    async def send_privately(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(raw=list(message["headers"]))
            headers.update(PRIVATE)
            exchange = scope.get(EXCHANGE)
            if exchange is not None:
                exchange.has_response = True
                if exchange.new_session_id:
                    headers[MCP_SESSION_ID_HEADER] = exchange.new_session_id
            message = {**message, "headers": headers.raw}
        await send(message)

    return send_privately


async def _refuse(
    error: RecollectError,
    scope: ConnectionScope,
    receive: Receive,
    send: Send,
    *,
    status: int | None = None,
    headers: dict[str, str] | None = None,
) -> None:
    body = problem(error, status=status)
    extra = {**PRIVATE, **(headers or {})}
    if isinstance(error, AuthenticationRequired):
        missing = isinstance(error, TokenRefused) and error.reason is Refusal.MISSING
        # RFC 6750, section 3.1: a request without a token gets no error code.
        where = f', resource_metadata="{metadata_of(ASGIRequest(dict(scope), BytesIO()))}"'
        extra["WWW-Authenticate"] = CHALLENGE + where + ("" if missing else ', error="invalid_token"')
    if error.retryable:
        extra["Retry-After"] = retry_after(error)
    await JSONResponse(body, status_code=body["status"], headers=extra, media_type=CONTENT_TYPE)(scope, receive, send)
