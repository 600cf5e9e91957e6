"""Values of unknown form, read or refused: the expected text, list or object, or an empty one.

`line_of(message, "author", "name")` looks below these names first.
"""

import hashlib
import json
from typing import Any

from core.text import pg_text
from recollect_cli.values import Fields, joined, list_of, object_of, objects_of, value_at

# Found here too by every reader.
__all__ = ["Fields", "joined", "list_of", "object_of", "objects_of", "value_at"]


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


def name_of_block(block: Fields) -> str:
    """What a message calls the file of a block: its name, or else its kind."""
    return line_of(block.get("title")) or line_of(block.get("filename")) or line_of(block.get("type"))


def first_of(fields: Any, *names: str) -> str:
    """The first of these fields that says something, as one line."""
    return next(filter(None, (line_of(id_of(fields, name)) for name in names)), "")


def parsed(text: Any) -> Any:
    """The value of a text in JSON; None for anything else."""
    try:
        return json.loads(text)
    except (ValueError, TypeError, RecursionError):
        return None


def compact(value: Any) -> str:
    """A value as short JSON for a folded tool call; deeply nested parts are left out."""
    try:
        return pg_text(json.dumps(value, ensure_ascii=False, default=str))[:4000]
    except (RecursionError, ValueError):
        return ""


def stable_id(*parts: object) -> str:
    """The same id for the same content, if the export has none."""
    return hashlib.sha256("\0".join(map(str, parts)).encode(errors="replace")).hexdigest()[:32]
