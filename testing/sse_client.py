"""Reads server-sent events off a response, as a browser would."""

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Event:
    name: str
    data: dict[str, Any]
    id: str | None = field(default=None, compare=False)


def read_events(lines: Iterable[str]) -> Iterator[Event]:
    name, id_ = "", None
    for line in lines:
        if line.startswith("event: "):
            name, id_ = line.removeprefix("event: "), None
        elif line.startswith("id: "):
            id_ = line.removeprefix("id: ")
        elif line.startswith("data: "):
            yield Event(name, json.loads(line.removeprefix("data: ")), id_)
