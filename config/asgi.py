"""The web process: a Starlette root that serves static files and hands everything else to Django."""

import os

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings.local")

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from django.core.asgi import get_asgi_application

django_application = get_asgi_application()

from django.conf import settings  # noqa: E402
from starlette.applications import Starlette  # noqa: E402
from starlette.routing import Mount  # noqa: E402
from starlette.staticfiles import StaticFiles  # noqa: E402

from intake.agent.models import close_connections  # noqa: E402


@asynccontextmanager
async def lifespan(_: Starlette) -> AsyncIterator[None]:
    yield
    await close_connections()


application = Starlette(
    lifespan=lifespan,
    routes=[
        Mount("/static", StaticFiles(directory=settings.STATIC_ROOT, check_dir=False)),
        Mount("/", django_application),
    ],
)
