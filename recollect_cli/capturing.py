"""What leaves this machine of an agent's session: the folders that may, the turns of a transcript, without secrets.

Turns are read from where the last call ended, redacted, and kept in a spool until the server has them. Only the user's
words, the agent's answers and the names of tools are read: never contents of files, thinking or the environment, and of
the results of tools only what the user said in them.
"""

import json
import os
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

from recollect_cli.client import Failure, Server, read, state_folder, write, write_file
from recollect_cli.connecting import project_of, read_config
from recollect_cli.redaction import PRIVATE, redacted
from recollect_cli.transcripts import Turn, hashed, is_of_subagent, new_turns, session_of

IGNORE_FILE = ".recollect-ignore"
Settings = dict[str, Any]
"""`{capture: all | only | none, folders: [...], never: [...]}` of this machine's configuration."""


def is_left_alone(folder: str, settings: Settings) -> bool:
    """Whether nothing of this folder leaves the machine, neither turns nor prompts."""
    here = os.path.realpath(folder)
    if any(_is_within(here, each) for each in settings.get("never", [])) or _is_ignored(here):
        return True
    return settings.get("capture") == "only" and not any(_is_within(here, each) for each in settings.get("folders", []))


def may_capture(folder: str, settings: Settings) -> bool:
    return settings.get("capture") in ("all", "only") and not is_left_alone(folder, settings)


def _is_within(folder: str, other: str) -> bool:
    root = os.path.realpath(os.path.expanduser(other))  # noqa: PTH111 - pathlib costs the hook a tenth of its start
    return folder == root or folder.startswith(root.rstrip(os.sep) + os.sep)


def _is_ignored(folder: str) -> bool:
    """By a file in the folder or above it: empty for all below it, or with patterns of folders, one a line.

    One that cannot be read counts as empty.
    """
    for root in (Path(folder), *Path(folder).parents):
        file = root / IGNORE_FILE
        if not file.is_file():
            continue
        try:
            lines = [
                line.strip().strip("/") for line in file.read_text(encoding="utf-8", errors="replace").splitlines()
            ]
        except OSError:
            return True
        patterns = [line for line in lines if line and not line.startswith("#")]
        inside = Path(folder).relative_to(root)
        above = [str(each) for each in (inside, *inside.parents)]
        if not patterns or any(fnmatch(name, pattern) for name in above for pattern in patterns):
            return True
    return False


# --- The spool: bodies that the server has not taken yet, and up to where each session was read ---

SPOOL_BYTES = 50_000_000
# Of one request.
MOST_TURNS, MOST_CHARACTERS, MOST_TOOLS, LONGEST_TOOL = 50, 400_000, 500, 100
APPEND = "/api/v1/sessions/append/"
# The server will never take these: they are set aside, and `recollect status` counts them.
HOPELESS = ("validation_error", "too_large", "400", "413", "415", "422")


def spool_folder() -> Path:
    return state_folder() / "spool"


def bodies(about: dict[str, Any], turns: Iterable[Turn]) -> Iterator[dict[str, Any]]:
    """Requests of a bearable size, redacted. A turn of which nothing is left but private passages is left out."""
    batch: list[Turn] = []
    size = 0
    for turn in turns:
        words = {"user": redacted(turn["user"]).strip(), "answer": redacted(turn["answer"])}
        if not words["user"].replace(PRIVATE, "").strip():
            continue
        length = sum(map(len, words.values()))
        if batch and (len(batch) == MOST_TURNS or size + length > MOST_CHARACTERS):
            yield {**about, "turns": batch}
            batch, size = [], 0
        tools = [name[:LONGEST_TOOL] for name in turn["tools"] if name][:MOST_TOOLS]
        batch.append({**{name: value for name, value in turn.items() if value}, **words, "tools": tools})
        size += length
    if batch:
        yield {**about, "turns": batch}


def keep(body: dict[str, Any]) -> bool:
    """Whether the spool took it: it is not full, and can be written to."""
    text = json.dumps(body)
    if spool_size() + len(text) > SPOOL_BYTES:
        return False
    try:
        write_file(spool_folder() / f"{time.time_ns()}-{os.getpid()}.json", text)
    except OSError:
        return False
    return True


def spool_size() -> int:
    with suppress(OSError):
        return sum(each.stat().st_size for each in spool_folder().iterdir())
    return 0


def waiting(suffix: str = ".json") -> list[Path]:
    """The oldest first."""
    with suppress(OSError):
        return sorted(each for each in spool_folder().iterdir() if each.suffix == suffix)
    return []


def flush(server: Server) -> None:
    """Send what waits, the oldest first. Raises `Failure`: the rest goes on waiting."""
    for file in waiting():
        try:
            body = json.loads(file.read_bytes())
        except FileNotFoundError:
            # Another hook has sent it.
            continue
        except (OSError, ValueError):
            _set_aside(file)
            continue
        try:
            append(server, body)
        except Failure as failure:
            if failure.code not in HOPELESS:
                raise
            _set_aside(file)
            continue
        with suppress(OSError):
            file.unlink()


def append(server: Server, body: dict[str, Any]) -> dict[str, Any]:
    """Raises `Failure`."""
    return server.post_briefly(APPEND, body)


def _set_aside(file: Path) -> None:
    with suppress(OSError):
        file.rename(file.with_suffix(".refused"))


def position_name(product: str, session: str) -> str:
    return f"session-{hashed(f'{product} {session}')[:32]}"


def capture_transcript(server: Server, about: dict[str, Any], path: Path, ending: str = "") -> None:
    """Send the new turns of a transcript. Raises `Failure` and `OSError`; the next call begins where this one did."""
    name = position_name(about["product"], about["session"])
    turns, position = new_turns(about["product"], path, read(name), ending)
    capture(server, about, turns)
    with suppress(OSError):
        write(name, position)
    flush(server)


def capture(server: Server, about: dict[str, Any], turns: Iterable[Turn]) -> None:
    """Keep the turns in the spool, or send at once what it does not take. Raises `Failure`."""
    for body in bodies(about, turns):
        if not keep(body):
            append(server, body)


# --- `recollect sync --watch`: the same without a hook ---


def append_session(server: Server, product: str, path: Path) -> int | None:
    """Sends the new turns of a session's file; returns how many were stored, None for a file that is no session.

    Raises `Failure` and `OSError`; the next call begins where this one did.
    """
    session, folder = session_of(product, path)
    if not session:
        return None
    if folder and is_left_alone(folder, read_config()):
        return 0
    name = position_name(product, session)
    turns, position = new_turns(product, path, read(name))
    if "last" not in position:
        return 0 if is_of_subagent(product, path) else None
    project, branch = project_of(folder) if folder else ("", "")
    named = {"product": product, "session": session, "project": project, "branch": branch, "cwd": folder}
    about = {field: value for field, value in named.items() if value}
    stored = sum(int(append(server, body).get("stored", 0)) for body in bodies(about, turns))
    with suppress(OSError):
        write(name, position)
    return stored
