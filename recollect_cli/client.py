"""Calls a tool of a server; every failure is a sentence for the person at the terminal."""

import json
from dataclasses import dataclass
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.parse import urlsplit
from urllib.request import HTTPRedirectHandler, Request, build_opener

TIMEOUT_SECONDS = 40


class Failure(Exception):
    """A sentence for the person at the terminal."""


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
        request = Request(  # noqa: S310 - the address was looked at above
            f"{self.address.rstrip('/')}/api/v1/tools/{tool}/",
            data=json.dumps(arguments).encode(),
            headers={"Authorization": f"Bearer {self.token}", "Content-Type": "application/json", **headers},
        )
        try:
            with build_opener(_NoRedirects).open(request, timeout=TIMEOUT_SECONDS) as response:
                return _object(response.read())
        except HTTPError as error:
            raise Failure(_told(error)) from None
        except (URLError, OSError) as error:
            raise Failure(f"{self.address} does not answer: {getattr(error, 'reason', error)}") from None


def _told(error: HTTPError) -> str:
    try:
        problem = _object(error.read())
    except Failure:
        return f"The server answered {error.code}."
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
