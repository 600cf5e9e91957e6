"""Makes identifiers for rows that users link to: unguessable, and in order of creation. And one code."""

import base64
import hashlib
import hmac
import secrets
import uuid
from datetime import UTC, datetime, timedelta
from typing import TypeVar

import uuid_utils.compat

from core.errors import NotFound

Row = TypeVar("Row")

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_BELOW_THE_TIME = 80


def uuid7() -> uuid.UUID:
    """A version 7 UUID (RFC 9562), which is later than every one that this process made before."""
    return uuid_utils.compat.uuid7()


def first_id_of(moment: datetime) -> uuid.UUID:
    """A version 7 UUID before all that are made at this moment or later."""
    milliseconds = (moment - _EPOCH) // timedelta(milliseconds=1)
    return uuid.UUID(int=milliseconds << _BELOW_THE_TIME | 7 << 76 | 2 << 62)


def id_at(moment: datetime) -> uuid.UUID:
    """A version 7 UUID of another time, for what is older than its row."""
    return uuid.UUID(int=first_id_of(moment).int | secrets.randbits(62))


def time_of_id(id_: uuid.UUID) -> datetime:
    """When a version 7 UUID was made, to the millisecond."""
    return _EPOCH + timedelta(milliseconds=id_.int >> _BELOW_THE_TIME)


def parse_id(text: str) -> uuid.UUID:
    """Raises `NotFound`: a malformed id gets the same answer as one that does not exist."""
    try:
        return uuid.UUID(text)
    except ValueError:
        raise NotFound from None


def first_code(secret_key: str) -> str:
    """The code that the first person of an installation enters, such as `4PQ7-ZK2M-XW5D`: 60 bits, nowhere stored."""
    digest = hmac.digest(secret_key.encode(), b"recollect: first person", hashlib.sha256)
    letters = base64.b32encode(digest).decode()
    return "-".join(letters[start : start + 4] for start in (0, 4, 8))


def required(row: Row | None) -> Row:
    """The row of an id. Raises `NotFound` if there is none, as `parse_id` does."""
    if row is None:
        raise NotFound
    return row
