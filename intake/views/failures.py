"""Error responses: a problem document under `/api/`, a page elsewhere, both independent of the user."""

import logging
import re
import sys
from collections.abc import Mapping
from http import HTTPStatus
from urllib.parse import urlsplit

from django.conf import settings
from django.core.exceptions import DisallowedHost
from django.http import HttpRequest, HttpResponse
from django.template.loader import render_to_string
from django.utils.translation import gettext_lazy as _
from django.utils.translation import override

from core.errors import AuthenticationRequired, Broken, InvalidInput, NotFound, RecollectError, Unavailable
from core.problems import as_recollect_error, problem_response, retry_after
from core.rate_limits import client_address, counted_refusal
from intake.identity import PAGE_PERSON_FIELD
from intake.sentences import in_page_language

logger = logging.getLogger(__name__)

UNKNOWN_HOST = (
    "This server does not know the name that it was asked by. Its administrator adds the name to ALLOWED_HOSTS, or "
    "has the proxy pass on the Host header."
)
WRONG_HOST = _(
    "The page is at {page}, and this server was asked for {server}. Its administrator has the proxy pass on the Host "
    "header, or puts CSRF_TRUSTED_ORIGINS={page} into .env."
)
WRONG_SCHEME_OF_PROXY = _(
    "The page is at {page}, and this server was asked for {server}. Its administrator has the proxy send "
    "X-Forwarded-Proto: https."
)
WRONG_SCHEME = _(
    "The page is at {page}, and this server was asked for {server}. Its administrator puts CSRF_TRUSTED_ORIGINS={page} "
    "into .env."
)
ORIGIN = re.compile(r"https?://[a-z0-9.\-\[\]:]{1,260}", re.ASCII)

# Fields that nobody typed, or that no page may repeat.
NOT_TYPED = {"csrfmiddlewaretoken", PAGE_PERSON_FIELD, "state", "next", "code", "credential", "id", "do", "sure", "on"}
HEADINGS = {
    HTTPStatus.BAD_REQUEST: _("That was not understood"),
    HTTPStatus.UNAUTHORIZED: _("Log in first"),
    HTTPStatus.NOT_FOUND: _("There is nothing here"),
    HTTPStatus.REQUEST_TIMEOUT: _("That took too long"),
    HTTPStatus.REQUEST_ENTITY_TOO_LARGE: _("That is too much at once"),
    HTTPStatus.TOO_MANY_REQUESTS: _("A little slower, please"),
    HTTPStatus.INTERNAL_SERVER_ERROR: _("Something broke on our side"),
    HTTPStatus.SERVICE_UNAVAILABLE: _("Recollect is away for a moment"),
}


def bad_request(request: HttpRequest, exception: Exception | None = None) -> HttpResponse:
    """`handler400`: does not repeat the input that Django found suspicious."""
    if isinstance(exception, DisallowedHost):
        return _answer(request, InvalidInput(UNKNOWN_HOST), page="intake/problem.html")
    return _answer(request, InvalidInput("The request is not valid."), page="400.html")


def permission_denied(request: HttpRequest, exception: Exception | None = None) -> HttpResponse:
    """`handler403`."""
    if _is_api(request):
        return problem_response(AuthenticationRequired())
    return HttpResponse(render_to_string("403.html"), status=HTTPStatus.FORBIDDEN)


def csrf_failure(request: HttpRequest, reason: str = "") -> HttpResponse:
    """`CSRF_FAILURE_VIEW`: tells a page that was open for too long from a proxy that passes on the wrong headers."""
    mismatch = _mismatch(request)
    if mismatch is None:
        return HttpResponse(render_to_string("403_csrf.html"), status=HTTPStatus.FORBIDDEN)
    logger.warning("A form was refused: %s", mismatch["log"])
    context = {"heading": _("The address of this page does not fit"), "detail": mismatch["page"]}
    return HttpResponse(render_to_string("intake/problem.html", context), status=HTTPStatus.FORBIDDEN)


def _mismatch(request: HttpRequest) -> Mapping[str, str] | None:
    """What to say in the page and in the log if the browser names another origin than this server was asked for."""
    try:
        sent = urlsplit(request.headers.get("Origin") or request.headers.get("Referer", ""))
        host = request.get_host()
    except (ValueError, DisallowedHost):
        return None
    page, server = f"{sent.scheme}://{sent.netloc}", f"{request.scheme}://{host}"
    # Nothing else of a stranger's is repeated.
    if not ORIGIN.fullmatch(page) or page == server or page in settings.CSRF_TRUSTED_ORIGINS:
        return None
    if sent.netloc != host:
        sentence = WRONG_HOST
    else:
        sentence = WRONG_SCHEME_OF_PROXY if settings.SECURE_PROXY_SSL_HEADER else WRONG_SCHEME
    return {
        place: text.format(page=page, server=server)
        for place, text in (("page", str(sentence)), ("log", _in_english(sentence)))
    }


def _in_english(sentence: object) -> str:
    with override("en"):
        return str(sentence)


def not_found(request: HttpRequest, exception: Exception | None = None) -> HttpResponse:
    """`handler404`, and a page's response to an id that is not the caller's.

    Independent of the user, so that it is the same, byte for byte, for all.
    """
    if _is_api(request) and request.resolver_match is None:
        # No view has counted it.
        error = counted_refusal(NotFound(), address=client_address(request))
        return _answer(request, error, page="404.html")
    return _answer(request, NotFound(), page="404.html")


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
        return problem_response(error)
    # Not the request: a page of this session would hold a new form for its person.
    back = urlsplit(request.headers.get("Referer", ""))
    path = f"{back.path}?{back.query}" if back.query else back.path
    is_ours = back.netloc == request.get_host() and path.startswith("/") and not path.startswith("//")
    context = {
        "detail": in_page_language(error.detail),
        "typed": [text for name, values in request.POST.lists() if not _is_hidden(name) for text in values if text],
        "next": path if is_ours else "/",
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
        return problem_response(error)
    response = HttpResponse(page_for(error, page=page), status=error.status)
    if error.retryable:
        response["Retry-After"] = retry_after(error)
    return response


def _is_api(request: HttpRequest) -> bool:
    return request.path.startswith("/api/")
