"""The DRF edge: `GET /api/v1/tools/` lists the tools, `POST /api/v1/tools/{name}/` calls one with the body as input."""

from typing import Annotated, Any

from django.urls import URLPattern, path
from drf_spectacular.utils import extend_schema
from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.viewsets import ViewSet

from agent_tools.registry import Tool, as_data
from agent_tools.tools import registry
from intake.errors import NotFound
from intake.models import User
from intake.schemas import problems

UNUSABLE_INPUT = (400, 413, 415)


class ToolDescription(BaseModel):
    """A tool as its callers see it."""

    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True)

    name: str
    description: Annotated[str, Field(description="When to use it, and how to read what it gives.")]
    is_read_only: Annotated[bool, Field(alias="readOnly", description="Whether a call leaves everything as it was.")]
    input_schema: Annotated[dict[str, Any], Field(description="JSON Schema of the body.")]
    output_schema: Annotated[dict[str, Any], Field(description="JSON Schema of the answer.")]


class ToolList(BaseModel):
    tools: list[ToolDescription]


class ToolListViewSet(ViewSet):
    @extend_schema(
        operation_id="list_tools", summary="The tools there are", responses={200: ToolList, **problems(401, 503)}
    )
    def list(self, request: Request) -> Response:
        return Response(as_data(ToolList(tools=[describe(tool) for tool in registry])))


class UnknownToolViewSet(ViewSet):
    """Authenticates first: to somebody without credentials a missing tool looks like any other."""

    @extend_schema(exclude=True)
    def call(self, request: Request, name: str) -> Response:
        raise NotFound


def viewset_of(tool: Tool[Any, Any]) -> type[ViewSet]:
    """A viewset for one tool, so that the OpenAPI document has its input and output under its own path."""

    @extend_schema(
        operation_id=tool.name,
        summary=tool.name,
        description=tool.description,
        request=tool.input_model,
        responses={200: tool.output_model, **problems(*UNUSABLE_INPUT, 401, 500, 503)},
    )
    def call(self: ViewSet, request: Request) -> Response:
        user = request.user
        assert isinstance(user, User), "the permission classes let nobody else in"  # noqa: S101
        return Response(as_data(tool.call(request.data, user=user)))

    return type(f"{to_camel(tool.name)}ViewSet", (ViewSet,), {"call": call, "__doc__": tool.description})


def describe(tool: Tool[Any, Any]) -> ToolDescription:
    return ToolDescription(
        name=tool.name,
        description=tool.description,
        is_read_only=tool.is_read_only,
        input_schema=tool.input_schema,
        output_schema=tool.output_schema,
    )


def tool_urls() -> list[URLPattern]:
    named = [path(f"tools/{tool.name}/", viewset_of(tool).as_view({"post": "call"})) for tool in registry]
    return [
        path("tools/", ToolListViewSet.as_view({"get": "list"})),
        *named,
        path("tools/<str:name>/", UnknownToolViewSet.as_view({"post": "call"})),
    ]
