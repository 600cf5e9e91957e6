"""Django beneath the web process's root: an ordinary view runs with all its middleware in one thread, in one go.

Django's own handler starts a thread for each request, and another to end it; it runs the middleware on the event loop
and goes to the thread for each of its hooks, for the view, and for what is done before and after, some twenty times a
request. That costs more than all that is done there. Here only an asynchronous view, one that streams for minutes, is
served so; any other is called as under WSGI, by a thread that has served others before:

1. The loop reads the body.
2. A thread does everything else, from the signal that a request has begun to the one that it has ended.
3. The loop sends what the thread brought back, while that tidies up. An answer that streams is sent for as long as its
   reader is there.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextlib import closing
from functools import lru_cache, partial
from io import BytesIO
from typing import Any

from asgiref.sync import ThreadSensitiveContext, iscoroutinefunction, sync_to_async
from django import setup
from django.conf import settings
from django.core import signals
from django.core.exceptions import RequestAborted
from django.core.handlers.asgi import ASGIHandler, get_script_prefix
from django.core.handlers.base import BaseHandler
from django.db import connections
from django.http import HttpRequest
from django.http.response import HttpResponseBase
from django.urls import Resolver404, ResolverMatch, resolve, set_script_prefix

from core.threads import Threads

Scope = dict[str, Any]
Message = Mapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]

# More than the pool has connections, so that what needs none is answered while others wait for one.
THREADS = 64


class Handler(ASGIHandler):
    def __init__(self) -> None:
        super().__init__()
        self._in_thread = _InThread()
        self._in_thread.load_middleware()
        self._threads = Threads(THREADS, name="request")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Whoever leaves meanwhile cancels an asynchronous view and an answer that streams, and lets any other end."""
        if scope["type"] != "http" or _is_asynchronous(scope["path"].removeprefix(get_script_prefix(scope))):
            await super().__call__(scope, receive, send)
            return
        try:
            body = await self._body(receive)
        except RequestAborted:
            return
        with closing(body):
            # What the request sets for its thread (a language, a path's prefix) is gone when the thread has done.
            answered: list[HttpResponseBase] = []
            answer = await self._threads.run(
                partial(self._answer, scope, body, answered), afterwards=partial(_tidy_up, answered)
            )
            if isinstance(answer, HttpResponseBase):
                await self._stream(answer, receive, send)
                return
            for message in answer:
                await send(message)

    async def _body(self, receive: Receive) -> Any:
        """A file of it. Most arrive in one piece, for which it takes none that could be kept on disk."""
        message = await receive()
        if message["type"] != "http.disconnect" and not message.get("more_body", False):
            return BytesIO(message.get("body", b""))
        pieces = iter([message])

        async def from_the_first() -> Message:
            return next(pieces, None) or await receive()

        return await self.read_body(from_the_first)

    def _answer(self, scope: Scope, body: Any, answered: list[HttpResponseBase]) -> HttpResponseBase | list[Message]:
        """In a thread: the answer to a request as messages, ready to be sent, or the response itself if it streams.

        What is not to be streamed is added to `answered`, to be closed.
        """
        set_script_prefix(get_script_prefix(scope))
        signals.request_started.send(sender=self.__class__, scope=scope)
        request, refusal = self.create_request(scope, body)
        response: Any = refusal if request is None else self._in_thread.get_response(request)
        # Whom the signal is from that `close` sends.
        response._handler_class = self.__class__
        if response.streaming:
            # A stream outlives any pool.
            connections.close_all()
            streaming: HttpResponseBase = response
            return streaming
        answered.append(response)
        return _messages(response)

    async def _stream(self, response: HttpResponseBase, receive: Receive, send: Send) -> None:
        async with ThreadSensitiveContext():
            sending = asyncio.create_task(self.send_response(response, send))
            leaving = asyncio.create_task(self.listen_for_disconnect(receive))
            try:
                await asyncio.wait({sending, leaving}, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for task in (sending, leaving):
                    task.cancel()
                _, failure = await asyncio.gather(leaving, sending, return_exceptions=True)
                await sync_to_async(response.close)()
            if isinstance(failure, Exception):
                raise failure


class _InThread(BaseHandler):
    def resolve_request(self, request: HttpRequest) -> ResolverMatch:
        if hasattr(request, "urlconf"):
            return super().resolve_request(request)
        request.resolver_match = _match(settings.ROOT_URLCONF, request.path_info)
        return request.resolver_match


def get_application() -> Handler:
    """As `django.core.asgi.get_asgi_application`."""
    setup(set_prefix=False)
    return Handler()


def _tidy_up(answered: list[HttpResponseBase]) -> None:
    """Even if something went wrong: this thread serves others."""
    try:
        for response in answered:
            response.close()
    finally:
        connections.close_all()


def _messages(response: Any) -> list[Message]:
    """As `ASGIHandler.send_response` has them, but for the body: it is in one piece already."""
    headers = [(name.encode("ascii"), value.encode("latin1")) for name, value in response.items()]
    cookies = [(b"Set-Cookie", morsel.OutputString().encode("ascii")) for morsel in response.cookies.values()]
    return [
        {"type": "http.response.start", "status": response.status_code, "headers": headers + cookies},
        {"type": "http.response.body", "body": response.content},
    ]


def _is_asynchronous(path: str) -> bool:
    try:
        return bool(iscoroutinefunction(_match(settings.ROOT_URLCONF, path).func))
    except Resolver404:
        return False


# Most requests are for a few paths, and it takes a while to find a path's view.
@lru_cache(maxsize=256)
def _match(urlconf: str, path: str) -> ResolverMatch:
    """Raises `Resolver404`, which is not remembered."""
    return resolve(path, urlconf)
