"""The tree of nodes from which conversations are built: calls are folded into the answer after them."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from imports.reading.envelopes import OpenedText, opened
from imports.reading.items import (
    ImportedFile,
    ImportedMessage,
    Role,
    SkippedMessage,
)
from imports.reading.times import parse_time
from imports.reading.trees import Branches, branches, newest_leaf, with_inferred_times
from imports.reading.values import compact, line_of, list_of, name_of_block, object_of, objects_of, text_of


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
        # The number of calls between two messages that are kept, folded, with the second one.
        for _step in range(200):
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
    """The texts of a message: every block with a text counts, of any type."""
    if isinstance(content, str):
        return [text_of(content)]
    found = []
    for block in list_of(content):
        fields = object_of(block)
        if isinstance(block, str):
            found.append(text_of(block))
        elif fields.get("type") not in _NO_TEXT:
            found.append(text_of(fields, "text") or text_of(fields, "text", "value"))
            if not found[-1]:
                found[-1] = text_of(fields, "refusal")
    return found


def pictures_in(content: Any) -> list[str]:
    """Names of attached files, or the kinds of those without one."""
    return [name_of_block(block) for block in objects_of(content) if block.get("type") in _PICTURES]


def unknown_kinds(content: Any) -> list[str]:
    """The kinds of blocks that have no text and are not known."""
    textless = (block for block in objects_of(content) if not any(texts_of([block])))
    return [kind for block in textless if (kind := line_of(block, "type") or "no kind") not in _KNOWN]


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


def said(
    node: str,
    role: Role,
    text: str,
    at: datetime | None,
    *,
    model: Any = "",
    names: Iterable[str] = (),
    files: Iterable[ImportedFile] = (),
    calls: Iterable[dict[str, Any]] = (),
) -> ImportedMessage | str:
    """A message, or that it is empty: it has neither text nor anything attached."""
    attachments, found = tuple(names), tuple(files)
    if not (text or attachments or found):
        return "empty"
    return ImportedMessage(
        id=node,
        parent=None,
        role=role,
        text=text,
        at=at,
        model=line_of(model) if role == "assistant" else "",
        attachments=attachments,
        files=found,
        tool_calls=tuple(calls),
    )


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
