"""The endpoints of OAuth: consent, exchange, revocation, metadata.

The page on which a user allows an agent, or refuses it.
"""

import json
from http import HTTPStatus
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit

from csp.decorators import csp_update
from django.contrib.auth.views import redirect_to_login
from django.core.exceptions import ObjectDoesNotExist
from django.db import IntegrityError
from django.http import HttpRequest, HttpResponse
from django.http.response import HttpResponseBase
from django.shortcuts import render
from django.urls import reverse
from django.utils.decorators import method_decorator
from django.utils.translation import gettext_lazy as _
from django.views.decorators.cache import never_cache
from oauth2_provider.cimd import is_cimd_client_id
from oauth2_provider.exceptions import FatalClientError, OAuthToolkitError
from oauth2_provider.models import get_application_model
from oauth2_provider.views import OAuthProtectedResourceMetadataView, OAuthServerMetadataView
from oauth2_provider.views import RevokeTokenView as ToolkitRevokeView
from oauth2_provider.views import TokenView as ToolkitTokenView
from oauth2_provider.views.base import BaseAuthorizationView
from oauthlib.oauth2.rfc6749.errors import CustomOAuth2Error, InvalidClientIdError, InvalidRequestError

from agent_tools.models import MEANINGS, NEVER_BOUND, TokenScope
from agent_tools.oauth.addresses import (
    bound_resource,
    final_slash_of,
    is_loopback,
    is_resource,
    origin_of,
    plain_name,
    receiver_of,
    resource_of,
    tokens_resource_of,
)
from agent_tools.oauth.clients import NOT_OFFERED_FOR, offers_documents, refused, why_unfetched
from agent_tools.oauth.connections import AGENT_MADE
from core.isolation.acting import acting_as
from core.isolation.policies import can_bind
from intake.accounts import sessions
from intake.accounts.identity import is_registered, person_of
from intake.accounts.proofs import require_recent_proof
from memory.projects import list_projects

NO_SUCH_PROJECT = _("This project does not exist any more. Choose another.")


@method_decorator(never_cache, name="dispatch")
class AuthorizeView(BaseAuthorizationView):  # type: ignore[misc]
    """The form contains nothing of the request: both methods read it from the address, and check it."""

    http_method_names = ["get", "post"]

    def dispatch(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
        # First of all: Django treats a visitor as a user, but a visitor may not connect agents.
        if not is_registered(request):
            return redirect_to_login(request.get_full_path())
        require_recent_proof(request)
        response: HttpResponseBase = super().dispatch(request, *args, **kwargs)
        return response

    def get(self, request: HttpRequest) -> HttpResponseBase:
        return self._answer(request, self._ask)

    def post(self, request: HttpRequest) -> HttpResponseBase:
        return self._answer(request, self._decide)

    def render_to_response(self, context: dict[str, Any], status: int = 400, **kwargs: Any) -> HttpResponse:
        """The toolkit's errors that cannot be sent back to the client."""
        error, client_id = context["error"], self.request.GET.get("client_id", "")
        # The toolkit knows no client with that id, for it could not fetch or read the client's document.
        is_unread = isinstance(error, InvalidClientIdError) and is_cimd_client_id(client_id)
        context = {"error": error, "unread": client_id if is_unread else "", "reason": why_unfetched()}
        context["minutes"] = NOT_OFFERED_FOR.seconds // 60 if not offers_documents() else 0
        return render(self.request, "agent_tools/oauth_error.html", context, status=status)

    def _answer(self, request: HttpRequest, answer: Any) -> HttpResponseBase:
        try:
            if any(len(value) > 2000 or "\0" in value for value in request.GET.values()):
                raise FatalClientError(error=InvalidRequestError(description="A value of the address is too long."))
            try:
                scopes, credentials = self.validate_authorization_request(request)
            except ValueError as error:
                # The library refuses a query string that is not in the form of one, as `%zz` is not.
                raise FatalClientError(error=InvalidRequestError(description="The address cannot be read.")) from error
            _check(request, credentials)
            client = get_application_model().objects.get(client_id=credentials["client_id"])
            response: HttpResponseBase = answer(client, scopes, credentials)
        except OAuthToolkitError as error:
            response = self.error_response(error, application=None)
            if response.status_code == HTTPStatus.FOUND:
                # An error says too which server it is from (RFC 9207): a client may have asked several.
                parts = urlsplit(response["Location"])
                values = [pair for pair in parse_qsl(parts.query, keep_blank_values=True) if pair[0] != "iss"]
                values.append(("iss", origin_of(request)))
                response["Location"] = parts._replace(query=urlencode(values)).geturl()
        return response

    def _ask(self, client: Any, scopes: list[str], credentials: dict[str, Any], refused: str = "") -> HttpResponseBase:
        sent_to = credentials["redirect_uri"]
        context = {
            "name": plain_name(client.name),
            "receiver": receiver_of(sent_to),
            "is_machine": credentials["resource"] == [tokens_resource_of(self.request)],
            "scopes": [(scope, MEANINGS[TokenScope(scope)]) for scope in scopes if not _is_included(scope, scopes)],
            "projects": self._projects(),
            "chosen": self.request.POST.get("project", ""),
            "refused": refused,
            "never_bound": sorted(NEVER_BOUND & set(scopes)),
        }
        page = render(self.request, "agent_tools/authorize.html", context, status=400 if refused else 200)
        # A browser applies the policy to all redirects of a form, and the client may redirect further.
        schemes = sorted({"https:", f"{sent_to.partition(':')[0]}:"})
        return csp_update({"form-action": schemes})(lambda _: page)(self.request)

    def _projects(self) -> list[str]:
        """Closed ones too; none where the database cannot bind (`can_bind`)."""
        user = person_of(self.request)
        with acting_as(user):
            return [each.name for each in list_projects(user=user)] if can_bind() else []

    def _decide(self, client: Any, scopes: list[str], credentials: dict[str, Any]) -> HttpResponseBase:
        chosen, project = self.request.POST.getlist("scopes"), self.request.POST.get("project", "")
        agreed = [scope for scope in scopes if scope in chosen or _is_included(scope, chosen)]
        if project and "allow" in self.request.POST:
            if project not in self._projects():
                return self._ask(client, scopes, credentials, refused=str(NO_SUCH_PROJECT))
            agreed = [scope for scope in agreed if scope not in NEVER_BOUND]
            credentials["resource"] = [bound_resource(named, project) for named in credentials["resource"]]
        uri, *_ = self.create_authorization_response(
            request=self.request,
            scopes=" ".join(agreed),
            credentials=credentials,
            allow="allow" in self.request.POST and bool(agreed),
        )
        sessions.note_made(person_of(self.request), sessions.made(AGENT_MADE, client.pk))
        response: HttpResponse = self.redirect(uri, client)
        return response


def _is_included(scope: str, scopes: list[str]) -> bool:
    """An agent that may search may also read, so the page does not ask for that."""
    return scope == TokenScope.READ and TokenScope.SEARCH in scopes


def _check(request: HttpRequest, credentials: dict[str, Any]) -> None:
    """Requires PKCE by S256, and a token for one endpoint only (RFC 8707). Adds the endpoint to the credentials.

    It is `/mcp`, or for a command line on the user's own computer the one that makes its own token.
    """
    state, address = credentials.get("state"), credentials["redirect_uri"]
    if credentials.get("code_challenge_method") != "S256":
        wrong = InvalidRequestError(description="Use PKCE with code_challenge_method=S256.", state=state)
        raise OAuthToolkitError(error=wrong, redirect_uri=address)
    named = [each for each in request.GET.getlist("resource") if each.strip()]
    machines = tokens_resource_of(request)
    is_machine = named and is_resource(named[0], machines) and is_loopback(address)
    resource = machines if is_machine else resource_of(request)
    if len(named) > 5 or not all(is_resource(each, resource) for each in named):
        sentence = f"Tokens are issued for {resource_of(request)} alone."
        wrong = CustomOAuth2Error(error="invalid_target", description=sentence, state=state)
        raise OAuthToolkitError(error=wrong, redirect_uri=address)
    credentials["resource"] = [resource]


FORM = "application/x-www-form-urlencoded"
GRANTS = ("authorization_code", "refresh_token")
VERIFIER_IS_WRONG = "The code_verifier does not match the code_challenge with which the code was requested."


class BoundedForm:
    """Refuses an oversized form before anything reads it."""

    def post(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        values = [value for _, entries in request.POST.lists() for value in entries]
        if len(values) > 30 or any(len(value) > 2000 or "\0" in value for value in values):
            sentence = "At most 30 fields of 2,000 characters each."
            return refused("invalid_request", sentence)
        return super().post(request, *args, **kwargs)  # type: ignore[misc, no-any-return]


class ExchangeView(BoundedForm, ToolkitTokenView):  # type: ignore[misc]
    def post(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        if request.content_type not in ("", FORM, "multipart/form-data"):
            return refused("invalid_request", f"Send the fields as a form ({FORM}), not as {request.content_type}.")
        if not (grant_type := request.POST.get("grant_type")):
            return refused("invalid_request", f"The field grant_type is missing. Use one of: {', '.join(GRANTS)}.")
        if grant_type not in GRANTS:
            return refused("unsupported_grant_type", f"Use one of: {', '.join(GRANTS)}.")
        try:
            response = super().post(request, *args, **kwargs)
        except (ObjectDoesNotExist, IntegrityError):
            # The user has ended the connection, or deleted the account, at this moment.
            return refused("invalid_grant", "It was ended meanwhile.")
        # The toolkit leaves some of its errors without a type.
        response["Content-Type"] = "application/json"
        if response.status_code >= HTTPStatus.BAD_REQUEST:
            _say_what_is_wrong(response)
        return response


class GiveBackView(BoundedForm, ToolkitRevokeView):  # type: ignore[misc]
    pass


def _say_what_is_wrong(response: HttpResponse) -> None:
    """The toolkit refuses a wrong verifier without a word; every other refused grant has its sentence already."""
    body = json.loads(response.content)
    if not body.get("error_description"):
        is_verifier = body.get("error") == "invalid_grant"
        body["error_description"] = VERIFIER_IS_WRONG if is_verifier else "The request cannot be answered."
        response.content = json.dumps(body)


DOCUMENTS_SUPPORTED = "client_id_metadata_document_supported"


class ResourceMetadataView(OAuthProtectedResourceMetadataView):  # type: ignore[misc]
    """Under the endpoint's own path, and at the root for clients that look only there."""

    def get_resource(self, request: HttpRequest) -> str:
        # A client compares it with the address that it was configured with (RFC 9728, section 3.3).
        return f"{resource_of(request)}{final_slash_of(request)}"

    def get_authorization_servers(self, request: HttpRequest) -> list[str]:
        return [origin_of(request)]

    def get_scopes_supported(self) -> list[str]:
        """Those of tools: clients ask for all that they find here. Hooks ask for `capture` by its name."""
        return [scope for scope in super().get_scopes_supported() if scope != TokenScope.CAPTURE]

    def get_resource_documentation(self) -> str:
        return str(self.request.build_absolute_uri(reverse("agent_tools:tokens")))


class ServerMetadataView(OAuthServerMetadataView):  # type: ignore[misc]
    """The toolkit's view, only at the root: the issuer is the origin."""

    def get(self, request: HttpRequest, *args: Any, **kwargs: Any) -> Any:
        response = super().get(request)
        if not offers_documents():
            response.content = json.dumps({**json.loads(response.content), DOCUMENTS_SUPPORTED: False})
        return response
