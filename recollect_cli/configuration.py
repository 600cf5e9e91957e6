"""The configuration of this machine: the server, its token, and what may be captured."""

import json
import os
import sys
from pathlib import Path
from typing import Any

from recollect_cli.client import Failure, Server
from recollect_cli.state import write_file


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
