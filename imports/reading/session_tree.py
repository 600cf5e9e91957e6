"""The tree of nodes from which conversations are built: calls are folded into the answer after them."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from imports.reading.envelopes import OpenedText, opened
from imports.reading.items import ImportedFile, ImportedMessage, Role
from imports.reading.trees import Branches, branches, nearest_visible, newest_leaf, with_inferred_times
from imports.reading.values import (
    Fields,
    compact,
    line_of,
    list_of,
    name_of_block,
    object_of,
    objects_of,
    parse_time,
    text_of,
)

# The parent of a first message in several products.
_NO_PARENTS = {None, "", "00000000-0000-0000-0000-000000000000", "00000000-0000-4000-8000-000000000000"}
_ROLES: dict[str, Role] = {
    "user": "user", "human": "user", "person": "user", "me": "user", "you": "user", "prompter": "user",
    "assistant": "assistant", "ai": "assistant", "bot": "assistant", "model": "assistant", "gpt": "assistant",
    "chatgpt": "assistant", "gemini": "assistant",
}  # fmt: skip
# What is said to the model for all its answers, and what its tools return: neither is the person's.
_ROLES_OF_PROGRAMS = {"system", "developer", "tool", "function"}


def role_of(value: Any, *path: str) -> Role | None:
    """Who speaks, by the name that any product has for them."""
    return _ROLES.get(line_of(value, *path).casefold())


def unknown_roles(value: Any, *path: str) -> list[str]:
    """What the report says of a role that we do not know. The list is empty for every other role."""
    name = line_of(value, *path)
    return [] if role_of(name) or name.casefold() in _ROLES_OF_PROGRAMS else [f"role {name}"]


@dataclass(kw_only=True)
class SessionTree:
    """The nodes of one or several conversations: every node's parent, and what is shown of it."""

    parents: dict[str, str | None] = field(default_factory=dict)
    times: dict[str, datetime | None] = field(default_factory=dict)
    visible: dict[str, ImportedMessage] = field(default_factory=dict)
    calls: dict[str, tuple[Fields, ...]] = field(default_factory=dict)
    # Hidden nodes that asked for an answer: a program's own prompts, and commands without words.
    prompts: set[str] = field(default_factory=set)
    # The person's messages that answer a call, which is folded with them.
    replies: set[str] = field(default_factory=set)

    def add(self, node: str, parent: str | None, at: datetime | None, message: ImportedMessage | None = None) -> None:
        """A node, which is hidden without a message, or with one that has neither words nor files."""
        self.parents[node] = None if parent in _NO_PARENTS else parent
        self.times[node] = at
        if message and (message.text or message.attachments or message.files):
            self.visible[node] = message

    def say(
        self,
        node: str,
        parent: str | None,
        at: datetime | None,
        role: Role | None,
        text: str = "",
        *,
        model: str = "",
        names: Iterable[str] = (),
        files: Iterable[ImportedFile] = (),
        calls: Iterable[Fields] = (),
    ) -> None:
        """A node with a message of these parts, if it has a role; only an answer has a model."""
        message = role and ImportedMessage(
            id=node,
            role=role,
            text=text,
            at=at,
            model=model if role == "assistant" else "",
            attachments=tuple(names),
            files=tuple(files),
            tool_calls=tuple(calls),
        )
        self.add(node, parent, at, message)

    def attach(self, found: dict[str, tuple[ImportedFile, ...]]) -> None:
        """Gives the files of each node to the message above it; a text not, if that has the file itself."""
        above = nearest_visible(self.parents, self.visible) if found else {}
        for node, files in found.items():
            if message := self.visible.get(above.get(node) or ""):
                names = {each.name for each in message.files if each.entry}
                new = [each for each in files if each.entry or each.name not in names]
                self.visible[message.id] = replace(message, files=(*message.files, *new))

    def part(self, nodes: list[str]) -> Fields:
        """What a tree of these nodes alone is made of."""
        return {
            "parents": {node: self.parents[node] for node in nodes},
            "times": {node: self.times[node] for node in nodes},
            "visible": {node: self.visible[node] for node in nodes if node in self.visible},
            "calls": {node: self.calls[node] for node in nodes if node in self.calls},
            "prompts": self.prompts.intersection(nodes),
            "replies": self.replies.intersection(nodes),
        }

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
        role=role,
        text=words.text,
        at=parse_time(at),
        model=line_of(model) if role == "assistant" else "",
        attachments=(*named, *pictures[len(named) :]),
    )
    return message, words


def thinking(text: str) -> tuple[Fields, ...]:
    """What the model thought, as a call; none without a text."""
    return ({"name": "thinking", "summary": text},) if text.strip() else ()


def calls_in(content: Any) -> tuple[Fields, ...]:
    """Tool calls and thinking among the blocks of an answer."""
    calls: list[Fields] = []
    for block in list_of(content):
        match object_of(block):
            case {"type": "tool_use" | "toolCall", "name": str(name)} as call:
                calls.append({"name": line_of(name), "input": compact(call.get("input", call.get("arguments")))})
            case {"type": "thinking"} as block:
                calls += thinking(text_of(block, "thinking"))
    return tuple(calls)
