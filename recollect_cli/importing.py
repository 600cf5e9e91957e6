"""`recollect import` and `recollect sync`: packing, uploading, storing, reporting.

`recollect import PATH`: upload in chunks, look, store, report; Ctrl-C ends it cleanly.
"""

import contextlib
import hashlib
import json
import os
import re
import tempfile
import time
import zipfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any
from urllib.parse import urlencode

from recollect_cli import capturing, client, transcripts
from recollect_cli.client import Failure, Server, Shows
from recollect_cli.connecting import LACKS_SCOPE

# --- A folder as one zip in a temporary file: only the files that the readers of exports want, without links ---

# By product: what is wanted of its folder, by the path within it. Its settings and keys stay here.
WANTED = {
    "claude-code": (
        r"((.+/)?\.claude/)?projects/[^/]+/([^/]+/subagents/)?([^/]+\.jsonl|memory/.+\.md)|history\.jsonl"
        r"|(.+/)?local_[^/]+\.json"
    ),
    "codex": r"(sessions|archived_sessions)/(.*/)?rollout-[^/]+\.jsonl(\.zst)?|(session_index|history)\.jsonl",
    "openclaw": (
        r"agents/[^/]+/sessions/((?!.+\.trajectory\.jsonl)[^/]+\.jsonl(\.(reset|deleted)\.[^/]+)?|sessions\.json)"
        r"|agents/[^/]+/agent/[^/]+\.sqlite(-wal)?|workspace/((MEMORY|USER|memory)|memory/.+)\.md"
    ),
    "gemini-cli": r"tmp/[^/]+/(chats/.+\.jsonl?|\.project_root)",
    "cursor": r"projects/[^/]+/agent-transcripts/.+\.jsonl",
}
# An agent's prompts with marks in the place of pasted blocks: the blocks are found in the sessions by them.
PROMPTS = "history.jsonl"
# Of Codex.
TITLES = "session_index.jsonl"
# Of any other folder: what exports, sessions and notes are made of, and the files of messages in ChatGPT's export and
# in Recollect's. Pictures of notes are named in the texts, and stay here.
ANY = (
    r".+\.(json|jsonl(\.[^/]+)?|ndjson|html|md|markdown|canvas|txt|csv|zip|db|sqlite(-wal)?)"
    r"|(.*/)?file[-_][0-9A-Za-z]{6,64}([^0-9A-Za-z/][^/]*)?|(.*/)?attachments/[0-9a-f]{12} [^/]+"
)
# The folder that the product calls its own, where somebody names one within it.
INNER = {
    "claude-code": ("projects",),
    "codex": ("sessions", "archived_sessions"),
    "openclaw": ("agents", "workspace"),
    "gemini-cli": ("tmp",),
}
# Folders that begin with a dot and are looked into, wherever they are.
_AGENTS = (".claude", ".codex", ".openclaw", ".gemini", ".cursor")
_PIECE = 1024 * 1024
_ROLLOUT = re.compile(r"(?:.*/)?rollout-[^/]+\.jsonl")
# The keys before the kind of a line are short, whatever their order.
_COMPACTED = re.compile(
    rb'\{(?:\s{0,8}"timestamp"\s{0,8}:\s{0,8}"[^"]{0,64}"\s{0,8},)?\s{0,8}"type"\s{0,8}:\s{0,8}"compacted"'
)
_FIRST_TIME = (1980, 1, 1, 0, 0, 0)  # of a zip


@dataclass(frozen=True, slots=True)
class FoundFile:
    """A wanted file: its name within the product's folder, where it is, and by what one sees that it changed."""

    name: str
    path: Path
    size: int
    changed_ns: int


def requested_files(folder: Path, product: str | None, *, is_whole: bool = False) -> list[FoundFile]:
    """By name. Raises `Failure` for a folder that cannot be read or has none.

    `is_whole`: it is the product's own folder, of which nothing else may leave. The server recognises any other folder
    by its content.
    """
    for each in [product] if product in WANTED else WANTED if product is None else ():
        prefix = f"{folder.name}/" if folder.name in INNER.get(each, ()) else ""
        found = _matching(WANTED[each], _files(folder, prefix))
        if any(file.name != PROMPTS for file in found):
            return found
    found = [] if is_whole else _matching(ANY, _files(folder, ""))
    if not found:
        there = ", ".join(sorted(path.name for path in folder.iterdir())[:5])
        looked = f"what {product} has" if product else "exports, logs of sessions and notes"
        raise Failure(
            f"There is nothing in {folder} that can be imported. Looked for {looked}. Found: {there or 'nothing'}."
        )
    return found


def _matching(pattern: str, files: Iterable[FoundFile]) -> list[FoundFile]:
    requested = re.compile(pattern, re.IGNORECASE)
    return sorted((each for each in files if requested.fullmatch(each.name)), key=lambda each: each.name)


def _files(folder: Path, prefix: str) -> Iterator[FoundFile]:
    for here, folders, names in os.walk(folder, onerror=_refuse):
        # Of another program: `.git`, `.obsidian`. A product's own folder is named by the caller.
        folders[:] = sorted(name for name in folders if not name.startswith(".") or name in _AGENTS)
        for name in names:
            path = Path(here, name)
            if path.is_symlink() or not path.is_file():
                continue
            kind = path.stat()
            yield FoundFile(prefix + path.relative_to(folder).as_posix(), path, kind.st_size, kind.st_mtime_ns)


def _refuse(error: OSError) -> None:
    raise Failure(f"{error.filename} cannot be read: {error.strerror}.")


def pack(files: Iterable[FoundFile], target: IO[bytes]) -> None:
    """The zip of these files, each as it is at this moment: a session may still be going on."""
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED, strict_timestamps=False) as archive:
        for each in files:
            entry = zipfile.ZipInfo(each.name, _FIRST_TIME)
            entry.compress_type = zipfile.ZIP_DEFLATED
            try:
                content = each.path.open("rb")
            except OSError as error:
                raise Failure(f"{each.path} cannot be read: {error.strerror}.") from None
            with content, archive.open(entry, "w", force_zip64=each.size > 2**30) as packed:
                for piece in _messages(content) if _ROLLOUT.fullmatch(each.name) else _pieces(content):
                    packed.write(piece)


def _pieces(content: IO[bytes]) -> Iterator[bytes]:
    while piece := content.read(_PIECE):
        yield piece


def _messages(content: IO[bytes]) -> Iterator[bytes]:
    """Without Codex's copies of the whole history, one line each, that no reader wants: most of a long session."""
    is_left_out, is_beginning = False, True
    while piece := content.readline(_PIECE):
        if is_beginning:
            is_left_out = _COMPACTED.match(piece) is not None
        is_beginning = piece.endswith(b"\n")
        if not is_left_out:
            yield piece
        elif is_beginning:
            # Its number stays: a reader names positions by lines, and messages without an id too.
            yield b"\n"


# --- `recollect import PATH` ---

IMPORTS = "/api/v1/imports/"
# A proxy that takes less at once is of no use.
SMALLEST_CHUNK = 4096
TRIES = 6
LONGEST_WAIT = 30
RESTS = ("ready", "done", "failed", "cancelled", "undone")


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportOptions:
    product: str | None = None
    since: str | None = None
    is_dry_run: bool = False


def import_path(server: Server, path: Path, options: ImportOptions, show: Shows) -> dict[str, Any]:
    """The import at its end, or its preview for a dry run, as the server answers them. Raises `Failure`."""
    if path.is_dir():
        return import_files(
            server, requested_files(path, options.product), options, show, name=f"{path.resolve().name}.zip"
        )
    try:
        with path.open("rb") as content:
            return _bring(server, content, path.name, options, show, key=_key_of(server, path))
    except OSError as error:
        raise Failure(f"{path} cannot be read: {error.strerror}.") from None


def import_files(
    server: Server, files: list[FoundFile], options: ImportOptions, show: Shows, *, name: str
) -> dict[str, Any]:
    """The same of some files of a folder, packed into a temporary file."""
    with tempfile.TemporaryFile() as packed:
        pack(files, packed)
        packed.seek(0)
        return _bring(server, packed, name, options, show, key=None)


def _bring(
    server: Server, content: IO[bytes], name: str, options: ImportOptions, show: Shows, *, key: str | None
) -> dict[str, Any]:
    size = content.seek(0, 2)
    if size == 0:
        raise Failure("The file is empty. Download the export again and take the whole file.")
    shown = _resumed(server, key, size) or _begun(server, name, size, options.product)
    with _cancelled_by_ctrl_c(server, shown["id"]):
        if key:
            client.remember_upload(key, shown["id"])
        shown = _uploaded(server, content, shown, show)
        if key:
            client.forget_upload(key)
        shown = _followed(server, shown["id"], show)
        if shown["state"] != "ready":
            raise Failure(shown["error"] or f"The import is {shown['state']}.")
        if options.is_dry_run:
            query = urlencode({"limit": 500, **({"since": options.since} if options.since else {})})
            preview = server.ask("GET", f"{IMPORTS}{shown['id']}/preview/?{query}")
            server.ask("DELETE", f"{IMPORTS}{shown['id']}/")
            return preview
        return _stored(server, shown, options, show)


def _begun(server: Server, name: str, size: int, product: str | None) -> dict[str, Any]:
    body: dict[str, Any] = {"filename": name, "bytes": size, **({"product": product} if product else {})}
    return server.ask("POST", IMPORTS, body)


def _resumed(server: Server, key: str | None, size: int) -> dict[str, Any] | None:
    """An upload of this very file that broke off."""
    known = client.upload_of(key) if key else None
    if known is None:
        return None
    with contextlib.suppress(Failure):
        shown = server.ask("GET", f"{IMPORTS}{known}/")
        if shown.get("state") == "uploading" and shown.get("bytes") == size:
            return shown
    return None


def _uploaded(server: Server, content: IO[bytes], shown: dict[str, Any], show: Shows) -> dict[str, Any]:
    """Chunk after chunk; after a failure it goes on where the server says."""
    failures, most = 0, shown["chunk_bytes"]
    while shown["state"] == "uploading":
        first, total = shown["bytes_received"], shown["bytes"]
        show("uploading", first / total)
        content.seek(first)
        chunk = content.read(min(most, shown["chunk_bytes"], total - first))
        if not chunk:
            raise Failure("The file became shorter while it was read.")
        where = f"bytes {first}-{first + len(chunk) - 1}/{total}"
        headers = {"Content-Type": "application/octet-stream", "Content-Range": where}
        try:
            shown = server.ask("PUT", f"{IMPORTS}{shown['id']}/content/", chunk, **headers)
            failures = 0
        except Failure as failure:
            if failure.is_too_much_for_proxy and len(chunk) > SMALLEST_CHUNK:
                most = len(chunk) // 2
                continue
            failures += 1
            if failures == TRIES or not (failure.may_pass or failure.code == "wrong_offset"):
                raise
            time.sleep(0 if failure.code == "wrong_offset" else min(2**failures / 2, LONGEST_WAIT))
            shown = _asked_until_it_answers(server, shown)
    return shown


def _asked_until_it_answers(server: Server, shown: dict[str, Any]) -> dict[str, Any]:
    with contextlib.suppress(Failure):
        return server.ask("GET", f"{IMPORTS}{shown['id']}/")
    return shown


def _stored(server: Server, shown: dict[str, Any], options: ImportOptions, show: Shows) -> dict[str, Any]:
    server.ask("POST", f"{IMPORTS}{shown['id']}/start/", {"since": options.since} if options.since else {})
    done = _followed(server, shown["id"], show)
    if done["state"] == "failed":
        raise Failure(done["error"] or "The import failed.")
    if done["state"] != "done":
        raise Failure(f"The import was {done['state']}.")
    return done


def _followed(server: Server, import_id: str, show: Shows) -> dict[str, Any]:
    """The import once it rests, by its events; a stream that breaks off is opened anew."""
    failures, shown = 0, server.ask("GET", f"{IMPORTS}{import_id}/")
    while shown["state"] not in RESTS:
        try:
            for shown in server.events(f"{IMPORTS}{import_id}/events/"):
                failures = 0
                show(shown["state"], shown["progress"])
        except Failure as failure:
            failures += 1
            if failures == TRIES or not failure.may_pass:
                raise
            time.sleep(min(2**failures / 2, LONGEST_WAIT))
    return shown


@contextmanager
def _cancelled_by_ctrl_c(server: Server, import_id: str) -> Iterator[None]:
    """Cancels an import: its upload is deleted; stored texts stay, and can be undone."""
    try:
        yield
    except KeyboardInterrupt:
        for method, path in (("POST", f"{IMPORTS}{import_id}/cancel/"), ("DELETE", f"{IMPORTS}{import_id}/")):
            with contextlib.suppress(Failure):
                shown = server.ask(method, path)
                # One that began to store stays in the list, where it can be undone.
                if shown.get("stored"):
                    break
        raise


def _key_of(server: Server, path: Path) -> str:
    kind = path.stat()
    about = [server.address, str(path.resolve()), kind.st_size, kind.st_mtime_ns]
    return hashlib.sha256(json.dumps(about).encode()).hexdigest()


# --- `recollect sync`: the sessions of agents on this machine, as far as they changed since the last time ---

# Watching has begun by then.
FIRST_LOOK_MS = 1_000
QUIET_SECONDS = 5


SyncedFolder = tuple[str, Path]
"""A product, and its folder."""


def folders(product: str | None, path: Path | None) -> list[SyncedFolder]:
    """The folder named, or those that are there at their places. Raises `Failure` if there is none."""
    if path is not None:
        if product is None:
            raise Failure("Say of which product the folder is: claude-code, codex or openclaw.")
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
    before = client.read("sync").get(key) or {}
    prompts = [each for each in found if each.name == PROMPTS]
    changed = [each for each in found if each not in prompts and before.get(each.name) != [each.size, each.changed_ns]]
    if not changed:
        return None
    turns = 0
    if appends and before and product in transcripts.READERS:
        changed, turns = _appended(server, product, changed)
    done: dict[str, Any] | None = {"stored": {"turns": turns}} if turns else None
    if changed:
        files = [*_with_their_folders([each for each in found if each not in prompts], changed), *prompts]
        done = import_files(server, files, ImportOptions(product=product), show, name=f"{product}.zip")
        done["stored"]["turns"] = done["stored"].get("turns", 0) + turns
    try:
        # What grew while it was sent differs from this next time, and is sent again.
        client.write("sync", {**client.read("sync"), key: {each.name: [each.size, each.changed_ns] for each in found}})
    except OSError as error:
        raise Failure(f"What was sent cannot be remembered in {client.state_folder()}: {error.strerror}.") from None
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
            if failure.code not in (*capturing.HOPELESS, LACKS_SCOPE, "404"):
                raise
            sent = None
        except OSError:
            sent = None
        if sent is None:
            rest.append(each)
        else:
            stored += sent
    return rest, stored


def _with_their_folders(found: list[FoundFile], changed: list[FoundFile]) -> Iterator[FoundFile]:
    """A session that goes on from another repeats its lines, so the files of one folder are read together."""
    folders_changed = {_folder(each) for each in changed}
    return (each for each in found if _folder(each) in folders_changed)


def _folder(file: FoundFile) -> str:
    return re.sub(r"/[^/]+/subagents\Z", "", file.name.rpartition("/")[0])


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
        debounce=QUIET_SECONDS * 1000,
        step=500,
        rust_timeout=FIRST_LOOK_MS,
        yield_on_timeout=True,
        raise_interrupt=True,
    ):
        changed = {path for path in paths if any(Path(name).is_relative_to(path) for _, name in batch)}
        if not has_looked:
            has_looked, changed = True, set(paths)
        yield changed
