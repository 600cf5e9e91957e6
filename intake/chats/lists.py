"""Lists a user's chats: all of them by activity, or ordered (pinned, archived)."""

from dataclasses import dataclass, field
from uuid import UUID

from core.isolation.acting import Caller
from core.paging import Position, page_of
from core.text import pg_text
from intake.models import Conversation, Project
from intake.models.conversations import ConversationQuerySet

CONVERSATIONS_PER_PAGE = 30


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
    *,
    caller: Caller,
    after: Position | None = None,
    is_archived: bool = False,
    words: str = "",
    project: str | None = None,
) -> ConversationList:
    """The archived ones, or the others; with `words`, those whose title contains each of them.

    With `project` only its own ones. Titles of closed projects are found only so.
    """
    found = Conversation.objects.for_caller(caller).kept().filter(archived_at__isnull=not is_archived)
    if project is not None:
        found = found.filter(project=project)
    elif words:
        found = found.exclude(project__in=Project.objects.for_caller(caller).filter(is_closed=True).values("name"))
    # More words cannot narrow a title of 80 characters further.
    for word in pg_text(words).split()[:8]:
        found = found.filter(title__icontains=word)
    return _page(found, after, size=CONVERSATIONS_PER_PAGE)


def list_in_order(*, caller: Caller, after: Position | None = None, is_of_no_project: bool = False) -> ConversationList:
    """The chats that are not archived, with the pinned ones only above the first page.

    `is_of_no_project`: without those of projects, which have groups of their own; but with all pinned ones.
    """
    chats = Conversation.objects.for_caller(caller).kept().filter(archived_at__isnull=True)
    others = chats.filter(pinned_at__isnull=True, **({"project": ""} if is_of_no_project else {}))
    if after is not None:
        # A scrolling list requests more at once: fewer waits, and still a small page.
        return _page(others, after, size=100)
    # One statement for both. A union promises no order, so they are sorted here.
    size = CONVERSATIONS_PER_PAGE
    first = others.order_by("-last_active_at", "-id")[: size + 1]
    # The most pinned chats listed above the others.
    found = list(chats.filter(pinned_at__isnull=False).order_by("-pinned_at", "-id")[:100].union(first, all=True))
    found.sort(key=lambda chat: (chat.pinned_at or chat.last_active_at, chat.pk), reverse=True)
    pinned = [chat for chat in found if chat.pinned_at is not None]
    rows = [chat for chat in found if chat.pinned_at is None]
    more = Position(rows[size - 1].last_active_at, rows[size - 1].pk) if len(rows) > size else None
    return ConversationList(rows[:size], more, pinned)


def list_one(*, caller: Caller, conversation_id: UUID) -> ConversationList:
    """A list of this conversation, or an empty one, for a page that updates itself."""
    return ConversationList(list(Conversation.objects.for_caller(caller).kept().filter(pk=conversation_id)), more=None)


def _page(found: ConversationQuerySet, after: Position | None, *, size: int) -> ConversationList:
    page = page_of(found, by="last_active_at", after=after, size=size)
    return ConversationList(page.rows, page.more)
