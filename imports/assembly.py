"""From the nodes that a reader saw to a conversation: branches, times, and whether anything was said at all."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime

from imports.items import ImportedConversation, ImportedMessage, Item, Skipped, SkippedMessage
from imports.json_streams import BrokenJSON
from imports.trees import branches, newest_leaf, with_inferred_times
from imports.values import stable_id

NOTHING_SAID = "nothing was said in this conversation"


@dataclass(kw_only=True)
class Draft:
    """A conversation while its nodes are read."""

    product: str
    where: str
    external_id: str
    title: str = ""
    created_at: datetime | None = None
    last_at: datetime | None = None
    is_archived: bool = False
    project: str | None = None
    leaf: str | None = None
    parents: dict[str, str | None] = field(default_factory=dict)
    times: dict[str, datetime | None] = field(default_factory=dict)
    visible: dict[str, ImportedMessage] = field(default_factory=dict)
    skipped: list[SkippedMessage] = field(default_factory=list)

    def add(self, node: str, parent: str | None, shown: ImportedMessage | str, at: datetime | None = None) -> None:
        """A node with its message, or with the reason why it is not shown."""
        self.parents[node] = parent
        if isinstance(shown, str):
            self.skipped.append(SkippedMessage(id=node, why=shown))
            self.times[node] = at
        else:
            self.visible[node] = shown
            self.times[node] = shown.at

    def finished(self) -> Item:
        """The conversation, or why there is none."""
        if not self.visible:
            return Skipped(where=self.where, reason=NOTHING_SAID, external_id=self.external_id or None)
        leaf = self.leaf if self.leaf in self.parents else newest_leaf(self.parents, self.times)
        found = branches(self.parents, self.visible, leaf)
        if not found[0]:
            found = branches(self.parents, self.visible, newest_leaf(dict(self._visible_parents()), self.times))
        current, others = with_inferred_times(found, self.created_at)
        known = [message.at for message in (*current, *others) if message.at and not message.at_inferred]
        created_at = self.created_at or min(known, default=None)
        return ImportedConversation(
            product=self.product,
            external_id=self.external_id or stable_id(self.product, current[0].id, current[0].text, created_at),
            title=self.title or None,
            created_at=created_at,
            last_at=self.last_at or max(known, default=created_at),
            is_archived=self.is_archived,
            project=self.project,
            messages=current,
            other_branches=others,
            skipped=tuple(self.skipped),
        )

    def _visible_parents(self) -> Iterable[tuple[str, str | None]]:
        return ((node, parent) for node, parent in self.parents.items() if node in self.visible)


def broken_off(name: str, error: BrokenJSON) -> Skipped:
    """The report of a file that could be read to some place only."""
    reason = str(error) or "the file ends early or is damaged here: what stands before it came in"
    return Skipped(where=name, reason=reason)
