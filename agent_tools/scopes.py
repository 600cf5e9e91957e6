"""The scopes of a token."""

from enum import StrEnum

from django.utils.translation import gettext_noop as _


class TokenScope(StrEnum):
    """`search` finds and reads; `read` only reads data that its address names; `write` adds and changes.

    `delete` deletes and undoes; `chat` talks with the assistant, which finds, reads and adds; `import` imports.
    """

    SEARCH = "search"
    READ = "read"
    WRITE = "write"
    DELETE = "delete"
    CHAT = "chat"
    IMPORT = "import"


ALL_SCOPES = frozenset(TokenScope)
# The default scopes, which an agent needs.
DEFAULT_SCOPES = frozenset({TokenScope.SEARCH, TokenScope.WRITE})
# The description of each scope for its user.
MEANINGS = {
    TokenScope.SEARCH: _("Search: find and read what I said and stored"),
    TokenScope.READ: _("Read: open a conversation, note or log, without searching"),
    TokenScope.WRITE: _("Write: add to my memory, and change it"),
    TokenScope.DELETE: _("Delete: remove what I said and stored, for good"),
    TokenScope.CHAT: _("Chat: talk with the assistant, which searches my memory and adds to it"),
    TokenScope.IMPORT: _("Import: bring my history along from other products"),
}
