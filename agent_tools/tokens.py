"""Creates, lists and revokes a user's own tokens."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from uuid import UUID

from django.conf import settings
from django.utils import timezone

from agent_tools.models import AccessToken
from agent_tools.scopes import DEFAULT_SCOPES, TokenScope
from core.errors import InvalidInput, NotFound
from core.ids import parse_id
from intake.accounts import activity, sessions
from intake.models import Activity, User

LONGEST_DAYS: int = settings.TOKEN_DAYS_MOST
DEFAULT_DAYS: int = min(settings.TOKEN_DAYS, LONGEST_DAYS)
LONGEST_NAME = 80
MOST_TOKENS = 100
# The kind of a token among the access that a session made (`intake.accounts.sessions.made`).
TOKEN_MADE = "token"  # noqa: S105 - a kind's name


@dataclass(frozen=True, slots=True)
class TokenInfo:
    """The data of a token that may be shown, without the token itself."""

    id: UUID
    name: str
    scopes: tuple[TokenScope, ...]
    created_at: datetime
    expires_at: datetime | None
    last_used_at: datetime | None
    last_used_from: str


@dataclass(frozen=True, slots=True)
class NewToken:
    info: TokenInfo
    secret: str


def create_token(
    *, user: User, name: str = "", scopes: Iterable[TokenScope] = DEFAULT_SCOPES, days: int = DEFAULT_DAYS
) -> NewToken:
    """Create a token; only the return value contains the secret.

    Raises `InvalidInput` naming the wrong field.
    """
    name = " ".join(name.replace("\x00", "").split())
    wanted = sorted(set(scopes))
    _validate(name, wanted, days)
    if AccessToken.objects.filter(user=user).count() >= MOST_TOKENS:
        raise InvalidInput(f"There are {MOST_TOKENS} tokens already. Revoke one that is no longer used.")
    expiry = timezone.now() + timedelta(days=days)
    token, secret = AccessToken.objects.issue(user=user, name=name, scopes=list(wanted), expiry=expiry)
    activity.note(user, Activity.TOKEN_MADE)
    sessions.note_made(user, sessions.made(TOKEN_MADE, token.public_id))
    return NewToken(info=_info(token), secret=secret)


def list_tokens(*, user: User) -> list[TokenInfo]:
    """The user's tokens, the newest first, expired ones included."""
    return [_info(token) for token in AccessToken.objects.filter(user=user).order_by("-created", "-public_id")]


def revoke_token(*, user: User, token_id: str) -> None:
    """Raises the same `NotFound` for a malformed id, an unknown one and another user's."""
    deleted, _ = AccessToken.objects.filter(user=user, public_id=parse_id(token_id)).delete()
    if not deleted:
        raise NotFound
    activity.note(user, Activity.TOKEN_REVOKED)


def _validate(name: str, scopes: list[TokenScope], days: int) -> None:
    if len(name) > LONGEST_NAME:
        raise InvalidInput(errors={"name": [f"At most {LONGEST_NAME} characters."]})
    if not scopes:
        raise InvalidInput(errors={"scopes": ["Choose what the token may do."]})
    if not 1 <= days <= LONGEST_DAYS:
        raise InvalidInput(errors={"expiresInDays": [f"From 1 to {LONGEST_DAYS} days."]})


def _info(token: AccessToken) -> TokenInfo:
    return TokenInfo(
        id=token.public_id,
        name=token.name,
        scopes=tuple(TokenScope(scope) for scope in token.scopes),
        created_at=token.created,
        expires_at=token.expiry,
        last_used_at=token.last_used_at,
        last_used_from=token.last_used_from,
    )
