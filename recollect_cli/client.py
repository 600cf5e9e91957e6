"""Asks a server over its REST API; every failure is a sentence for the person at the terminal."""

import json
import os
from collections.abc import Iterator
from typing import IO, Any

# A search may take 30 seconds before it returns what it has; any other silence is a server that hangs.
TIMEOUT_SECONDS = 15
_NEAR_NAMES = (".localhost", ".local", ".lan", ".internal", ".home.arpa")


class Failure(Exception):
    """A sentence for the person at the terminal. `code` is the server's, empty where it did not answer."""

    def __init__(self, sentence: str, *, code: str = "", problem: dict[str, Any] | None = None) -> None:
        super().__init__(sentence)
        self.code = code
        self.problem = problem or {}

    @property
    def may_pass(self) -> bool:
        """Whether the same request may succeed in a moment."""
        return not self.code or bool(self.problem.get("retryable"))


class Server:
    """A server and the caller's token. Raises `Failure` for an address that is none.

    `seconds`: how long it may be silent; 0 for what is usual for the request. Not a dataclass, whose module takes a
    tenth of the time in which a hook starts.
    """

    __slots__ = ("address", "seconds", "token")

    def __init__(self, address: str, token: str, *, seconds: float = 0) -> None:
        from urllib.parse import urlsplit

        self.address, self.token, self.seconds = address, token, seconds
        parts = urlsplit(self.address)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise Failure(f"{self.address!r} is no address of a server: it begins with http:// or https://.")
        if not (self.token.isascii() and self.token.isprintable()):
            raise Failure("The token is not one of Recollect's: it has characters that no token has.")
        if parts.scheme == "http" and not _is_near(parts.hostname):
            raise Failure(
                f"{self.address} would get your token and your words in the clear. Use https://; http:// is for this "
                "machine and private networks alone."
            )

    def call(self, tool: str, arguments: dict[str, Any], **headers: str) -> dict[str, Any]:
        """The tool's answer; raises `Failure`."""
        return self.ask("POST", f"/api/v1/tools/{tool}/", arguments, **headers)

    def ask(self, method: str, path: str, body: dict[str, Any] | bytes | None = None, **headers: str) -> dict[str, Any]:
        """The object that the server answers; empty for none. A body of bytes is sent as it is. Raises `Failure`."""
        from http.client import HTTPException

        with self.opened(method, path, body, headers) as response:
            try:
                received = response.read()
            except (OSError, HTTPException) as error:
                raise Failure(f"{self.address} does not answer: {error}") from None
        return _object(received) if received else {}

    def events(self, path: str) -> Iterator[dict[str, Any]]:
        """The data of each server-sent event until the stream ends. Raises `Failure`."""
        from http.client import HTTPException

        with self.opened("GET", path, None, {"Accept": "text/event-stream"}) as response:
            try:
                for line in response:
                    if line.startswith(b"data:"):
                        yield _object(line[5:])
            except (OSError, HTTPException) as error:
                raise Failure(f"{self.address} does not answer: {error}") from None

    def opened(self, method: str, path: str, body: dict[str, Any] | bytes | None, headers: dict[str, str]) -> IO[bytes]:
        """The response, to be read and closed. Raises `Failure`."""
        from http.client import HTTPException
        from urllib.error import HTTPError, URLError
        from urllib.request import HTTPRedirectHandler, Request, build_opener

        class NoRedirects(HTTPRedirectHandler):
            """A redirect would carry the token to wherever it leads."""

            def redirect_request(self, *_: Any) -> None:
                return None

        data = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
        request = Request(  # noqa: S310 - the address was looked at above
            f"{self.address.rstrip('/')}{path}", data=data, method=method, headers={**self._headers, **headers}
        )
        is_long = any(part in path for part in _LONG) or len(data or b"") > _PIECE
        try:
            opened: IO[bytes] = build_opener(NoRedirects).open(
                request, timeout=self.seconds or (40 if is_long else TIMEOUT_SECONDS)
            )
            return opened
        except HTTPError as error:
            try:
                received = error.read()
            except (OSError, HTTPException):
                received = b""
            raise _failure(error.code, received) from None
        except TimeoutError:
            raise Failure(f"{self.address} does not answer in time.") from None
        except (URLError, OSError, HTTPException) as error:
            raise Failure(f"{self.address} does not answer: {getattr(error, 'reason', error)}") from None

    @property
    def _headers(self) -> dict[str, str]:
        token = {"Authorization": f"Bearer {self.token}"} if self.token else {}
        return {**token, "Content-Type": "application/json", "User-Agent": "recollect"}

    def post_briefly(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        """As `ask("POST", …)`, for a hook: importing urllib takes longer than all else that a hook does.

        HTTP/1.0, so that the answer comes in one piece and ends with the connection. Raises `Failure`.
        """
        if any(name.lower() in _PROXIES and os.environ[name] for name in os.environ):
            return self.ask("POST", path, body)
        from urllib.parse import urlsplit

        parts, data = urlsplit(self.address), json.dumps(body).encode()
        headers = {"Host": parts.netloc.rpartition("@")[2], **self._headers, "Content-Length": str(len(data))}
        head = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
        first = f"POST {parts.path.rstrip('/')}{path} HTTP/1.0\r\n"
        try:
            received = _exchanged(parts, f"{first}{head}\r\n".encode() + data, self.seconds or TIMEOUT_SECONDS)
        except TimeoutError:
            raise Failure(f"{self.address} does not answer in time.") from None
        except (OSError, ValueError) as error:
            raise Failure(f"{self.address} does not answer: {error}") from None
        status, _, answer = received.partition(b"\r\n\r\n")
        code = status.split(b" ", 2)[1:2]
        if not received.startswith(b"HTTP/") or not code or not code[0].isdigit():
            raise Failure("The answer is not Recollect's. Is the address right?")
        if code[0] != b"200":
            raise _failure(int(code[0]), answer)
        return _object(answer)


def _exchanged(parts: Any, request: bytes, seconds: float) -> bytes:
    """All that the server sends until it closes the connection."""
    import socket

    is_secure = parts.scheme == "https"
    with socket.create_connection((parts.hostname, parts.port or (443 if is_secure else 80)), seconds) as plain:
        connection: socket.socket = plain
        if is_secure:
            import ssl

            connection = ssl.create_default_context().wrap_socket(plain, server_hostname=parts.hostname)
        with connection:
            connection.sendall(request)
            pieces = []
            while piece := connection.recv(_PIECE):
                pieces.append(piece)
            return b"".join(pieces)


_PROXIES = ("http_proxy", "https_proxy", "all_proxy")
_PIECE = 64 * 1024
# Searches, streams of events, downloads.
_LONG = ("/tools/search", "/mcp", "/events/", "/export/")


def _is_near(host: str) -> bool:
    """Whether it is this machine or one of a private network, by its address or by a name that only they have."""
    import ipaddress

    name = host.lower().rstrip(".")
    if name == "localhost" or "." not in name.replace(":", ".") or name.endswith(_NEAR_NAMES):
        return True
    try:
        return not ipaddress.ip_address(name).is_global
    except ValueError:
        return False


def _failure(status: int, received: bytes) -> Failure:
    try:
        problem = _object(received)
    except Failure:
        return Failure(f"The server answered {status}.", code=str(status))
    return Failure(_sentence(status, problem), code=str(problem.get("code", status)), problem=problem)


def _sentence(status: int, problem: dict[str, Any]) -> str:
    detail = str(problem.get("detail", f"The server answered {status}."))
    others = {
        field: [message for message in messages if message != detail]
        for field, messages in (problem.get("errors") or {}).items()
    }
    return " ".join([detail, *(f"{field}: {' '.join(messages)}" for field, messages in others.items() if messages)])


def _object(body: bytes) -> dict[str, Any]:
    try:
        data = json.loads(body)
    except ValueError:
        data = None
    if not isinstance(data, dict):
        raise Failure("The answer is not Recollect's. Is the address right?")
    return data
