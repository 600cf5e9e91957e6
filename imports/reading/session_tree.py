"""The tree of nodes from which conversations are built: calls are folded into the answer after them."""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from imports.reading.items import ImportedMessage, Role, SkippedMessage
from imports.reading.times import parse_time
from imports.reading.trees import Branches, branches, newest_leaf, with_inferred_times
from imports.reading.values import compact, line_of, list_of, object_of, objects_of, text_of

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
        if message.role == "user":
            return message
        calls = [call for above in reversed(list(self._hidden_above(node))) for call in self.calls.get(above, ())]
        return replace(message, tool_calls=(*calls, *self.calls.get(node, ()), *message.tool_calls))

    def _hidden_above(self, node: str) -> Iterator[str]:
        above = self.parents.get(node)
        for _ in range(_CALLS_KEPT):
            if above is None or above in self.visible or above not in self.parents:
                return
            yield above
            above = self.parents[above]

    def span(self) -> tuple[datetime | None, datetime | None]:
        known = [message.at for message in self.visible.values() if message.at]
        return min(known, default=None), max(known, default=None)


def message_of(node: str, role: Role, content: Any, at: Any, model: Any = "") -> ImportedMessage:
    """A message from a text or a list of blocks, of which those of text count."""
    texts = [content] if isinstance(content, str) else [block.get("text") for block in _texts(content)]
    pictures = [block for block in objects_of(content) if block.get("type") in ("image", "input_image", "document")]
    return ImportedMessage(
        id=node,
        parent=None,
        role=role,
        text="\n\n".join(text for each in texts if (text := text_of(each)).strip()).strip(),
        at=parse_time(at),
        model=line_of(model) if role == "assistant" else "",
        attachments=tuple(line_of(block.get("title")) or str(block["type"]) for block in pictures),
    )


def _texts(content: Any) -> list[dict[str, Any]]:
    return [block for block in objects_of(content) if block.get("type") in ("text", "input_text", "output_text")]


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
