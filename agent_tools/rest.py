"""The API of tools, in this API's own format and in the function-calling formats of vendors.

`GET /api/v1/tools/` lists the tools, `POST /api/v1/tools/{name}/` calls one with the body as its input.
"""

from collections.abc import Callable
from typing import Annotated, Any, Literal

from django.http import HttpResponse
from django.urls import path
from django.utils import timezone
from drf_spectacular.utils import OpenApiParameter
from pydantic import BaseModel, Field
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from agent_tools.registry import Tool
from agent_tools.tools import registry
from core.errors import InvalidInput, NotFound
from core.isolation.acting import Caller, acting_as
from core.responses import A_KEY, KEY_SCHEMA
from core.validation import Output
from intake.accounts.identity import may_read
from intake.chats import idempotency
from intake.models import User
from intake.operations import Operations

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


api = Operations(APIView)


@api("get", "tools/", ToolList, fails=[400, 429], parameters=[FORMAT], required_scope=None)
def list_tools(request: Request) -> dict[str, Any]:
    """The tools there are"""
    name = request.query_params.get("format", "own")
    if name not in FORMATS:
        choices = f"Must be one of: {', '.join(FORMATS)}."
        raise InvalidInput("There is no such format.", errors={"format": [choices]})
    return {"tools": [FORMATS[name](tool) for tool in registry]}


def _publish(tool: AnyTool) -> None:
    """Under the tool's own path, with its input and output in the OpenAPI document."""

    def call(request: Request, user: User) -> HttpResponse:
        reads, key = may_read(request), request.META.get(_KEY)
        if not tool.is_read_only and key is not None:
            return _call_once(tool, idempotency.clean_key(key), request.data, user=user, reads=reads)
        # Written by pydantic directly, and not by DRF from pydantic's result.
        output = tool.call(request.data, user=user, may_read=reads)
        if tool.note is not None:
            tool.note(output, request.data, request.auth, timezone.now())
        return HttpResponse(output.as_json(), content_type="application/json")

    call.__name__, call.__doc__ = tool.name, f"{tool.name}\n\n{tool.description}"
    api(
        "post",
        f"tools/{tool.name}/",
        tool.output_model,
        fails=[400, 413, 415, 403, 404, 429, 500, *(() if tool.is_read_only else (409, 422))],
        request=tool.input_model,
        parameters=[] if tool.is_read_only else [KEY],
        required_scope=tool.scope,
    )(call)


for each in registry:
    _publish(each)


class UnknownToolView(APIView):
    """Authenticates first: without credentials, a missing tool looks like any other."""

    schema = None
    required_scope = None
    takes_bound = ("POST",)

    def post(self, request: Request, name: str) -> HttpResponse:
        raise NotFound


# Which the OpenAPI document does not list.
urlpatterns = [*api.urlpatterns, path("tools/<str:name>/", UnknownToolView.as_view())]


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
