"""Django beneath the web process's root: an ordinary view runs with all its middleware in one thread, in one go.

Django's own handler runs the middleware on the event loop and goes to the thread for each of its hooks and for the
view, some twenty times a request, which costs more than all that is done there. Here only an asynchronous view, one
that streams for minutes, has the middleware on the loop; any other is called as under WSGI.
"""

from functools import lru_cache

from asgiref.sync import iscoroutinefunction, sync_to_async
from django import setup
from django.core.handlers.asgi import ASGIHandler
from django.core.handlers.base import BaseHandler
from django.http import HttpRequest
from django.http.response import HttpResponseBase
from django.urls import Resolver404, resolve


class Handler(ASGIHandler):
    def __init__(self) -> None:
        super().__init__()
        self._in_thread = BaseHandler()
        self._in_thread.load_middleware()

    async def get_response_async(self, request: HttpRequest) -> HttpResponseBase:
        """See BaseHandler; whoever leaves meanwhile cancels an asynchronous view, and lets any other end."""
        if _is_asynchronous(request.path_info):
            return await super().get_response_async(request)
        return await sync_to_async(self._in_thread.get_response)(request)


def get_application() -> Handler:
    """As `django.core.asgi.get_asgi_application`."""
    setup(set_prefix=False)
    return Handler()


# Most requests are for a few paths, and finding a path's view takes longer than the rest of this module.
@lru_cache(maxsize=256)
def _is_asynchronous(path: str) -> bool:
    try:
        return bool(iscoroutinefunction(resolve(path).func))
    except Resolver404:
        return False
