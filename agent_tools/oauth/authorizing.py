"""The page on which a user allows an agent, or refuses it."""

from typing import Any

from csp.decorators import csp_update
from django.contrib.auth.views import redirect_to_login
from django.http import HttpRequest, HttpResponse
from django.http.response import HttpResponseBase
from django.shortcuts import render
from django.utils.decorators import method_decorator
from django.views.decorators.cache import never_cache
from oauth2_provider.cimd import is_cimd_client_id
from oauth2_provider.exceptions import FatalClientError, OAuthToolkitError
from oauth2_provider.models import get_application_model
from oauth2_provider.views.base import BaseAuthorizationView
from oauthlib.oauth2.rfc6749.errors import CustomOAuth2Error, InvalidClientIdError, InvalidRequestError

from agent_tools.oauth.addresses import is_resource, plain_name, receiver_of, resource_of
from agent_tools.oauth.connections import AGENT_MADE
from agent_tools.scopes import MEANINGS, TokenScope
from intake.accounts import sessions
from intake.accounts.proof import require_recent_proof
from intake.identity import is_registered, person_of

LONGEST_VALUE = 2000
MOST_RESOURCES = 5


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
        context = {"error": error, "unread": client_id if is_unread else ""}
        return render(self.request, "agent_tools/oauth_error.html", context, status=status)

    def _answer(self, request: HttpRequest, answer: Any) -> HttpResponseBase:
        try:
            if any(len(value) > LONGEST_VALUE or "\0" in value for value in request.GET.values()):
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
        return response

    def _ask(self, client: Any, scopes: list[str], credentials: dict[str, Any]) -> HttpResponseBase:
        sent_to = credentials["redirect_uri"]
        context = {
            "name": plain_name(client.name),
            "receiver": receiver_of(sent_to),
            "scopes": [(scope, MEANINGS[TokenScope(scope)]) for scope in scopes if not _is_included(scope, scopes)],
        }
        page = render(self.request, "agent_tools/authorize.html", context)
        # A browser applies the policy to all redirects of a form, and the client may redirect further.
        schemes = sorted({"https:", f"{sent_to.partition(':')[0]}:"})
        return csp_update({"form-action": schemes})(lambda _: page)(self.request)

    def _decide(self, client: Any, scopes: list[str], credentials: dict[str, Any]) -> HttpResponse:
        chosen = self.request.POST.getlist("scopes")
        agreed = [scope for scope in scopes if scope in chosen or _is_included(scope, chosen)]
        uri, *_ = self.create_authorization_response(
            request=self.request,
            scopes=" ".join(agreed),
            credentials=credentials,
            allow="allow" in self.request.POST and bool(agreed),
        )
        sessions.note_made(person_of(self.request), sessions.made(AGENT_MADE, client.pk))
        answered: HttpResponse = self.redirect(uri, client)
        return answered


def _is_included(scope: str, scopes: list[str]) -> bool:
    """An agent that may search may also read, so the page does not ask for that."""
    return scope == TokenScope.READ and TokenScope.SEARCH in scopes


def _check(request: HttpRequest, credentials: dict[str, Any]) -> None:
    """Requires PKCE by S256, and a token for this endpoint only (RFC 8707). Adds the endpoint to the credentials."""
    state, address = credentials.get("state"), credentials["redirect_uri"]
    if credentials.get("code_challenge_method") != "S256":
        wrong = InvalidRequestError(description="Use PKCE with code_challenge_method=S256.", state=state)
        raise OAuthToolkitError(error=wrong, redirect_uri=address)
    named = [each for each in request.GET.getlist("resource") if each.strip()]
    if len(named) > MOST_RESOURCES or not all(is_resource(each, resource_of(request)) for each in named):
        sentence = f"Tokens are issued for {resource_of(request)} alone."
        wrong = CustomOAuth2Error(error="invalid_target", description=sentence, state=state)
        raise OAuthToolkitError(error=wrong, redirect_uri=address)
    credentials["resource"] = [resource_of(request)]
