"""The addresses of OAuth, with the names that the toolkit's metadata use."""

from django.urls import path

from agent_tools.oauth.clients import RegisterClientView
from agent_tools.oauth.views import AuthorizeView, ExchangeView, GiveBackView, ResourceMetadataView, ServerMetadataView

app_name = "oauth2_provider"

urlpatterns = [
    path(".well-known/oauth-protected-resource/mcp", ResourceMetadataView.as_view(), name="oauth-resource-metadata"),
    path(".well-known/oauth-protected-resource/mcp/", ResourceMetadataView.as_view()),
    path(".well-known/oauth-protected-resource", ResourceMetadataView.as_view()),
    path(".well-known/oauth-authorization-server", ServerMetadataView.as_view(), name="oauth-server-metadata"),
    path("oauth/authorize/", AuthorizeView.as_view(), name="authorize"),
    path("oauth/token/", ExchangeView.as_view(), name="token"),
    path("oauth/revoke/", GiveBackView.as_view(), name="revoke-token"),
    path("oauth/register/", RegisterClientView.as_view(), name="dcr-register"),
]
