"""`recollect install CLIENT`: the server's tools, the hooks and a few lines of instructions, in the client's own files.
Or for an app that asks models: this server as the one that answers.

1. Each client (`recollect_cli/clients.py`) names the edits of its files: members of JSON objects, hooks, a table of
   TOML, a block of Markdown.
2. An edit changes the text of a file and nothing else of it: comments, order and indentation stay.
3. The file of before is kept beside it. `--remove` restores it, or takes out our entries alone where the file has
   changed since.
"""

import difflib
import hashlib
import re
import shutil
from pathlib import Path
from typing import Any

from recollect_cli.client import Failure
from recollect_cli.clients import APPS, NAME, NEXT_STEPS, Edit, edits_of
from recollect_cli.merging import (
    with_block,
    with_item,
    with_member,
    with_table,
    without_block,
    without_items,
    without_member,
    without_table,
)
from recollect_cli.state import read, write, write_file

BACKUP = ".before-recollect"
_OURS = re.compile(r"\bhook (?:claude-code|codex|gemini|cursor) [A-Za-z]{1,40}\"")


def _is_ours(item: str) -> bool:
    return NAME in item and _OURS.search(item) is not None


def with_edit(text: str, edit: Edit) -> str:
    """Raises `Failure` for a file that is not in its format."""
    kind, file, value = edit
    try:
        if kind in ("member", "member-if-missing"):
            return with_member(text, value[0], value[1], replaces=kind == "member")
        if kind == "hook":
            path, entry = value
            return with_item(without_items(text, path, _is_ours), path, entry)
        if kind == "table":
            return with_table(without_table(text, value[0]), *value)
        if kind in ("block", "lines"):
            return with_block(without_block(text, kind), value, kind)
        return str(value)
    except ValueError as error:
        raise Failure(f"{file} is not in the format that its program reads: {error}. Nothing was changed.") from None


def without_edit(text: str, edit: Edit) -> str:
    """Raises `Failure`."""
    kind, file, value = edit
    try:
        if kind == "member":
            return without_member(text, value[0])
        if kind == "hook":
            return without_items(text, value[0], _is_ours)
        if kind == "table":
            return without_table(text, value[0])
        if kind in ("block", "lines"):
            return without_block(text, kind)
        return "" if kind == "whole" else text
    except ValueError as error:
        raise Failure(f"{file} is not in the format that its program reads: {error}. Nothing was changed.") from None


def planned(client: str, *, removes: bool = False, **app: str) -> dict[Path, tuple[str | None, str | None]]:
    """By file, what it holds and what it will hold; None for no file. `app`: its address and key. Raises `Failure`."""
    found: dict[Path, tuple[str | None, str | None]] = {}
    for edit in edits_of(client, **app):
        file = edit[1]
        before, text = found.get(file) or (_content(file),) * 2
        after = without_edit(text or "", edit) if removes else with_edit(text or "", edit)
        found[file] = (before, None if removes and before is None else after)
    if removes:
        found = {file: (before, _restored(file, before, after)) for file, (before, after) in found.items()}
    return {file: (before, after) for file, (before, after) in found.items() if before != after}


def _content(file: Path) -> str | None:
    try:
        return file.read_text(encoding="utf-8")
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise Failure(f"{file} cannot be read: {error}. Nothing was changed.") from None


def _restored(file: Path, before: str | None, after: str | None) -> str | None:
    """As it was, where nothing else has changed since; no file where there was none."""
    noted = read("installed").get(str(file))
    if noted and before is not None and noted.get("written") == _digest(before):
        return _content(_backup(file)) if noted.get("existed") else None
    was_made_here = noted is not None and not noted.get("existed")
    return None if was_made_here and (after or "").strip() in ("", "{}") else after


def apply(changes: dict[Path, tuple[str | None, str | None]], *, removes: bool = False) -> None:
    """Raises `Failure`."""
    for file, (before, after) in changes.items():
        noted = read("installed")
        try:
            if removes:
                noted.pop(str(file), None)
            elif before is not None and str(file) not in noted:
                shutil.copy2(file, _backup(file))
            _write(file, after)
            if not removes:
                noted.setdefault(str(file), {"existed": before is not None})["written"] = _digest(after or "")
            write("installed", noted)
            if removes:
                _backup(file).unlink(missing_ok=True)
        except OSError as error:
            raise Failure(f"{file} cannot be written: {error.strerror}.") from None


def _write(file: Path, text: str | None) -> None:
    # The file of a link, which many keep in a repository.
    target = file.resolve()
    if text is None:
        target.unlink(missing_ok=True)
    else:
        write_file(target, text, mode=target.stat().st_mode & 0o777 if target.exists() else 0o600)


def _backup(file: Path) -> Path:
    return file.with_name(file.name + BACKUP)


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def shown(changes: dict[Path, tuple[str | None, str | None]]) -> str:
    """The differences as `diff -u` writes them."""
    lines: list[str] = []
    for file, (before, after) in changes.items():
        old, new = (before or "").splitlines(), (after or "").splitlines()
        target = str(file) if after is not None else "/dev/null"
        lines += difflib.unified_diff(old, new, str(file), target, lineterm="")
    return "\n".join(lines)


def is_installed(client: str) -> bool:
    """Whether any of its files has an entry of ours."""
    try:
        return any(each[0] is not None for each in planned(client, removes=True).values())
    except Failure:
        return False


_QUESTION = """\
Which sessions may Recollect keep?
  a  those in all folders
  o  only those in folders that you name
  n  none
a, o or n: """


def captured_folders(
    config: dict[str, Any], mode: str | None, folders: list[str], never: list[str], *, may_ask: bool
) -> dict[str, Any]:
    """What to change in the configuration. `mode`: all, only, none, or None where no option names it."""
    if folders and mode is None:
        mode = "only"
    if mode is None and "capture" not in config and may_ask:
        mode = {"a": "all", "o": "only"}.get(input(_QUESTION).strip().lower()[:1], "none")
        folders = _folders_asked("Only in these folders, separated by commas: ") if mode == "only" else []
        never = _folders_asked("Never in these folders, separated by commas (or nothing): ") if mode != "none" else []
    chosen: dict[str, Any] = {} if mode is None else {"capture": mode}
    for name, added in (("folders", folders), ("never", never)):
        if added:
            known = config.get(name, [])
            absolute = [str(Path(each).expanduser().absolute()) for each in added]
            chosen[name] = [*known, *(each for each in absolute if each not in known)]
    return chosen


def _folders_asked(question: str) -> list[str]:
    return [each.strip() for each in input(question).split(",") if each.strip()]


def next_steps(client: str, config: dict[str, Any]) -> list[str]:
    """Sentences about what is still to be done."""
    from recollect_cli.hooks import EVENTS

    lines = [NEXT_STEPS[client]] if client in NEXT_STEPS else []
    if client in APPS:
        return lines
    if "token" not in config:
        lines.append("Now run `recollect login`: without a token nothing is sent or recalled.")
    if client in EVENTS and config.get("capture", "none") == "none":
        lines.append(f"No session is kept. To keep them: recollect install {client} --capture all")
    return lines
