"""A database that is away is not a fault of this program: people and agents are told to try again, not shown a 500."""

from collections.abc import Awaitable, Callable

from asgiref.sync import iscoroutinefunction, markcoroutinefunction
from django.db import InterfaceError, OperationalError
from django.http import HttpRequest, HttpResponse
from django.http.response import HttpResponseBase

from intake.errors import Unavailable
from intake.problems import as_recollect_error, problem_response

GetResponse = Callable[[HttpRequest], HttpResponseBase | Awaitable[HttpResponseBase]]


class DatabaseAwayMiddleware:
    """Turns a lost database into a 503: a problem document under `/api/`, a page elsewhere."""

    sync_capable = True
    async_capable = True

    def __init__(self, get_response: GetResponse) -> None:
        self.get_response = get_response
        if iscoroutinefunction(get_response):
            markcoroutinefunction(self)

    def __call__(self, request: HttpRequest) -> HttpResponseBase | Awaitable[HttpResponseBase]:
        return self.get_response(request)

    def process_exception(self, request: HttpRequest, exception: Exception) -> HttpResponse | None:
        if isinstance(exception, OperationalError | InterfaceError):
            return away(request, exception)
        return None


def away(request: HttpRequest, exception: Exception) -> HttpResponse:
    error = as_recollect_error(exception) or Unavailable()
    if request.path.startswith("/api/"):
        return problem_response(error)
    # No template: rendering one would ask the session, and so the database, who is looking.
    page = "<!doctype html><title>Away</title><h1>Recollect is away for a moment</h1><p>Reload the page shortly.</p>"
    return HttpResponse(page, status=503, headers={"Retry-After": "5"})
