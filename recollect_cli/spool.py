"""The spool: bodies that the server has not taken yet, and up to where each session was read."""

import json
import os
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from recollect_cli.client import Failure, Server
from recollect_cli.redaction import PRIVATE, redacted
from recollect_cli.state import read, state_folder, write, write_file
from recollect_cli.transcripts import Turn, hashed, new_turns

# Of one request.
MOST_TURNS, MOST_CHARACTERS, MOST_TOOLS, LONGEST_TOOL = 50, 400_000, 500, 100
APPEND = "/api/v1/sessions/append/"
SPOOL_BYTES = 50_000_000
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
