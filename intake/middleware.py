"""The middleware of every request: the language of pages, rate limits, and response headers."""

import re
from collections.abc import Callable
from datetime import timedelta
from typing import Any

from django.conf import settings
from django.contrib.sessions.middleware import SessionMiddleware
from django.db import InterfaceError, OperationalError
from django.http import HttpRequest, HttpResponse
from django.http.response import HttpResponseBase
from django.middleware.gzip import GZipMiddleware
from django.utils import timezone, translation
from django.utils.cache import patch_vary_headers
from django.utils.translation import gettext_noop

from core import rate_limits
from core.errors import AuthenticationRequired, RateLimited, RecollectError
from core.isolation.acting import bind
from intake.accounts.identity import PAGE_PERSON_FIELD, PAGE_PERSON_HEADER, is_made_for_caller, is_registered
from intake.failures import activate_for, answer_to, bad_request, logged_out, not_found, offered

FORM_TYPES = ("application/x-www-form-urlencoded", "multipart/form-data")
LOGGED_OUT = gettext_noop("You are logged out. Log in.")
MADE_FOR_ANOTHER = gettext_noop("This page was made for another account. Reload it.")
API, HEALTH, ADMIN = "/api/v1/", "/healthz", "/admin/"
# Programs read these texts literally (and DRF would translate its errors); the admin is in English.
NO_PAGES = ("/api/", "/mcp", "/admin/", "/.well-known/", "/metrics", "/healthz")

GetResponse = Callable[[HttpRequest], HttpResponseBase]

# Browser features that no page, and no script injected into one, may use.
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
        "screen-wake-lock",
        "usb",
        "xr-spatial-tracking",
    )
)


class _Middleware:
    """Only synchronous: because one of them is the innermost, Django runs all middleware in one thread, without
    switching.
    """

    def __init__(self, get_response: GetResponse) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        try:
            response = self.refuse(request) or self.get_response(request)
        finally:
            self.end(request)
        return self.change(response)

    def refuse(self, request: HttpRequest) -> HttpResponse | None:
        """A response instead of the view's."""
        return None

    def process_view(self, request: HttpRequest, *_: Any) -> HttpResponse | None:
        """Here the caller is looked up first, so here a lost database or a full pool is met: it is no fault of ours."""
        try:
            return self.before_view(request)
        except (OperationalError, InterfaceError, RecollectError) as error:
            return answer_to(request, error)

    def before_view(self, request: HttpRequest) -> HttpResponse | None:
        """A response instead of the view's, once the view is known."""
        return None

    def end(self, request: HttpRequest) -> None:
        """Runs however the request ended."""

    def change(self, response: HttpResponseBase) -> HttpResponseBase:
        return response


class FailureMiddleware(_Middleware):
    """Turns a lost database into 503 and an exceeded limit into 429: neither is a fault of this program, so no 500.

    A missing row and a row of another user get the same 404, and so does a NUL in an address, which PostgreSQL refuses
    wherever a library looks it up.
    """

    def refuse(self, request: HttpRequest) -> HttpResponse | None:
        if "\0" in request.path_info and not request.path_info.startswith(API):
            return not_found(request)
        return bad_request(request) if _would_break_the_admin(request) else None

    def process_exception(self, request: HttpRequest, exception: Exception) -> HttpResponse | None:
        if isinstance(exception, OperationalError | InterfaceError | RecollectError):
            return answer_to(request, exception)
        return None


class LanguageMiddleware(_Middleware):
    """Activates the browser's language first, and the user's language and time zone once a view is found, where the
    user is looked up anyway.

    Outside of pages neither is activated: programs get English (LANGUAGE_CODE) and times with their offset. A reader
    without an account has no zone but UTC, which pages write beside the time; the server's own says nothing to them.
    """

    def refuse(self, request: HttpRequest) -> None:
        if _is_page(request):
            # A page that needs no database is shown without one.
            translation.activate(offered(translation.get_language_from_request(request), reads=False))

    def before_view(self, request: HttpRequest) -> None:
        if _is_page(request):
            activate_for(request)

    def end(self, request: HttpRequest) -> None:
        translation.deactivate()
        timezone.deactivate()

    def change(self, response: HttpResponseBase) -> HttpResponseBase:
        if response.headers.get("Content-Type", "").startswith("text/html"):
            patch_vary_headers(response, ["Accept-Language"])
        return response


class PagePersonMiddleware(_Middleware):
    """Refuses to write what a page sends that was made for another person than the session's.

    A page stays open over a log-out, an expired session and another log-in. Its text would be stored for whoever uses
    this browser next. Comes before the check of the CSRF token, which a log-in also changes. Requests without a page,
    by a token or by a program with a session, say nothing.
    """

    def process_view(self, request: HttpRequest, *_: Any) -> HttpResponse | None:
        if request.method in ("GET", "HEAD", "OPTIONS", "TRACE") or "Authorization" in request.headers:
            return None
        made_for = request.headers.get(PAGE_PERSON_HEADER)
        if made_for is None and request.content_type in FORM_TYPES:
            made_for = request.POST.get(PAGE_PERSON_FIELD)
        if made_for is None or is_made_for_caller(request, made_for):
            return None
        is_person = is_registered(request)
        return logged_out(request, AuthenticationRequired(MADE_FOR_ANOTHER if is_person else LOGGED_OUT))


class LimitsMiddleware(_Middleware):
    """Counts every page, and every unknown address, before any database query.

    The API counts its own requests by user. Its documentation counts as a page.
    """

    def end(self, request: HttpRequest) -> None:
        # The next request of this thread has another caller.
        bind("")

    def refuse(self, request: HttpRequest) -> HttpResponse | None:
        if request.path_info.startswith(API):
            return None
        address = rate_limits.client_address(request)
        try:
            if request.path_info == HEALTH:
                rate_limits.take_all(("health_address", address))
            else:
                rate_limits.take_for_page(request.COOKIES.get(settings.SESSION_COOKIE_NAME), address=address)
        except RateLimited as error:
            return answer_to(request, error)
        return None


_gzip = GZipMiddleware(lambda request: HttpResponse())


class KeptCookieMiddleware(SessionMiddleware):
    """Sessions, without taking the cookie of one that is no more: a request from before a log-in may be answered after
    it, and would take the new one away.
    """

    def process_response(self, request: HttpRequest, response: HttpResponse) -> HttpResponse:
        if request.session.is_empty() and not request.session.modified:
            return response
        return super().process_response(request, response)


class PrivacyMiddleware(_Middleware):
    """Forbids caching unless a view is public, forbids pages the use of device features, and compresses them.

    Static files do not pass here: they are the same for all users. The second header is sent only with documents, where
    it has an effect.
    """

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        response = super().__call__(request)
        is_page = response.headers.get("Content-Type", "").startswith("text/html")
        if is_page and request.method == "GET":
            # Safari forgets after seven days what a script wrote (`theme.js`, `drawer.js`, `projects.js`).
            for name in ("theme", "text", "width", "chats", "projects"):
                if re.fullmatch(r"[\w.-]{1,500}", value := request.COOKIES.get(name, "")):
                    path = settings.SESSION_COOKIE_PATH
                    response.set_cookie(name, value, timedelta(days=365), path=path, samesite="Lax")
        # With random bytes, so that its length does not tell what is in it (the attack BREACH).
        return _gzip.process_response(request, response) if is_page and not response.streaming else response

    def change(self, response: HttpResponseBase) -> HttpResponseBase:
        kept = response.headers.get("Cache-Control", "")
        if "public" in kept:
            # The view marked its response as public.
            pass
        elif "no-store" not in kept:
            response.headers["Cache-Control"] = "private, no-store"
        elif "private" not in kept:
            response.headers["Cache-Control"] = f"{kept}, private"
        if response.headers.get("Content-Type", "").startswith("text/html"):
            response.headers.setdefault("Permissions-Policy", PERMISSIONS_POLICY)
        return response


def _would_break_the_admin(request: HttpRequest) -> bool:
    """Parameters that no page of Django's admin sends, and that its views take for a text or for a field's name."""
    if not request.path_info.startswith(ADMIN):
        return False
    return request.GET.get("_to_field") == "" or any(
        "\0" in text for name in request.GET for text in request.GET.getlist(name)
    )


def _is_page(request: HttpRequest) -> bool:
    return not request.path_info.startswith(NO_PAGES)
