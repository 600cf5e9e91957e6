"""The outermost door: a request's body is bounded in length and in time, whatever it is for and however it is sent."""

import asyncio
import json
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from django.conf import settings

from core.errors import RecollectError, TooLarge, TooSlow
from core.problems import CONTENT_TYPE, STATUSES, problem
from intake.views.failures import page_for

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Application = Callable[[Scope, Receive, Send], Awaitable[None]]


class BoundedBodies:
    """Django reads a whole body, to disk if need be, before anybody asks how long it is; so it is counted here.

    A length that is announced is refused at once, one that is not as soon as it is exceeded. A body that trickles in
    is given up after `BODY_SECONDS` in all: its sender holds a connection, and a place in memory, all that time.
    """

    def __init__(self, application: Application) -> None:
        self.application = application

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.application(scope, receive, send)
            return
        if _announced(scope) > settings.MAX_BODY_BYTES:
            await _refuse(TooLarge(), scope, send)
            return
        reading = _Reading(receive)
        answering = _Answering(send, reading)
        try:
            await self.application(scope, reading, answering)
        except Exception:
            # An answer that has begun cannot be taken back: it is cut off.
            if reading.refused is None or answering.has_begun:
                raise
        if reading.refused is not None and not answering.has_begun:
            await _refuse(reading.refused, scope, send)


class _Reading:
    """The body as it arrives; raises `TooLarge` or `TooSlow` into whoever reads it, and remembers."""

    refused: RecollectError | None = None

    def __init__(self, receive: Receive) -> None:
        self._receive = receive
        self._length = 0
        self._is_complete = False
        self._until = asyncio.get_running_loop().time() + settings.BODY_SECONDS

    async def __call__(self) -> Message:
        if self._is_complete:
            # From here on there is only the reader's leaving to wait for, however long.
            return await self._receive()
        try:
            async with asyncio.timeout_at(self._until):
                message = await self._receive()
        except TimeoutError:
            raise self._refusing(TooSlow()) from None
        self._length += len(message.get("body", b""))
        self._is_complete = not message.get("more_body", False)
        if self._length > settings.MAX_BODY_BYTES:
            raise self._refusing(TooLarge())
        return message

    def _refusing(self, error: RecollectError) -> RecollectError:
        self.refused = error
        return error


class _Answering:
    """What the application answers, unless a body was refused before it began: then that is what is told."""

    def __init__(self, send: Send, reading: _Reading) -> None:
        self._send = send
        self._reading = reading
        self.has_begun = False

    async def __call__(self, message: Message) -> None:
        if self._reading.refused is not None and not self.has_begun:
            return
        self.has_begun = True
        await self._send(message)


def _announced(scope: Scope) -> int:
    length = dict(scope["headers"]).get(b"content-length", b"0")
    return int(length) if length.isdigit() else 0


async def _refuse(error: RecollectError, scope: Scope, send: Send) -> None:
    """The connection is closed: what is left of the body would be read as the next request."""
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
    await send({"type": "http.response.start", "status": STATUSES[error.code].value, "headers": encoded})
    await send({"type": "http.response.body", "body": body})
