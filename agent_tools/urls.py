"""The addresses of tools under `/api/v1/`."""

from django.urls import URLPattern, path

from agent_tools.rest import ToolViewSet, viewset_of
from agent_tools.tools import registry


def tool_urls() -> list[URLPattern]:
    named = [
        path(f"tools/{tool.name}/", viewset_of(tool).as_view({"post": "call"}), name=tool.name) for tool in registry
    ]
    return [
        path("tools/", ToolViewSet.as_view({"get": "look"}), name="tools"),
        *named,
        # An unknown tool, which the OpenAPI document does not list.
        path("tools/<str:name>/", ToolViewSet.as_view({"post": "call"}, schema=None)),
    ]
