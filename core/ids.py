"""Identifiers for rows that people link to: unguessable, and in the order they were made."""

import os
import time
import uuid


def uuid7() -> uuid.UUID:
    """A version 7 UUID (RFC 9562, section 5.7): 48 bits of Unix milliseconds, then 74 random bits."""
    milliseconds = time.time_ns() // 1_000_000
    random_bits = int.from_bytes(os.urandom(10))
    value = (milliseconds & (2**48 - 1)) << 80
    value |= 0x7 << 76
    value |= (random_bits >> 68) << 64
    value |= 0b10 << 62
    value |= random_bits & (2**62 - 1)
    return uuid.UUID(int=value)
