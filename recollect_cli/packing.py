"""A folder as one zip in a temporary file: only the files that the readers of exports want, without links."""

import os
import re
import zipfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from recollect_cli.client import Failure

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
    "cursor": ("projects",),
}
# Folders that begin with a dot and are looked into, wherever they are.
_AGENTS = (".claude", ".codex", ".openclaw", ".gemini", ".cursor")
_PIECE = 1024 * 1024
_ROLLOUT = re.compile(r"(?:.*/)?rollout-[^/]+\.jsonl")
# In any order, the keys before the kind of a line are short.
_COMPACTED = re.compile(
    rb'\{(?:\s{0,8}"timestamp"\s{0,8}:\s{0,8}"[^"]{0,64}"\s{0,8},)?\s{0,8}"type"\s{0,8}:\s{0,8}"compacted"'
)


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
            # The first time that a zip can name.
            entry = zipfile.ZipInfo(each.name, (1980, 1, 1, 0, 0, 0))
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
