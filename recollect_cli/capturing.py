"""What leaves this machine of an agent's session: the folders that may, the turns of a transcript, without secrets.

Turns are read from where the last call ended, redacted, and kept in a spool until the server has them. Only the user's
words, the agent's answers and the names of tools are read: never contents of files, thinking or the environment, and of
the results of tools only what the user said in them.
"""

import os
from contextlib import suppress
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

from recollect_cli.client import Server
from recollect_cli.configuration import read_config
from recollect_cli.projects import project_of
from recollect_cli.spool import append, bodies, position_name
from recollect_cli.state import read, write
from recollect_cli.transcripts import is_of_subagent, new_turns, session_of

IGNORE_FILE = ".recollect-ignore"
Settings = dict[str, Any]
"""`{capture: all | only | none, folders: [...], never: [...]}` of this machine's configuration."""


def is_left_alone(folder: str, settings: Settings) -> bool:
    """Whether nothing of this folder leaves the machine, neither turns nor prompts."""
    here = os.path.realpath(folder)
    if any(_is_within(here, each) for each in settings.get("never", [])) or _is_ignored(here):
        return True
    return settings.get("capture") == "only" and not any(_is_within(here, each) for each in settings.get("folders", []))


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
