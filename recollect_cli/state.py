"""What the command line remembers between two runs: uploads that broke off, and what `sync` has sent."""

import contextlib
import json
import os
import sys
import tempfile
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
    """In one step, so that a killed run leaves the old or the new one."""
    folder = state_folder()
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    with tempfile.NamedTemporaryFile("w", dir=folder, delete=False, encoding="utf-8") as file:
        json.dump(content, file)
    Path(file.name).replace(folder / f"{name}.json")


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
