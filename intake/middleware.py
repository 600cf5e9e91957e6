"""Failures that were expected, wherever they arise, and headers that every answer bears."""

from collections.abc import Awaitable, Callable
from typing import ClassVar

from asgiref.sync import iscoroutinefunction, markcoroutinefunction
from django.db import InterfaceError, OperationalError
from django.http import HttpRequest, HttpResponse
from django.http.response import HttpResponseBase

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


class PrivacyMiddleware(_Middleware):
    """No cache keeps what Django answers, unless a view says that it is public; no page reaches for the device.

    Static files do not pass here: they are the same for everybody. The second is sent with documents only: to
    anything else it says nothing.
    """

    def change(self, response: HttpResponseBase) -> HttpResponseBase:
        kept = response.headers.get("Cache-Control", "")
        if "public" in kept:
            # The view says that it is the same for everybody.
            pass
        elif "no-store" not in kept:
            response.headers["Cache-Control"] = "private, no-store"
        elif "private" not in kept:
            response.headers["Cache-Control"] = f"{kept}, private"
        if response.headers.get("Content-Type", "").startswith("text/html"):
            response.headers.setdefault("Permissions-Policy", PERMISSIONS_POLICY)
        return response
