"""Additional checks of OAuth requests, beyond the toolkit's own, and the rotation of refresh tokens.

A refresh token is honoured again for a minute after its use: two sessions that share it refresh at the same time, and a
client whose connection broke repeats its request. Each of them gets tokens of its own. A later use revokes all tokens
of the grant, which the toolkit calls a token family.
"""

import logging
from datetime import datetime, timedelta
from types import SimpleNamespace
from typing import Any
from urllib.parse import urlsplit

from django.db import transaction
from django.db.models import Q
from django.urls import reverse
from django.utils import timezone
from oauth2_provider.models import (
    get_access_token_model,
    get_grant_model,
    get_refresh_token_model,
    refresh_token_expire_timedelta,
    set_token_value,
)
from oauth2_provider.oauth2_validators import OAuth2Validator
from oauth2_provider.settings import oauth2_settings
from oauthlib.common import Request
from oauthlib.oauth2.rfc6749.errors import (
    CustomOAuth2Error,
    InvalidClientError,
    InvalidGrantError,
    InvalidScopeError,
)

from agent_tools.oauth.addresses import TOKENS_PATH, checksum_of, is_resource, may_send_back_to
from agent_tools.oauth.connections import end_access_of
from core.rate_limits import client_address, take_all
from core.resilience import refuse_in_transaction
from intake.models import User

logger = logging.getLogger(__name__)

HONOURED_AGAIN_FOR = timedelta(seconds=60)
# The prefix of a used code's digest in the table of codes, and how long a second use is recognised.
USED = "used:"

# Besides those of agents, for a command line, whose token is good for the REST API.
MACHINE_SCOPES = ("import",)

# Sentences for the developer of a client: ASCII, without quotation marks (RFC 6749, section 5.2).
CLIENT_IS_UNKNOWN = "The client is not known here, or its registration has lapsed. Register again."
SECRET_IS_WRONG = "The client secret is missing or wrong."  # noqa: S105 - a sentence
USER_IS_DEACTIVATED = "The account is deactivated."
CODE_IS_NO_GOOD = "The code is not known to this client, was used already, or has expired. Ask the user again."
REFRESH_IS_UNKNOWN = "The refresh token is not known to this client, or was revoked. Ask the user again."
REFRESH_HAS_EXPIRED = "The refresh token has expired. Ask the user again."
REFRESH_WAS_REUSED = (
    f"The refresh token was used again more than {HONOURED_AGAIN_FOR.seconds} seconds after its first use, or after it "
    "was revoked: now all tokens of its grant are revoked. Ask the user again."
)


class Validator(OAuth2Validator):  # type: ignore[misc]  # the toolkit has no types
    def validate_redirect_uri(self, client_id: str, redirect_uri: str, request: Request, *args: Any, **kw: Any) -> bool:
        """Also for a client whose metadata come from another server, and were never checked here."""
        return may_send_back_to(redirect_uri) and super().validate_redirect_uri(client_id, redirect_uri, request)

    def validate_scopes(
        self, client_id: str, scopes: list[str], client: Any, request: Request, *args: Any, **kw: Any
    ) -> bool:
        """A client may request unknown scopes (`openid`, `offline_access`); the response names the granted ones.

        A client that requests only unknown ones gets the default, to which the user agrees or not.
        """
        request.scopes = _known(scopes, request) or self.get_default_scopes(client_id, request)
        return True

    def authenticate_client(self, request: Request, *args: Any, **kw: Any) -> bool:
        if super().authenticate_client(request, *args, **kw):
            return True
        sentence = CLIENT_IS_UNKNOWN if request.client is None else SECRET_IS_WRONG
        raise InvalidClientError(description=sentence, request=request)

    def validate_code(self, client_id: str, code: str, client: Any, request: Request, *args: Any, **kw: Any) -> bool:
        is_fresh = not code.startswith(USED) and super().validate_code(client_id, code, client, request)
        if not is_fresh:
            _end_if_used(code, client)
            raise InvalidGrantError(description=CODE_IS_NO_GOOD, request=request)
        if not request.user.is_active:
            raise InvalidGrantError(description=USER_IS_DEACTIVATED, request=request)
        # The toolkit compares addresses by their characters, so it gets the grant's own.
        request.resource = _checked_resource(request, get_grant_model().objects.get(code=code).resource)
        return True

    def invalidate_authorization_code(self, client_id: str, code: str, request: Request, *args: Any, **kw: Any) -> None:
        """Keeps a digest of the used code for a day, by which a second use is recognised.

        Of two exchanges at the same moment one finds the code used, and ends what both gave.

        Raises `InvalidGrantError`.
        """
        fresh = get_grant_model().objects.filter(code=code, application=request.client)
        if not fresh.update(code=_used(code), expires=timezone.now() + timedelta(days=1)):
            _end_if_used(code, request.client)
            raise InvalidGrantError(description=CODE_IS_NO_GOOD, request=request)

    def validate_refresh_token(self, refresh_token: str, client: Any, request: Request, *args: Any, **kw: Any) -> bool:
        tokens = get_refresh_token_model().objects.select_related("access_token", "user")
        found = tokens.filter(token_checksum=checksum_of(refresh_token), application=client).first()
        if found is None:
            raise InvalidGrantError(description=REFRESH_IS_UNKNOWN, request=request)
        _require_good(found, request, now=timezone.now())
        if not found.user.is_active:
            raise InvalidGrantError(description=USER_IS_DEACTIVATED, request=request)
        request.user, request.refresh_token, request.refresh_token_instance = found.user, refresh_token, found
        request.resource = _checked_resource(request, found.resource)
        return True

    def is_within_original_scope(
        self, request_scopes: list[str], refresh_token: str, request: Request, *args: Any, **kw: Any
    ) -> bool:
        """Leaves out the unknown scopes here too."""
        granted, known = request.refresh_token_instance.access_token.scope.split(), _known(request_scopes)
        if not set(known) <= set(granted):
            sentence = f"The user agreed to: {' '.join(granted)}. Ask the user again for more."
            raise InvalidScopeError(description=sentence, request=request)
        request.scopes = known or granted
        return True

    def save_bearer_token(self, token: dict[str, Any], request: Request, *args: Any, **kw: Any) -> None:
        """A refresh is saved here: the toolkit's would need earlier tokens in plain text to honour one again."""
        if request.grant_type != "refresh_token":
            with transaction.atomic():
                request.resource = _resource_now(request)
                super().save_bearer_token(token, request, *args, **kw)
            return
        now = timezone.now()
        with transaction.atomic():
            _lock_user(request)
            used = _locked(pk=request.refresh_token_instance.pk).get()
            # It may have been revoked since it was validated.
            _require_good(used, request, now=now)
            if used.revoked is None:
                # The old access token stays valid until it expires: another session may be using it.
                get_refresh_token_model().objects.filter(pk=used.pk).update(revoked=now, updated=now)
            request.resource = used.resource
            _add_tokens(token, used, request, now=now)

    def revoke_token(self, token: str, token_type_hint: str, request: Request, *args: Any, **kw: Any) -> None:
        """Revoking one token revokes its grant (RFC 7009, section 2.1), also one that would be honoured again."""
        checksum = checksum_of(token)
        is_it = Q(token_checksum=checksum) | Q(access_token__token_checksum=checksum)
        for found in get_refresh_token_model().objects.filter(is_it, application=request.client):
            revoke_grant(found)


def revoke_grant(token: Any) -> None:
    """Revoke all tokens that were issued by the same agreement as this refresh token."""
    with transaction.atomic():
        # The locks make a running refresh end before, so that its tokens are found, or fail.
        family = [each.pk for each in _locked(token_family=token.token_family)]
        now, tokens = timezone.now(), get_refresh_token_model().objects.filter(token_family=token.token_family)
        tokens.filter(revoked=None).update(revoked=now, updated=now)
        get_access_token_model().objects.filter(refresh_token__in=tokens).delete()
    logger.info("A grant with %d refresh tokens was revoked", len(family))


def _known(scopes: list[str], request: Request | None = None) -> list[str]:
    # A command line asks for a token of its own.
    named = [value for name, value in request.uri_query_params if name == "resource"] if request else []
    is_machine = bool(named) and urlsplit(named[0]).path.rstrip("/") == TOKENS_PATH.rstrip("/")
    known = [*oauth2_settings.SCOPES, *(MACHINE_SCOPES if is_machine else ())]
    return [scope for scope in known if scope in scopes]


def _lock_user(request: Request) -> None:
    """A project that is renamed or deleted holds this lock: then the binding of new tokens is read afterwards."""
    User.objects.select_for_update().only("pk").get(pk=request.user.pk)


def _resource_now(request: Request) -> list[str]:
    """The addresses of the code, with its binding; raises `InvalidGrantError` if it ended meanwhile."""
    _lock_user(request)
    grant = get_grant_model().objects.filter(code=request.code, application=request.client).first()
    if grant is None:
        raise InvalidGrantError(description=CODE_IS_NO_GOOD, request=request)
    resource: list[str] = grant.resource
    return resource


def _locked(**which: Any) -> Any:
    tokens = get_refresh_token_model().objects.select_related("access_token")
    return tokens.select_for_update(of=("self",)).filter(**which).order_by("pk")


def _require_good(token: Any, request: Request, *, now: datetime) -> None:
    """Raises `InvalidGrantError`. A used token keeps its access token, and a revoked one has none."""
    if token.revoked is not None and token.revoked <= now - HONOURED_AGAIN_FOR:
        revoke_grant(token)
        raise InvalidGrantError(description=REFRESH_WAS_REUSED, request=request)
    if token.access_token is None:
        raise InvalidGrantError(description=REFRESH_IS_UNKNOWN, request=request)
    idle = refresh_token_expire_timedelta()
    if idle and token.access_token.expires + idle <= now:
        raise InvalidGrantError(description=REFRESH_HAS_EXPIRED, request=request)


def _add_tokens(token: dict[str, Any], used: Any, request: Request, *, now: datetime) -> None:
    common = {"user": request.user, "application": request.client, "resource": request.resource}
    access = get_access_token_model()(
        scope=token["scope"], expires=now + timedelta(seconds=token["expires_in"]), **common
    )
    set_token_value(access, token["access_token"])
    access.save()
    refresh = get_refresh_token_model()(access_token=access, token_family=used.token_family, **common)
    set_token_value(refresh, token["refresh_token"])
    refresh.save()


def _checked_resource(request: Request, granted: list[str]) -> list[str]:
    """The granted addresses; raises `CustomOAuth2Error` if the request names another (RFC 8707)."""
    named = [value for name, value in request.decoded_body or () if name == "resource" and value.strip()]
    if not all(is_resource(each, own.rstrip("/")) for each in named for own in granted):
        sentence = f"The user agreed to access to {', '.join(granted)} alone."
        raise CustomOAuth2Error(error="invalid_target", description=sentence, request=request)
    return granted


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
