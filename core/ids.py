"""Identifiers for rows that people link to: unguessable, and in the order they were made."""

import uuid

import uuid_utils.compat


def uuid7() -> uuid.UUID:
    """A version 7 UUID (RFC 9562), which is later than every one that this process made before."""
    return uuid_utils.compat.uuid7()
