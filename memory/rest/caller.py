"""What every personal view has: who is asking, and an answer that no shared cache keeps."""

from typing import Any

from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.viewsets import ViewSet

from intake.models import User
from intake.rest.acting import ActsAsCaller


class PersonalViewSet(ActsAsCaller, ViewSet):
    def finalize_response(self, request: Request, response: Response, *args: Any, **kwargs: Any) -> Response:
        response = super().finalize_response(request, response, *args, **kwargs)
        # Whoever keeps it asks again before showing it: the next reader may be somebody else.
        response.headers.setdefault("Cache-Control", "private, no-cache")
        return response


def caller(request: Request) -> User:
    user = request.user
    assert isinstance(user, User), "the permission classes let nobody else in"  # noqa: S101
    return user
