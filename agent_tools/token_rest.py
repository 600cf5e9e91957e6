"""`/api/v1/tokens/`: a user's own tokens, only for sessions: a token can neither create nor revoke tokens."""

from typing import Annotated, Any

from drf_spectacular.utils import extend_schema
from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel
from rest_framework.authentication import SessionAuthentication
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.viewsets import ViewSet

from agent_tools.authentication import (
    LONGEST_DAYS,
    LONGEST_NAME,
    OAUTH,
    AccessTokenAuthentication,
    TokenCaller,
    TokenMade,
    TokenShown,
    create_machine_token,
    create_token,
    list_tokens,
    revoke_token,
)
from agent_tools.models import DEFAULT_SCOPES, TokenScope
from core.errors import InsufficientScope
from core.responses import problems
from core.text import LONGEST_PROJECT
from core.validation import Input, PlainText, validate
from intake.accounts.identity import person_of
from intake.accounts.sessions import refuse_without_recent_proof

# Each may be named more than once.
MOST_SCOPES = 20


class TokenWanted(Input):
    """The body that asks for a token."""

    model_config = ConfigDict(alias_generator=to_camel)

    name: Annotated[str, Field(max_length=LONGEST_NAME, description="What it is for, so that you know it again.")] = ""
    scopes: Annotated[
        list[TokenScope],
        Field(
            min_length=1,
            max_length=MOST_SCOPES,
            description="What it may do: `search` finds and reads, `read` reads only what is named, `write` adds and "
            "changes, `delete` deletes, `chat` talks with the assistant, `import` imports, `capture` appends to an "
            "agent's session and reads nothing.",
        ),
    ] = sorted(DEFAULT_SCOPES)
    expires_in_days: Annotated[int, Field(ge=1, le=LONGEST_DAYS, description="How long it is good for.")] = LONGEST_DAYS
    project: Annotated[
        PlainText, Field(max_length=LONGEST_PROJECT, description="To which belongs what it appends; empty for none.")
    ] = ""
    bound: Annotated[
        bool,
        Field(
            description="Whether it sees nothing but this project: its chats, their files, its records and documents, "
            "over REST, MCP and in the chat."
        ),
    ] = False


class TokenList(BaseModel):
    tokens: list[TokenShown]


class TokenViewSet(ViewSet):
    authentication_classes = [AccessTokenAuthentication, SessionAuthentication]
    required_scope = None
    makes_tokens = True
    # For a command line whose user bound it to a project; its token is then bound too.
    takes_bound = ("POST",)

    def initial(self, request: Request, *args: object, **kwargs: object) -> None:
        super().initial(request, *args, **kwargs)
        if isinstance(request.auth, TokenCaller) and not _is_machine(request.auth):
            raise InsufficientScope("A token cannot manage tokens. Log in to do that.")

    @extend_schema(
        operation_id="list_tokens", summary="Your tokens", responses={200: TokenList, **problems(401, 403, 429, 503)}
    )
    # Not `list`: the schema would take it for an array.
    def look(self, request: Request) -> Response:
        return Response(TokenList(tokens=list_tokens(user=person_of(request))).model_dump(mode="json", by_alias=True))

    @extend_schema(
        operation_id="create_token",
        summary="Make a token",
        request=TokenWanted,
        responses={201: TokenMade, **problems(400, 401, 403, 413, 415, 429, 503)},
    )
    def create(self, request: Request) -> Response:
        refuse_without_recent_proof(request)
        requested = validate(TokenWanted, request.data)
        about: dict[str, Any] = {"name": requested.name, "scopes": requested.scopes, "days": requested.expires_in_days}
        about |= {"project": requested.project, "is_bound": requested.bound}
        if isinstance(request.auth, TokenCaller):
            made = create_machine_token(caller=request.auth, **about)
        else:
            made = create_token(user=person_of(request), **about)
        data = made.model_dump(mode="json", by_alias=True)
        return Response(data, status=201, headers={"Cache-Control": "no-store"})

    @extend_schema(
        operation_id="revoke_token",
        summary="Revoke a token",
        responses={204: None, **problems(401, 403, 404, 429, 503)},
    )
    def destroy(self, request: Request, token_id: str) -> Response:
        revoke_token(user=person_of(request), token_id=token_id)
        return Response(status=204)


def _is_machine(caller: TokenCaller) -> bool:
    """Whether it is a command line that OAuth let in to make its own token: no other OAuth token gets here."""
    return caller.digest.startswith(OAUTH)
