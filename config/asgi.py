"""The web process: routes each request, and runs checks before it serves.

Synchronous views run with their middleware in one worker thread each, under WSGI. Views that stream for minutes run on
the event loop, under Django's ASGI application.
"""

import os

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings.local")

import asyncio
import gc
import logging
import re
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from importlib import import_module
from typing import Any

from a2wsgi import WSGIMiddleware
from asgiref.sync import ThreadSensitiveContext, sync_to_async
from django.core.asgi import get_asgi_application
from django.core.wsgi import get_wsgi_application

# As in manage.py, until everything is imported.
gc.disable()
django_asgi: Any = get_asgi_application()

from django.conf import settings  # noqa: E402
from django.db import connections  # noqa: E402
from django.utils import timezone  # noqa: E402
from starlette.applications import Starlette  # noqa: E402
from starlette.middleware.cors import CORSMiddleware  # noqa: E402
from starlette.middleware.gzip import GZipMiddleware  # noqa: E402
from starlette.routing import Mount, Route  # noqa: E402

from agent_tools.authentication import users_by_token  # noqa: E402
from agent_tools.mcp.http import McpEndpoint  # noqa: E402
from agent_tools.oauth import addresses  # noqa: E402
from agent_tools.tools import mcp_registry  # noqa: E402
from config.bodies import BoundedBodies, refuse  # noqa: E402
from config.public_url import at_public_url  # noqa: E402
from config.static import ServedStaticFiles  # noqa: E402
from core.checks import refuse_former_settings  # noqa: E402
from core.errors import RecollectError  # noqa: E402
from core.gate import Credentials, Gate  # noqa: E402
from core.isolation.checks import refuse_unless_isolated  # noqa: E402
from core.isolation.fitting import refuse_unless_fitting  # noqa: E402
from core.logs import warn_of_texts_in_logs  # noqa: E402
from core.priority import share_from_now_on  # noqa: E402
from intake.checks import refuse_unless_reachable  # noqa: E402
from intake.models import Session  # noqa: E402
from intake.models.installation import read_kept_settings  # noqa: E402
from intake.revocation import Revoked  # noqa: E402
from memory.backends.embedders import configured_embedders, get_embedder, require_active  # noqa: E402

share_from_now_on()

logger = logging.getLogger(__name__)

STATIC = "/static"
MCP = "/mcp"
# Where an agent in a browser connects. The page on which a user agrees is none of them: no other site may read it.
CROSS_ORIGIN = (MCP, "/.well-known/oauth-", "/oauth/token", "/oauth/register", "/oauth/revoke")
# The URL patterns of views that stream, and of those that control such streams.
STREAMING = (
    "/api/v1/intake/chat",
    "/api/v1/intake/events",
    "/api/v1/intake/turns/<str:turn_id>/events",
    "/api/v1/intake/turns/<str:turn_id>/stop",
    "/api/v1/intake/turns/<str:turn_id>/approvals/<str:call_id>",
    "/api/v1/intake/answering",
    "/v1/chat/completions",
    "/v1/responses",
    "/v1/messages",
    "/v1/messages/count_tokens",
    "/v1/models",
    "/v1/models/<path:name>",
    "/v1/embeddings",
    "/api/v1/account/export/",
    "/api/v1/conversations/<str:conversation_id>/export/",
    "/api/v1/imports/<str:import_id>/events/",
    "/api/v1/attachments/<str:attachment_id>/content",
)
# Where other programs ask this server as they would ask their vendor's.
PROGRAMS = "/v1/"

# The type stubs of the two sides name the same types differently.
wsgi: Any = get_wsgi_application()
# More than may have turns at once (core/gate.py).
synchronous: Any = WSGIMiddleware(wsgi, workers=64)
# The event loop alone would forget a task while its thread runs.
threads: set[asyncio.Task[None]] = set()

mcp = McpEndpoint(mcp_registry)


class OfPrograms(CORSMiddleware):
    """Lets pages of other origins call the addresses that begin so. A token alone lets in, and no cookie is read."""

    def __init__(self, application: Any, paths: str | tuple[str, ...], *, expose: list[str], **rules: Any) -> None:
        super().__init__(application, **rules, expose_headers=[*expose, "Retry-After", "X-Request-ID"])
        self._paths = paths

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        is_meant = scope["type"] == "http" and scope["path"].startswith(self._paths)
        await (super().__call__ if is_meant else self.app)(scope, receive, send)


class OfAgents(OfPrograms):
    """Of trusted origins alone; it answers their preflights without a token."""

    def is_allowed_origin(self, origin: str) -> bool:
        return addresses.is_trusted(origin)


def as_program(scope: Any) -> Any:
    """Without cookies, and with the token where all others send it: Anthropic's clients have a header of their own."""
    headers = [(name, value) for name, value in scope["headers"] if name != b"cookie"]
    key = dict(headers).get(b"x-api-key")
    if key is not None and b"authorization" not in dict(headers):
        headers.append((b"authorization", b"Bearer " + key))
    return {**scope, "headers": headers}


def account_of(credentials: Credentials) -> tuple[bool, int | None]:
    """Whether they are valid, and of which account: those of a visitor are of none."""
    if credentials.session:
        found = Session.objects.filter(session_key=credentials.session, expire_date__gt=timezone.now())
        users = found.values_list("user_id", "user__is_visitor")
    else:
        users = users_by_token(credentials.authorization, now=timezone.now())
    user_id, is_visitor = users.first() or (None, True)
    return user_id is not None, None if is_visitor else user_id


class Streaming:
    """Django for views that stream: each waits in a queue until its response begins, and then streams.

    Django gives each request a thread of its own, in which its middleware and its queries run, and keeps it to the
    request's end. Here the thread ends with its connection when the response begins: an open stream has neither.

    Not a function, which a route would take for one of a request.
    """

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        begins, may_begin, thread = asyncio.Event(), asyncio.Event(), ThreadSensitiveContext()

        async def send_on(message: Any) -> None:
            if message["type"] == "http.response.start":
                begins.set()
                await may_begin.wait()
            await send(message)

        serving: asyncio.Task[None] | None = None
        try:
            gate: Gate = scope["state"]["gate"]
            async with gate.turn(await gate.key_of(scope)), thread:
                # Within this context Django makes none of its own.
                # Its path is whole for Django, which takes the prefix away itself.
                whole = {**scope, "path": f"{settings.FORCE_SCRIPT_NAME or ''}{scope['path']}"}
                serving = asyncio.create_task(django_asgi(whole, receive, send_on))
                begun = asyncio.create_task(begins.wait())
                await asyncio.wait((serving, begun), return_when=asyncio.FIRST_COMPLETED)
                begun.cancel()
                await sync_to_async(connections.close_all)()
            may_begin.set()
            # The connection breaks off without its end, so that the client knows that it has only a part.
            with suppress(Revoked):
                await serving
        except RecollectError as error:
            await refuse(error, scope, send)
        finally:
            if serving is not None and not serving.done():
                serving.cancel()
                await asyncio.wait((serving,))
            async with thread:
                # The one in which Django has closed the response ends too.
                pass


streaming = Streaming()


async def serve_synchronously(scope: Any, receive: Any, send: Any) -> None:
    """In one worker thread, which cannot be stopped: past the deadline of the request it keeps its turn to its end."""
    gate: Gate = scope["state"]["gate"]
    has_thread, is_over = False, False

    async def send_on(message: Any) -> None:
        if not is_over:
            await send(message)

    async def answer() -> None:
        nonlocal has_thread
        try:
            async with gate.turn(await gate.key_of(scope)):
                has_thread = True
                await synchronous(scope, receive, send_on)
        except RecollectError as error:
            await refuse(error, scope, send_on)

    answering = asyncio.create_task(answer())
    threads.add(answering)
    answering.add_done_callback(threads.discard)
    try:
        await asyncio.shield(answering)
    finally:
        is_over = True
        if not has_thread:
            answering.cancel()


def _make_sure_of_the_database() -> None:
    """A process that could show rows of other users, or does not fit the tables or the index, never serves.

    The settings come first: a wrong one is reported even if no database answers.
    """
    try:
        refuse_former_settings()
        refuse_unless_reachable()
        refuse_unless_fitting()
        refuse_unless_isolated(settings.DATABASE_ROLES.web)
        warn_of_texts_in_logs()
        require_active(*(embedder.name for embedder in configured_embedders()))
        read_kept_settings()
    finally:
        connections.close_all()


async def _warm_up() -> None:
    begun = time.monotonic()
    await asyncio.to_thread(import_module, "chat.answers.warming")
    await import_module("chat.answers.warming").warm_up()
    urls = await asyncio.to_thread(import_module, "config.urls")
    await asyncio.to_thread(urls.document, urls.JSON)
    # All permanent objects exist now: exclude them from later garbage collections, which delay every request.
    gc.freeze()
    logger.info("Warmed up after %.1f s", time.monotonic() - begun)


@asynccontextmanager
async def lifespan(_: Starlette) -> AsyncIterator[dict[str, Any]]:
    await asyncio.to_thread(_make_sure_of_the_database)
    # Before the first request, which then does not wait, and so that a process that cannot search never serves.
    await asyncio.to_thread(get_embedder().warm_up)
    # The process serves meanwhile: this takes seconds, which neither a page nor the first message should wait for.
    warming = asyncio.create_task(_warm_up())
    async with mcp.running():
        yield {"gate": Gate(account_of, connections=settings.DATABASES["default"]["OPTIONS"]["pool"]["max_size"])}
    await warming
    await import_module("chat.answers.hub").cut_off_answers()
    await import_module("chat.answers.titling").stop()
    await import_module("intake.llm.models").close_connections()


routes = [
    Mount(STATIC, GZipMiddleware(ServedStaticFiles(directory=settings.STATIC_ROOT, check_dir=False))),
    Route(MCP, mcp),
    Route(f"{MCP}/", mcp),
    *(Route(re.sub(r"<(\w+):(\w+)>", r"{\2:\1}", path), streaming) for path in STREAMING),
    Mount("/", serve_synchronously),
]
router = Starlette(lifespan=lifespan, routes=routes)
# A path with a line break matches no pattern, not even "/": Django refuses it as it refuses others.
router.router.default = serve_synchronously
agents = OfAgents(
    router,
    CROSS_ORIGIN,
    allow_methods=["GET", "POST", "DELETE"],
    allow_headers=[
        "Authorization",
        "Last-Event-ID",
        "Mcp-Method",
        "Mcp-Name",
        "Mcp-Session-Id",
        "MCP-Protocol-Version",
    ],
    expose=["Mcp-Session-Id", "MCP-Protocol-Version", "WWW-Authenticate"],
)
programs = OfPrograms(
    agents,
    PROGRAMS,
    allow_origins=["*"],
    allow_methods=["GET", "POST"],
    allow_headers=["*"],
    expose=["X-Recollect-Conversation", "X-Recollect-Kept", "X-Recollect-Sources"],
)
bounded = BoundedBodies(programs)


async def application(scope: Any, receive: Any, send: Any) -> None:
    """Every request as if it had been sent to `PUBLIC_URL`, with a path that our routes know."""
    is_request = scope["type"] == "http" and settings.PUBLIC_URL
    scope = at_public_url(scope, settings.PUBLIC_URL) if is_request else scope
    is_program = scope["type"] == "http" and scope["path"].startswith(PROGRAMS)
    await bounded(as_program(scope) if is_program else scope, receive, send)
