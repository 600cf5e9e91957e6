"""The outermost layer of the web process: reads each request's head and body, with limits on length and time."""

import asyncio
import json
import logging
import time
from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager
from tempfile import SpooledTemporaryFile

from django.conf import settings
from django.core.exceptions import RequestAborted

from agent_tools.mcp.http import ConnectionScope, Message, Receive, Send
from core import logs
from core.deadlines import TOO_LATE, RequestDeadline, deadline
from core.errors import InvalidInput, RecollectError, TooLarge, TooSlow, Unavailable
from core.gate import Gate
from core.metrics import FIRST_TEXT_SECONDS, REQUEST_SECONDS, REQUESTS
from core.responses import CONTENT_TYPE, problem, retry_after, vendor_problem
from core.text import PAGE_LANGUAGE, page_language
from intake.attachments.services import too_large
from intake.failures import page_for

logger = logging.getLogger(__name__)

Body = SpooledTemporaryFile[bytes]
Application = Callable[[ConnectionScope, Receive, Send], Awaitable[None]]


# The kind under which a request is counted, by the beginning of its path.
KINDS = {
    "/api/v1/tools/": "tool",
    "/api/v1/intake/chat": "chat",
    "/api/": "api",
    "/v1/": "program",
    "/mcp": "mcp",
    "/static/": "static",
    "/healthz": "operations",
    "/metrics": "operations",
}
TEXT_EVENT = b"event: delta"
# The longest query of a search in letters of two bytes, percent-encoded; uvicorn's parser reads no more than 65,535.
LONGEST_ADDRESS = 64_000
# A form with one file, which is held on the disk and not in memory. Its part around the file is short.
UPLOADS = "/api/v1/attachments/"
AROUND_A_FILE = 65_536
UPLOAD_PIECE = 262_144
# How many bytes of other bodies a process holds at once: of all callers, and of one. Short ones always fit.
BODIES, BODIES_OF_ONE, SHORT = 32 * 1024**2, 8 * 1024**2, 65_536
# Of a program that sends its whole history, with pictures in it.
PROGRAMS, LONGEST_OF_PROGRAMS = "/v1/", 25 * 1024**2
# The time in which a whole body must arrive, also over a slow connection, and in which a response must begin.
BODY_SECONDS, RESPONSE_SECONDS = 60.0, 30.0
# These remove everything of an account in one transaction.
ACCOUNT_DELETIONS = ("/api/v1/account/", "/settings/account/delete/")


class BoundedBodies:
    """Passes complete bodies to an application, so that none of its threads waits for a slow client.

    An announced length above the limit is refused before the client sends the body, any other body as soon as it
    exceeds the limit; a file has a limit of its own. A body that takes longer than `BODY_SECONDS` is refused too, and
    one that would exceed what the process holds for all connections. A request that has not been answered at its
    deadline is refused as well.
    """

    def __init__(self, application: Application) -> None:
        self.application = application

    async def __call__(self, scope: ConnectionScope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.application(scope, receive, send)
            return
        send = _counted(scope, _named(scope, send))
        with _held(scope) as hold:
            try:
                _check_head(scope)
                body = await _read(scope, receive, hold)
            except RequestAborted:
                return
            except RecollectError as error:
                await refuse(error, scope, send)
                return
            size = UPLOAD_PIECE if _is_upload(scope) else -1
            with body:
                await self._answer_in_time(scope, _replay(body, receive, size=size), send)

    async def _answer_in_time(self, scope: ConnectionScope, receive: Receive, send: Send) -> None:
        """Until the response begins, the deadline is the request's; afterwards a stream's, whose client
        continues it with a new request.
        """
        # WSGI writes hyphens as underscores: a client's `X_Forwarded_For` must not pass for a proxy's header.
        scope = {**scope, "headers": [(name, value) for name, value in scope["headers"] if b"_" not in name]}
        limit, has_begun = RequestDeadline(_seconds_for(scope)), False
        deadline.set(limit)

        async def send_on(message: Message) -> None:
            nonlocal has_begun
            if message["type"] == "http.response.start":
                has_begun = True
                limit.lift()
                timer.reschedule(asyncio.get_running_loop().time() + 3600)
            await send(message)

        try:
            async with asyncio.timeout(limit.seconds) as timer:
                await self.application(scope, receive, send_on)
        except TimeoutError:
            if not timer.expired():
                raise
            if not has_begun:
                logger.warning("A request (%s) was stopped after %.0f s", _kind(scope["path"]), limit.seconds)
                await refuse(Unavailable(TOO_LATE), scope, send)


def _held(scope: ConnectionScope) -> AbstractContextManager[Callable[[int], None]]:
    """The function takes the bytes of one body from its caller's share, as long as it is by now."""
    gate: Gate = scope["state"]["gate"]
    key = gate.known_key_of(scope)
    if not _is_upload(scope):
        most_of_key = LONGEST_OF_PROGRAMS if scope["path"].startswith(PROGRAMS) else BODIES_OF_ONE
        return gate.bodies.held(key, most=BODIES, most_of_key=most_of_key)
    largest = settings.ATTACHMENT_BYTES + AROUND_A_FILE
    # How many of such files a process holds at once: of all callers, and of one. A message has ten files.
    return gate.files.held(key, most=30 * largest, most_of_key=10 * largest)


def _named(scope: ConnectionScope, send: Send) -> Send:
    """From here on this request has an id, which its response has too."""
    header = dict(scope["headers"]).get(logs.HEADER.lower().encode(), b"")
    name = logs.named(header.decode("latin-1"))
    logs.request_id.set(name)
    header = (logs.HEADER.lower().encode(), name.encode())

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
    # Several times the size that a browser sends, cookies included.
    if sum(len(name) + len(value) for name, value in scope["headers"]) > 32_768:
        raise InvalidInput("The headers may have at most 32,768 bytes together.")


def _seconds_for(scope: ConnectionScope) -> float:
    """The time in which a response must begin."""
    if scope["path"] == "/mcp":
        return 120
    is_deletion = scope["path"] in ACCOUNT_DELETIONS and scope["method"] != "GET"
    return 600 if is_deletion else RESPONSE_SECONDS


def _is_upload(scope: ConnectionScope) -> bool:
    return bool(scope["path"] == UPLOADS and scope["method"] == "POST")


def _longest_body(scope: ConnectionScope) -> tuple[int, TooLarge, float]:
    """In bytes, with the error of a longer one, and the seconds in which it must arrive."""
    if scope["path"].startswith(PROGRAMS):
        return LONGEST_OF_PROGRAMS, TooLarge(), 5 * BODY_SECONDS
    if not _is_upload(scope):
        return settings.DATA_UPLOAD_MAX_MEMORY_SIZE, TooLarge(), BODY_SECONDS
    most = settings.ATTACHMENT_BYTES + AROUND_A_FILE
    # A file takes longer over a slow line than what somebody has written.
    return most, too_large(), 5 * BODY_SECONDS


async def _read(scope: ConnectionScope, receive: Receive, hold: Callable[[int], None]) -> Body:
    """The body from its beginning; a file that is uploaded lies on the disk.

    Raises `TooLarge`, `TooSlow`, `Unavailable` or `RequestAborted`.
    """
    most, too_long, seconds = _longest_body(scope)
    if _announced(scope) > most:
        raise too_long
    # Without a limit it stays in memory.
    body = SpooledTemporaryFile(UPLOAD_PIECE if _is_upload(scope) else 0)  # noqa: SIM115 - the caller closes it
    length, has_more = 0, True
    try:
        async with asyncio.timeout(seconds):
            while has_more:
                message = await receive()
                if message["type"] == "http.disconnect":
                    raise RequestAborted
                length += len(message.get("body", b""))
                has_more = message.get("more_body", False)
                if length > most:
                    raise too_long
                # Connections alone bound the number of short ones, which always fit.
                if length > SHORT:
                    hold(length)
                body.write(message.get("body", b""))
    except TimeoutError:
        body.close()
        raise TooSlow from None
    except BaseException:
        body.close()
        raise
    body.seek(0)
    return body


def _replay(body: Body, receive: Receive, *, size: int) -> Receive:
    """The body in messages of this size (-1: in one), then the server's report that the client disconnected."""
    is_over = False

    async def replay() -> Message:
        nonlocal is_over
        if is_over:
            return await receive()
        piece = body.read(size)
        is_over = size < 0 or not piece
        return {"type": "http.request", "body": piece, "more_body": not is_over}

    return replay


def _announced(scope: ConnectionScope) -> int:
    length = dict(scope["headers"]).get(b"content-length", b"0")
    return int(length) if length.isdigit() else 0


async def refuse(error: RecollectError, scope: ConnectionScope, send: Send) -> None:
    """Closes the connection too: the rest of the body would be read as the next request."""
    if scope["path"].startswith(PROGRAMS):
        found, _status = vendor_problem(error)
        kind, body = "application/json", json.dumps(found).encode()
    elif scope["path"].startswith(("/api/", "/mcp")):
        language = dict(scope["headers"]).get(PAGE_LANGUAGE.lower().encode(), b"").decode("latin-1")
        kind, body = (
            CONTENT_TYPE,
            json.dumps(problem(error, language=page_language({PAGE_LANGUAGE: language}))).encode(),
        )
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
    if error.retryable:
        headers["Retry-After"] = retry_after(error)
    encoded = [(name.lower().encode(), value.encode()) for name, value in headers.items()]
    await send({"type": "http.response.start", "status": error.status.value, "headers": encoded})
    await send({"type": "http.response.body", "body": body})
