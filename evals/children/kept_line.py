"""A client that is hardly there: what a call costs on the other side, measured without what a library would add.

http.client sends headers and body one after the other, each of which wakes the server, and reads an answer's headers in
Python: together half a millisecond.
"""

import json
import socket
from typing import Any

from httptools import HttpResponseParser

TIMEOUT_SECONDS = 60
PIECE = 65_536


class KeptLine:
    """One connection, for JSON: a request goes out in one piece, and httptools takes the answer apart."""

    def __init__(self, host: str, port: int) -> None:
        self._socket = socket.create_connection((host, port), timeout=TIMEOUT_SECONDS)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._host = f"{host}:{port}"

    def post(self, path: str, body: Any, headers: dict[str, str]) -> tuple[int, Any]:
        """The status and the answer. Raises `ConnectionError` when the server hangs up, `OSError` when it is silent."""
        content = json.dumps(body).encode()
        given = {
            "Host": self._host,
            "Content-Type": "application/json",
            "Content-Length": str(len(content)),
            **headers,
        }
        head = "".join(f"{name}: {value}\r\n" for name, value in given.items())
        self._socket.sendall(f"POST {path} HTTP/1.1\r\n{head}\r\n".encode() + content)
        answer = _Answer()
        while not answer.is_whole:
            piece = self._socket.recv(PIECE)
            if not piece:
                raise ConnectionError("The server hung up in the middle of an answer.")
            answer.parser.feed_data(piece)
        return answer.parser.get_status_code(), json.loads(b"".join(answer.body))

    def close(self) -> None:
        self._socket.close()


class _Answer:
    """The callbacks of httptools."""

    def __init__(self) -> None:
        self.parser = HttpResponseParser(self)
        self.body: list[bytes] = []
        self.is_whole = False

    def on_body(self, piece: bytes) -> None:
        self.body.append(piece)

    def on_message_complete(self) -> None:
        self.is_whole = True
