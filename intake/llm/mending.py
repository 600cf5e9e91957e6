"""Mends the streams of servers that are compatible with OpenAI's except for details."""

import json
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any

import httpx2


async def mend_stream(response: Any) -> None:
    if response.status_code == HTTPStatus.TOO_MANY_REQUESTS:
        # The client would wait in silence; a page says when it goes on.
        response.headers["x-should-retry"] = "false"
    kind = response.headers.get("content-type", "")
    if kind.startswith("text/event-stream"):
        response.stream = _MendedStream(response.stream)
    elif kind.startswith("application/json") and response.status_code == HTTPStatus.OK:
        response.stream = _MendedStream(response.stream, is_whole=True)


class _MendedStream(httpx2.AsyncByteStream):
    """A stream of server-sent events in which every tool call has a number and an id of its own, errors have one form,
    and tokens are counted once. `is_whole`: the body is one JSON object, of a server that does not stream.
    """

    def __init__(self, stream: Any, *, is_whole: bool = False) -> None:
        self.stream, self.calls, self.is_whole = stream, _Calls(), is_whole
        self.is_error = False
        # Some servers count with every piece, and the client would add it up.
        self.counted: dict[str, Any] | None = None
        # The lines of the event that has begun: it passes once it is complete and has data.
        self.event: list[bytes] = []

    async def __aiter__(self) -> AsyncIterator[bytes]:
        if self.is_whole:
            whole = b"".join([piece async for piece in self.stream])
            yield self._mended(b"data: " + whole.replace(b"\r", b" ").replace(b"\n", b" ")) + b"\n\n"
        else:
            rest = b""
            async for piece in self.stream:
                *lines, rest = (rest + piece).split(b"\n")
                yield b"".join(self._passed(line.rstrip(b"\r")) for line in lines)
            yield self._passed(rest) + self._passed(b"")
        yield self._counted()

    async def aclose(self) -> None:
        await self.stream.aclose()

    def _passed(self, line: bytes) -> bytes:
        """The event that a blank line completes. One without data only keeps the connection open: the client would
        take it for an answer that it cannot read.
        """
        if line:
            name, _, value = line.partition(b":")
            if name == b"event" or (name == b"data" and value.strip()):
                self.event.append(self._mended(line))
            return b""
        lines, self.event = self.event, []
        has_data = any(not each.startswith(b"event:") for each in lines)
        return b"\n".join([*lines, b"", b""]) if has_data else b""

    def _mended(self, line: bytes) -> bytes:
        if line.startswith(b"event:"):
            self.is_error = line.removeprefix(b"event:").strip() == b"error"
            return line
        if line.removeprefix(b"data:").strip() == b"[DONE]":
            return self._counted() + line
        if not (self.is_whole or self.is_error or any(name in line for name in _TO_MEND)):
            return line
        try:
            event = self._mended_event(json.loads(line.removeprefix(b"data:")))
        except (ValueError, TypeError, KeyError, AttributeError):
            # The client reports it.
            return line
        return b"data: " + json.dumps(event).encode()

    def _mended_event(self, event: dict[str, Any]) -> dict[str, Any]:
        """Raises several errors for what is no event."""
        if self.is_error or event.get("object") == "error":
            self.is_error = False
            return event if event.get("error") else {"error": event}
        if not event.get("choices"):
            # Null would be refused, and usage in a piece of its own is the last word on it.
            self.counted = None if event.get("usage") else self.counted
            return event if event.get("error") else {**event, "choices": []}
        for choice in event["choices"]:
            if choice.get("delta") is None:
                choice["delta"] = choice.pop("message", None) or {}
            for delta in choice["delta"].get("tool_calls") or ():
                self.calls.mend(delta)
        if event.get("usage"):
            self.counted = {**event, "choices": []}
            event = {**event, "usage": None}
        return event

    def _counted(self) -> bytes:
        counted, self.counted = self.counted, None
        return b"" if counted is None else b"\n\ndata: " + json.dumps(counted).encode() + b"\n\n"


# The events that are looked at: others pass as they are.
_TO_MEND = (
    b'"tool_calls"',
    b'"error"',
    b'"usage"',
    b'"choices":null',
    b'"choices": null',
    b'"delta":null',
    b'"delta": null',
)


@dataclass
class _Call:
    number: int
    theirs: str | None
    id: str | None
    name: str
    arguments: str = ""

    @property
    def is_complete(self) -> bool:
        try:
            json.loads(self.arguments)
        except ValueError:
            return False
        return True


@dataclass
class _Calls:
    """The calls of one response. Servers have sent two with one index (Ollama), with one id, and names repeatedly."""

    open: dict[Any, _Call] = field(default_factory=dict)
    ids: set[str] = field(default_factory=set)
    count: int = 0

    def mend(self, delta: dict[str, Any]) -> None:
        function = delta.get("function") or {}
        if isinstance(delta.get("id"), int):
            delta["id"] = str(delta["id"])
        if isinstance(function.get("arguments"), dict):
            function["arguments"] = json.dumps(function["arguments"])
        known = self.open.get(delta.get("index"))
        if known is None or self._begins(known, delta, function):
            known = self.open[delta.get("index")] = self._begin(delta, function)
        elif function.get("name"):
            # A repeated name would be appended to the first.
            function["name"] = None
        delta["index"] = known.number
        if delta.get("id"):
            delta["id"] = known.id
        known.arguments += function.get("arguments") or ""

    def _begins(self, known: _Call, delta: dict[str, Any], function: dict[str, Any]) -> bool:
        """Whether the piece belongs to another call than the last one with its index."""
        if not function.get("name"):
            return False
        has_other_id = bool(delta.get("id") and known.theirs and delta["id"] != known.theirs)
        return has_other_id or (known.is_complete and bool(function.get("arguments")))

    def _begin(self, delta: dict[str, Any], function: dict[str, Any]) -> _Call:
        theirs, number = delta.get("id"), self.count
        own = f"{theirs}-{number + 1}" if theirs in self.ids else theirs
        if own is not None:
            self.ids.add(own)
        self.count += 1
        return _Call(number, theirs, own, function.get("name") or "")
