"""Lists a user's chats: all of them by activity, or ordered (pinned, archived)."""

from dataclasses import dataclass, field
from uuid import UUID

from core.isolation.caller import Caller
from core.pagination import Position, page_of
from core.pg_text import storable_text
from intake.models import Conversation
from intake.models.conversations import ConversationQuerySet

CONVERSATIONS_PER_PAGE = 30
# A scrolling list requests more at once: fewer waits, and still a small page.
CONVERSATIONS_PER_SCROLL = 100
# The most pinned chats listed above the others.
MAX_PINNED = 100
# More words cannot narrow a title of 80 characters further.
WORDS_OF_A_TITLE = 8


@dataclass(frozen=True, slots=True)
class ConversationList:
    """One page of conversations, newest first; `more` is the beginning of the next page, if there is one.

    `pinned` are listed above the first page and on no page, the last pinned one first.
    """

    conversations: list[Conversation]
    more: Position | None
    pinned: list[Conversation] = field(default_factory=list)

    @property
    def all(self) -> list[Conversation]:
        return [*self.pinned, *self.conversations]


def list_conversations(
    *, caller: Caller, after: Position | None = None, is_archived: bool = False, words: str = ""
) -> ConversationList:
    """The archived ones, or the others; with `words`, those whose title contains each of them."""
    found = Conversation.objects.for_caller(caller).kept().filter(archived_at__isnull=not is_archived)
    for word in storable_text(words).split()[:WORDS_OF_A_TITLE]:
        found = found.filter(title__icontains=word)
    return _page(found, after, size=CONVERSATIONS_PER_PAGE)


def list_in_order(*, caller: Caller, after: Position | None = None) -> ConversationList:
    """The chats that are not archived, with the pinned ones only above the first page."""
    chats = Conversation.objects.for_caller(caller).kept().filter(archived_at__isnull=True)
    others = chats.filter(pinned_at__isnull=True)
    if after is not None:
        return _page(others, after, size=CONVERSATIONS_PER_SCROLL)
    pinned = chats.filter(pinned_at__isnull=False).order_by("-pinned_at", "-id")[:MAX_PINNED]
    return _page(others, None, size=CONVERSATIONS_PER_PAGE, pinned=list(pinned))


def list_one(*, caller: Caller, conversation_id: UUID) -> ConversationList:
    """A list of this conversation, or an empty one, for a page that updates itself."""
    return ConversationList(list(Conversation.objects.for_caller(caller).kept().filter(pk=conversation_id)), more=None)


def _page(
    found: ConversationQuerySet, after: Position | None, *, size: int, pinned: list[Conversation] | None = None
) -> ConversationList:
    page = page_of(found, by="last_active_at", after=after, size=size)
    return ConversationList(page.rows, page.more, pinned or [])
