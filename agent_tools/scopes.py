"""What a token may be allowed: to read memory, to write to it."""

from enum import StrEnum


class TokenScope(StrEnum):
    SEARCH = "search"
    WRITE = "write"


ALL_SCOPES = frozenset(TokenScope)
