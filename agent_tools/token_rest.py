"""`/api/v1/tokens/`: a user's own tokens, only for sessions: a token can neither create nor revoke tokens."""

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel
from rest_framework.authentication import SessionAuthentication
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from agent_tools import authentication
from agent_tools.authentication import (
    LONGEST_DAYS,
    LONGEST_NAME,
    OAUTH,
    AccessTokenAuthentication,
    TokenCaller,
    TokenMade,
    TokenShown,
)
from agent_tools.models import DEFAULT_SCOPES, Keeps, TokenScope
from core.errors import InsufficientScope
from core.text import LONGEST_PROJECT
from core.validation import Input, PlainText
from intake.accounts.proofs import refuse_without_recent_proof
from intake.models import User
from intake.operations import Operations


class TokenWanted(Input):
    """The body that asks for a token."""

    model_config = ConfigDict(alias_generator=to_camel)

    name: Annotated[str, Field(max_length=LONGEST_NAME, description="What it is for, so that you know it again.")] = ""
    scopes: Annotated[
        list[TokenScope],
        Field(
            min_length=1,
            # Each may be named more than once.
            max_length=20,
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
    keeps: Annotated[
        Keeps,
        Field(
            description="What is kept of the requests of other programs (`/v1`): `chats`, also those of agents with "
            "tools (`everything`), or `nothing`."
        ),
    ] = Keeps.CHATS


class TokenList(BaseModel):
    tokens: list[TokenShown]


class TokenView(APIView):
    authentication_classes = [AccessTokenAuthentication, SessionAuthentication]
    required_scope = None
    makes_tokens = True

    def initial(self, request: Request, *args: object, **kwargs: object) -> None:
        super().initial(request, *args, **kwargs)
        # Not for a command line that OAuth let in to make its own token: no other OAuth token gets here.
        if isinstance(request.auth, TokenCaller) and not request.auth.digest.startswith(OAUTH):
            raise InsufficientScope("A token cannot manage tokens. Log in to do that.")


api = Operations(TokenView, is_bound=False)


@api("get", "tokens/", TokenList, fails=[403, 429])
def list_tokens(user: User) -> TokenList:
    """Your tokens"""
    return TokenList(tokens=authentication.list_tokens(user=user))


# For a command line whose user bound it to a project; its token is then bound too.
@api("post", "tokens/", TokenMade, status=201, is_bound=True)
def create_token(request: Request, user: User, body: TokenWanted) -> Response:
    """Make a token"""
    refuse_without_recent_proof(request)
    about: dict[str, Any] = {"name": body.name, "scopes": body.scopes, "days": body.expires_in_days}
    about |= {"project": body.project, "is_bound": body.bound, "keeps": body.keeps}
    if isinstance(request.auth, TokenCaller):
        made = authentication.create_machine_token(caller=request.auth, **about)
    else:
        made = authentication.create_token(user=user, **about)
    data = made.model_dump(mode="json", by_alias=True)
    return Response(data, status=201, headers={"Cache-Control": "no-store"})


@api("delete", "tokens/<str:token_id>/", status=204)
def revoke_token(user: User, token_id: str) -> None:
    """Revoke a token"""
    authentication.revoke_token(user=user, token_id=token_id)
