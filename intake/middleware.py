"""Failures that were expected, wherever they arise, and headers that every answer bears."""

from collections.abc import Awaitable, Callable
from http import HTTPStatus
from typing import ClassVar

from asgiref.sync import iscoroutinefunction, markcoroutinefunction
from csp.constants import HEADER
from csp.utils import build_policy
from django.conf import settings
from django.contrib.messages.middleware import MessageMiddleware
from django.contrib.messages.storage import default_storage
from django.db import InterfaceError, OperationalError
from django.http import HttpRequest, HttpResponse
from django.http.response import HttpResponseBase
from django.utils.functional import SimpleLazyObject, empty

from core.errors import RecollectError
from intake.views.failures import answer_to

GetResponse = Callable[[HttpRequest], HttpResponseBase | Awaitable[HttpResponseBase]]

# A page may do none of this, nor may anything that gets into one.
PERMISSIONS_POLICY = ", ".join(
    f"{feature}=()"
    for feature in (
        "accelerometer",
        "autoplay",
        "camera",
        "display-capture",
        "encrypted-media",
        "fullscreen",
        "geolocation",
        "gyroscope",
        "magnetometer",
        "microphone",
        "midi",
        "payment",
        "picture-in-picture",
        "publickey-credentials-get",
        "screen-wake-lock",
        "usb",
        "xr-spatial-tracking",
    )
)


class _Middleware:
    """Runs natively in synchronous and asynchronous requests."""

    sync_capable: ClassVar[bool] = True
    async_capable: ClassVar[bool] = True

    def __init__(self, get_response: GetResponse) -> None:
        self.get_response = get_response
        if iscoroutinefunction(get_response):
            markcoroutinefunction(self)

    def __call__(self, request: HttpRequest) -> HttpResponseBase | Awaitable[HttpResponseBase]:
        response = self.get_response(request)
        if isinstance(response, HttpResponseBase):
            return self.change(response)
        return self._change_later(response)

    async def _change_later(self, response: Awaitable[HttpResponseBase]) -> HttpResponseBase:
        return self.change(await response)

    def change(self, response: HttpResponseBase) -> HttpResponseBase:
        return response


class FailureMiddleware(_Middleware):
    """A lost database is a 503, a limit that is reached a 429: no fault of this program, and no 500."""

    def process_exception(self, request: HttpRequest, exception: Exception) -> HttpResponse | None:
        if isinstance(exception, OperationalError | InterfaceError | RecollectError):
            return answer_to(request, exception)
        return None


class PolicyMiddleware(_Middleware):
    """The Content-Security-Policy of the settings, put together once: django-csp's own does it for every answer."""

    def __init__(self, get_response: GetResponse) -> None:
        super().__init__(get_response)
        self._policy = build_policy()

    def change(self, response: HttpResponseBase) -> HttpResponseBase:
        # Django's own pages about a failure, for whoever develops, would be unreadable.
        if not (settings.DEBUG and response.status_code in (HTTPStatus.NOT_FOUND, HTTPStatus.INTERNAL_SERVER_ERROR)):
            response.headers.setdefault(HEADER, self._policy)
        return response


class LazyMessageMiddleware(MessageMiddleware):
    """Django's messages to the next page, with a store that is made when somebody reads or leaves one."""

    def process_request(self, request: HttpRequest) -> None:
        request._messages = SimpleLazyObject(lambda: default_storage(request))  # type: ignore[attr-defined]

    def process_response(self, request: HttpRequest, response: HttpResponse) -> HttpResponse:
        store = getattr(request, "_messages", None)
        if isinstance(store, SimpleLazyObject) and store._wrapped is empty:
            return response
        return super().process_response(request, response)


class PrivacyMiddleware(_Middleware):
    """Nothing that Django answers is kept by a cache on the way, and no page reaches for the device.

    Static files do not pass here: they are the same for everybody. The second is sent with documents only: to
    anything else it says nothing.
    """

    def change(self, response: HttpResponseBase) -> HttpResponseBase:
        kept = response.headers.get("Cache-Control", "")
        if "no-store" not in kept:
            response.headers["Cache-Control"] = "private, no-store"
        elif "private" not in kept:
            response.headers["Cache-Control"] = f"{kept}, private"
        if response.headers.get("Content-Type", "").startswith("text/html"):
            response.headers.setdefault("Permissions-Policy", PERMISSIONS_POLICY)
        return response
