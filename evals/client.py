"""The HTTP client of everything that is measured: it adds little to the time that the server takes.

http.client sends headers and body one after the other, each of which wakes the server, and reads an answer's headers in
Python: together half a millisecond. Here a request goes out in one piece, and httptools takes the answer apart.
"""

import json
import select
import socket
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from http import HTTPStatus
from http.cookies import SimpleCookie
from typing import Any, Self
from urllib.parse import urlsplit

from httptools import HttpResponseParser

from testing.sse_client import Event, read_events

TIMEOUT_SECONDS = 60
PIECE_BYTES = 65_536
MCP_PATH = "/mcp"
MCP_REVISION = "2026-07-28"
MCP_CLIENT = {
    "io.modelcontextprotocol/protocolVersion": MCP_REVISION,
    "io.modelcontextprotocol/clientInfo": {"name": "recollect-evals", "version": "1"},
    "io.modelcontextprotocol/clientCapabilities": {},
}

Headers = Mapping[str, str]


class Refused(OSError):
    """A stream of events was answered with another status than 200."""


@dataclass(frozen=True, slots=True)
class HttpAnswer:
    """`headers`: the names as they were sent, and the values."""

    status: int
    headers: list[tuple[bytes, bytes]]
    body: bytes

    @property
    def is_ok(self) -> bool:
        return HTTPStatus.OK <= self.status < HTTPStatus.MULTIPLE_CHOICES

    @property
    def data(self) -> Any:
        return json.loads(self.body)

    @property
    def events(self) -> list[Event]:
        return list(read_events(self.body.decode().split("\n")))

    @property
    def cookies(self) -> dict[str, str]:
        jar: SimpleCookie = SimpleCookie()
        for name, value in self.headers:
            if name.lower() == b"set-cookie":
                jar.load(value.decode())
        return {name: morsel.value for name, morsel in jar.items()}

    @property
    def everything(self) -> bytes:
        """All that was received, to look for a word anywhere in it."""
        return b"\n".join([*(b": ".join(header) for header in self.headers), self.body])

    def __str__(self) -> str:
        return f"{self.status} {self.body[:300].decode(errors='replace')}"


class Client:
    """One connection, which is kept while the server keeps it; `headers` go with every request.

    Requests raise `OSError` when the server cannot be reached, hangs up in the middle of an answer or is silent.
    """

    def __init__(self, address: str, headers: Headers | None = None) -> None:
        parts = urlsplit(address)
        self._place = parts.hostname or "", parts.port or 80
        self._headers = {"Host": parts.netloc, "Content-Type": "application/json", **(headers or {})}
        self._socket: socket.socket | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *failure: object) -> None:
        self.close()

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def ask(self, method: str, path: str, body: Any = None, headers: Headers | None = None) -> HttpAnswer:
        """`body`: bytes as they are, or what becomes JSON."""
        connection, answer = self._send(method, path, body, headers), _Parsed()
        content = b"".join(self._pieces(connection, answer))
        return HttpAnswer(answer.parser.get_status_code(), answer.headers, content)

    def events(self, method: str, path: str, body: Any = None, headers: Headers | None = None) -> Iterator[Event]:
        """Server-sent events as they come. Raises `Refused` as well."""
        pieces = self._pieces(self._send(method, path, body, headers), answer := _Parsed())
        return read_events(_lines(pieces, answer))

    def ask_and_leave(self, method: str, path: str, body: Any, headers: Headers | None, *, seconds: float) -> bytes:
        """Hang up after so many seconds; the bytes that had come by then."""
        connection, received = self._send(method, path, body, headers), b""
        deadline = time.monotonic() + seconds
        with suppress(TimeoutError):
            while (left := deadline - time.monotonic()) > 0:
                connection.settimeout(left)
                if not (piece := connection.recv(PIECE_BYTES)):
                    break
                received += piece
        self.close()
        return received

    def _send(self, method: str, path: str, body: Any, headers: Headers | None) -> socket.socket:
        content = b"" if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
        given = {**self._headers, "Content-Length": str(len(content)), **(headers or {})}
        head = "".join(f"{name}: {value}\r\n" for name, value in given.items())
        if self._socket is not None and _has_hung_up(self._socket):
            self.close()
        if self._socket is None:
            self._socket = socket.create_connection(self._place, timeout=TIMEOUT_SECONDS)
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection = self._socket
        try:
            connection.sendall(f"{method} {path} HTTP/1.1\r\n{head}\r\n".encode() + content)
        except OSError:
            self.close()
            raise
        return connection

    def _pieces(self, connection: socket.socket, answer: "_Parsed") -> Iterator[bytes]:
        """The body as it comes. The connection outlives whole answers alone."""
        try:
            while not answer.is_whole:
                received = connection.recv(PIECE_BYTES)
                if not received:
                    raise ConnectionError("The server hung up in the middle of an answer.")
                answer.parser.feed_data(received)
                yield answer.take()
        finally:
            if not answer.is_kept_alive:
                self.close()


class _Parsed:
    """The callbacks of httptools."""

    def __init__(self) -> None:
        self.parser = HttpResponseParser(self)
        self.headers: list[tuple[bytes, bytes]] = []
        self.is_whole = self.is_kept_alive = False
        self._body: list[bytes] = []

    def take(self) -> bytes:
        """Of the body what has come since the last time."""
        taken, self._body = b"".join(self._body), []
        return taken

    def on_header(self, name: bytes, value: bytes) -> None:
        self.headers.append((name, value))

    def on_body(self, piece: bytes) -> None:
        self._body.append(piece)

    def on_message_complete(self) -> None:
        self.is_whole, self.is_kept_alive = True, self.parser.should_keep_alive()


def mcp_request(method: str, revision: str = MCP_REVISION, **params: Any) -> tuple[dict[str, Any], dict[str, str]]:
    """The message and the headers of a request over MCP; since 2026-07-28 each says who asks and for what."""
    headers = {"Accept": "application/json, text/event-stream", "MCP-Protocol-Version": revision}
    if revision == MCP_REVISION:
        headers |= {"Mcp-Method": method, **({"Mcp-Name": params["name"]} if "name" in params else {})}
        params["_meta"] = MCP_CLIENT
    return {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}, headers


def _has_hung_up(connection: socket.socket) -> bool:
    """A server that has closed a kept connection leaves its end to be read; nothing else comes unasked."""
    poll = select.poll()
    poll.register(connection, select.POLLIN)
    return bool(poll.poll(0))


def _lines(pieces: Iterator[bytes], answer: _Parsed) -> Iterator[str]:
    rest = b""
    for piece in pieces:
        if (piece or answer.is_whole) and answer.parser.get_status_code() != HTTPStatus.OK:
            raise Refused(f"status {answer.parser.get_status_code()}")
        *lines, rest = (rest + piece).split(b"\n")
        yield from (line.decode().rstrip("\r") for line in lines)
