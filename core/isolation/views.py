"""The base of every DRF view of personal rows: after authentication, the handler acts as the caller."""

from collections.abc import Callable
from functools import wraps
from typing import Any

from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from core.isolation.acting import acting_as

Handler = Callable[..., Response]


class ActsAsCaller(APIView):
    # A comment, because the OpenAPI document would show a docstring as that of every endpoint. A handler returns plain
    # data: the response is rendered after the transaction has ended.

    def initial(self, request: Request, *args: Any, **kwargs: Any) -> None:
        """Authentication, permissions and limits come first; then the handler gets access to the caller's rows."""
        super().initial(request, *args, **kwargs)
        method = (request.method or "").lower()
        if hasattr(self, method):
            setattr(self, method, _as(request.user, getattr(self, method)))


def _as(user: Any, handler: Handler) -> Handler:
    @wraps(handler)
    def acting(*args: Any, **kwargs: Any) -> Response:
        with acting_as(user):
            return handler(*args, **kwargs)

    return acting
