"""Asks a server over its REST API; every failure is a sentence for the person at the terminal."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from http.client import HTTPException
from typing import IO, Any
from urllib.error import HTTPError, URLError
from urllib.parse import urlsplit
from urllib.request import HTTPRedirectHandler, Request, build_opener

TIMEOUT_SECONDS = 40


class Failure(Exception):
    """A sentence for the person at the terminal. `code` is the server's, empty where it did not answer."""

    def __init__(self, sentence: str, *, code: str = "", problem: dict[str, Any] | None = None) -> None:
        super().__init__(sentence)
        self.code = code
        self.problem = problem or {}

    @property
    def is_too_much_for_proxy(self) -> bool:
        """Whether a proxy in between, and not the server, refused the size of the request."""
        return self.code == "413" and not self.problem

    @property
    def may_pass(self) -> bool:
        """Whether the same request may succeed in a moment."""
        return not self.code or bool(self.problem.get("retryable"))


class _NoRedirects(HTTPRedirectHandler):
    """A redirect would carry the token to wherever it leads."""

    def redirect_request(self, *_: Any) -> None:
        return None


@dataclass(frozen=True, slots=True)
class Server:
    """A server and the caller's token. Raises `Failure` for an address that is none."""

    address: str
    token: str

    def __post_init__(self) -> None:
        parts = urlsplit(self.address)
        if parts.scheme not in ("http", "https") or not parts.netloc:
            raise Failure(f"{self.address!r} is no address of a server: it begins with http:// or https://.")

    def call(self, tool: str, arguments: dict[str, Any], **headers: str) -> dict[str, Any]:
        """The tool's answer; raises `Failure`."""
        return self.ask("POST", f"/api/v1/tools/{tool}/", arguments, **headers)

    def ask(self, method: str, path: str, body: dict[str, Any] | bytes | None = None, **headers: str) -> dict[str, Any]:
        """The object that the server answers; empty for none. A body of bytes is sent as it is. Raises `Failure`."""
        with self._open(method, path, body, headers) as response:
            try:
                received = response.read()
            except (OSError, HTTPException) as error:
                raise Failure(f"{self.address} does not answer: {error}") from None
        return _object(received) if received else {}

    def events(self, path: str) -> Iterator[dict[str, Any]]:
        """The data of each server-sent event until the stream ends. Raises `Failure`."""
        with self._open("GET", path, None, {"Accept": "text/event-stream"}) as response:
            try:
                for line in response:
                    if line.startswith(b"data:"):
                        yield _object(line[5:])
            except (OSError, HTTPException) as error:
                raise Failure(f"{self.address} does not answer: {error}") from None

    def _open(self, method: str, path: str, body: dict[str, Any] | bytes | None, headers: dict[str, str]) -> IO[bytes]:
        data = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
        request = Request(  # noqa: S310 - the address was looked at above
            f"{self.address.rstrip('/')}{path}",
            data=data,
            method=method,
            headers={"Authorization": f"Bearer {self.token}", "Content-Type": "application/json", **headers},
        )
        try:
            opened: IO[bytes] = build_opener(_NoRedirects).open(request, timeout=TIMEOUT_SECONDS)
            return opened
        except HTTPError as error:
            raise _failure(error) from None
        except (URLError, OSError, HTTPException) as error:
            raise Failure(f"{self.address} does not answer: {getattr(error, 'reason', error)}") from None


def _failure(error: HTTPError) -> Failure:
    try:
        problem = _object(error.read())
    except (Failure, OSError, HTTPException):
        return Failure(f"The server answered {error.code}.", code=str(error.code))
    return Failure(_told(error, problem), code=str(problem.get("code", error.code)), problem=problem)


def _told(error: HTTPError, problem: dict[str, Any]) -> str:
    detail = str(problem.get("detail", f"The server answered {error.code}."))
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
