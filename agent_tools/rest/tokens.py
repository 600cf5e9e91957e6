"""`/api/v1/tokens/`: a user's own tokens, only for sessions: a token can neither create nor revoke tokens."""

from datetime import datetime
from typing import Annotated
from uuid import UUID

from drf_spectacular.utils import extend_schema
from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel
from rest_framework.authentication import SessionAuthentication
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.viewsets import ViewSet

from agent_tools.authentication import AccessTokenAuthentication, TokenCaller
from agent_tools.scopes import DEFAULT_SCOPES, TokenScope
from agent_tools.tokens import (
    DEFAULT_DAYS,
    LONGEST_DAYS,
    LONGEST_NAME,
    TokenInfo,
    create_token,
    list_tokens,
    revoke_token,
)
from core.errors import InsufficientScope
from core.validation import Input, validate
from intake.accounts.proof import refuse_without_recent_proof
from intake.identity import person_of
from intake.schemas import problems

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
            "changes, `delete` deletes, `chat` talks with the assistant, `import` imports.",
        ),
    ] = sorted(DEFAULT_SCOPES)
    expires_in_days: Annotated[int, Field(ge=1, le=LONGEST_DAYS, description="How long it is good for.")] = DEFAULT_DAYS


class TokenShown(BaseModel):
    """A token without its secret."""

    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True)

    id: UUID
    name: str
    scopes: list[TokenScope]
    created_at: datetime
    expires_at: datetime | None
    last_used_at: Annotated[datetime | None, Field(description="To the minute; null if never.")]
    last_used_from: Annotated[str, Field(description="The network it was used from; empty if never.")]


class TokenMade(TokenShown):
    token: Annotated[str, Field(description="The secret: it is told once, here, and kept by nobody.")]


class TokenList(BaseModel):
    tokens: list[TokenShown]


class _OwnersOnly(ViewSet):
    authentication_classes = [AccessTokenAuthentication, SessionAuthentication]
    required_scope = None

    def initial(self, request: Request, *args: object, **kwargs: object) -> None:
        super().initial(request, *args, **kwargs)
        if isinstance(request.auth, TokenCaller):
            raise InsufficientScope("A token cannot manage tokens. Log in to do that.")


class TokenListViewSet(_OwnersOnly):
    @extend_schema(
        operation_id="list_tokens", summary="Your tokens", responses={200: TokenList, **problems(401, 403, 429, 503)}
    )
    # Not `list`: the schema would take it for an array.
    def look(self, request: Request) -> Response:
        tokens = [_shown(info).model_dump(mode="json", by_alias=True) for info in list_tokens(user=person_of(request))]
        return Response({"tokens": tokens})

    @extend_schema(
        operation_id="create_token",
        summary="Make a token",
        request=TokenWanted,
        responses={201: TokenMade, **problems(400, 401, 403, 413, 415, 429, 503)},
    )
    def create(self, request: Request) -> Response:
        refuse_without_recent_proof(request)
        wanted = validate(TokenWanted, request.data)
        made = create_token(
            user=person_of(request), name=wanted.name, scopes=wanted.scopes, days=wanted.expires_in_days
        )
        body = TokenMade(**_shown(made.info).model_dump(), token=made.secret)
        data = body.model_dump(mode="json", by_alias=True)
        return Response(data, status=201, headers={"Cache-Control": "no-store"})


class TokenViewSet(_OwnersOnly):
    @extend_schema(
        operation_id="revoke_token",
        summary="Revoke a token",
        responses={204: None, **problems(401, 403, 404, 429, 503)},
    )
    def destroy(self, request: Request, token_id: str) -> Response:
        revoke_token(user=person_of(request), token_id=token_id)
        return Response(status=204)


def _shown(info: TokenInfo) -> TokenShown:
    return TokenShown(
        id=info.id,
        name=info.name,
        scopes=list(info.scopes),
        created_at=info.created_at,
        expires_at=info.expires_at,
        last_used_at=info.last_used_at,
        last_used_from=info.last_used_from,
    )
