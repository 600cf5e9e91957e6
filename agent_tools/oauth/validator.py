"""Additional checks of OAuth requests, beyond the toolkit's own."""

from datetime import timedelta
from types import SimpleNamespace
from typing import Any

from django.urls import reverse
from django.utils import timezone
from oauth2_provider.models import get_grant_model
from oauth2_provider.oauth2_validators import OAuth2Validator
from oauth2_provider.settings import oauth2_settings
from oauthlib.common import Request
from oauthlib.oauth2.rfc6749.errors import InvalidGrantError

from agent_tools.oauth.addresses import may_send_back_to
from agent_tools.oauth.connections import end_access_of
from agent_tools.oauth.secrets import checksum_of
from core.endpoints import refuse_in_transaction
from core.rate_limits import client_address, take_all

# The prefix of a used code's digest in the table of codes, and how long a second use is recognised.
USED = "used:"
KNOWN_FOR = timedelta(days=1)


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
        if code.startswith(USED):
            return False
        if super().validate_code(client_id, code, client, request):
            return bool(request.user.is_active)
        _end_if_used(code, client)
        return False

    def invalidate_authorization_code(self, client_id: str, code: str, request: Request, *args: Any, **kw: Any) -> None:
        """Keeps a digest of the used code for a day, by which a second use is recognised.

        Of two exchanges at the same moment one finds the code used, and ends what both gave.

        Raises `InvalidGrantError`.
        """
        fresh = get_grant_model().objects.filter(code=code, application=request.client)
        if not fresh.update(code=_used(code), expires=timezone.now() + KNOWN_FOR):
            _end_if_used(code, request.client)
            raise InvalidGrantError(request=request)

    def validate_refresh_token(self, refresh_token: str, client: Any, request: Request, *args: Any, **kw: Any) -> bool:
        return bool(super().validate_refresh_token(refresh_token, client, request) and request.user.is_active)


def _used(code: str) -> str:
    return USED + checksum_of(code)


def _end_if_used(code: str, client: Any) -> None:
    """One of the two users of a code is a thief: the agent loses all access, as by a second use of a refresh token.

    RFC 6749, section 4.1.2.
    """
    used = get_grant_model().objects.select_related("user").filter(code=_used(code), application=client).first()
    if used is not None:
        end_access_of(user=used.user, application_id=client.pk)


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
