"""The web process: a Starlette root that serves static files and hands everything else to Django."""

import os

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings.local")

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from django.core.asgi import get_asgi_application

django_application: Any = get_asgi_application()

from asgiref.sync import sync_to_async  # noqa: E402
from django.conf import settings  # noqa: E402
from starlette.applications import Starlette  # noqa: E402
from starlette.routing import Mount  # noqa: E402
from starlette.staticfiles import StaticFiles  # noqa: E402

from intake.agent.models import close_connections  # noqa: E402
from memory.embedders import get_embedder  # noqa: E402


@asynccontextmanager
async def lifespan(_: Starlette) -> AsyncIterator[None]:
    # Before the first request, so that nobody waits for it, and so that a process that cannot search never serves.
    await sync_to_async(get_embedder().warm_up, thread_sensitive=False)()
    yield
    await close_connections()


application = Starlette(
    lifespan=lifespan,
    routes=[
        Mount("/static", StaticFiles(directory=settings.STATIC_ROOT, check_dir=False)),
        Mount("/", django_application),
    ],
)
