"""Builds a conversation from the nodes that a reader found: branches, times, and whether it has any message."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from core.text import Sentence
from core.text import gettext_noop as _
from imports.reading.files import Files
from imports.reading.items import ImportedConversation, Item, Items, Notice, Skipped
from imports.reading.json_streams import records
from imports.reading.session_tree import SessionTree
from imports.reading.trees import newest_leaf, with_missing_links
from imports.reading.values import stable_id

NO_MESSAGES = _("not a conversation: it has no messages")
NO_WORDS = _("nothing was said in this conversation")


@dataclass(kw_only=True)
class ConversationDraft(SessionTree):
    """A conversation while its nodes are read."""

    product: str
    where: str
    external_id: str
    title: str = ""
    created_at: datetime | None = None
    # Used if no message has a time: in some products, renaming or opening a conversation changes it.
    last_at: datetime | None = None
    is_archived: bool = False
    project: str | None = None
    leaf: str | None = None
    # The product's trees begin at one node: further ones without a parent have lost it.
    has_one_root: bool = False
    # A link into nothing is repaired by the times; false where it means the beginning.
    mends_broken: bool = True

    def finished(self) -> Item:
        """The conversation, or the reason why there is none."""
        if not self.visible:
            return Skipped(where=self.where, reason=NO_WORDS, external_id=self.external_id or None)
        self.parents = with_missing_links(
            self.parents, self.times, has_one_root=self.has_one_root, mends_broken=self.mends_broken
        )
        leaf = self.leaf if self.leaf and self.leaf in self.parents else newest_leaf(self.parents, self.times)
        current, others = self.branches(leaf, self.created_at)
        known = [message.at for message in (*current, *others) if message.at and not message.at_inferred]
        times = [message.at for message in current if message.at and not message.at_inferred]
        created_at = self.created_at or min(known, default=None)
        return ImportedConversation(
            product=self.product,
            external_id=self.external_id or stable_id(self.product, current[0].id, current[0].text, created_at),
            title=self.title or None,
            created_at=created_at,
            last_at=times[-1] if times else self.last_at or max(known, default=created_at),
            is_archived=self.is_archived,
            project=self.project or None,
            messages=current,
            other_branches=others,
        )


@dataclass
class NotShown:
    """What a reader leaves out: entries and blocks of unknown kinds that have no text, each kind listed once with its
    first position; the program's own exchanges (`prompts`), and chats that are listed and not chosen (`set_aside`), of
    which the user reads how many.
    """

    prompts: int = 0
    set_aside: int = 0
    _found: dict[str, tuple[str, int]] = field(default_factory=dict)

    def note(self, where: str, *kinds: str) -> None:
        for kind in (each or "no kind" for each in kinds):
            first, count = self._found.get(kind, (where, 0))
            self._found[kind] = (first, count + 1)

    def listed(self) -> Iterator[Skipped | Notice]:
        for kind, (where, count) in self._found.items():
            message = _("an entry without a text, of an unknown kind: %(kind)s (%(count)s)")
            yield Skipped(where=where, reason=Sentence(message, kind=kind[:60], count=count))
        if self.prompts:
            message = _(
                "Messages with nothing but a program's own words, such as a scheduler's, are hidden: %(count)s."
            )
            yield Notice(text=Sentence(message, count=self.prompts))
        if self.set_aside:
            message = _("Chats that were deleted or taken back are listed and not chosen by themselves: %(count)s.")
            yield Notice(text=Sentence(message, count=self.set_aside))


def items_of(
    files: Files,
    names: Iterable[str],
    make: Callable[[str, Any, NotShown], Iterable[Item]],
    read: Callable[[Files, str], Iterator[tuple[str, Any]]] = records,
) -> Items:
    """The item of each record of these files, with its position; reports unknown kinds."""
    not_shown = NotShown()
    for name in names:
        for where, record in read(files, name):
            yield from make(where, record, not_shown)
    yield from not_shown.listed()
