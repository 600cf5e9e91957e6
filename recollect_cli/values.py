"""Values of unknown form, read or refused: the expected list, object or texts, or an empty one.

`objects_of(line, "message", "content")` looks below these names first.
"""

from collections.abc import Iterable
from typing import Any

# An object of JSON.
Fields = dict[str, Any]


def value_at(value: Any, *path: str) -> Any:
    """The value below these names, one within the other; None where there is none."""
    for name in path:
        value = value.get(name) if isinstance(value, dict) else None
    return value


def list_of(value: Any, *path: str) -> list[Any]:
    value = value_at(value, *path)
    return value if isinstance(value, list) else []


def object_of(value: Any, *path: str) -> Fields:
    value = value_at(value, *path)
    return value if isinstance(value, dict) else {}


def objects_of(value: Any, *path: str) -> list[Fields]:
    return [each for each in list_of(value, *path) if isinstance(each, dict)]


def joined(texts: Iterable[str]) -> str:
    """The texts as paragraphs, without empty ones."""
    return "\n\n".join(text for text in texts if text.strip()).strip()
