"""Who is asking, in views that let nobody but people in."""

from rest_framework.request import Request

from intake.models import User


def caller(request: Request) -> User:
    user = request.user
    assert isinstance(user, User), "the permission classes let nobody else in"  # noqa: S101
    return user
