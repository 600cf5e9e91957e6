"""Values of unknown form, read or refused: the expected text, list or object, or an empty one.

`line_of(message, "author", "name")` looks below these names first.
"""

import hashlib
import json
from collections.abc import Iterable
from typing import Any

from core.text import pg_text


def value_at(value: Any, *path: str) -> Any:
    """The value below these names, one within the other; None where there is none."""
    for name in path:
        value = value.get(name) if isinstance(value, dict) else None
    return value


def text_of(value: Any, *path: str) -> str:
    """A text that can be stored; empty for any other type."""
    value = value_at(value, *path)
    return pg_text(value) if isinstance(value, str) else ""


def line_of(value: Any, *path: str) -> str:
    """A title or name: one line."""
    return " ".join(text_of(value, *path).split())


def id_of(value: Any, *path: str) -> str:
    """An id; numbers become texts, all other types an empty one."""
    value = value_at(value, *path)
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) < 10**30:
        return str(value)
    return text_of(value).strip()


def list_of(value: Any, *path: str) -> list[Any]:
    value = value_at(value, *path)
    return value if isinstance(value, list) else []


def object_of(value: Any, *path: str) -> dict[str, Any]:
    value = value_at(value, *path)
    return value if isinstance(value, dict) else {}


def objects_of(value: Any, *path: str) -> list[dict[str, Any]]:
    return [each for each in list_of(value, *path) if isinstance(each, dict)]


def name_of_block(block: dict[str, Any]) -> str:
    """What a message calls the file of a block: its name, or else its kind."""
    return line_of(block.get("title")) or line_of(block.get("filename")) or line_of(block.get("type"))


def first_of(fields: dict[str, Any], *names: str) -> str:
    """The first of these fields that says something, as one line."""
    return next(filter(None, (line_of(id_of(fields.get(name))) for name in names)), "")


def joined(texts: Iterable[str]) -> str:
    """The texts as paragraphs, without empty ones."""
    return "\n\n".join(text for text in texts if text.strip()).strip()


def compact(value: Any) -> str:
    """A value as short JSON for a folded tool call; deeply nested parts are left out."""
    try:
        return pg_text(json.dumps(value, ensure_ascii=False, default=str))[:4000]
    except (RecursionError, ValueError):
        return ""


def stable_id(*parts: object) -> str:
    """The same id for the same content, if the export has none."""
    return hashlib.sha256("\0".join(map(str, parts)).encode(errors="replace")).hexdigest()[:32]
