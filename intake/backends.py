"""Checks passwords for every log-in page, and counts attempts before checking."""

from typing import Any

from django.contrib.auth.backends import ModelBackend
from django.http import HttpRequest

from core import rate_limits
from intake.accounts.identity import VISITOR, visitor_of
from intake.models import User


class LimitedBackend(ModelBackend):
    def authenticate(  # type: ignore[override]  # the stubs name each credential
        self, request: HttpRequest | None, **credentials: Any
    ) -> User | None:
        """Raises `RateLimited` after too many attempts from the request's address."""
        username = credentials.get("username")
        if request is not None and isinstance(username, str):
            rate_limits.take_for_password(username, address=rate_limits.client_address(request))
        user: User | None = super().authenticate(request, **credentials)
        if user is not None and request is not None and hasattr(request, "user"):
            # Saved before logging in, which empties the session.
            request.META[VISITOR] = visitor_of(request)
        return user
