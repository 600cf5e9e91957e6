"""Makes identifiers for rows that users link to: unguessable, and in order of creation."""

import uuid

import uuid_utils.compat

from core.errors import NotFound


def uuid7() -> uuid.UUID:
    """A version 7 UUID (RFC 9562), which is later than every one that this process made before."""
    return uuid_utils.compat.uuid7()


def parse_id(text: str) -> uuid.UUID:
    """Raises `NotFound`: a malformed id gets the same answer as one that does not exist."""
    try:
        return uuid.UUID(text)
    except ValueError:
        raise NotFound from None
