"""The outermost layer of the web process: reads each request's head and body, with limits on length and time."""

import asyncio
import json
import time
from collections.abc import Awaitable, Callable

from django.conf import settings

from agent_tools.mcp.http import ConnectionScope, Message, Receive, Send
from core import request_ids
from core.errors import InvalidInput, RecollectError, TooLarge, TooSlow
from core.metrics import FIRST_TEXT_SECONDS, REQUEST_SECONDS, REQUESTS
from core.problems import CONTENT_TYPE, problem
from intake.views.failures import page_for

Application = Callable[[ConnectionScope, Receive, Send], Awaitable[None]]


# The kind under which a request is counted, by the beginning of its path.
KINDS = {
    "/api/v1/tools/": "tool",
    "/api/v1/intake/chat": "chat",
    "/api/": "api",
    "/mcp": "mcp",
    "/static/": "static",
    "/healthz": "operations",
    "/metrics": "operations",
}
TEXT_EVENT = b"event: delta"
# The longest query of a search in letters of two bytes, percent-encoded; uvicorn's parser reads no more than 65,535.
LONGEST_ADDRESS = 64_000
# Several times the size that a browser sends, cookies included.
LONGEST_HEADERS = 32_768


class Disconnected(Exception):
    """The client disconnected before its body was complete."""


class BoundedBodies:
    """Passes complete bodies to an application, so that none of its threads waits for a slow client.

    An announced length above `MAX_BODY_BYTES` is refused before the client sends the body, any other body as soon as it
    exceeds the limit. A body that takes longer than `BODY_SECONDS` is refused too.
    """

    def __init__(self, application: Application) -> None:
        self.application = application

    async def __call__(self, scope: ConnectionScope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.application(scope, receive, send)
            return
        send = _counted(scope, _named(scope, send))
        try:
            _check_head(scope)
            body = await _read(scope, receive)
        except Disconnected:
            return
        except RecollectError as error:
            await _refuse(error, scope, send)
            return
        await self.application(_without_ambiguous_headers(scope), _replay(body, receive), send)


def _named(scope: ConnectionScope, send: Send) -> Send:
    """From here on this request has an id, which its response has too."""
    given = dict(scope["headers"]).get(request_ids.HEADER.lower().encode(), b"")
    name = request_ids.named(given.decode("latin-1"))
    request_ids.request_id.set(name)
    header = (request_ids.HEADER.lower().encode(), name.encode())

    async def send_named(message: Message) -> None:
        if message["type"] == "http.response.start":
            message = {**message, "headers": [*message.get("headers", ()), header]}
        await send(message)

    return send_named


def _counted(scope: ConnectionScope, send: Send) -> Send:
    """Counts the response for `/metrics`, and for the chat the time to the first text."""
    began, kind = time.perf_counter(), _kind(scope["path"])
    waits_for_text = kind == "chat"

    async def send_counted(message: Message) -> None:
        nonlocal waits_for_text
        if message["type"] == "http.response.start":
            REQUESTS.labels(kind, str(message["status"])).inc()
            REQUEST_SECONDS.labels(kind).observe(time.perf_counter() - began)
        elif waits_for_text and TEXT_EVENT in message.get("body", b""):
            waits_for_text = False
            FIRST_TEXT_SECONDS.observe(time.perf_counter() - began)
        await send(message)

    return send_counted


def _kind(path: str) -> str:
    return next((kind for prefix, kind in KINDS.items() if path.startswith(prefix)), "page")


def _check_head(scope: ConnectionScope) -> None:
    """Raises `InvalidInput`. No field of a form or endpoint has this limit: they have shorter ones."""
    if len(scope["raw_path"]) + len(scope["query_string"]) > LONGEST_ADDRESS:
        raise InvalidInput(f"An address may have at most {LONGEST_ADDRESS:,} bytes.")
    if sum(len(name) + len(value) for name, value in scope["headers"]) > LONGEST_HEADERS:
        raise InvalidInput(f"The headers may have at most {LONGEST_HEADERS:,} bytes together.")


async def _read(scope: ConnectionScope, receive: Receive) -> bytes:
    """Raises `TooLarge`, `TooSlow` or `Disconnected`."""
    if _announced(scope) > settings.MAX_BODY_BYTES:
        raise TooLarge
    body, has_more = bytearray(), True
    try:
        async with asyncio.timeout(settings.BODY_SECONDS):
            while has_more:
                message = await receive()
                if message["type"] == "http.disconnect":
                    raise Disconnected
                body += message.get("body", b"")
                has_more = message.get("more_body", False)
                if len(body) > settings.MAX_BODY_BYTES:
                    raise TooLarge
    except TimeoutError:
        raise TooSlow from None
    return bytes(body)


def _replay(body: bytes, receive: Receive) -> Receive:
    """The body as one message, then the server's report that the client disconnected."""
    messages = iter([{"type": "http.request", "body": body, "more_body": False}])

    async def replay() -> Message:
        return next(messages, None) or await receive()

    return replay


def _without_ambiguous_headers(scope: ConnectionScope) -> ConnectionScope:
    """WSGI writes hyphens as underscores: a client's `X_Forwarded_For` must not pass for a proxy's header."""
    return {**scope, "headers": [(name, value) for name, value in scope["headers"] if b"_" not in name]}


def _announced(scope: ConnectionScope) -> int:
    length = dict(scope["headers"]).get(b"content-length", b"0")
    return int(length) if length.isdigit() else 0


async def _refuse(error: RecollectError, scope: ConnectionScope, send: Send) -> None:
    """Closes the connection too: the rest of the body would be read as the next request."""
    if scope["path"].startswith(("/api/", "/mcp")):
        kind, body = CONTENT_TYPE, json.dumps(problem(error)).encode()
    else:
        kind, body = "text/html; charset=utf-8", page_for(error).encode()
    headers = {
        "Content-Type": kind,
        "Content-Length": str(len(body)),
        "Cache-Control": "private, no-store",
        "Content-Security-Policy": "default-src 'none'; style-src 'self'; img-src 'self'; frame-ancestors 'none'",
        "X-Content-Type-Options": "nosniff",
        "Connection": "close",
    }
    encoded = [(name.lower().encode(), value.encode()) for name, value in headers.items()]
    await send({"type": "http.response.start", "status": error.status.value, "headers": encoded})
    await send({"type": "http.response.body", "body": body})
