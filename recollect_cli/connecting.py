"""`recollect login`: a token of this machine's own.

The token belongs to this machine alone and stands in one file that only its user can read. The agents' own
configuration names the command `recollect`, never the token.
"""

import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from recollect_cli.client import Failure, Server
from recollect_cli.configuration import config_file, read_config, write_config

# The token reads and adds; it deletes nothing.
SCOPES = "search write capture import"
LACKS_SCOPE = "insufficient_scope"
_TOKENS = "/api/v1/tokens/"


def log_in(address: str, token: str | None, announce: Callable[[str], None]) -> dict[str, Any]:
    """Store the token that was pasted, or get one by the browser; returns what was stored. Raises `Failure`."""
    config = read_config()
    if token is not None:
        server = Server(address, token.strip())
        try:
            server.ask("GET", "/api/v1/tools/")
        except Failure as failure:
            # One that may only capture is a good token too.
            if failure.code != LACKS_SCOPE:
                raise
    else:
        server = _by_browser(address, announce)
    write_config({**config, "url": server.address.rstrip("/"), "token": server.token})
    return {"url": server.address.rstrip("/"), "file": str(config_file())}


def machine_name() -> str:
    import platform

    return f"recollect on {platform.node() or 'this machine'}"[:80]


def _by_browser(address: str, announce: Callable[[str], None]) -> Server:
    """OAuth's code flow with PKCE, back to a port of this machine (RFC 8252); its token is exchanged for the machine's
    own, which the server shows at /settings/agents/.
    """
    import base64
    import hashlib
    import secrets
    import webbrowser
    from urllib.parse import urlencode

    server, origin = Server(address, ""), address.rstrip("/")
    with _Return() as listener:
        back = f"http://127.0.0.1:{listener.port}/"
        client = _register(server, back)
        verifier, state = secrets.token_urlsafe(48), secrets.token_urlsafe(24)
        challenge = base64.urlsafe_b64encode(hashlib.sha256(verifier.encode()).digest()).rstrip(b"=").decode()
        asked = {
            "response_type": "code",
            "client_id": client,
            "redirect_uri": back,
            "scope": SCOPES,
            "state": state,
            "code_challenge": challenge,
            "code_challenge_method": "S256",
            "resource": f"{origin}{_TOKENS}",
        }
        page = f"{origin}/oauth/authorize/?{urlencode(asked)}"
        announce(f"Log in and agree in the browser. If none opens, open this address on this machine:\n{page}")
        with suppress(webbrowser.Error, OSError):
            webbrowser.open(page)
        code = _code_in(listener.wait(300, state), issuer=origin)
    fields = {"grant_type": "authorization_code", "code": code, "redirect_uri": back, "client_id": client}
    form = urlencode({**fields, "code_verifier": verifier}).encode()
    headers = {"Content-Type": "application/x-www-form-urlencoded"}
    granted = server.ask("POST", "/oauth/token/", form, **headers)
    wanted = {"name": machine_name(), "scopes": str(granted.get("scope", "")).split()}
    made = Server(origin, str(granted.get("access_token", ""))).ask("POST", _TOKENS, wanted)
    return Server(origin, str(made["token"]))


def _register(server: Server, back: str) -> str:
    metadata = {"client_name": machine_name(), "redirect_uris": [back], "token_endpoint_auth_method": "none"}
    try:
        return str(server.ask("POST", "/oauth/register/", metadata)["client_id"])
    except Failure as failure:
        if failure.code in ("403", "404", "access_denied"):
            raise Failure(
                "This server lets no program log in by the browser. Make a token at "
                f"{server.address.rstrip('/')}/settings/tokens/ and run `recollect login --token -`, then paste it."
            ) from None
        raise


def _code_in(values: dict[str, str] | None, *, issuer: str) -> str:
    if values is None:
        raise Failure("Nobody agreed in the browser within five minutes. Run `recollect login` again.")
    if values.get("iss", issuer).rstrip("/") != issuer:
        raise Failure("The browser came back with another server's answer. Run `recollect login` again.")
    if "code" not in values:
        reason = values.get("error_description") or values.get("error") or "no reason"
        raise Failure(f"The server did not let this machine in: {reason}.")
    return values["code"]


class _Return:
    """Waits on a port of this machine for the browser to come back."""

    def __enter__(self) -> "_Return":
        import socket

        self._socket = socket.create_server(("127.0.0.1", 0))
        self.port = self._socket.getsockname()[1]
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def wait(self, seconds: float, state: str) -> dict[str, str] | None:
        from urllib.parse import parse_qsl, urlsplit

        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0:
            self._socket.settimeout(left)
            with suppress(OSError, IndexError):
                connection, _ = self._socket.accept()
                with connection:
                    connection.settimeout(5)
                    target = connection.recv(16_384).split(b" ", 2)[1].decode("ascii", "replace")
                    values = dict(parse_qsl(urlsplit(target).query))
                    # A browser also asks for an icon, and any page of it can ask for something else here.
                    known = values.get("state") == state
                    connection.sendall(_PAGE if known else b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n")
                    if known:
                        return values
        return None


_WORDS = b"<!doctype html><meta charset=utf-8><title>Recollect</title><p>Done. Go back to the terminal."
_PAGE = b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%b" % (
    len(_WORDS),
    _WORDS,
)
