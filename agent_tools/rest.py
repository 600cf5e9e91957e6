"""The API of tools, in this API's own format and in the function-calling formats of vendors.

`GET /api/v1/tools/` lists the tools, `POST /api/v1/tools/{name}/` calls one with the body as its input.
"""

from collections.abc import Callable
from typing import Annotated, Any, Literal

from django.http import HttpResponse
from django.utils import timezone
from drf_spectacular.utils import OpenApiParameter, extend_schema, extend_schema_view
from pydantic import BaseModel, Field
from pydantic.alias_generators import to_camel
from rest_framework.decorators import action
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.viewsets import ViewSet

from agent_tools.models import TokenScope
from agent_tools.registry import Tool
from agent_tools.tools import registry
from core.errors import InvalidInput, NotFound
from core.isolation.acting import Caller, acting_as
from core.responses import A_KEY, KEY_SCHEMA, problems
from core.validation import Output
from intake.accounts.identity import may_read, person_of
from intake.chats import idempotency
from intake.models import User

AnyTool = Tool[Any, Any]


class ToolDescription(Output):
    """A tool as its callers see it."""

    name: str
    description: Annotated[str, Field(description="When to use it, and how to read what it gives.")]
    read_only: Annotated[
        bool, Field(validation_alias="is_read_only", description="Whether a call leaves everything as it was.")
    ]
    scope: Annotated[Literal["search", "read", "write"], Field(description="What a token needs for a call.")]
    input_schema: Annotated[dict[str, Any], Field(description="JSON Schema of the body.")]
    output_schema: Annotated[dict[str, Any], Field(description="JSON Schema of the answer.")]


class ToolList(BaseModel):
    """In a vendor's format each tool is an element of `tools` in a request to its API."""

    tools: list[ToolDescription] | list[dict[str, Any]]


def _function(tool: AnyTool, *, schema: str) -> dict[str, Any]:
    return {"name": tool.name, "description": tool.description, schema: tool.input_schema}


FORMATS: dict[str, Callable[[AnyTool], dict[str, Any]]] = {
    "own": lambda tool: ToolDescription.model_validate(tool).model_dump(mode="json", by_alias=True),
    "openai": lambda tool: {"type": "function", "function": _function(tool, schema="parameters")},
    "openai-responses": lambda tool: {"type": "function", **_function(tool, schema="parameters")},
    "anthropic": lambda tool: _function(tool, schema="input_schema"),
    "gemini": lambda tool: _function(tool, schema="parametersJsonSchema"),
}


def format_named(name: str) -> Callable[[AnyTool], dict[str, Any]]:
    """Raises `InvalidInput` for an unknown format."""
    if name not in FORMATS:
        choices = f"Must be one of: {', '.join(FORMATS)}."
        raise InvalidInput("There is no such format.", errors={"format": [choices]})
    return FORMATS[name]


# As in the request: `request.headers` would build a mapping of all headers for each request.
_KEY = f"HTTP_{idempotency.HEADER.upper().replace('-', '_')}"

FORMAT = OpenApiParameter(
    "format",
    enum=list(FORMATS),
    description="In whose words: this API's own (the default), or as the `tools` of a request to OpenAI's Chat "
    "Completions or Responses, or Anthropic's Messages, or as the `functionDeclarations` of one to Gemini.",
)
KEY = OpenApiParameter(
    idempotency.HEADER,
    KEY_SCHEMA,
    location=OpenApiParameter.HEADER,
    description=f"{A_KEY}: the same request sent again with it within 24 hours stores nothing twice and gets the same "
    f"answer, marked `{idempotency.REPLAYED}: true`.",
)


class ToolViewSet(ViewSet):
    # The tool of a call; None for the list, and for a name that no tool has.
    tool: AnyTool | None = None
    required_scope: TokenScope | None = None
    takes_bound = ("GET", "POST")

    @extend_schema(
        operation_id="list_tools",
        summary="The tools there are",
        parameters=[FORMAT],
        responses={200: ToolList, **problems(400, 401, 429, 503)},
    )
    # Not `list`: the schema would take it for an array.
    def look(self, request: Request) -> Response:
        described = format_named(request.query_params.get("format", "own"))
        return Response({"tools": [described(tool) for tool in registry]})

    # `extend_schema_view` looks only for marked actions.
    @action(detail=False, methods=["post"])
    def call(self, request: Request, name: str = "") -> HttpResponse:
        """Authenticates first: without credentials, a missing tool looks like any other."""
        user, reads, tool = person_of(request), may_read(request), self.tool
        if tool is None:
            raise NotFound
        key = request.META.get(_KEY)
        if not tool.is_read_only and key is not None:
            return _call_once(tool, idempotency.clean_key(key), request.data, user=user, reads=reads)
        # Written by pydantic directly, and not by DRF from pydantic's result.
        output = tool.call(request.data, user=user, may_read=reads)
        if tool.note is not None:
            tool.note(output, request.data, request.auth, timezone.now())
        return HttpResponse(output.as_json(), content_type="application/json")


def viewset_of(tool: AnyTool) -> type[ToolViewSet]:
    """The viewset with one tool's input and output in the OpenAPI document, under the tool's own path."""
    conflicts = () if tool.is_read_only else (409, 422)
    described = extend_schema_view(
        call=extend_schema(
            operation_id=tool.name,
            summary=tool.name,
            description=tool.description,
            parameters=[] if tool.is_read_only else [KEY],
            request=tool.input_model,
            responses={200: tool.output_model, **problems(400, 413, 415, 401, 403, 404, *conflicts, 429, 500, 503)},
        )
    )
    attributes = {"tool": tool, "required_scope": tool.scope}
    return described(type(f"{to_camel(tool.name)}ViewSet", (ToolViewSet,), attributes))


def _call_once(tool: AnyTool, key: str, data: Any, *, user: User, reads: bool) -> Response:
    with acting_as(user):
        kept, is_replay = idempotency.once(
            caller=Caller(user_id=user.pk),
            key=key,
            # A token that may not read must not get the kept response of one that may.
            operation=tool.name if reads else f"{tool.name} by a writer",
            data=data,
            run=lambda: tool.call(data, user=user, may_read=reads).as_data(),
            now=timezone.now(),
        )
    return Response(kept, headers={idempotency.REPLAYED: "true"} if is_replay else None)
