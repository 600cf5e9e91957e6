"""Formats a tool's result as plain text for the model, with every field by its name.

Each line of a multi-line text starts with a bar, so that no stored text looks like a field or a result.
"""

import json
from collections.abc import Iterator
from typing import Any

INDENT = "  "


def as_text(data: Any) -> str:
    """`data` is any JSON value."""
    return "\n".join(_lines(data))


def _lines(value: Any) -> Iterator[str]:
    match value:
        case dict():
            for name, each in value.items():
                first, *others = _inline(each) or ["", *(INDENT + line for line in _lines(each))]
                yield f"{name}: {first}".rstrip()
                yield from others
        case list():
            for each in value:
                first, *others = list(_lines(each)) or [""]
                yield f"- {first}"
                yield from (INDENT + line for line in others)
        case str():
            lines = value.splitlines() or [""]
            yield from lines if len(lines) == 1 else [f"| {line}" for line in lines]
        case _:
            yield json.dumps(value)


def _inline(value: Any) -> list[str] | None:
    """The text that fits on the line of its name; None for text that goes below it."""
    if isinstance(value, str):
        return None if len(value.splitlines()) > 1 else [value]
    if isinstance(value, dict) or (isinstance(value, list) and any(isinstance(each, dict | str) for each in value)):
        return None
    return [json.dumps(value)]
