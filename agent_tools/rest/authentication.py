"""Who calls over REST: a token's owner with the token's scopes, or a person in their session with all of them."""

from django.utils import timezone
from drf_spectacular.extensions import OpenApiAuthenticationExtension
from rest_framework.authentication import BaseAuthentication
from rest_framework.request import Request

from agent_tools.scopes import ALL_SCOPES, Scope
from agent_tools.tokens import TokenCaller, secret_in, verify
from intake.errors import InsufficientScope
from intake.models import User


class AccessTokenAuthentication(BaseAuthentication):
    def authenticate(self, request: Request) -> tuple[User, TokenCaller] | None:
        secret = secret_in(request.META.get("HTTP_AUTHORIZATION"))
        if secret is None:
            return None
        caller = verify(secret, now=timezone.now())
        return caller.user, caller

    def authenticate_header(self, request: Request) -> str:
        return "Bearer"


class AccessTokenScheme(OpenApiAuthenticationExtension):  # type: ignore[no-untyped-call]
    target_class = AccessTokenAuthentication
    name = "accessToken"

    def get_security_definition(self, auto_schema: object) -> dict[str, str]:
        return {"type": "http", "scheme": "bearer", "description": "A token made at /settings/tokens/."}


def require_scope(request: Request, scope: Scope) -> None:
    """Raises `InsufficientScope`."""
    if scope not in scopes_of(request):
        raise InsufficientScope(f"This token lacks the scope `{scope}`.")


def scopes_of(request: Request) -> frozenset[Scope]:
    return request.auth.scopes if isinstance(request.auth, TokenCaller) else ALL_SCOPES


def person(request: Request) -> User:
    assert isinstance(request.user, User), "the permission classes let nobody else in"  # noqa: S101
    return request.user
