"""`recollect sync`: the sessions of agents on this machine, as far as they changed since the last time."""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from recollect_cli import state
from recollect_cli.client import Failure, Server
from recollect_cli.importing import ImportOptions, import_files
from recollect_cli.packing import FoundFile, wanted_files
from recollect_cli.showing import Shows

# The variable that moves a product's folder, and its place in the home directory on every platform.
PLACES = {
    "claude-code": ("CLAUDE_CONFIG_DIR", ".claude"),
    "codex": ("CODEX_HOME", ".codex"),
    "openclaw": ("OPENCLAW_STATE_DIR", ".openclaw"),
}
# Watching has begun by then.
FIRST_LOOK_MS = 1_000
QUIET_SECONDS = 5


@dataclass(frozen=True, slots=True)
class SyncedFolder:
    product: str
    path: Path


def folders(product: str | None, path: Path | None) -> list[SyncedFolder]:
    """The folder named, or those that are there at their places. Raises `Failure` if there is none."""
    if path is not None:
        if product is None:
            raise Failure("Say of which product the folder is: claude-code, codex or openclaw.")
        if not path.is_dir():
            raise Failure(f"There is no folder {path}.")
        return [SyncedFolder(product, path)]
    found = [SyncedFolder(each, default_place(each)) for each in ([product] if product else PLACES)]
    there = [each for each in found if each.path.is_dir()]
    if not there:
        looked = ", ".join(str(each.path) for each in found)
        raise Failure(f"Nothing to sync is here. Looked for {looked}.")
    return there


def default_place(product: str) -> Path:
    variable, name = PLACES[product]
    return Path(os.environ.get(variable) or Path.home() / name)


def sync(server: Server, folder: SyncedFolder, show: Shows) -> dict[str, Any] | None:
    """The import of what changed; None if nothing did. Raises `Failure`."""
    key = f"{server.address} {folder.product} {folder.path.resolve()}"
    found = wanted_files(folder.path, folder.product)
    before = state.read("sync").get(key) or {}
    changed = list(_with_their_folders(found, before))
    if not changed:
        return None
    options = ImportOptions(product=folder.product)
    done = import_files(server, changed, options, show, name=f"{folder.product}.zip")
    try:
        # What grew while it was sent differs from this next time, and is sent again.
        state.write("sync", {**state.read("sync"), key: {each.name: [each.size, each.changed_ns] for each in found}})
    except OSError as error:
        raise Failure(f"What was sent cannot be remembered in {state.state_folder()}: {error.strerror}.") from None
    return done


def _with_their_folders(found: list[FoundFile], before: dict[str, Any]) -> Iterator[FoundFile]:
    """A session that goes on from another repeats its lines, so the files of one folder are read together."""
    changed = {_folder(each) for each in found if before.get(each.name) != [each.size, each.changed_ns]}
    return (each for each in found if _folder(each) in changed)


def _folder(file: FoundFile) -> str:
    return file.name.rpartition("/")[0]


def changes(watched: list[SyncedFolder]) -> Iterator[set[Path]]:
    """The folders in which something changed, each time it has been quiet for a while. Raises `Failure`.

    First all of them: what changed before they were watched told nobody.
    """
    try:
        from watchfiles import watch
    except ImportError:
        raise Failure('`--watch` needs a package: pip install "recollect[cli]".') from None
    paths = [each.path.resolve() for each in watched]
    has_looked = False
    for batch in watch(
        *paths,
        debounce=QUIET_SECONDS * 1000,
        step=500,
        rust_timeout=FIRST_LOOK_MS,
        yield_on_timeout=True,
        raise_interrupt=True,
    ):
        changed = {path for path in paths if any(Path(name).is_relative_to(path) for _, name in batch)}
        if not has_looked:
            has_looked, changed = True, set(paths)
        if changed:
            yield changed
