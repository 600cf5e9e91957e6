"""The command line's client, what it remembers, and what it shows.

Asks a server over its REST API; every failure is a sentence for the person at the terminal.
"""

import contextlib
import json
import os
import sys
import unicodedata
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

# A search may take 30 seconds before it returns what it has; any other silence is a server that hangs.
TIMEOUT_SECONDS = 15
SEARCH_SECONDS = 40
_NEAR_NAMES = (".localhost", ".local", ".lan", ".internal", ".home.arpa")


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
                request, timeout=self.seconds or (SEARCH_SECONDS if is_long else TIMEOUT_SECONDS)
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


# --- What the command line remembers between two runs: uploads that broke off, and what `sync` has sent ---


def state_folder() -> Path:
    """By the habits of the platform; `XDG_STATE_HOME` goes first everywhere."""
    if named := os.environ.get("XDG_STATE_HOME"):
        return Path(named, "recollect")
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Application Support" / "recollect"
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local", "recollect")
    return Path.home() / ".local" / "state" / "recollect"


def read(name: str) -> dict[str, Any]:
    """Empty where there is none, or one that cannot be read: then everything is sent again, and stored once."""
    try:
        found = json.loads((state_folder() / f"{name}.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def write(name: str, content: dict[str, Any]) -> None:
    """Raises `OSError`."""
    write_file(state_folder() / f"{name}.json", json.dumps(content))


def write_file(file: Path, text: str, *, mode: int = 0o600) -> None:
    """In one step, so that a killed run leaves the old or the new one. Raises `OSError`."""
    file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    unfinished = file.with_name(f".{file.name}.{os.getpid()}.new")
    try:
        with os.fdopen(
            os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode), "w", encoding="utf-8"
        ) as target:
            target.write(text)
        unfinished.replace(file)
    finally:
        unfinished.unlink(missing_ok=True)


def upload_of(key: str) -> str | None:
    found = read("uploads").get(key)
    return found if isinstance(found, str) else None


def remember_upload(key: str, import_id: str) -> None:
    # An upload can be resumed as long as a day; without a place to remember it, it only cannot be resumed.
    with contextlib.suppress(OSError):
        write("uploads", {**read("uploads"), key: import_id})


def forget_upload(key: str) -> None:
    with contextlib.suppress(OSError):
        write("uploads", {other: each for other, each in read("uploads").items() if other != key})


# --- What an import looks like at a terminal: a bar by `rich`, where that is installed, or a line for each step ---

STEPS = {
    "uploading": "Uploading",
    "reading": "Reading the export",
    "waiting": "Waiting for a worker",
    "running": "Storing",
    "undoing": "Undoing",
}


def printable(text: str) -> str:
    """For all that is not ours, before it goes to a terminal: control characters as JSON writes them.

    A terminal obeys them: they move the cursor, change the title, and write to the clipboard. Marks of direction make a
    line read as another. Line ends and tabs stay.
    """
    return "".join(f"\\u{ord(each):04x}" if _is_obeyed(each) else each for each in text)


def printable_line(text: str) -> str:
    """The same for a title or a name, which is one line."""
    return printable(" ".join(text.split()))


def _is_obeyed(character: str) -> bool:
    if character in "\n\t":
        return False
    # U+200D joins emojis. Of the format characters, those of direction do harm.
    return (
        unicodedata.category(character) in ("Cc", "Cs", "Zl", "Zp") or unicodedata.bidirectional(character) in _TURNING
    )


_TURNING = ("LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI")


Shows = Callable[[str, float], None]
"""Takes a state and the progress within it, from 0 to 1."""


@contextmanager
def progress_shown(*, is_quiet: bool) -> Iterator[Shows]:
    """Progress goes to standard error, so that what is printed can be piped."""
    if is_quiet:
        yield lambda state, progress: None
        return
    try:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn
    except ImportError:
        yield _in_lines()
        return
    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("", total=1.0)

        def show(state: str, progress: float) -> None:
            bar.update(task, description=STEPS.get(state, state), completed=progress)

        yield show


def _in_lines() -> Shows:
    """Without a bar: each step once."""
    shown = [""]

    def show(state: str, progress: float) -> None:
        if state != shown[-1] and state in STEPS:
            shown.append(state)
            print(f"{STEPS[state]} …", file=sys.stderr, flush=True)  # noqa: T201

    return show


def in_numbers(counts: dict[str, int] | None) -> str:
    """`812 conversations, 9,120 turns, 3 documents`."""
    requested = [(name, (counts or {}).get(name, 0)) for name in ("conversations", "turns", "documents", "records")]
    return ", ".join(f"{n:,} {name if n != 1 else name[:-1]}" for name, n in requested if n) or "nothing"


def preview_text(preview: dict[str, Any]) -> str:
    shown, newest = preview["import"], preview["newest"]
    found = shown["found"] or {}
    lines = [f"{shown['product_label'] or 'Export'}: {in_numbers(found)}"]
    if shown.get("from") and shown.get("to"):
        lines.append(f"From {shown['from'][:10]} to {shown['to'][:10]}")
    counts = (("new", "new"), ("longer than what is here", "longer"), ("here already", "here"))
    lines += [f"{found[name]:,} {words}" for words, name in counts if found.get(name)]
    lines.append(f"Would come in: {in_numbers(preview['comes_in'])}")
    lines += [f"Note: {printable_line(notice)}" for notice in shown.get("notices") or []]
    if found.get("skipped"):
        lines.append(f"{found['skipped']:,} cannot come in:")
        lines += [
            f"  {printable_line(each['where'])}: {printable_line(each['reason'])}" for each in shown["skipped"][:20]
        ]
    if newest:
        lines += ["The newest:", *(f"  {printable_line(title)}" for title in newest)]
    return "\n".join(lines)


def report_text(shown: dict[str, Any], address: str) -> str:
    lines = [
        f"Imported from {printable_line(shown['product_label'] or shown['filename'])}: {in_numbers(shown['stored'])}."
    ]
    if changed := ((shown.get("account") or {}).get("changed") or {}).get("turns"):
        lines.append(f"{changed:,} {'turn' if changed == 1 else 'turns'} got corrected or longer words.")
    if (shown["found"] or {}).get("skipped"):
        lines.append(f"{shown['found']['skipped']:,} could not come in; the report lists them.")
    if shown["can_undo"]:
        lines.append(f"Report and undo: {address.rstrip('/')}/import/{shown['id']}/")
    return "\n".join(lines)
