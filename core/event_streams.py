"""Encodes server-sent events (WHATWG HTML, section 9.2)."""

import json
from typing import Any

KEEP_ALIVE = b": still here\n\n"


def encode(event: str, data: dict[str, Any], *, id: str | None = None) -> bytes:
    """One event; JSON has no raw line breaks, so the data is always one line."""
    body = json.dumps(data, ensure_ascii=False, separators=(",", ":"))
    named = "" if id is None else f"id: {id}\n"
    # A lone surrogate, which a model may produce, has no UTF-8: it becomes a question mark, not a broken stream.
    return f"event: {event}\n{named}data: {body}\n\n".encode(errors="replace")
