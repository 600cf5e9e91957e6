"""The web process: Django, and beside it, in Starlette, static files, MCP and what is done at its start and end."""

import os

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings.local")

import asyncio
import gc
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib import import_module
from types import ModuleType
from typing import Any

from config.handler import get_application

django_application: Any = get_application()

from django.conf import settings  # noqa: E402
from django.db import connections  # noqa: E402
from starlette.applications import Starlette  # noqa: E402
from starlette.routing import Mount, Route  # noqa: E402

from agent_tools.mcp.http import McpEndpoint  # noqa: E402
from agent_tools.tools import registry  # noqa: E402
from config.bodies import BoundedBodies  # noqa: E402
from config.static import ServedStaticFiles  # noqa: E402
from core.gc_tuning import look_for_cycles_rarely  # noqa: E402
from core.isolation.checks import refuse_unless_isolated  # noqa: E402
from memory.embedders import get_embedder  # noqa: E402

STATIC = "/static"
MCP = "/mcp"

mcp = McpEndpoint(registry)


def _make_sure_of_the_database() -> None:
    """A process that could show somebody what is not theirs never serves."""
    try:
        refuse_unless_isolated(settings.DATABASE_ROLES.web)
    finally:
        connections.close_all()


def _load_the_rest() -> ModuleType:
    chat = import_module("intake.chat")
    # Or what is garbage by now would be kept for good.
    gc.collect()
    look_for_cycles_rarely()
    return chat


@asynccontextmanager
async def lifespan(_: Starlette) -> AsyncIterator[None]:
    await asyncio.to_thread(_make_sure_of_the_database)
    # Before the first request, so that nobody waits for it, and so that a process that cannot search never serves.
    await asyncio.to_thread(get_embedder().warm_up)
    # The agent loop takes a second or two to import: neither the first page nor the first message should wait for it.
    loading = asyncio.create_task(asyncio.to_thread(_load_the_rest))
    async with mcp.running():
        yield
    chat = await loading
    await chat.cut_off_answers()
    await import_module("intake.agent.models").close_connections()


beside_django = Starlette(
    lifespan=lifespan,
    routes=[
        Mount(STATIC, ServedStaticFiles(directory=settings.STATIC_ROOT, check_dir=False)),
        Route(MCP, mcp),
    ],
)


async def root(scope: Any, receive: Any, send: Any) -> None:
    """To Django straight: Starlette's layers would do nothing for a request but take time."""
    is_djangos = scope["type"] == "http" and scope["path"] != MCP and not scope["path"].startswith(f"{STATIC}/")
    await (django_application if is_djangos else beside_django)(scope, receive, send)


application = BoundedBodies(root)
