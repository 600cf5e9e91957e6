"""Recollect's own export: the JSON document, a zip of it, the zip of Markdown files, or one conversation of either.

Every exported field is imported: ids, numbers, statuses, times. The module that writes the Markdown also reads it
(core/text.py), so both formats give the same items.
"""

import re
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from core.text import Sentence, read_head, read_sections, sentence_of
from core.text import gettext_noop as _
from imports.reading.attached import ExportFiles
from imports.reading.exported import LONGEST, conversation_of, document_of, left_out, project_of, record_of
from imports.reading.files import Files
from imports.reading.items import Item, Items, Notice, Skipped, UnreadableExport
from imports.reading.json_streams import BrokenJSON, json_names, line_of, members, object_of, shape, text_of
from imports.reading.products import ExportReader
from imports.reading.trees import broken_off

PRODUCT = "recollect"
FORMAT = "recollect-export-1"
_CONVERSATION_NAME = re.compile(r"(?:^|.*/)conversations/[^/]+\.md\Z")
_DOCUMENT_NAME = re.compile(r"(?P<root>|.*/)(?P<path>MEMORY\.md|USER\.md|(?:memory|notes|projects)/[^/]+\.md)\Z")
_RECORDS_NAME = re.compile(r"(?:^|.*/)(?:records|proposals)\.md\Z")
_TIMES_NAME = re.compile(r"(?:^|.*/)documents\.json\Z")
_BEGINNING = b"---\nrecollect: "
# One text at a time is in memory, and no conversation comes near this.
_LONGEST_FILE = 256 * 1024 * 1024


def _recognises(files: Files) -> int:
    if any(_is_ours(files, name) for name in json_names(files, at_most=20)):
        return 100
    return 95 if any(_begins_as_ours(files, name) for name in _notes(files)[:20]) else 0


def _is_ours(files: Files, name: str) -> bool:
    return {"format", "exported_at"} <= shape(files, name) and FORMAT.encode() in _beginning(files, name)


def _beginning(files: Files, name: str) -> bytes:
    with files.look(name) as stream:
        return stream.read(200)


def _begins_as_ours(files: Files, name: str) -> bool:
    return _beginning(files, name).replace(b"\r\n", b"\n").startswith(_BEGINNING)


def _notes(files: Files) -> list[str]:
    """The files that may be a Markdown conversation: by their folder, or the only file."""
    names = files.names()
    return names if len(names) == 1 else [name for name in names if _CONVERSATION_NAME.match(name)]


def _read(files: Files) -> Items:
    beside = ExportFiles(files)
    for name in json_names(files):
        if _is_ours(files, name):
            yield from _whole_document(files, name, beside)
    for name in _notes(files):
        if name.endswith(".md"):
            yield from _conversation_file(files, name, beside)
    yield from beside.notice()
    yield from _documents(files)
    for name in filter(_RECORDS_NAME.match, files.names()):
        yield from _records(files, name)


def _whole_document(files: Files, name: str, beside: ExportFiles) -> Iterator[Item]:
    one_conversation = partial(conversation_of, beside=beside)
    makers: dict[str, Callable[[dict[str, Any], str], Item]] = {
        "projects": project_of,
        "conversations": one_conversation,
        "documents": document_of,
        "records": record_of,
        "proposals": partial(record_of, is_proposed=True),
    }
    counts = dict.fromkeys(makers, 0)
    try:
        with files.open(name) as stream:
            for part, value in members(stream):
                if part in makers:
                    fields, where = object_of(value), f"{name}:{part}[{counts[part]}]"
                    yield makers[part](fields, where)
                    if part == "conversations":
                        yield from left_out(fields, where)
                        yield from _instructions(fields, fields.get("title"))
                    if part == "projects":
                        yield from _instructions(fields, fields.get("name"), is_project=True)
                    counts[part] += 1
    except BrokenJSON as error:
        yield broken_off(name, error)
    except UnreadableExport as error:
        yield Skipped(where=name, reason=sentence_of(error))


def _conversation_file(files: Files, name: str, beside: ExportFiles) -> Iterator[Item]:
    text = _text(files, name)
    if isinstance(text, Skipped):
        yield text
        return
    head = read_head(text)
    if head.pop("recollect", None) != "conversation":
        yield Skipped(where=name, reason=_("this is no conversation of Recollect's export"))
        return
    head.pop("turn_count", None)
    fields = {**head, "turns": list(_turns(text))}
    yield conversation_of(fields, name, beside)
    yield from left_out(fields, name)
    yield from _instructions(fields, fields.get("title"))


def _instructions(fields: dict[str, Any], name: object, *, is_project: bool = False) -> Iterator[Notice]:
    """A stranger's orders would be obeyed in all answers of the chat or project: the person sees them and decides."""
    if instructions := text_of(fields.get("instructions")).strip():
        title = line_of(name)[: LONGEST["title"]]
        message = _(
            "“%(title)s” has instructions. They are off unless this account exported them; set them in the chat: "
            "%(place)s"
        )
        if is_project:
            message = _(
                "The project “%(title)s” has instructions. They are off unless this account exported them; set them on "
                "its page: %(place)s"
            )
        yield Notice(text=Sentence(message, title=title, place=instructions))


def _turns(text: str) -> Iterator[dict[str, Any]]:
    turn: dict[str, Any] | None = None
    for kind, fields, written in read_sections(text):
        if kind == "turn":
            if turn:
                yield turn
            turn = {**fields, "user_message": written, "assistant_message": ""}
        elif kind == "answer" and turn:
            turn["assistant_message"] = written
    if turn:
        yield turn


def _documents(files: Files) -> Iterator[Item]:
    names = {found["path"]: name for name in files.names() if (found := _DOCUMENT_NAME.match(name))}
    times = _times(files)
    # In the order in which they were written, so that the next export has the same order.
    for path in [*(path for path in times if path in names), *(path for path in names if path not in times)]:
        text = _text(files, names[path])
        if isinstance(text, Skipped):
            yield text
        else:
            yield document_of({**_kind_of(path), **times.get(path, {}), "content": text}, path)


def _kind_of(path: str) -> dict[str, Any]:
    if path.startswith("memory/"):
        return {"kind": "daily_log", "date": path.removeprefix("memory/").removesuffix(".md")}
    if path.startswith("projects/"):
        return {"kind": "memory", "date": None, "project": path.removeprefix("projects/").removesuffix(".md")}
    return {"kind": "memory" if path == "MEMORY.md" else "about", "date": None}


def _times(files: Files) -> dict[str, dict[str, Any]]:
    for name in filter(_TIMES_NAME.match, files.names()):
        try:
            with files.open(name) as stream:
                found = [object_of(value) for _, value in members(stream)]
        except (BrokenJSON, UnreadableExport):
            continue  # The documents are imported without their times.
        return {text_of(each.get("file")): {k: v for k, v in each.items() if k != "file"} for each in found}
    return {}


def _records(files: Files, name: str) -> Iterator[Item]:
    text = _text(files, name)
    if isinstance(text, Skipped):
        yield text
        return
    for number, (kind, fields, written) in enumerate(read_sections(text), 1):
        if kind == "record":
            is_proposed = name.endswith("proposals.md")
            yield record_of({**fields, "content": written}, f"{name}:{number}", is_proposed=is_proposed)


def _text(files: Files, name: str) -> str | Skipped:
    if files.size(name) > _LONGEST_FILE:
        return Skipped(where=name, reason=_("this file is too large"))
    try:
        with files.open(name) as stream:
            return text_of(stream.read(_LONGEST_FILE).decode(errors="replace"))
    except UnreadableExport as error:
        return Skipped(where=name, reason=sentence_of(error))


READER = ExportReader(
    product=PRODUCT,
    label="Recollect",
    recognises=_recognises,
    read=_read,
    looks_for=_("recollect.json or the zip of Markdown files that Recollect exports"),
    wordless=r"(?:^|/)activity\.json\Z",
)
