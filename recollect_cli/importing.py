"""`recollect import PATH`: upload in chunks, look, store, report; Ctrl-C ends it cleanly."""

import contextlib
import hashlib
import json
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any
from urllib.parse import urlencode

from recollect_cli import state
from recollect_cli.client import Failure, Server
from recollect_cli.packing import FoundFile, pack, requested_files
from recollect_cli.printing import Shows

IMPORTS = "/api/v1/imports/"
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
        raise Failure("This file is empty.")
    shown = _resumed(server, key, size) or _begun(server, name, size, options.product)
    with _cancelled_by_ctrl_c(server, shown["id"]):
        if key:
            state.keep_upload(key, shown["id"])
        shown = _uploaded(server, content, shown, show)
        if key:
            state.keep_upload(key, None)
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
    known = state.read("uploads").get(key) if key else None
    if not isinstance(known, str):
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
            # A proxy in between, and not the server, refused the size. One that takes less at once is of no use.
            if failure.code == "413" and not failure.problem and len(chunk) > 4096:
                most = len(chunk) // 2
                continue
            failures += 1
            if failures == TRIES or not (failure.may_pass or failure.code == "wrong_offset"):
                raise
            time.sleep(0 if failure.code == "wrong_offset" else min(2**failures / 2, LONGEST_WAIT))
            with contextlib.suppress(Failure):
                shown = server.ask("GET", f"{IMPORTS}{shown['id']}/")
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
