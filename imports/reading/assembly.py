"""Builds a conversation from the nodes that a reader found: branches, times, and whether it has any message."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from imports.reading.files import Files
from imports.reading.items import ImportedConversation, Item, Items, Notice, Skipped
from imports.reading.json_streams import BrokenJSON, records
from imports.reading.session_tree import SessionTree
from imports.reading.trees import newest_leaf, with_missing_links
from imports.reading.values import stable_id

# The parent of a first message in several products.
NO_PARENTS = {"", "00000000-0000-0000-0000-000000000000", "00000000-0000-4000-8000-000000000000"}
NO_MESSAGES = "not a conversation: it has no messages"
NOTHING_SAID = "nothing was said in this conversation"


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
            return Skipped(where=self.where, reason=NOTHING_SAID, external_id=self.external_id or None)
        self.parents = with_missing_links(
            self.parents, self.times, has_one_root=self.has_one_root, mends_broken=self.mends_broken
        )
        leaf = self.leaf if self.leaf in self.parents else newest_leaf(self.parents, self.times)
        current, others = self.branches(leaf, self.created_at)
        known = [message.at for message in (*current, *others) if message.at and not message.at_inferred]
        said = [message.at for message in current if message.at and not message.at_inferred]
        created_at = self.created_at or min(known, default=None)
        return ImportedConversation(
            product=self.product,
            external_id=self.external_id or stable_id(self.product, current[0].id, current[0].text, created_at),
            title=self.title or None,
            created_at=created_at,
            last_at=said[-1] if said else self.last_at or max(known, default=created_at),
            is_archived=self.is_archived,
            project=self.project,
            messages=current,
            other_branches=others,
            skipped=tuple(self.skipped.values()),
        )


@dataclass
class UnknownKinds:
    """Entries and blocks of unknown kinds that have no text: each kind is listed once, with its first position."""

    _found: dict[str, tuple[str, int]] = field(default_factory=dict)

    def note(self, kind: str, where: str) -> None:
        first, count = self._found.get(kind, (where, 0))
        self._found[kind] = (first, count + 1)

    def listed(self) -> Iterator[Skipped]:
        for kind, (where, count) in self._found.items():
            reason = f"an entry without a text, of an unknown kind: {kind[:60]} ({count:,})"
            yield Skipped(where=where, reason=reason)


@dataclass
class HiddenPrompts:
    """The program's own exchanges, which are hidden: the user reads how many."""

    count: int = 0

    def notice(self) -> Iterator[Notice]:
        if self.count:
            text = (
                f"Messages with nothing but a program's own words, such as a scheduler's, are hidden: {self.count:,}."
            )
            yield Notice(text=text)


def items_of(files: Files, names: Iterable[str], make: Callable[[str, Any, UnknownKinds], Iterable[Item]]) -> Items:
    """The item of each record of these files, with its position; reports where a file breaks off, and unknown kinds."""
    unknown = UnknownKinds()
    for name in names:
        try:
            for where, record in records(files, name):
                yield from make(where, record, unknown)
        except BrokenJSON as error:
            yield broken_off(name, error)
    yield from unknown.listed()


def broken_off(name: str, error: BrokenJSON) -> Skipped:
    """The report of a file that was readable only up to some position."""
    reason = str(error) or "the file ends early or is damaged here: what stands before it came in"
    return Skipped(where=name, reason=reason)
