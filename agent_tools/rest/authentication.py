"""Who calls over REST: a token's owner with the token's scopes, or a person in their session with all of them."""

from typing import TYPE_CHECKING

from django.utils import timezone
from drf_spectacular.extensions import OpenApiAuthenticationExtension
from rest_framework.authentication import BaseAuthentication
from rest_framework.permissions import SAFE_METHODS, BasePermission
from rest_framework.request import Request

from agent_tools.scopes import Scope
from agent_tools.tokens import TokenCaller, admit, secret_in, verify
from core.errors import InsufficientScope
from core.rate_limits import DEFAULT_LIMIT, RequestThrottle, client_address
from intake.models import User

if TYPE_CHECKING:
    # DRF reads the settings, and so this module, while its views are being loaded.
    from rest_framework.views import APIView


class AccessTokenAuthentication(BaseAuthentication):
    def authenticate(self, request: Request) -> tuple[User, TokenCaller] | None:
        secret = secret_in(request.META.get("HTTP_AUTHORIZATION"))
        if secret is None:
            return None
        view = request.parser_context.get("view")
        if view is None:
            # The chat, which is no view of DRF's and counts its messages itself.
            caller = verify(secret, now=timezone.now())
        else:
            limit = getattr(view, "throttle_scope", DEFAULT_LIMIT)
            caller = admit(secret, address=client_address(request), now=timezone.now(), limit=limit)
        return caller.user, caller

    def authenticate_header(self, request: Request) -> str:
        return "Bearer"


class Throttle(RequestThrottle):
    """DRF's default throttle: whoever brings a token was counted on their way in."""

    def allow_request(self, request: Request, view: "APIView") -> bool:
        return isinstance(request.auth, TokenCaller) or super().allow_request(request, view)


class AccessTokenScheme(OpenApiAuthenticationExtension):  # type: ignore[no-untyped-call]
    target_class = AccessTokenAuthentication
    name = "accessToken"

    def get_security_definition(self, auto_schema: object) -> dict[str, str]:
        return {"type": "http", "scheme": "bearer", "description": "A token made at /settings/tokens/."}


class HasScope(BasePermission):
    """Holds a token to its scopes at every endpoint: `search` to read and `write` to change, unless the view says.

    A view says so by `required_scope`; None asks for none in particular. A person in their session may do everything.
    """

    def has_permission(self, request: Request, view: "APIView") -> bool:
        by_method = Scope.SEARCH if request.method in SAFE_METHODS else Scope.WRITE
        scope = getattr(view, "required_scope", by_method)
        if isinstance(request.auth, TokenCaller) and scope is not None and scope not in request.auth.scopes:
            raise InsufficientScope(f"This token lacks the scope `{scope}`.")
        return True
