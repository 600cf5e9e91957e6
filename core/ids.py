"""Identifiers for rows that people link to: unguessable, and in the order they were made."""

import uuid

import uuid_utils.compat

from core.errors import NotFound


def uuid7() -> uuid.UUID:
    """A version 7 UUID (RFC 9562), which is later than every one that this process made before."""
    return uuid_utils.compat.uuid7()


def parse_id(text: str) -> uuid.UUID:
    """Raises `NotFound`: a malformed id is answered like one that does not exist."""
    try:
        return uuid.UUID(text)
    except ValueError:
        raise NotFound from None
