"""What a token may be allowed: to read memory, to write to it, to bring a history along."""

from enum import StrEnum


class TokenScope(StrEnum):
    SEARCH = "search"
    WRITE = "write"
    IMPORT = "import"


ALL_SCOPES = frozenset(TokenScope)
# What an agent needs: of a token that nobody says more about.
DEFAULT_SCOPES = frozenset({TokenScope.SEARCH, TokenScope.WRITE})
