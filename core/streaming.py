"""What all views that stream share: they run on the event loop, are not DRF views, and refuse as those do."""

from collections.abc import AsyncIterator, Callable, Collection, Coroutine
from functools import wraps
from http import HTTPStatus
from typing import Any

from asgiref.sync import sync_to_async
from django.conf import settings
from django.contrib.auth.decorators import login_not_required
from django.http import HttpRequest, HttpResponse, StreamingHttpResponse
from django.http.response import HttpResponseBase
from django.utils.module_loading import import_string
from django.views.decorators.csrf import csrf_exempt
from rest_framework.authentication import BaseAuthentication
from rest_framework.request import Request

from core import rate_limits
from core.errors import AuthenticationRequired, InsufficientScope, InvalidInput
from core.rate_limits import StreamLease
from core.responses import as_recollect_error, problem_response

AsyncView = Callable[..., Coroutine[Any, Any, HttpResponseBase]]


def streaming(method: str) -> Callable[[AsyncView], AsyncView]:
    """For an asynchronous view of one method, which checks its caller itself with `admit`.

    An expected failure becomes a problem document, as of the other endpoints.
    """
    allowed = [*(["GET", "HEAD"] if method == "GET" else [method]), "OPTIONS"]

    def decorate(view: AsyncView) -> AsyncView:
        @wraps(view)
        async def answer(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
            if request.method == "OPTIONS":
                return HttpResponse(headers={"Allow": ", ".join(allowed)})
            if request.method not in allowed:
                error = InvalidInput(f'Method "{request.method}" not allowed.')
                refused = problem_response(error, request, status=HTTPStatus.METHOD_NOT_ALLOWED)
                refused["Allow"] = ", ".join(allowed)
                return refused
            try:
                return await view(request, *args, **kwargs)
            except Exception as error:
                return await sync_to_async(refusal)(request, error)

        return csrf_exempt(login_not_required(answer))

    return decorate


def refusal(request: HttpRequest, error: Exception) -> HttpResponse:
    """The problem document of an expected failure; raises any other. Counts refusals without a known caller."""
    known = as_recollect_error(error)
    if known is None:
        raise error
    if isinstance(known, AuthenticationRequired):
        known = rate_limits.counted_refusal(known, address=rate_limits.client_address(request))
    return problem_response(known, request)


def event_stream(events: AsyncIterator[bytes], lease: StreamLease) -> StreamingHttpResponse:
    """The lease is that of `rate_limits.begin_stream`, and ends with the response."""
    response = StreamingHttpResponse(lease.over(events), content_type="text/event-stream")
    response["Cache-Control"] = "no-store"
    # Some proxies buffer a response; this header asks them not to.
    response["X-Accel-Buffering"] = "no"
    return response


def user_by_token(request: HttpRequest, *, scopes: Collection[str], lacking: str) -> tuple[Any, Any]:
    """The user and their token, by the API's own authentication class, the first in the settings. Raises as `admit`."""
    names: Any = settings.REST_FRAMEWORK["DEFAULT_AUTHENTICATION_CLASSES"]
    authenticator: type[BaseAuthentication] = import_string(names[0])
    authenticated = authenticator().authenticate(Request(request))
    if authenticated is None:
        raise AuthenticationRequired
    user, token = authenticated
    if not set(scopes) & set(token.scopes):
        raise InsufficientScope(lacking)
    return user, token
