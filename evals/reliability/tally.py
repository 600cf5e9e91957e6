"""What the clients of `soak` count, and the words that one caller alone may ever be shown."""

import re
import secrets
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

# A shape that nothing else has; one that was cut off at the end of an excerpt is recognised by its beginning.
_SECRET = re.compile(rb"hush[0-9a-f]{2,16}")


def new_secret() -> str:
    """A word that one caller alone may ever be shown."""
    return f"hush{secrets.token_hex(8)}"


def foreign_secrets(answer: bytes, *, own: str) -> list[str]:
    """Those in `answer` that are not `own`, nor the beginning of it."""
    return [secret for found in _SECRET.findall(answer) if not own.startswith(secret := found.decode())]


@dataclass(slots=True)
class Tally:
    calls: Counter[str] = field(default_factory=Counter)
    statuses: Counter[str] = field(default_factory=Counter)
    cancelled: int = 0
    own_secrets: int = 0
    leaks: list[str] = field(default_factory=list)
    unexpected: list[str] = field(default_factory=list)
    milliseconds: dict[str, list[float]] = field(default_factory=dict)

    def as_data(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.__dataclass_fields__}
