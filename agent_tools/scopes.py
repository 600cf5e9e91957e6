"""What a token may be allowed."""

from enum import StrEnum

from django.utils.translation import gettext_noop as _


class TokenScope(StrEnum):
    """`search` finds and reads; `read` only reads what is asked for by its address; `write` adds and changes.

    `delete` deletes and takes back; `chat` talks with the assistant, which finds, reads and adds; `import` imports.
    """

    SEARCH = "search"
    READ = "read"
    WRITE = "write"
    DELETE = "delete"
    CHAT = "chat"
    IMPORT = "import"


ALL_SCOPES = frozenset(TokenScope)
# What an agent needs: of a token that nobody says more about.
DEFAULT_SCOPES = frozenset({TokenScope.SEARCH, TokenScope.WRITE})
# What a scope means for a person who gives it.
MEANINGS = {
    TokenScope.SEARCH: _("Search: find and read what I said and stored"),
    TokenScope.READ: _("Read: open a conversation, note or log, without searching"),
    TokenScope.WRITE: _("Write: add to my memory, and change it"),
    TokenScope.DELETE: _("Delete: remove what I said and stored, for good"),
    TokenScope.CHAT: _("Chat: talk with the assistant, which searches my memory and adds to it"),
    TokenScope.IMPORT: _("Import: bring my history along from other products"),
}
