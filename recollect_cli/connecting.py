"""This machine's connection to a server: `recollect login`, the file that keeps it, MCP over standard input, and the
project of a folder.

The token belongs to this machine alone and stands in one file that only its user can read. The agents' own
configuration names the command `recollect`, never the token.
"""

import json
import os
import re
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from recollect_cli.client import Failure, Server, write_file

# --- The configuration of this machine: the server, its token, and what may be captured ---


def config_file() -> Path:
    """By the habits of the platform; `XDG_CONFIG_HOME` goes first everywhere."""
    if named := os.environ.get("XDG_CONFIG_HOME"):
        return Path(named, "recollect", "config.json")
    if sys.platform == "win32":
        return Path(os.environ.get("APPDATA") or Path.home() / "AppData" / "Roaming", "recollect", "config.json")
    return Path.home() / ".config" / "recollect" / "config.json"


def read_config() -> dict[str, Any]:
    """Empty where there is none. Raises `Failure` for one that cannot be read."""
    file = config_file()
    try:
        found = json.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise Failure(f"{file} cannot be read: {error}. Run `recollect login` again.") from None
    return found if isinstance(found, dict) else {}


def write_config(content: dict[str, Any]) -> None:
    """Raises `Failure`."""
    file = config_file()
    try:
        write_file(file, json.dumps(content, indent=2) + "\n")
    except OSError as error:
        raise Failure(f"{file} cannot be written: {error.strerror}.") from None


def server_of(address: str | None, token: str | None, *, otherwise: str) -> Server:
    """The server that was named, or the one of the last log-in. A stored token goes to its own server alone.

    Raises `Failure`.
    """
    stored = {} if address and token else read_config()
    address = address or stored.get("url") or otherwise
    if token is None and stored.get("url", "").rstrip("/") == address.rstrip("/"):
        token = stored.get("token")
    token = (token or "").strip()
    if not token:
        raise Failure("Run `recollect login`, or put a token into RECOLLECT_TOKEN: make one at /settings/tokens/.")
    return Server(address, token)


# --- `recollect login`: a token of this machine's own ---

# The token reads and adds; it deletes nothing.
SCOPES = "search write capture import"
LOGIN_SECONDS = 300
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
        code = _code_in(listener.wait(LOGIN_SECONDS, state), issuer=origin)
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


# --- `recollect mcp`: the server's tools for agents that start a program, with this machine's token ---

STARTING_SECONDS = 2
_STARTING = ("initialize", "server/discover", "notifications/initialized", "tools/list", "ping")


def serve_mcp(server: Server, *, tools: str = "all") -> None:
    """Pass each message of standard input to the server's `/mcp`, and its answer to standard output."""
    import threading

    output, state = threading.Lock(), {"version": "", "path": f"/mcp?tools={tools}"}
    threads = []
    for line in sys.stdin.buffer:
        try:
            message = json.loads(line)
        except ValueError:
            continue
        if not isinstance(message, dict):
            continue
        is_first = message.get("method") == "initialize"
        thread = threading.Thread(target=_pass_on, args=(server, message, state, output), daemon=True)
        thread.start()
        threads.append(thread)
        if is_first:
            # The version that it agrees on belongs to all that follow.
            thread.join()
    for thread in threads:
        thread.join()


def _pass_on(server: Server, message: dict[str, Any], state: dict[str, str], output: Any) -> None:
    answer = _answer_of(server, message, **state)
    if message.get("method") == "initialize":
        state["version"] = str((answer.get("result") or {}).get("protocolVersion", ""))
    if answer:
        with output:
            sys.stdout.buffer.write(json.dumps(answer).encode() + b"\n")
            sys.stdout.buffer.flush()


def _answer_of(server: Server, message: dict[str, Any], *, version: str, path: str) -> dict[str, Any]:
    headers = {"Accept": "application/json, text/event-stream", "Mcp-Method": str(message.get("method", ""))}
    meta = (message.get("params") or {}).get("_meta") if isinstance(message.get("params"), dict) else None
    named = (meta or {}).get("io.modelcontextprotocol/protocolVersion") or version
    if named:
        headers["MCP-Protocol-Version"] = str(named)
    # An agent waits for its servers before its first answer.
    seconds = STARTING_SECONDS if message.get("method") in _STARTING else 0
    try:
        return Server(server.address, server.token, seconds=seconds).ask("POST", path, message, **headers)
    except Failure as failure:
        if "jsonrpc" in failure.problem:
            return failure.problem
        if "id" not in message:
            return {}
        return {"jsonrpc": "2.0", "id": message["id"], "error": {"code": -32000, "message": f"Recollect: {failure}"}}


# --- The project of a folder: its repository at its host, or else the folder's name ---

_REMOTE = re.compile(r"(?:[a-z+]{2,10}://)?(?:[^@/\s]{1,100}@)?[^/:\s]{1,200}(?::\d{1,5})?[:/](?P<path>[^\s]{1,300})")


def project_of(folder: str) -> tuple[str, str]:
    """The project and the branch; each is empty where there is none."""
    here = Path(os.path.realpath(folder))
    for root in (here, *here.parents):
        git = root / ".git"
        if git.exists():
            with suppress(OSError):
                return _repository(git) or root.name, _branch(git)
            return root.name, ""
    return ("" if here == Path.home() else here.name), ""


def _repository(git: Path) -> str:
    lines = iter((_shared(git) / "config").read_text(encoding="utf-8", errors="replace").splitlines())
    is_origin = False
    for line in lines:
        if line.lstrip().startswith("["):
            is_origin = line.strip() == '[remote "origin"]'
        elif is_origin and line.partition("=")[0].strip() == "url":
            return repository_name(line.partition("=")[2].strip())
    return ""


def repository_name(address: str) -> str:
    """`me/app` of the address of a remote, as the server labels projects; empty for a path on this machine."""
    found = None if address.startswith(("/", ".", "~", "file:")) else _REMOTE.fullmatch(address)
    return found["path"].strip("/").removesuffix(".git") if found else ""


def _folder_of(git: Path) -> Path:
    """A work tree of its own has a file that names its folder."""
    if git.is_dir():
        return git
    named = git.read_text(encoding="utf-8").partition("gitdir:")[2].strip()
    return (git.parent / named).resolve()


def _shared(git: Path) -> Path:
    folder = _folder_of(git)
    common = folder / "commondir"
    return (folder / common.read_text(encoding="utf-8").strip()).resolve() if common.is_file() else folder


def _branch(git: Path) -> str:
    head = (_folder_of(git) / "HEAD").read_text(encoding="utf-8").strip()
    return head.removeprefix("ref: refs/heads/") if head.startswith("ref: ") else ""
