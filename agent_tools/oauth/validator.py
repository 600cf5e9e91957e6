"""Additional checks of OAuth requests, beyond the toolkit's own."""

from types import SimpleNamespace
from typing import Any

from django.urls import reverse
from oauth2_provider.oauth2_validators import OAuth2Validator
from oauth2_provider.settings import oauth2_settings
from oauthlib.common import Request

from agent_tools.oauth.addresses import may_send_back_to
from core.endpoints import refuse_in_transaction
from core.rate_limits import client_address, take_all


class Validator(OAuth2Validator):  # type: ignore[misc]  # the toolkit has no types
    def validate_redirect_uri(self, client_id: str, redirect_uri: str, request: Request, *args: Any, **kw: Any) -> bool:
        """Also for a client whose metadata come from another server, and were never checked here."""
        return may_send_back_to(redirect_uri) and super().validate_redirect_uri(client_id, redirect_uri, request)

    def validate_scopes(
        self, client_id: str, scopes: list[str], client: Any, request: Request, *args: Any, **kw: Any
    ) -> bool:
        """A client may request unknown scopes (`offline_access`); the response names the granted ones."""
        known = [scope for scope in oauth2_settings.SCOPES if scope in scopes]
        request.scopes = known
        return bool(known)

    def validate_code(self, client_id: str, code: str, client: Any, request: Request, *args: Any, **kw: Any) -> bool:
        return bool(super().validate_code(client_id, code, client, request) and request.user.is_active)

    def validate_refresh_token(self, refresh_token: str, client: Any, request: Request, *args: Any, **kw: Any) -> bool:
        return bool(super().validate_refresh_token(refresh_token, client, request) and request.user.is_active)


class MayBeFetched:
    """Limits the fetching of a client's metadata document: only while a user is being asked, and not too often."""

    def has_permission(self, request: Request, client_id: str) -> bool:
        """Raises `RateLimited`."""
        if not str(request.uri).startswith(reverse("oauth2_provider:authorize")):
            # A client that requests tokens has been known since its user agreed.
            return False
        address = client_address(SimpleNamespace(META=request.headers))  # type: ignore[arg-type]
        take_all(("client_address", address), ("client",))
        refuse_in_transaction("The server with a client's metadata")
        return True
