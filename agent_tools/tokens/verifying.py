"""The one place that turns a presented secret into a caller, or says why not."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

from django.db import connection
from django.db.models import Q
from knox.crypto import hash_token

from agent_tools.models import AccessToken
from agent_tools.scopes import ALL_SCOPES, Scope
from core.db.statements import fetch
from core.errors import AuthenticationRequired
from intake.models import User

SCHEMES = ("bearer", "token")
LONGEST_SECRET = 256
USE_NOTED_EVERY = timedelta(minutes=1)

# Every call of an agent begins here, and to have this written and its row read by the ORM takes longer than to ask it.
# No call asks for some of its owner's fields, and each takes time; their password is best left where it is, too. A time
# comes in seconds since 1970: psycopg reads a date and a time of day in Python.
_NOT_ASKED_FOR = {"password", "last_login", "joined_at"}
_OF_OWNER = [field.attname for field in User._meta.concrete_fields if field.attname not in _NOT_ASKED_FOR]
_OWNER = f"""
SELECT {", ".join(f"users.{column}" for column in _OF_OWNER)}, token.scopes,
       date_part('epoch', token.expiry), date_part('epoch', token.last_used_at)
  FROM access_tokens AS token JOIN users ON users.id = token.user_id
 WHERE token.digest = %(digest)s
"""  # noqa: S608


class Refusal(StrEnum):
    """A token that was revoked is gone, and so looks like one that never was."""

    MISSING = "Send a token: `Authorization: Bearer <token>`."
    MALFORMED = "The Authorization header is malformed. Send `Authorization: Bearer <token>`."
    UNKNOWN = "The token is not known. It may have been revoked."
    EXPIRED = "The token has expired. Make a new one."
    DEACTIVATED = "The account is deactivated."


class TokenRefused(AuthenticationRequired):
    def __init__(self, reason: Refusal) -> None:
        super().__init__(reason.value)
        self.reason = reason


@dataclass(frozen=True, slots=True)
class TokenCaller:
    """Whom a token stands for, and what it may do. `digest` is the token's key in the database, never the token."""

    user: User
    scopes: frozenset[Scope]
    digest: str

    def is_still_valid(self, *, now: datetime) -> bool:
        return is_still_valid(self.digest, now=now)


def secret_in(header: str | None) -> str | None:
    """The secret in an `Authorization` header; None when there is none, or another scheme's.

    Nothing else is looked at: an address ends up in logs and histories, so a token in one is no token.
    """
    scheme, _, rest = (header or "").strip().partition(" ")
    if scheme.lower() not in SCHEMES:
        return None
    secret = rest.strip()
    if not _is_well_formed(secret):
        raise TokenRefused(Refusal.MALFORMED)
    return secret


def verify(secret: str | None, *, now: datetime) -> TokenCaller:
    """The caller a secret stands for; raises `TokenRefused`."""
    return holder_of(digest_of(secret), now=now)


def digest_of(secret: str | None) -> str:
    """A token's key in the database; raises `TokenRefused` for what cannot be a token's secret."""
    if not secret:
        raise TokenRefused(Refusal.MISSING)
    if not _is_well_formed(secret):
        raise TokenRefused(Refusal.MALFORMED)
    # Found by a digest of all of it: the time it takes says nothing about how much of a guess was right.
    digest: str = hash_token(secret)
    return digest


def holder_of(digest: str, *, now: datetime) -> TokenCaller:
    """The caller of a token with this digest; raises `TokenRefused`."""
    rows = fetch(_OWNER, {"digest": digest})
    if not rows:
        raise TokenRefused(Refusal.UNKNOWN)
    *of_owner, granted, expiry, last_used_at = rows[0]
    if expiry is not None and expiry <= now.timestamp():
        raise TokenRefused(Refusal.EXPIRED)
    owner = User.from_db(connection.alias, _OF_OWNER, of_owner)
    if not owner.is_active:
        raise TokenRefused(Refusal.DEACTIVATED)
    if last_used_at is None or last_used_at < (now - USE_NOTED_EVERY).timestamp():
        AccessToken.objects.filter(digest=digest).update(last_used_at=now)
    scopes = frozenset(scope for scope in ALL_SCOPES if scope in granted)
    return TokenCaller(user=owner, scopes=scopes, digest=digest)


def is_still_valid(digest: str, *, now: datetime) -> bool:
    """For what outlasts its first check: a stream, a session over pipes."""
    unexpired = Q(expiry=None) | Q(expiry__gt=now)
    is_good: bool = AccessToken.objects.filter(unexpired, digest=digest, user__is_active=True).exists()
    return is_good


def _is_well_formed(secret: str) -> bool:
    return 0 < len(secret) <= LONGEST_SECRET and secret.isascii() and secret.isprintable() and " " not in secret
