"""The language of pages: the person's own, else their browser's; everything that is no page speaks English."""

from typing import Any

from django.http import HttpRequest
from django.http.response import HttpResponseBase
from django.utils import translation
from django.utils.cache import patch_vary_headers

from intake.middleware import Middleware

# Programs read these word for word (and DRF would translate its errors); the admin is in English.
NO_PAGES = ("/api/", "/mcp", "/admin/", "/.well-known/", "/metrics", "/healthz")


class LanguageMiddleware(Middleware):
    """Activates the browser's language first, and the person's once a view is found, where they are looked up anyway.

    Outside of a page nothing is activated, which is English (LANGUAGE_CODE).
    """

    def refuse(self, request: HttpRequest) -> None:
        if is_page(request):
            translation.activate(translation.get_language_from_request(request))

    def process_view(self, request: HttpRequest, *_: Any) -> None:
        if is_page(request) and request.user.is_authenticated and (chosen := request.user.language):
            translation.activate(translation.get_supported_language_variant(chosen))

    def end(self, request: HttpRequest) -> None:
        translation.deactivate()

    def change(self, response: HttpResponseBase) -> HttpResponseBase:
        if response.headers.get("Content-Type", "").startswith("text/html"):
            patch_vary_headers(response, ["Accept-Language"])
        return response


def is_page(request: HttpRequest) -> bool:
    return not request.path.startswith(NO_PAGES)
