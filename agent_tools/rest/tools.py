"""`GET /api/v1/tools/` lists the tools, `POST /api/v1/tools/{name}/` calls one with the body as its input."""

from typing import Annotated, Any, Literal

from django.http import HttpResponse
from django.utils import timezone
from drf_spectacular.utils import OpenApiParameter, extend_schema
from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.viewsets import ViewSet

from agent_tools.registry import Tool, as_data, as_json
from agent_tools.rest.examples import examples_of
from agent_tools.shapes import SHAPES, shape_named
from agent_tools.tools import registry
from core.errors import NotFound
from core.isolation.acting import acting_as
from core.isolation.caller import Caller
from intake import idempotency
from intake.identity import may_read, person_of
from intake.schemas import A_KEY, KEY_SCHEMA, problems

UNUSABLE_INPUT = (400, 413, 415)
# As in the request: `request.headers` would build a mapping of all headers for each request.
_KEY = f"HTTP_{idempotency.HEADER.upper().replace('-', '_')}"

FORMAT = OpenApiParameter(
    "format",
    enum=list(SHAPES),
    description="In whose words: this API's own (the default), or as the `tools` of a request to OpenAI's Chat "
    "Completions or Anthropic's Messages.",
)
KEY = OpenApiParameter(
    idempotency.HEADER,
    KEY_SCHEMA,
    location=OpenApiParameter.HEADER,
    description=f"{A_KEY}: the same request sent again with it within 24 hours stores nothing twice and gets the same "
    f"answer, marked `{idempotency.REPLAYED}: true`.",
)


class ToolDescription(BaseModel):
    """A tool as its callers see it."""

    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True)

    name: str
    description: Annotated[str, Field(description="When to use it, and how to read what it gives.")]
    read_only: Annotated[bool, Field(description="Whether a call leaves everything as it was.")]
    scope: Annotated[Literal["search", "read", "write"], Field(description="What a token needs for a call.")]
    input_schema: Annotated[dict[str, Any], Field(description="JSON Schema of the body.")]
    output_schema: Annotated[dict[str, Any], Field(description="JSON Schema of the answer.")]


class FunctionDescription(BaseModel):
    name: str
    description: str
    parameters: Annotated[dict[str, Any], Field(description="JSON Schema of the arguments.")]


class OpenAITool(BaseModel):
    """For `?format=openai`."""

    type: Literal["function"]
    function: FunctionDescription


class AnthropicTool(BaseModel):
    """For `?format=anthropic`."""

    name: str
    description: str
    input_schema: Annotated[dict[str, Any], Field(description="JSON Schema of the input.")]


class ToolList(BaseModel):
    tools: list[ToolDescription] | list[OpenAITool] | list[AnthropicTool]


class ToolListViewSet(ViewSet):
    required_scope = None

    @extend_schema(
        operation_id="list_tools",
        summary="The tools there are",
        parameters=[FORMAT],
        responses={200: ToolList, **problems(400, 401, 429, 503)},
    )
    # Not `list`: the schema would take it for an array.
    def look(self, request: Request) -> Response:
        shape = shape_named(request.query_params.get("format"))
        return Response({"tools": [shape(tool) for tool in registry]})


class UnknownToolViewSet(ViewSet):
    """Authenticates first: without credentials, a missing tool looks like any other."""

    required_scope = None

    @extend_schema(exclude=True)
    def call(self, request: Request, name: str) -> Response:
        raise NotFound


def viewset_of(tool: Tool[Any, Any]) -> type[ViewSet]:
    """A viewset for one tool, so that the OpenAPI document has its input and output under its own path."""
    conflicts = () if tool.is_read_only else (409, 422)

    @extend_schema(
        operation_id=tool.name,
        summary=tool.name,
        description=tool.description,
        parameters=[] if tool.is_read_only else [KEY],
        request=tool.input_model,
        responses={200: tool.output_model, **problems(*UNUSABLE_INPUT, 401, 403, 404, *conflicts, 429, 500, 503)},
        examples=examples_of(tool.name),
    )
    def call(self: ViewSet, request: Request) -> HttpResponse:
        key = request.META.get(_KEY)
        if tool.is_read_only or key is None:
            # Written by pydantic directly, and not by DRF from pydantic's result.
            answer = as_json(tool.call(request.data, user=person_of(request), may_read=may_read(request)))
            return HttpResponse(answer, content_type="application/json")
        return _call_once(tool, request, idempotency.clean_key(key))

    attributes = {
        "call": call,
        "required_scope": tool.scope,
        "__doc__": tool.description,
    }
    return type(f"{to_camel(tool.name)}ViewSet", (ViewSet,), attributes)


def _call_once(tool: Tool[Any, Any], request: Request, key: str) -> Response:
    user, data, reads = person_of(request), request.data, may_read(request)
    with acting_as(user):
        kept = idempotency.once(
            caller=Caller(user_id=user.pk),
            key=key,
            # A token that may not read must not get the kept response of one that may.
            operation=tool.name if reads else f"{tool.name} by a writer",
            data=data,
            run=lambda: as_data(tool.call(data, user=user, may_read=reads)),
            now=timezone.now(),
        )
    return Response(kept.answer, headers={idempotency.REPLAYED: "true"} if kept.is_replay else None)
