"""What the command line remembers between two runs: uploads that broke off, and what `sync` has sent."""

import contextlib
import json
import os
import sys
from pathlib import Path
from typing import Any


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


def keep_upload(key: str, import_id: str | None) -> None:
    """None forgets it."""
    # An upload can be resumed as long as a day; without a place to remember it, it only cannot be resumed.
    with contextlib.suppress(OSError):
        write("uploads", {name: each for name, each in (read("uploads") | {key: import_id}).items() if each})
