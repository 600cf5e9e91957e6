"""Error responses: a problem document below `/api/`, a vendor's error below `/v1/`, else a page."""

import logging
import re
import sys
from contextlib import suppress
from datetime import UTC
from http import HTTPStatus
from urllib.parse import urlsplit

from django.conf import settings
from django.core.exceptions import DisallowedHost
from django.db import InterfaceError, OperationalError
from django.http import HttpRequest, HttpResponse
from django.template.loader import render_to_string
from django.urls import reverse
from django.utils import timezone, translation
from django.utils.translation import gettext_lazy as _
from django.utils.translation import gettext_noop

from core.errors import AuthenticationRequired, Broken, InvalidInput, NotFound, RecollectError, Unavailable
from core.rate_limits import client_address, counted_refusal
from core.responses import as_recollect_error, problem_response, retry_after
from core.text import in_page_language
from intake.accounts.identity import PAGE_PERSON_FIELD, is_registered
from intake.models.installation import languages_offered


def offered(language: str, *, reads: bool = True) -> str:
    """The language, if staff offer it; else English, or the first that they offer."""
    codes = [code for code, _name in languages_offered(reads=reads)]
    fallback = settings.LANGUAGE_CODE if settings.LANGUAGE_CODE in codes else codes[0]
    return language if language in codes else fallback


def activate_for(request: HttpRequest) -> None:
    """Activate the time zone and the language of a page's reader."""
    user = request.user if request.user.is_authenticated else None
    timezone.activate(UTC if user is None else user.zone)
    if user is not None:
        chosen = ""
        # A restored account may have a language that this version does not have.
        with suppress(LookupError):
            chosen = translation.get_supported_language_variant(user.language)
        translation.activate(offered(chosen or translation.get_language_from_request(request)))


logger = logging.getLogger(__name__)

UNKNOWN_HOST = gettext_noop(
    "This server does not know the name that it was asked by. Its administrator finds the way in docs/install.md."
)
WRONG_ADDRESS = _(
    "The page is at {page}, and this server was asked for {server}. Its administrator finds the way in docs/install.md."
)
ORIGIN = re.compile(r"https?://[a-z0-9.\-\[\]:]{1,260}", re.ASCII)

# Fields that nobody typed, or that no page may repeat.
NOT_TYPED = {"csrfmiddlewaretoken", PAGE_PERSON_FIELD, "state", "next", "code", "credential", "id", "do", "sure", "on"}
HEADINGS = {
    HTTPStatus.BAD_REQUEST: _("Bad request"),
    HTTPStatus.UNAUTHORIZED: _("Log in first"),
    HTTPStatus.NOT_FOUND: _("Page not found"),
    HTTPStatus.REQUEST_TIMEOUT: _("That took too long"),
    HTTPStatus.REQUEST_ENTITY_TOO_LARGE: _("The request is too large"),
    HTTPStatus.TOO_MANY_REQUESTS: _("Too many requests"),
    HTTPStatus.INTERNAL_SERVER_ERROR: _("Something went wrong on the server"),
    HTTPStatus.SERVICE_UNAVAILABLE: _("Recollect is not available right now"),
}


def bad_request(request: HttpRequest, exception: Exception | None = None) -> HttpResponse:
    """`handler400`: does not repeat the input that Django found suspicious."""
    if isinstance(exception, DisallowedHost):
        return _answer(request, InvalidInput(UNKNOWN_HOST), page="intake/problem.html")
    return _answer(request, InvalidInput(gettext_noop("The request is not valid.")), page="400.html")


def permission_denied(request: HttpRequest, exception: Exception | None = None) -> HttpResponse:
    """`handler403`."""
    if _is_api(request):
        return problem_response(AuthenticationRequired(), request)
    page = _beside_chats(request, "403.html") or render_to_string("403.html")
    return HttpResponse(page, status=HTTPStatus.FORBIDDEN)


def csrf_failure(request: HttpRequest, reason: str = "") -> HttpResponse:
    """`CSRF_FAILURE_VIEW`: tells a page that was open for too long from a proxy that passes on the wrong headers."""
    mismatch = _mismatch(request)
    if mismatch is None:
        return HttpResponse(render_to_string("403_csrf.html"), status=HTTPStatus.FORBIDDEN)
    page, server = mismatch
    logger.warning(
        "A form was refused: the page is at %s, and this server was asked for %s. Have the proxy pass on Host and send "
        "X-Forwarded-Proto: https, or set CSRF_TRUSTED_ORIGINS=%s",
        page,
        server,
        page,
    )
    detail = WRONG_ADDRESS.format(page=page, server=server)
    context = {"heading": _("The address of this page does not fit"), "detail": detail}
    return HttpResponse(render_to_string("intake/problem.html", context), status=HTTPStatus.FORBIDDEN)


def _mismatch(request: HttpRequest) -> tuple[str, str] | None:
    """The origin that the browser names, if this server was asked for another one, and that."""
    try:
        sent = urlsplit(request.headers.get("Origin") or request.headers.get("Referer", ""))
        page, server = f"{sent.scheme}://{sent.netloc}", f"{request.scheme}://{request.get_host()}"
    except (ValueError, DisallowedHost):
        return None
    # Nothing else of a stranger's is repeated.
    is_other = ORIGIN.fullmatch(page) and page != server and page not in settings.CSRF_TRUSTED_ORIGINS
    return (page, server) if is_other else None


def not_found(request: HttpRequest, exception: Exception | None = None) -> HttpResponse:
    """`handler404`, and a page's response to an id that is not the caller's.

    To one caller it is the same, byte for byte, for every address; to strangers it is the same for all.
    """
    if _is_api(request) and request.resolver_match is None:
        # No view has counted it.
        error = counted_refusal(NotFound(), address=client_address(request))
        return _answer(request, error, page="404.html")
    if not _is_api(request) and (page := _beside_chats(request, "404.html")) is not None:
        return HttpResponse(page, status=HTTPStatus.NOT_FOUND)
    return _answer(request, NotFound(), page="404.html")


def _beside_chats(request: HttpRequest, page: str) -> str | None:
    """A page of an error for a registered user, beside their chats; None for all others, and without a database.

    Without a form, whose token would make every response another one.
    """
    try:
        if not hasattr(request, "user") or not is_registered(request):
            return None
        if request.resolver_match is None:
            # No view was found, before which a user's language is looked up.
            activate_for(request)
        return render_to_string(page, {"has_no_forms": True}, request)
    except (OperationalError, InterfaceError, RecollectError):
        return None


def server_error(request: HttpRequest) -> HttpResponse:
    """`handler500`. A lost database or a full pool may be met outside a view, where no middleware sees it."""
    expected = sys.exception()
    if isinstance(expected, Exception) and as_recollect_error(expected) is not None:
        return answer_to(request, expected)
    return _answer(request, Broken(), page="500.html")


def answer_to(request: HttpRequest, exception: Exception) -> HttpResponse:
    """For an expected failure."""
    error = as_recollect_error(exception) or Unavailable()
    return not_found(request) if isinstance(error, NotFound) else _answer(request, error, page="intake/problem.html")


def logged_out(request: HttpRequest, error: AuthenticationRequired) -> HttpResponse:
    """For a page that was made for another session: what was typed comes back, with a way to log in and go back."""
    if _is_api(request):
        return problem_response(error, request)
    # Not the request: a page of this session would hold a new form for its person.
    back = urlsplit(request.headers.get("Referer", ""))
    path = f"{back.path}?{back.query}" if back.query else back.path
    is_ours = back.netloc == request.get_host() and path.startswith("/") and not path.startswith("//")
    context = {
        "detail": in_page_language(error.detail),
        "typed": [text for name, values in request.POST.lists() if not _is_hidden(name) for text in values if text],
        "next": path if is_ours else reverse("intake:home"),
    }
    return HttpResponse(render_to_string("intake/logged_out.html", context), status=error.status)


def _is_hidden(name: str) -> bool:
    return name in NOT_TYPED or "password" in name


def log_in_to_see(request: HttpRequest) -> HttpResponse:
    """For a reader without an account, or whose session has ended: a page of a chat that is not theirs."""
    context = {
        "heading": _("Log in to see this chat"),
        "detail": _("It belongs to an account, and this browser is not logged in to it."),
        "next": request.get_full_path(),
    }
    return HttpResponse(render_to_string("intake/problem.html", context), status=HTTPStatus.NOT_FOUND)


def page_for(error: RecollectError, *, page: str = "intake/problem.html") -> str:
    """Rendered without the request: with it, the template would query the session, and so the database."""
    return render_to_string(page, {"heading": HEADINGS[error.status], "detail": in_page_language(error.detail)})


def _answer(request: HttpRequest, error: RecollectError, *, page: str) -> HttpResponse:
    if _is_api(request):
        return problem_response(error, request)
    response = HttpResponse(page_for(error, page=page), status=error.status)
    if error.retryable:
        response["Retry-After"] = retry_after(error)
    return response


def _is_api(request: HttpRequest) -> bool:
    return request.path_info.startswith(("/api/", "/v1/"))
