"""Error responses: a problem document under `/api/`, a page elsewhere, both independent of the user."""

from http import HTTPStatus

from django.http import HttpRequest, HttpResponse
from django.template.loader import render_to_string
from django.utils.translation import gettext_lazy as _

from core.errors import AuthenticationRequired, Broken, InvalidInput, NotFound, RecollectError, Unavailable
from core.problems import as_recollect_error, problem_response, retry_after
from core.rate_limits import client_address, counted_refusal
from intake.sentences import in_page_language

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
    return _answer(request, InvalidInput("The request is not valid."), page="400.html")


def permission_denied(request: HttpRequest, exception: Exception | None = None) -> HttpResponse:
    """`handler403`."""
    if _is_api(request):
        return problem_response(AuthenticationRequired())
    return HttpResponse(render_to_string("403.html"), status=HTTPStatus.FORBIDDEN)


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
    """`handler500`."""
    return _answer(request, Broken(), page="500.html")


def answer_to(request: HttpRequest, exception: Exception) -> HttpResponse:
    """For an expected failure."""
    error = as_recollect_error(exception) or Unavailable()
    return not_found(request) if isinstance(error, NotFound) else _answer(request, error, page="intake/problem.html")


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
