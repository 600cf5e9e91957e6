"""Splits a conversation's tree into the current branch and all other messages.

No function recurses, and a circle ends a walk: the input may contain a chain of 100,000 nodes, or a node that is its
own parent.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import datetime

from imports.reading.items import ImportedMessage

Branches = tuple[tuple[ImportedMessage, ...], tuple[ImportedMessage, ...]]


def branches(parents: Mapping[str, str | None], visible: Mapping[str, ImportedMessage], leaf: str | None) -> Branches:
    """The current branch, from the root to `leaf`, and all other visible messages, each after its parent.

    `parents` has every node of the tree, `visible` the messages of those that are shown, by the same ids.
    Each message's `parent` becomes that of its nearest visible ancestor.
    """
    above = nearest_visible(parents, visible)
    current = [node for node in path_to(parents, leaf) if node in visible]
    on_path = set(current)
    first = current[0] if current else None
    shown = [_under(visible[node], visible, None if node == first else above[node]) for node in current]
    others = [
        _under(visible[node], visible, above[node] if has_parent else None)
        for node, has_parent in _parents_first(visible, above)
        if node not in on_path
    ]
    return tuple(shown), tuple(others)


def path_to(parents: Mapping[str, str | None], leaf: str | None) -> list[str]:
    """The nodes from the root, or from where the tree is broken, to `leaf`."""
    path: list[str] = []
    seen = set()
    node = leaf
    while node is not None and node in parents and node not in seen:
        seen.add(node)
        path.append(node)
        node = parents[node]
    return path[::-1]


def newest_leaf(parents: Mapping[str, str | None], times: Mapping[str, datetime | None]) -> str | None:
    """The newest node without children; if the times are equal, the last of them in the export."""
    with_children = {parent for node, parent in parents.items() if parent is not None and parent != node}
    leaves = [node for node in parents if node not in with_children] or list(parents)
    if not leaves:
        return None
    order = {node: place for place, node in enumerate(leaves)}
    return max(leaves, key=lambda node: ((at := times.get(node)) is not None, at.timestamp() if at else 0, order[node]))


def with_missing_links(
    parents: Mapping[str, str | None],
    times: Mapping[str, datetime | None],
    *,
    has_one_root: bool = False,
    mends_broken: bool = True,
) -> dict[str, str | None]:
    """The parents, where a node whose parent is not in the tree follows the newest node before it.

    A node without a time stands where the export has it. `has_one_root`: so do further nodes without any parent,
    because the product's trees begin at one node. `mends_broken`: false where a link into nothing ends the tree.
    """
    found = {node: parent if parent in parents else None for node, parent in parents.items()}
    order = in_time(parents, times)
    first = next((node for node in order if parents[node] is None), None)
    lost = [
        node
        for node, parent in parents.items()
        if found[node] is None and (mends_broken if parent is not None else has_one_root and node != first)
    ]
    if not lost:
        return found
    before = {node: order[place - 1] for place, node in enumerate(order) if place}
    tree = _Trees(found)
    for node in sorted(lost, key={node: place for place, node in enumerate(order)}.__getitem__):
        above = before.get(node)
        # In a damaged tree the node before it may be one of its own followers.
        if above is not None and tree.root(above) != tree.root(node):
            found[node] = above
            tree.join(node, above)
    return found


def in_time(nodes: Iterable[str], times: Mapping[str, datetime | None]) -> list[str]:
    """The nodes by their times; one without a time stands after the one before it in the export."""
    at = float("-inf")
    keys = []
    for place, node in enumerate(nodes):
        time = times.get(node)
        at = time.timestamp() if time else at
        keys.append((at, place, node))
    return [node for _, _, node in sorted(keys)]


class _Trees:
    """Which nodes hang together, by union-find: a walk up for each node would take quadratic time."""

    def __init__(self, parents: Mapping[str, str | None]) -> None:
        self._over = {node: node for node in parents}
        for node, parent in parents.items():
            if parent is not None:
                self.join(node, parent)

    def root(self, node: str) -> str:
        while self._over[node] != node:
            self._over[node] = self._over[self._over[node]]
            node = self._over[node]
        return node

    def join(self, node: str, other: str) -> None:
        self._over[self.root(node)] = self.root(other)

    def groups(self) -> list[list[str]]:
        """The nodes of each tree, in their order."""
        found: dict[str, list[str]] = {}
        for node in self._over:
            found.setdefault(self.root(node), []).append(node)
        return list(found.values())


def hanging_together(parents: Mapping[str, str | None], together: Iterable[tuple[str, str]]) -> list[list[str]]:
    """The nodes of each tree, where each pair of `together` belongs to one tree."""
    trees = _Trees(parents)
    for node, other in together:
        trees.join(node, other)
    return trees.groups()


def nearest_visible(parents: Mapping[str, str | None], visible: Iterable[str]) -> dict[str, str | None]:
    """For each node the nearest visible one above it."""
    shown = set(visible)
    above: dict[str, str | None] = {}
    for start in parents:
        walked: list[str] = []
        here = set()
        node: str | None = start
        while node is not None and node in parents and node not in above and node not in here:
            here.add(node)
            walked.append(node)
            node = parents[node]
        # A circle, or a missing parent, ends the walk: nothing is known above.
        found = None
        if node is not None and node not in here and node in parents:
            found = node if node in shown else above[node]
        for each in reversed(walked):
            above[each] = found
            found = each if each in shown else found
    return above


def _parents_first(visible: Mapping[str, ImportedMessage], above: Mapping[str, str | None]) -> list[tuple[str, bool]]:
    """Every visible node after its parent, siblings in the order of the export."""
    children: dict[str | None, list[str]] = {}
    for node in visible:
        children.setdefault(above.get(node), []).append(node)
    ordered: list[tuple[str, bool]] = []
    waiting = [(node, False) for node in reversed(children.get(None, []))]
    while waiting:
        node, has_parent = waiting.pop()
        ordered.append((node, has_parent))
        waiting.extend((child, True) for child in reversed(children.get(node, [])))
    return ordered


def _under(message: ImportedMessage, visible: Mapping[str, ImportedMessage], parent: str | None) -> ImportedMessage:
    return replace(message, parent=visible[parent].id if parent else None)


def with_inferred_times(found: Branches, created_at: datetime | None) -> Branches:
    """A message without a usable time gets that of the previous message, the first one the conversation's."""
    current, others = found
    first = next((message.at for message in current if message.at), None) or next(
        (message.at for message in others if message.at), None
    )
    start = created_at or first
    times: dict[str, datetime | None] = {}
    return _fill(current, times, start), _fill(others, times, start)


def _fill(
    messages: tuple[ImportedMessage, ...], times: dict[str, datetime | None], start: datetime | None
) -> tuple[ImportedMessage, ...]:
    filled = []
    for message in messages:
        known = message
        if message.at is None:
            before = times.get(message.parent or "", start)
            known = replace(message, at=before, at_inferred=before is not None)
        times[known.id] = known.at
        filled.append(known)
    return tuple(filled)
