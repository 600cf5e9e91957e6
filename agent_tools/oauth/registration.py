"""Dynamic registration of clients (RFC 7591): fields are limited, requests counted, unused clients swept."""

from typing import Annotated, Any, Literal

from django.conf import settings
from django.contrib.auth.decorators import login_not_required
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.utils.decorators import method_decorator
from django.views import View
from django.views.decorators.csrf import csrf_exempt
from oauth2_provider.models import get_application_model
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from agent_tools.oauth.addresses import LONGEST, may_send_back_to, plain_name
from core.errors import InvalidInput
from core.rate_limits import client_address, take_all
from core.validation import by_field, parse_json, stated

MOST_ADDRESSES = 10
LARGEST_DOCUMENT = 16_384


class ClientMetadata(BaseModel):
    """A client's own description; unused fields are not stored."""

    model_config = ConfigDict(extra="ignore", strict=True)

    redirect_uris: Annotated[
        list[Annotated[str, Field(max_length=LONGEST)]], Field(min_length=1, max_length=MOST_ADDRESSES)
    ]
    client_name: Annotated[str, Field(max_length=1000)] = ""
    grant_types: Annotated[list[Annotated[str, Field(max_length=100)]], Field(max_length=10)] = ["authorization_code"]
    response_types: Annotated[list[Annotated[str, Field(max_length=100)]], Field(max_length=10)] = ["code"]
    token_endpoint_auth_method: Literal["none", "client_secret_basic", "client_secret_post"] = "client_secret_basic"  # noqa: S105 - a method's name

    @field_validator("redirect_uris")
    @classmethod
    def leads_back(cls, addresses: list[str]) -> list[str]:
        if not all(may_send_back_to(address) and " " not in address for address in addresses):
            raise stated("Use https, http to this machine alone, or the scheme of a known app; without a fragment.")
        return addresses

    @field_validator("grant_types")
    @classmethod
    def comes_with_a_code(cls, types: list[str]) -> list[str]:
        if "authorization_code" not in types:
            raise stated("This server grants by authorization code alone.")
        return types


@method_decorator([csrf_exempt, login_not_required], name="dispatch")
class RegisterClientView(View):
    http_method_names = ["post"]

    def post(self, request: HttpRequest) -> HttpResponse:
        """Raises `RateLimited`."""
        if not settings.OAUTH_REGISTRATION:
            return _refused("access_denied", "Clients do not register here by themselves.", status=403)
        take_all(("client_address", client_address(request)), ("client",))
        if len(request.body) > LARGEST_DOCUMENT:
            return _refused("invalid_client_metadata", f"At most {LARGEST_DOCUMENT:,} bytes.")
        try:
            wanted = ClientMetadata.model_validate(parse_json(request.body))
        except InvalidInput as error:
            return _refused("invalid_client_metadata", error.detail)
        except ValidationError as error:
            wrong = by_field(error)
            told = "; ".join(f"{name}: {' '.join(messages)}" for name, messages in wrong.items())
            is_address = any(name.startswith("redirect_uris") for name in wrong)
            return _refused("invalid_redirect_uri" if is_address else "invalid_client_metadata", told)
        response = JsonResponse(_registered(wanted), status=201)
        response["Cache-Control"] = "no-store"
        return response


def _registered(wanted: ClientMetadata) -> dict[str, Any]:
    model = get_application_model()
    is_public = wanted.token_endpoint_auth_method == "none"  # noqa: S105 - a method's name
    client = model(
        name=plain_name(wanted.client_name),
        redirect_uris=" ".join(wanted.redirect_uris),
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
        "redirect_uris": wanted.redirect_uris,
        "grant_types": ["authorization_code", "refresh_token"],
        "response_types": ["code"],
        "token_endpoint_auth_method": wanted.token_endpoint_auth_method,
    }
    return answer if is_public else {**answer, "client_secret": secret, "client_secret_expires_at": 0}


def _refused(error: str, description: str, *, status: int = 400) -> HttpResponse:
    return JsonResponse({"error": error, "error_description": description}, status=status)
