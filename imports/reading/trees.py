"""Splits a conversation's tree into the current branch and all other messages.

No function recurses, and a circle ends a walk: the input may contain a chain of 100,000 nodes, or a node that is its
own parent.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from datetime import datetime
from itertools import chain

from imports.reading.items import ImportedMessage

Parents = Mapping[str, str | None]
Times = Mapping[str, datetime | None]
Branches = tuple[tuple[ImportedMessage, ...], tuple[ImportedMessage, ...]]


def branches(parents: Parents, visible: Mapping[str, ImportedMessage], leaf: str | None) -> Branches:
    """The current branch, from the root to `leaf`, and all other visible messages, each after its parent.

    `parents` has every node of the tree, `visible` the messages of those that are shown, by the same ids.
    Each message's `parent` becomes that of its nearest visible ancestor.
    """
    above = nearest_visible(parents, visible)
    current = [node for node in path_to(parents, leaf) if node in visible]
    shown = {node: replace(visible[node], parent=above.get(node)) for node in _parents_first(visible, above)}
    for first in current[:1]:
        shown[first] = replace(shown[first], parent=None)
    on_path = [shown.pop(node) for node in current]
    return tuple(on_path), tuple(shown.values())


def path_to(parents: Parents, leaf: str | None) -> list[str]:
    """The nodes from the root, or from where the tree is broken, to `leaf`."""
    path: list[str] = []
    seen = set()
    node = leaf
    while node is not None and node in parents and node not in seen:
        seen.add(node)
        path.append(node)
        node = parents[node]
    return path[::-1]


def newest_leaf(parents: Parents, times: Times) -> str | None:
    """The newest node without children; if the times are equal, the last of them in the export."""
    with_children = {parent for node, parent in parents.items() if parent is not None and parent != node}
    leaves = [node for node in parents if node not in with_children] or list(parents)
    if not leaves:
        return None
    return max(reversed(leaves), key=lambda node: ((at := times.get(node)) is not None, at.timestamp() if at else 0))


def with_missing_links(
    parents: Parents,
    times: Times,
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


def in_time(nodes: Iterable[str], times: Times) -> list[str]:
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

    def __init__(self, parents: Parents) -> None:
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


def hanging_together(parents: Parents, together: Iterable[tuple[str, str]]) -> list[list[str]]:
    """The nodes of each tree, where each pair of `together` belongs to one tree."""
    trees = _Trees(parents)
    for node, other in together:
        trees.join(node, other)
    return trees.groups()


def nearest_visible(parents: Parents, visible: Iterable[str]) -> dict[str, str | None]:
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


def _parents_first(visible: Iterable[str], above: Parents) -> Iterator[str]:
    """Every visible node after its parent, siblings in the order of the export."""
    children: dict[str | None, list[str]] = {}
    for node in visible:
        children.setdefault(above.get(node), []).append(node)
    waiting = children.get(None, [])[::-1]
    while waiting:
        yield (node := waiting.pop())
        waiting.extend(reversed(children.get(node, [])))


def with_inferred_times(found: Branches, created_at: datetime | None) -> Branches:
    """A message without a usable time gets that of the previous message, the first one the conversation's."""
    start = created_at or next((message.at for message in chain(*found) if message.at), None)
    times: dict[str, datetime | None] = {}
    filled = []
    for message in chain(*found):
        at = message.at or times.get(message.parent or "", start)
        filled.append(message if message.at else replace(message, at=at, at_inferred=at is not None))
        times[message.id] = at
    return tuple(filled[: len(found[0])]), tuple(filled[len(found[0]) :])
