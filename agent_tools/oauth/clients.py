"""The clients of OAuth: registration, documents, and the sweep of old data.

Dynamic registration of clients (RFC 7591): fields are limited, requests counted, unused clients swept.
"""

from contextlib import suppress
from datetime import datetime, timedelta
from typing import Annotated, Any
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

import httpx2
from asgiref.sync import async_to_sync
from django.conf import settings
from django.contrib.auth.decorators import login_not_required
from django.db.models import Exists, F, OuterRef, Q
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.utils.decorators import method_decorator
from django.views import View
from django.views.decorators.csrf import csrf_exempt
from oauth2_provider.cimd import CIMDError, SafeMetadataFetcher
from oauth2_provider.models import (
    clear_expired,
    get_access_token_model,
    get_application_model,
    get_grant_model,
    get_refresh_token_model,
)
from oauth2_provider.settings import oauth2_settings
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator
from redis import Redis
from redis.exceptions import RedisError

from agent_tools.models import AgentConnection
from agent_tools.oauth.addresses import may_send_back_to, plain_name
from agent_tools.oauth.connections import MARK_OF_USE
from agent_tools.oauth.validator import HONOURED_AGAIN_FOR
from core import resilience
from core.errors import InvalidInput
from core.pinned import pinned_client
from core.rate_limits import client_address, take_all
from core.rounds import steps
from core.validation import body_of, by_field, parse_json, stated, strict_parts

AUTH_METHODS = ("none", "client_secret_basic", "client_secret_post")


class ClientMetadata(BaseModel):
    """A client's own description; unused fields are not stored.

    The response names what was registered, and a client must take it from there (RFC 7591, section 3.2.1). So a value
    that this server does not know is left out or replaced where another one serves the client as well.
    """

    model_config = ConfigDict(extra="ignore", strict=True)

    redirect_uris: Annotated[list[str], Field(min_length=1, max_length=10)]
    client_name: str = ""
    grant_types: Annotated[list[Annotated[str, Field(max_length=100)]], Field(max_length=10)] = ["authorization_code"]
    response_types: Annotated[list[Annotated[str, Field(max_length=100)]], Field(max_length=10)] = ["code"]
    token_endpoint_auth_method: str = "client_secret_basic"  # noqa: S105 - a method's name

    @model_validator(mode="before")
    @classmethod
    def is_provided(cls, document: Any) -> Any:
        """Null means that a field is not given."""
        return (
            {name: value for name, value in document.items() if value is not None}
            if isinstance(document, dict)
            else document
        )

    @field_validator("redirect_uris", "grant_types", "response_types", mode="before")
    @classmethod
    def is_a_list(cls, value: Any) -> Any:
        listed = [value] if isinstance(value, str) else value
        return [each for each in listed if each is not None] if isinstance(listed, list) else listed

    @field_validator("redirect_uris")
    @classmethod
    def leads_back(cls, addresses: list[str]) -> list[str]:
        """A client that runs in several places registers the addresses of all of them."""
        good = [address for address in addresses if may_send_back_to(address) and " " not in address]
        if not good:
            raise stated("Use https, http to this machine alone, or the scheme of a known app; without a fragment.")
        return good

    @field_validator("token_endpoint_auth_method")
    @classmethod
    def is_known(cls, method: str) -> str:
        """With another method the client has no secret from here, so PKCE alone protects its codes."""
        return method if method in AUTH_METHODS else "none"

    @field_validator("grant_types")
    @classmethod
    def comes_with_a_code(cls, types: list[str]) -> list[str]:
        if "authorization_code" not in types:
            raise stated("This server grants by authorization code alone.")
        return types


class DocumentFetcher(SafeMetadataFetcher):  # type: ignore[misc]  # the toolkit has no types
    """Fetches a client's metadata document, and reads it as tolerantly as a registration."""

    def fetch(self, client_id: str) -> tuple[dict[str, Any], int]:
        """The document and the seconds for which it is fresh. Raises the toolkit's `CIMDError`."""
        try:
            # Whether the environment (`HTTPS_PROXY`, `NO_PROXY`) has a proxy for this address.
            is_by_proxy = "https" in getproxies() and not proxy_bypass(urlsplit(client_id).hostname or "")
            document, fresh_for = async_to_sync(_by_proxy)(client_id) if is_by_proxy else super().fetch(client_id)
        except CIMDError as error:
            with suppress(RedisError):
                _redis().set(_UNFETCHED, str(error)[:300], ex=NOT_OFFERED_FOR)
            raise
        try:
            read = ClientMetadata.model_validate(document)
        except ValidationError:
            # The toolkit says what is wrong with it.
            return document, fresh_for
        # The authentication method stays: the toolkit refuses a client that would prove itself by a key.
        kept = {name: value for name, value in document.items() if value is not None}
        kept |= read.model_dump(include={"redirect_uris"}) | {"grant_types": ["authorization_code"]}
        return kept | {"client_name": plain_name(read.client_name)}, fresh_for


# Until clients are offered to be known by a document again, on a server that could not fetch one.
NOT_OFFERED_FOR = timedelta(minutes=10)
_UNFETCHED = "recollect:oauth:document-not-fetched"


def why_unfetched() -> str:
    """Why a document could not be fetched in the last ten minutes, in English; empty if none failed.

    Redis tells all processes. Without Redis the documents go on being offered.
    """
    try:
        found: Any = _redis().get(_UNFETCHED)
    except RedisError:
        return ""
    return found.decode(errors="replace") if found else ""


def offers_documents() -> bool:
    return not (settings.OAUTH_METADATA_DOCUMENTS == "auto" and why_unfetched())


def _redis() -> Redis:
    return resilience.client(settings.REDIS_URL, seconds=0.1)


async def _by_proxy(client_id: str) -> tuple[dict[str, Any], int]:
    """The proxy finds the address and decides where its users may go; the rest is as strict as without one.

    Raises the toolkit's `CIMDError`.
    """
    parts = strict_parts(client_id)
    if parts is None or parts.scheme != "https" or parts.username:
        raise CIMDError("the address of the document is not one of a public server")
    seconds, most = oauth2_settings.CIMD_FETCH_TIMEOUT_SECONDS, oauth2_settings.CIMD_MAX_DOCUMENT_SIZE
    headers = {"Accept": "application/json"}
    try:
        async with pinned_client(seconds=seconds, most=most, headers=headers, redirects=0) as client:
            document = (await client.get(client_id)).raise_for_status().json()
    except (httpx2.HTTPError, httpx2.InvalidURL, ValueError, RecursionError) as error:
        raise CIMDError(f"could not fetch the document by HTTPS_PROXY: {error}") from error
    if not isinstance(document, dict):
        raise CIMDError("the document is not an object")
    return document, oauth2_settings.CIMD_METADATA_MIN_AGE_SECONDS


@method_decorator([csrf_exempt, login_not_required], name="dispatch")
class RegisterClientView(View):
    http_method_names = ["post"]

    def post(self, request: HttpRequest) -> HttpResponse:
        """Raises `RateLimited`."""
        if not settings.OAUTH_REGISTRATION:
            return refused("access_denied", "Clients do not register here by themselves.", status=403)
        take_all(("client_address", client_address(request)), ("client",))
        try:
            body = body_of(request)
            if len(body) > 16_384:
                return refused("invalid_client_metadata", "At most 16,384 bytes.")
            requested = ClientMetadata.model_validate(parse_json(body))
        except InvalidInput as error:
            return refused("invalid_client_metadata", error.detail)
        except ValidationError as error:
            wrong = by_field(error)
            problems = "; ".join(f"{name}: {' '.join(messages)}" for name, messages in wrong.items())
            is_address = any(name.startswith("redirect_uris") for name in wrong)
            return refused("invalid_redirect_uri" if is_address else "invalid_client_metadata", problems)
        response = JsonResponse(_registered(requested), status=201)
        response["Cache-Control"] = "no-store"
        return response


def _registered(requested: ClientMetadata) -> dict[str, Any]:
    model = get_application_model()
    is_public = requested.token_endpoint_auth_method == "none"  # noqa: S105 - a method's name
    client = model(
        name=plain_name(requested.client_name),
        redirect_uris=" ".join(requested.redirect_uris),
        client_type=model.CLIENT_PUBLIC if is_public else model.CLIENT_CONFIDENTIAL,
        authorization_grant_type=model.GRANT_AUTHORIZATION_CODE,
        registration_source=model.RegistrationSource.DCR,
    )
    # Saving replaces it by its digest.
    secret = client.client_secret
    client.save()
    answer = {
        "client_id": client.client_id,
        "client_id_issued_at": int(client.created.timestamp()),
        "client_name": client.name,
        "redirect_uris": requested.redirect_uris,
        "grant_types": ["authorization_code", "refresh_token"],
        "response_types": ["code"],
        "token_endpoint_auth_method": requested.token_endpoint_auth_method,
    }
    return answer if is_public else {**answer, "client_secret": secret, "client_secret_expires_at": 0}


def refused(error: str, description: str, *, status: int = 400) -> HttpResponse:
    return JsonResponse({"error": error, "error_description": description}, status=status)


def sweep(*, now: datetime) -> None:
    """Run as the worker role, which sees all rows; a second run changes nothing."""
    # A used refresh token keeps its access token while it may be honoured again.
    steps(
        "agent_tools.sweep_oauth",
        clear_expired,
        get_access_token_model()
        .objects.filter(expires__lt=now, refresh_token__revoked__lt=now - HONOURED_AGAIN_FOR)
        .delete,
        _remove_connections,
        lambda: _remove_clients(now),
    )


def _remove_connections() -> None:
    theirs = {"user": OuterRef("user"), "application": OuterRef("application")}
    can_refresh = Exists(get_refresh_token_model().objects.filter(**theirs, revoked=None))
    has_access = Exists(get_access_token_model().objects.filter(**theirs))
    AgentConnection.objects.exclude(can_refresh | has_access).delete()


def _remove_clients(now: datetime) -> None:
    # For a client that was never allowed; and for one that was, and may return.
    was_never_used = Q(created__lt=now - timedelta(days=1), updated__lt=F("created") + MARK_OF_USE)
    is_forgotten = was_never_used | Q(updated__lt=now - timedelta(days=30))
    # A used code stays for a day, and keeps no client.
    has_code = Exists(get_grant_model().objects.filter(application=OuterRef("pk"), expires__gt=now))
    get_application_model().objects.filter(
        is_forgotten, ~has_code, accesstoken=None, refreshtoken=None, agent_connections=None
    ).exclude(registration_source="manual").delete()
