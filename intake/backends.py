"""How a password is checked, whichever page asks for it: tries are counted before it is looked at."""

from typing import Any

from django.contrib.auth.backends import ModelBackend
from django.contrib.auth.base_user import AbstractBaseUser
from django.http import HttpRequest

from intake import limits


class LimitedBackend(ModelBackend):
    def authenticate(
        self, request: HttpRequest | None, username: str | None = None, password: str | None = None, **kwargs: Any
    ) -> AbstractBaseUser | None:
        """Raises `RateLimited` after too many tries from the request's address."""
        if request is not None and username is not None:
            limits.take_for_password(username, address=limits.client_address(request))
        return super().authenticate(request, username=username, password=password, **kwargs)
