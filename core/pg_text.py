"""Cleans text and JSON from outside so that PostgreSQL can store them."""

import math
import re
from typing import Any

_UNSTORABLE = re.compile("[\\x00\\ud800-\\udfff]")


def storable_text(text: str) -> str:
    """Remove NUL characters, and replace halves of surrogate pairs, which have no UTF-8, with U+FFFD."""
    return _UNSTORABLE.sub(lambda found: "" if found[0] == "\0" else "\ufffd", text)


def storable(value: Any) -> Any:
    """Make every text of a JSON value storable; a number that JSON does not have becomes its name."""
    match value:
        case str():
            return storable_text(value)
        case float() if not math.isfinite(value):
            return str(value)
        case dict():
            return {storable_text(str(name)): storable(each) for name, each in value.items()}
        case list():
            return [storable(each) for each in value]
        case _:
            return value


def cut(text: str, at_most: int) -> str:
    """The text, or its beginning with an ellipsis and the number of characters that are left out."""
    return text if len(text) <= at_most else f"{text[:at_most]}… ({len(text) - at_most:,} more characters)"
