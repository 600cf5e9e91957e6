"""What an export has of the files of its messages: entries of a zip, bytes in base64, pasted blocks, written documents.

An export names a file by an id, and has it under a name that begins with that id; other files lie there under their own
names. Which are missing is counted, and the user reads how many.
"""

import base64
import binascii
import mimetypes
import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import chain
from pathlib import PurePosixPath
from typing import Any

from core.text import Sentence
from core.text import gettext_noop as _
from imports.reading.files import Files
from imports.reading.items import ImportedFile, ImportedMessage, Notice
from imports.reading.json_lines import json_lines
from imports.reading.values import (
    base_name,
    first_of,
    line_of,
    name_of_block,
    object_of,
    objects_of,
    parse_time,
    text_of,
    value_at,
)

# A pasted text of more characters is a file, as the chat's page makes one of it. A shorter one stays in its message.
LONG = 4_000
PASTED = "Pasted text.txt"
_DATA_URL = re.compile(r"data:(?P<type>[\w.+-]{1,60}/[\w.+-]{1,60})?(?:;[\w=.+-]{1,60}){0,3};base64,", re.ASCII)
# `file-3TVkok7WrcJCknU4GyHGhD-photo.png`, `file_00000000abcd.dat`; a UUID, as Claude's.
_ID = re.compile(r"(?P<id>file[-_][0-9A-Za-z]{6,64}|[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})(?![0-9A-Za-z])")
# What an agent's history of prompts has in the place of a pasted block.
_PLACEHOLDER = re.compile(
    r"\[Pasted (?:Content (?P<characters>\d{1,9}) chars|text #\d{1,4}(?: \+(?P<lines>\d{1,7}) lines)?)\](?: #\d{1,4})?"
)
# What languages and types call themselves, where that is not the ending of their files.
_ENDINGS = {
    "markdown": "md", "document": "md", "python": "py", "javascript": "js", "typescript": "ts", "react": "jsx",
    "bash": "sh", "shell": "sh", "rust": "rs", "ruby": "rb", "kotlin": "kt", "csharp": "cs", "mermaid": "mmd",
    "svg+xml": "svg", "plain": "txt", "text": "txt", "golang": "go", "c++": "cpp", "yaml": "yaml", "json": "json",
}  # fmt: skip
_ENDING = re.compile(r"[a-z0-9]{1,8}", re.ASCII)

MISSING = _("%(count)s attached files are missing from the export; their names are kept.")
ONE_MISSING = _("An attached file is missing from the export; its name is kept.")


@dataclass
class ExportFiles:
    """The files that lie in an export beside its texts, by the ids in their names, and by their whole names."""

    files: Files
    by_id: dict[str, str] = field(default_factory=dict)
    # None for a name that several files have.
    by_name: dict[str, str | None] = field(default_factory=dict)
    # The names that the export says its entries have.
    names: dict[str, str] = field(default_factory=dict)
    missing: set[str] = field(default_factory=set)
    _taken: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for entry in self.files.names():
            folders, _slash, name = entry.rpartition("/")
            for part in (base_name(folders), name):
                if found := _ID.match(part):
                    self.by_id.setdefault(found["id"], entry)
            self.by_name[name] = None if name in self.by_name else entry

    def find(self, id_: str, name: str = "", media_type: str = "") -> ImportedFile | None:
        """The file of this id, or else the only one of this name; a missing one is counted."""
        entry = self.by_id.get(id_) if id_ else None
        if entry is None and self._taken.setdefault(name, id_) == id_:
            entry = self.by_name.get(name)
        if entry is None:
            self.missing.add(id_ or name)
            return None
        self.files.opened.add(entry)
        name = name or self.names.get(base_name(entry), "") or shown_name(entry)
        return ImportedFile(name=name, entry=entry, size=self.files.size(entry), media_type=media_type)

    def notice(self) -> Iterator[Notice]:
        if self.missing:
            count = len(self.missing)
            yield Notice(text=Sentence(MISSING, count=count) if count > 1 else ONE_MISSING)


def shown_name(entry: str) -> str:
    """The name of an entry as its sender had it: without its folders and the id before it."""
    name = base_name(entry)
    found = _ID.match(name)
    rest = name[found.end() :].lstrip("-_ ") if found else name
    return name if rest.startswith(".") or not rest else rest


def embedded(files: Files, content: Any) -> tuple[ImportedFile, ...]:
    """The files whose bytes stand among the blocks of a message: pictures and documents in base64."""
    found = ((_of_block(files, block), block) for block in objects_of(content))
    return tuple(replace(file, named_as=name_of_block(block)) for file, block in found if file)


def _of_block(files: Files, block: dict[str, Any]) -> ImportedFile | None:
    source = object_of(block, "source")
    name = first_of(block, "title", "filename")
    if source.get("type") == "base64":
        return from_base64(files, text_of(source, "data"), line_of(source, "media_type"), name)
    pointer = block.get("image_url") or block.get("file_data") or block.get("url")
    return from_url(files, text_of(value_at(pointer, "url") or pointer), name)


def from_url(files: Files, url: str, name: str = "") -> ImportedFile | None:
    """The file of a data URL; None for an address, from which nothing is fetched."""
    found = _DATA_URL.match(url)
    return from_base64(files, url[found.end() :], found["type"] or "", name) if found else None


def from_base64(files: Files, text: str, media_type: str, name: str = "") -> ImportedFile | None:
    try:
        data = base64.b64decode(text)
    except (binascii.Error, ValueError):
        return None
    if not data:
        return None
    kind, ending = media_type.partition("/")[0] or "file", mimetypes.guess_extension(media_type) or ""
    return ImportedFile(name=name or f"{kind}{ending}", entry=files.keep(data), size=len(data), media_type=media_type)


def written(name: str, text: str, kind: str = "") -> ImportedFile:
    """A document that was written beside a message. `kind`: its type or language, as the product names it."""
    name = line_of(name) or "document"
    if _ENDING.fullmatch(PurePosixPath(name).suffix[1:].lower()) and mimetypes.guess_type(name)[0]:
        return ImportedFile(name=name, text=text)
    language = line_of(kind).lower().rpartition("/")[2].rpartition(".")[2]
    ending = _ENDINGS.get(language) or (language if _ENDING.fullmatch(language) else "txt")
    return ImportedFile(name=f"{name}.{ending}", text=text)


def pasted_blocks(typed: str, text: str) -> list[str]:
    """The long blocks that stand in a message where `typed`, the same prompt in a history, only counts them.

    Empty if the message is another one: all words around the blocks, and their lengths, must agree.
    """
    marks = list(_PLACEHOLDER.finditer(typed))
    ends = [0, *(mark.end() for mark in marks)]
    words = [typed[start : mark.start()] for start, mark in zip(ends, [*marks], strict=False)]
    last = typed[ends[-1] :].rstrip()
    if not marks or not text.startswith(first := words[0].lstrip()):
        return []
    at, blocks = len(first), []
    for mark, after in zip(marks, [*words[1:], last], strict=True):
        end = _end_of_block(text, at, mark, after)
        if end is None:
            return []
        blocks.append(text[at:end])
        at = end + len(after)
    return [block for block in blocks if len(block) > LONG] if at >= len(text.rstrip()) else []


def _end_of_block(text: str, at: int, mark: re.Match[str], after: str) -> int | None:
    """Where the block ends that begins here and is as long as its mark says."""
    if mark["characters"]:
        end = at + int(mark["characters"])
        if text.startswith(after, end):
            return end
        # Blank lines at the end of a message are dropped.
        return len(text) if at < len(text) <= end <= len(text) + 2 else None
    end = text.find(after, at) if after else len(text.rstrip())
    lines = int(mark["lines"] or 0)
    # The words after the block may stand in it too: the first place where the lines agree.
    while end >= 0 and after and text.count("\n", at, end) < lines:
        end = text.find(after, end + 1)
    return end if end >= 0 and abs(text.count("\n", at, end) - lines) <= 1 else None


PromptsByMinute = dict[int, list[str]]


def prompts_in(files: Files, name: str, text: str, at: str) -> PromptsByMinute:
    """The prompts of an agent's history that had pasted blocks. `text`, `at`: what their fields are called."""
    found: PromptsByMinute = {}
    for _number, line in json_lines(files, name):
        fields = object_of(line)
        typed, time = text_of(fields, text), parse_time(fields, at)
        if time and _PLACEHOLDER.search(typed):
            found.setdefault(int(time.timestamp()) // 60, []).append(typed)
    return found


def with_pasted(message: ImportedMessage, prompts: PromptsByMinute) -> ImportedMessage:
    """The user's message with the blocks that were pasted into it as files, by the prompts of about its time."""
    if not prompts or message.role != "user" or message.at is None or len(message.text) <= LONG:
        return message
    minute = int(message.at.timestamp()) // 60
    # How many minutes a prompt may be written before its message is logged, or after it.
    about_then = chain.from_iterable(prompts.get(each, ()) for each in range(minute - 2, minute + 3))
    blocks = next(filter(None, (pasted_blocks(typed, message.text) for typed in about_then)), [])
    pasted = tuple(ImportedFile(name=PASTED, text=block) for block in blocks)
    return replace(message, files=(*message.files, *pasted))
