"""The web process: routes each request, and checks what it needs before it serves.

Synchronous views run with their middleware in one worker thread each, under WSGI. Views whose answers stream for
minutes run on the event loop, under Django's ASGI handler.
"""

import os

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings.local")

import asyncio
import gc
import re
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from importlib import import_module
from typing import Any

from a2wsgi import WSGIMiddleware
from asgiref.sync import sync_to_async
from django.core.handlers.asgi import ASGIHandler
from django.core.wsgi import get_wsgi_application

# The stubs of the two sides of it name the same types differently.
wsgi: Any = get_wsgi_application()

from django.conf import settings  # noqa: E402
from django.db import connections  # noqa: E402
from starlette.applications import Starlette  # noqa: E402
from starlette.routing import Mount, Route  # noqa: E402

from agent_tools.mcp.http import McpEndpoint  # noqa: E402
from agent_tools.tools import mcp_registry  # noqa: E402
from config.api_document import JSON, document  # noqa: E402
from config.bodies import BoundedBodies  # noqa: E402
from config.static import ServedStaticFiles  # noqa: E402
from core.isolation.checks import refuse_unless_isolated  # noqa: E402
from core.log_checks import warn_of_texts_in_logs  # noqa: E402
from memory.embedders import configured_embedders, get_embedder, require_active  # noqa: E402
from memory.rerankers import warm_up_reranker  # noqa: E402

STATIC = "/static"
MCP = "/mcp"
# The addresses, as Django writes them, of views whose answers stream, and of those that deal with such answers.
STREAMING = (
    "/api/v1/intake/chat",
    "/api/v1/intake/events",
    "/api/v1/intake/turns/<str:turn_id>/events",
    "/api/v1/intake/turns/<str:turn_id>/stop",
    "/api/v1/intake/answering",
    "/api/v1/account/export/",
    "/api/v1/conversations/<str:conversation_id>/export/",
    "/api/v1/imports/<str:import_id>/events/",
)
# More than the pool has connections, so that requests that need none are answered while others wait for one.
THREADS = 64
# For requests without a session or a token. One thread of Python runs at a time: a crowd of strangers, however quickly
# each of them is refused, would stand before everybody's next step.
STRANGERS_THREADS = 4
# Of views whose answers stream, until they do. Fewer than the pool has connections: whoever waits for a thread waits
# in a line, and whoever waits for a connection is refused after five seconds.
STREAMS_THREADS = 12
streams_threads = ThreadPoolExecutor(STREAMS_THREADS, thread_name_prefix="streams")
strangers_streams_threads = ThreadPoolExecutor(STRANGERS_THREADS, thread_name_prefix="strangers' streams")

synchronous: Any = WSGIMiddleware(wsgi, workers=THREADS)
strangers: Any = WSGIMiddleware(wsgi, workers=STRANGERS_THREADS)

mcp = McpEndpoint(mcp_registry)


class StreamingHandler(ASGIHandler):
    """Django beneath views whose answers stream: middleware and view in a thread in one go, as under WSGI, then the
    stream on the loop, for which neither a thread nor a connection is held.

    Django's own handler sends each step of each middleware to a thread of the request's and back, some twenty times;
    each time the request, its connection in hand, waits for its turn on a loop that hundreds of answers share.
    """

    def load_middleware(self, is_async: bool = False) -> None:
        super().load_middleware(is_async=False)

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        await self.handle(scope, receive, send)

    async def get_response_async(self, request: Any) -> Any:
        threads = streams_threads if has_credentials(request.scope) else strangers_streams_threads
        return await sync_to_async(self._respond, thread_sensitive=False, executor=threads)(request)

    def _respond(self, request: Any) -> Any:
        try:
            return self.get_response(request)
        finally:
            connections.close_all()


streaming: Any = StreamingHandler()


async def serve_synchronously(scope: Any, receive: Any, send: Any) -> None:
    await (synchronous if has_credentials(scope) else strangers)(scope, receive, send)


def has_credentials(scope: Any) -> bool:
    """Whether a request names a session or a token, be they true or not."""
    cookie = f"{settings.SESSION_COOKIE_NAME}=".encode()
    return any(name == b"authorization" or (name == b"cookie" and cookie in value) for name, value in scope["headers"])


def _make_sure_of_the_database() -> None:
    """A process that could show somebody what is not theirs never serves, nor one that would look for other vectors."""
    try:
        refuse_unless_isolated(settings.DATABASE_ROLES.web)
        warn_of_texts_in_logs()
        require_active(*(embedder.name for embedder in configured_embedders()))
    finally:
        connections.close_all()


async def _warm_up() -> None:
    await asyncio.to_thread(import_module, "intake.chat")
    await import_module("intake.agent.warming").warm_up()
    await asyncio.to_thread(document, JSON)
    # All that stays for good is there: no later collection, for which every request would wait, looks through it again.
    gc.freeze()


@asynccontextmanager
async def lifespan(_: Starlette) -> AsyncIterator[None]:
    await asyncio.to_thread(_make_sure_of_the_database)
    # Before the first request, so that nobody waits for it, and so that a process that cannot search never serves.
    await asyncio.to_thread(get_embedder().warm_up)
    await asyncio.to_thread(warm_up_reranker)
    # Meanwhile the process serves: this takes seconds, for which neither a page nor the first message should wait.
    warming = asyncio.create_task(_warm_up())
    async with mcp.running():
        yield
    await warming
    await import_module("intake.chat").cut_off_answers()
    await import_module("intake.answers.after").stop()
    await import_module("intake.agent.models").close_connections()


routes = [
    Mount(STATIC, ServedStaticFiles(directory=settings.STATIC_ROOT, check_dir=False)),
    Route(MCP, mcp),
    *(Route(re.sub(r"<str:(\w+)>", r"{\1}", path), streaming) for path in STREAMING),
    Mount("/", serve_synchronously),
]
application = BoundedBodies(Starlette(lifespan=lifespan, routes=routes))
