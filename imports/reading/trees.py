"""Conversations from trees of messages: branches, folded tool calls, the finished draft.

Splits a conversation's tree into the current branch and all other messages.

No function recurses, and a circle ends a walk: the input may contain a chain of 100,000 nodes, or a node that is its
own parent.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from core.text import Sentence, sentence_of
from core.text import gettext_noop as _
from imports.reading.envelopes import OpenedText, opened
from imports.reading.files import Files
from imports.reading.items import (
    ImportedConversation,
    ImportedMessage,
    Item,
    Items,
    Notice,
    Role,
    Skipped,
    SkippedMessage,
)
from imports.reading.json_streams import (
    BrokenJSON,
    compact,
    line_of,
    list_of,
    name_of_block,
    object_of,
    objects_of,
    parse_time,
    records,
    stable_id,
    text_of,
)

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
        found = None if node is None or node in here or node not in parents else _here_or_above(node, shown, above)
        for each in reversed(walked):
            above[each] = found
            found = each if each in shown else found
    return above


def _here_or_above(node: str, shown: set[str], above: Mapping[str, str | None]) -> str | None:
    return node if node in shown else above[node]


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


# --- The tree of nodes from which conversations are built: calls are folded into the answer after them ---

# The number of calls between two messages that are kept, folded, with the second one.
_CALLS_KEPT = 200


@dataclass(kw_only=True)
class SessionTree:
    """The nodes of one or several conversations: every node's parent, and what is shown of it."""

    parents: dict[str, str | None] = field(default_factory=dict)
    times: dict[str, datetime | None] = field(default_factory=dict)
    visible: dict[str, ImportedMessage] = field(default_factory=dict)
    skipped: dict[str, SkippedMessage] = field(default_factory=dict)
    calls: dict[str, tuple[dict[str, Any], ...]] = field(default_factory=dict)
    # Hidden nodes that asked for an answer: a program's own prompts, and commands without words.
    prompts: set[str] = field(default_factory=set)
    # The person's messages that answer a call, which is folded with them.
    replies: set[str] = field(default_factory=set)

    def add(self, node: str, parent: str | None, at: datetime | None, shown: ImportedMessage | str) -> None:
        """A node with its message, or with the reason why it is hidden."""
        self.parents[node] = parent
        self.times[node] = at
        if isinstance(shown, str):
            self.skipped[node] = SkippedMessage(id=node, why=shown)
        else:
            self.visible[node] = shown

    def hide(self, node: str, why: str) -> None:
        if self.visible.pop(node, None):
            self.skipped[node] = SkippedMessage(id=node, why=why)

    def part(self, nodes: list[str]) -> "SessionTree":
        """The tree of these nodes alone."""
        return SessionTree(
            parents={node: self.parents[node] for node in nodes},
            times={node: self.times[node] for node in nodes},
            visible={node: self.visible[node] for node in nodes if node in self.visible},
            skipped={node: self.skipped[node] for node in nodes if node in self.skipped},
            calls={node: self.calls[node] for node in nodes if node in self.calls},
            prompts=self.prompts.intersection(nodes),
            replies=self.replies.intersection(nodes),
        )

    def branches(self, leaf: str | None, created_at: datetime | None) -> Branches:
        """The current branch to `leaf`, and the others; the newest visible leaf if nothing is shown above that one."""
        with_calls = {node: self._with_calls(node, message) for node, message in self.visible.items()}
        found = branches(self.parents, with_calls, leaf)
        if not found[0]:
            seen = {node: self.parents[node] for node in self.visible}
            found = branches(self.parents, with_calls, newest_leaf(seen, self.times))
        return with_inferred_times(found, created_at)

    def _with_calls(self, node: str, message: ImportedMessage) -> ImportedMessage:
        if message.role == "user" and node not in self.replies:
            return message
        hidden = list(self.hidden_above(node))
        calls = [call for above in reversed(hidden) for call in self.calls.get(above, ())]
        return replace(
            message,
            tool_calls=(*calls, *self.calls.get(node, ()), *message.tool_calls),
            is_unasked=message.is_unasked or not self.prompts.isdisjoint(hidden),
        )

    def hidden_above(self, node: str) -> Iterator[str]:
        above = self.parents.get(node)
        for _step in range(_CALLS_KEPT):
            if above is None or above in self.visible or above not in self.parents:
                return
            yield above
            above = self.parents[above]

    def span(self) -> tuple[datetime | None, datetime | None]:
        known = [message.at for message in self.visible.values() if message.at]
        return min(known, default=None), max(known, default=None)


# A program's reasoning and calls: folded with the answer, and never its text.
_NO_TEXT = {"thinking", "redacted_thinking", "reasoning", "tool_use", "toolCall", "tool_result", "toolResult"}
_NO_TEXT |= {"server_tool_use", "function_call", "function_call_output", "think"}
_PICTURES = {"image", "input_image", "document", "input_file", "file", "audio", "input_audio", "video"}
# These have no text of their own, and are known.
_KNOWN = _NO_TEXT | _PICTURES | {"text", "input_text", "output_text", "refusal"}


def texts_of(content: Any) -> list[str]:
    """The texts of a message: any block that has one, whatever it is called."""
    if isinstance(content, str):
        return [text_of(content)]
    found = []
    for block in list_of(content):
        fields = object_of(block)
        if isinstance(block, str):
            found.append(text_of(block))
        elif fields.get("type") not in _NO_TEXT:
            found.append(text_of(fields.get("text")) or text_of(object_of(fields.get("text")).get("value")))
            if not found[-1]:
                found[-1] = text_of(fields.get("refusal"))
    return found


def pictures_in(content: Any) -> list[str]:
    """Names of attached files, or the kinds of those without one."""
    return [name_of_block(block) for block in objects_of(content) if block.get("type") in _PICTURES]


def unknown_kinds(content: Any) -> list[str]:
    """The kinds of blocks that have no text and are not known."""
    textless = (block for block in objects_of(content) if not any(texts_of([block])))
    return [kind for block in textless if (kind := line_of(block.get("type")) or "no kind") not in _KNOWN]


def message_of(
    node: str, role: Role, content: Any, at: Any, model: Any = "", *, product: str = ""
) -> tuple[ImportedMessage, OpenedText]:
    """A message from a text or a list of blocks, and what its envelopes said."""
    words = opened(texts_of(content), product, is_answer=role == "assistant")
    # An envelope names pictures, which stand among the blocks without a name.
    named, pictures = words.attachments, pictures_in(content)
    message = ImportedMessage(
        id=node,
        parent=None,
        role=role,
        text=words.text,
        at=parse_time(at),
        model=line_of(model) if role == "assistant" else "",
        attachments=(*named, *pictures[len(named) :]),
    )
    return message, words


def calls_in(content: Any) -> tuple[dict[str, Any], ...]:
    """Tool calls and thinking among the blocks of an answer."""
    calls = []
    for block in list_of(content):
        match object_of(block):
            case {"type": "tool_use" | "toolCall", "name": str(name)} as call:
                calls.append({"name": line_of(name), "input": compact(call.get("input", call.get("arguments")))})
            case {"type": "thinking", "thinking": str(thinking)} if thinking.strip():
                calls.append({"name": "thinking", "summary": text_of(thinking)})
    return tuple(calls)


# --- Builds a conversation from the nodes that a reader found: branches, times, and whether it has any message ---

# The parent of a first message in several products.
NO_PARENTS = {"", "00000000-0000-0000-0000-000000000000", "00000000-0000-4000-8000-000000000000"}
NO_MESSAGES = _("not a conversation: it has no messages")
NO_WORDS = _("nothing was said in this conversation")
ENDS_EARLY = _("the file ends early or is damaged here: what stands before it came in")


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
        leaf = self.leaf if self.leaf in self.parents else newest_leaf(self.parents, self.times)
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
            project=self.project,
            messages=current,
            other_branches=others,
            skipped=tuple(self.skipped.values()),
        )


@dataclass
class NotShown:
    """What a reader leaves out: entries and blocks of unknown kinds that have no text, each kind listed once with its
    first position; and the program's own exchanges (`prompts`), of which the user reads how many.
    """

    prompts: int = 0
    _found: dict[str, tuple[str, int]] = field(default_factory=dict)

    def note(self, kind: str, where: str) -> None:
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


Records = Callable[[Files, str], Iterator[tuple[str, Any]]]


def items_of(
    files: Files, names: Iterable[str], make: Callable[[str, Any, NotShown], Iterable[Item]], read: Records = records
) -> Items:
    """The item of each record of these files, with its position; reports where a file breaks off, and unknown kinds."""
    not_shown = NotShown()
    for name in names:
        try:
            for where, record in read(files, name):
                yield from make(where, record, not_shown)
        except BrokenJSON as error:
            yield broken_off(name, error)
    yield from not_shown.listed()


def broken_off(name: str, error: BrokenJSON) -> Skipped:
    """The report of a file that was readable only up to some position."""
    return Skipped(where=name, reason=sentence_of(error) or ENDS_EARLY)
