"""The metadata documents that tell an agent where to register, authorize and exchange (RFC 9728, RFC 8414)."""

from typing import Any

from django.http import HttpRequest
from oauth2_provider.views import OAuthProtectedResourceMetadataView, OAuthServerMetadataView

from agent_tools.oauth.addresses import final_slash_of, origin_of, resource_of


class ResourceMetadataView(OAuthProtectedResourceMetadataView):  # type: ignore[misc]
    """Under the endpoint's own path, and at the root for clients that look only there."""

    def get_resource(self, request: HttpRequest) -> str:
        # A client compares it with the address that it was configured with (RFC 9728, section 3.3).
        return f"{resource_of(request)}{final_slash_of(request)}"

    def get_authorization_servers(self, request: HttpRequest) -> list[str]:
        return [origin_of(request)]

    def get_resource_documentation(self) -> str:
        return str(self.request.build_absolute_uri("/settings/tokens/"))


class ServerMetadataView(OAuthServerMetadataView):  # type: ignore[misc]
    """The toolkit's view, only at the root: the issuer is the origin."""

    def get(self, request: HttpRequest, *args: Any, **kwargs: Any) -> Any:
        return super().get(request)
