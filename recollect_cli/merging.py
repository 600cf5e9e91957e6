"""Edits of other programs' settings: JSON with comments, TOML and Markdown, each changed as text.

Comments, order and indentation of everything else stay. A text that cannot be read raises `ValueError`.
"""

import json
import re
from collections.abc import Callable, Sequence
from typing import Any

# A string or a comment without an end is taken whole, so that no text takes quadratic time.
_TOKEN = re.compile(r'"(?:[^"\\\n]|\\.)*"?|//[^\n]*|/\*(?:[^*]|\*(?!/))*(?:\*/)?|[{}\[\]:,]|[^\s{}\[\]:,"/]+|\s+|.')


class Node:
    """A value in a JSON text: from `start` to `end`, with its members or items in order."""

    def __init__(self, start: int) -> None:
        self.start = self.end = start
        self.kind = ""
        self.members: list[tuple[str, int, Node]] = []

    def get(self, name: str) -> "Node | None":
        """The member of this name; items have none."""
        return next((node for key, _, node in reversed(self.members) if key == name), None)


def parsed(text: str) -> Node:
    """Raises `ValueError`."""
    tokens = [
        (found.start(), found[0])
        for found in _TOKEN.finditer(text)
        if not found[0].isspace() and not found[0].startswith(("//", "/*"))
    ]
    node, at = _value(tokens, 0, 0)
    if at != len(tokens):
        raise ValueError(f"something follows its end, at character {tokens[at][0]}")
    return node


_DEEPEST = 100
_CLOSING = {"{": "}", "[": "]"}


def _value(tokens: list[tuple[int, str]], at: int, depth: int) -> tuple[Node, int]:
    if at >= len(tokens) or depth > _DEEPEST:
        raise ValueError("it ends early" if depth <= _DEEPEST else "it is nested too deeply")
    start, first = tokens[at]
    node = Node(start)
    if first not in _CLOSING:
        json.loads(first)
        node.end = start + len(first)
        return node, at + 1
    node.kind, at = first, at + 1
    while at < len(tokens) and tokens[at][1] != _CLOSING[first]:
        at = _add_member(node, tokens, at, depth)
    if at >= len(tokens):
        raise ValueError("it ends early")
    node.end = tokens[at][0] + 1
    return node, at + 1


def _add_member(node: Node, tokens: list[tuple[int, str]], at: int, depth: int) -> int:
    """A member or an item, and the comma after it."""
    begin, name = tokens[at][0], ""
    if node.kind == "{":
        name = json.loads(tokens[at][1])
        if not isinstance(name, str) or at + 1 >= len(tokens) or tokens[at + 1][1] != ":":
            raise ValueError(f"no name of a member at character {begin}")
        at += 2
    found, at = _value(tokens, at, depth + 1)
    node.members.append((name, begin, found))
    if at < len(tokens) and tokens[at][1] == ",":
        return at + 1
    if at < len(tokens) and tokens[at][1] != _CLOSING[node.kind]:
        raise ValueError(f"a comma is missing before character {tokens[at][0]}")
    return at


def with_member(text: str, path: Sequence[str], value: Any, *, replaces: bool = True) -> str:
    """Adds or replaces the member at this path, and the objects above it that are missing."""
    text = text if text.strip() else "{}\n"
    node, depth = parsed(text), 0
    while True:
        if node.kind != "{":
            raise ValueError(f"{'.'.join(path[:depth]) or 'it'} is no object")
        found = node.get(path[depth])
        if found is None:
            for name in reversed(path[depth + 1 :]):
                value = {name: value}
            return _inserted(text, node, value, name=path[depth], depth=depth + 1)
        if depth == len(path) - 1:
            new = _indented(value, depth + 1)
            is_same = _plain(text[found.start : found.end]) == value
            return text if is_same or not replaces else text[: found.start] + new + text[found.end :]
        node, depth = found, depth + 1


def _node_at(text: str, path: Sequence[str]) -> Node | None:
    node: Node | None = parsed(text)
    for name in path:
        node = node and node.get(name)
    return node


def with_item(text: str, path: Sequence[str], value: Any) -> str:
    """Adds an item to the array at this path."""
    node = _node_at(text if text.strip() else "{}", path)
    if node is None:
        return with_member(text, path, [value])
    if node.kind != "[":
        raise ValueError(f"{'.'.join(path)} is no array")
    return _inserted(text, node, value, depth=len(path) + 1)


def without_member(text: str, path: Sequence[str]) -> str:
    """Also without the objects above it that had nothing else."""
    if not text.strip():
        return text
    nodes = [parsed(text)]
    for name in path:
        found = nodes[-1].get(name)
        if found is None:
            return text
        nodes.append(found)
    depth = len(path) - 1
    while depth > 0 and len(nodes[depth].members) == 1:
        depth -= 1
    return _without(text, nodes[depth], [each[0] for each in nodes[depth].members].index(path[depth]))


def without_items(text: str, path: Sequence[str], is_ours: Callable[[str], bool]) -> str:
    """Without the items of the array at this path whose text is ours."""
    while text.strip():
        node = _node_at(text, path)
        items = node.members if node and node.kind == "[" else []
        ours = [place for place, each in enumerate(items) if is_ours(text[each[2].start : each[2].end])]
        if node is None or not ours:
            return text
        text = without_member(text, path) if len(items) == 1 else _without(text, node, ours[-1])
    return text


def _plain(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return None


def _indented(value: Any, depth: int) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False).replace("\n", "\n" + "  " * depth)


def _inserted(text: str, node: Node, value: Any, *, name: str | None = None, depth: int) -> str:
    """At the end of an object or array."""
    new = f"{'' if name is None else json.dumps(name) + ': '}{_indented(value, depth)}"
    indent = "  " * depth
    if not node.members:
        return f"{text[: node.start + 1]}\n{indent}{new}\n{'  ' * (depth - 1)}{text[node.end - 1 :]}"
    last = node.members[-1][2].end
    return f"{text[:last]},\n{indent}{new}{_without_comma(text[last:])}"


def _without_comma(rest: str) -> str:
    """After the last item, whose own comma may follow."""
    for found in _TOKEN.finditer(rest):
        if found[0] == ",":
            return rest[: found.start()] + rest[found.end() :]
        if not found[0].isspace() and not found[0].startswith(("//", "/*")):
            break
    return rest


def _without(text: str, node: Node, place: int) -> str:
    _, begin, found = node.members[place]
    if place:
        before = node.members[place - 1][2].end
        return text[:before] + text[found.end :]
    if len(node.members) > 1:
        return text[:begin] + text[node.members[1][1] :]
    return text[: node.start + 1] + text[node.end - 1 :]


def with_table(text: str, name: str, value: dict[str, Any]) -> str:
    """With the table at the end."""
    import tomllib

    lines = [f"[{name}]", *(f"{key} = {_toml(each)}" for key, each in value.items())]
    kept = text.rstrip("\n")
    new = f"{kept}\n\n" if kept else ""
    new += "\n".join(lines) + "\n"
    try:
        tomllib.loads(new)
    except tomllib.TOMLDecodeError as error:
        raise ValueError(str(error)) from None
    return new


def _toml(value: Any) -> str:
    # A string of JSON is one of TOML too.
    return f"[{', '.join(map(_toml, value))}]" if isinstance(value, list) else json.dumps(value, ensure_ascii=False)


def without_table(text: str, name: str) -> str:
    """Without a table and those below it, up to the next other one."""
    kept, is_ours = [], False
    for line in text.splitlines(keepends=True):
        header = line.strip()
        if header.startswith("["):
            is_ours = header.startswith((f"[{name}]", f"[{name}."))
        if not is_ours:
            kept.append(line)
    rest = "".join(kept)
    return rest if rest == text else f"{rest.rstrip()}\n" if rest.strip() else ""


# Of Markdown, or of files whose comments begin with #.
_BEGIN, _END = "recollect: begin", "recollect: end"
_COMMENTS = {"block": "<!-- {} -->", "lines": "# {}"}


def with_block(text: str, block: str, kind: str = "block") -> str:
    kept = f"{text.rstrip()}\n\n" if text.strip() else ""
    begin, end = (_COMMENTS[kind].format(each) for each in (_BEGIN, _END))
    return f"{kept}{begin}\n{block}{end}\n"


def without_block(text: str, kind: str = "block") -> str:
    before, begin, rest = text.partition(_COMMENTS[kind].format(_BEGIN))
    _, end, after = rest.partition(_COMMENTS[kind].format(_END))
    if not begin or not end:
        return text
    kept = f"{before.rstrip()}\n\n{after.lstrip()}".strip()
    return f"{kept}\n" if kept else ""
