"""`recollect sync`: the sessions of agents on this machine, as far as they changed since the last time."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from recollect_cli import capturing, spool, state, transcripts
from recollect_cli.client import Failure, Server
from recollect_cli.connecting import LACKS_SCOPE
from recollect_cli.importing import ImportOptions, import_files
from recollect_cli.packing import PROMPTS, TITLES, FoundFile, requested_files
from recollect_cli.printing import Shows

SyncedFolder = tuple[str, Path]
"""A product, and its folder."""


def folders(product: str | None, path: Path | None) -> list[SyncedFolder]:
    """The folder named, or those that are there at their places. Raises `Failure` if there is none."""
    if path is not None:
        if product is None:
            raise Failure(f"Say of which product the folder is: {', '.join(transcripts.PLACES)}.")
        if not path.is_dir():
            raise Failure(f"There is no folder {path}.")
        return [(product, path)]
    found = [(each, transcripts.default_place(each)) for each in ([product] if product else transcripts.PLACES)]
    there = [each for each in found if each[1].is_dir()]
    if not there:
        looked = ", ".join(str(path) for _, path in found)
        raise Failure(f"Nothing to sync is here. Looked for {looked}.")
    return there


def sync(server: Server, folder: SyncedFolder, show: Shows, *, appends: bool = False) -> dict[str, Any] | None:
    """The import of what changed; None if nothing did. Raises `Failure`.

    `appends`: the new turns of sessions are sent alone, as the hooks send them, once the folder has been sent whole.
    """
    from recollect_cli.commands import version

    product, path = folder
    # Another version may read what an earlier one left out: everything is sent once more, and stored once.
    key = f"{server.address} {product} {path.resolve()} {version()}"
    found = requested_files(path, product, is_whole=True)
    before = state.read("sync").get(key) or {}
    prompts = [each for each in found if each.name == PROMPTS]
    changed = [each for each in found if each not in prompts and before.get(each.name) != [each.size, each.changed_ns]]
    if not changed:
        return None
    turns = 0
    if appends and before and product in transcripts.READERS:
        changed, turns = _appended(server, product, changed)
    done: dict[str, Any] | None = {"stored": {"turns": turns}} if turns else None
    if changed:
        # A session that goes on from another repeats its lines, so the files of one folder are read together.
        folders = {_folder(each) for each in changed}
        files = [each for each in found if each not in prompts and _folder(each) in folders] + prompts
        done = import_files(server, files, ImportOptions(product=product), show, name=f"{product}.zip")
        done["stored"]["turns"] = done["stored"].get("turns", 0) + turns
    try:
        # What grew while it was sent differs from this next time, and is sent again.
        state.write("sync", {**state.read("sync"), key: {each.name: [each.size, each.changed_ns] for each in found}})
    except OSError as error:
        raise Failure(f"What was sent cannot be remembered in {state.state_folder()}: {error.strerror}.") from None
    return done


def _appended(server: Server, product: str, changed: list[FoundFile]) -> tuple[list[FoundFile], int]:
    """Sends the new turns of each session; returns the files that are no sessions, and how many turns were stored.

    All are returned if the token may not append, or the server is one that takes no turns. Raises `Failure`.
    """
    rest, stored = [], 0
    for each in changed:
        # The titles of sessions alone say nothing.
        if each.name == TITLES:
            continue
        try:
            sent = capturing.append_session(server, product, each.path)
        except Failure as failure:
            if failure.code not in (*spool.HOPELESS, LACKS_SCOPE, "404"):
                raise
            sent = None
        except OSError:
            sent = None
        if sent is None:
            rest.append(each)
        else:
            stored += sent
    return rest, stored


def _folder(file: FoundFile) -> str:
    """A subagent's file counts to the folder of its session, and Gemini CLI's sessions to that of their project."""
    folder = file.name.rpartition("/")[0]
    return re.sub(r"/[^/]+/subagents\Z|(?<=/agent-transcripts)/.+|(?<=^tmp/)([^/]+)/chats\b.*", r"\1", folder)


def changes(watched: list[SyncedFolder]) -> Iterator[set[Path]]:
    """The folders in which something changed, each time it has been quiet for a while; none about every second.

    First all of them: what changed before they were watched told nobody. Raises `Failure`.
    """
    try:
        from watchfiles import watch
    except ImportError:
        raise Failure("`--watch` needs a package: pip install watchfiles") from None
    paths = [path.resolve() for _, path in watched]
    has_looked = False
    for batch in watch(
        *paths,
        debounce=5_000,
        step=500,
        # Watching has begun by then.
        rust_timeout=1_000,
        yield_on_timeout=True,
        raise_interrupt=True,
    ):
        changed = {path for path in paths if any(Path(name).is_relative_to(path) for _, name in batch)}
        if not has_looked:
            has_looked, changed = True, set(paths)
        yield changed
