"""The documents by which an agent finds out where to register, to ask and to exchange (RFC 9728, RFC 8414)."""

from typing import Any

from django.http import HttpRequest
from oauth2_provider.views import OAuthProtectedResourceMetadataView, OAuthServerMetadataView

from agent_tools.oauth.addresses import origin_of, resource_of


class ResourceMetadataView(OAuthProtectedResourceMetadataView):  # type: ignore[misc]
    """Under the endpoint's own path, and at the root for clients that look only there."""

    def get_resource(self, request: HttpRequest) -> str:
        return resource_of(request)

    def get_authorization_servers(self, request: HttpRequest) -> list[str]:
        return [origin_of(request)]

    def get_resource_documentation(self) -> str:
        return str(self.request.build_absolute_uri("/settings/tokens/"))


class ServerMetadataView(OAuthServerMetadataView):  # type: ignore[misc]
    """The toolkit's, at the root alone: the issuer is the origin."""

    def get(self, request: HttpRequest, *args: Any, **kwargs: Any) -> Any:
        return super().get(request)
