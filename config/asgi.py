"""The web process: a Starlette root that serves static files and hands everything else to Django."""

import os

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings.local")

from django.core.asgi import get_asgi_application

django_application = get_asgi_application()

from django.conf import settings  # noqa: E402
from starlette.applications import Starlette  # noqa: E402
from starlette.routing import Mount  # noqa: E402
from starlette.staticfiles import StaticFiles  # noqa: E402

application = Starlette(
    routes=[
        Mount("/static", StaticFiles(directory=settings.STATIC_ROOT, check_dir=False)),
        Mount("/", django_application),
    ],
)
