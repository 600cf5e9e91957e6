"""Recollect's own export: the JSON document, a zip of it, or the Markdown of version 1.0.

Every exported field is imported: ids, numbers, statuses, times. Version 1.0 wrote the same fields into Markdown: front
matter for a conversation, and before each turn, answer or record a comment with JSON, as in

    <!-- turn {"turn_number": 1, "status": "complete"} -->
    ## You

    The user's message, unchanged.

    <!-- end {} -->

A line of a text that looks like such a comment has a backslash in front.
"""

import json
import re
from collections import Counter
from collections.abc import Iterator
from typing import Any

from core.text import Sentence, sentence_of
from core.text import gettext_noop as _
from imports.reading.attached import ExportFiles
from imports.reading.exported import conversation_of, document_of, instructions_of, project_of, record_of
from imports.reading.files import Files, beginning_of
from imports.reading.items import Items, UnreadableExport
from imports.reading.json_streams import json_names, members, shape, streamed
from imports.reading.products import ExportReader
from imports.reading.values import Fields, base_name, object_of, text_of

PRODUCT = "recollect"
FORMAT = "recollect-export-1"
_CONVERSATION_NAME = re.compile(r"(?:^|.*/)conversations/[^/]+\.md\Z")
_DOCUMENT_NAME = re.compile(r"(?P<root>|.*/)(?P<path>MEMORY\.md|USER\.md|(?:memory|notes|projects)/[^/]+\.md)\Z")
_RECORDS_NAME = re.compile(r"(?:^|.*/)(?:records|proposals)\.md\Z")
_TIMES_NAME = re.compile(r"(?:^|.*/)documents\.json\Z")
_BEGINNING = "---\nrecollect: "
# The first lines of the Markdown that later versions write (chat/exporting.py).
FOR_READING = _(
    "These files are for reading. To bring your data back, here or into another Recollect, import the JSON export."
)
_MARK = re.compile(r"^<!-- (?P<kind>turn|answer|record|end) (?P<fields>\{.*\}) -->[ \t\r]*$", re.MULTILINE)
_ESCAPED = re.compile(r"^\\(?=\\*<!-- (?:turn|answer|record|end)\b)", re.MULTILINE)
_HEADING = re.compile(r"## [^\n]*\n")
# One text at a time is in memory, and no conversation comes near this.
_LONGEST_FILE = 256 * 1024 * 1024


def _recognises(files: Files) -> int:
    if any(_is_ours(files, name) for name in json_names(files, at_most=20)):
        return 100
    notes = (beginning_of(files, name, 200).replace("\r\n", "\n") for name in _notes(files)[:20])
    return 95 if _is_for_reading(files) or any(each.startswith(_BEGINNING) for each in notes) else 0


def _is_for_reading(files: Files) -> bool:
    names = (name for name in files.names() if base_name(name) == "README.md")
    return any(FOR_READING in beginning_of(files, name, 200) for name in names)


def _is_ours(files: Files, name: str) -> bool:
    return {"format", "exported_at"} <= shape(files, name) and FORMAT in beginning_of(files, name, 200)


def _notes(files: Files) -> list[str]:
    """The files that may be a Markdown conversation: by their folder, or the only file."""
    names = files.names()
    return names if len(names) == 1 else [name for name in names if _CONVERSATION_NAME.match(name)]


def _read(files: Files) -> Items:
    if _is_for_reading(files):
        raise UnreadableExport(Sentence(FOR_READING))
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


def _whole_document(files: Files, name: str, beside: ExportFiles) -> Items:
    counts: Counter[str] = Counter()
    for part, value in streamed(files, name, members):
        fields, where = object_of(value), f"{name}:{part}[{counts[part]}]"
        counts[part] += 1
        match part:
            case "projects":
                yield project_of(fields, where)
                yield from instructions_of(fields, is_project=True)
            case "conversations":
                yield from conversation_of(fields, where, beside)
            case "documents":
                yield document_of(fields, where)
            case "records" | "proposals":
                yield record_of(fields, where, is_proposed=part == "proposals")


def _conversation_file(files: Files, name: str, beside: ExportFiles) -> Items:
    text = _text(files, name)
    head = read_head(text or "")
    if head.pop("recollect", None) != "conversation":
        files.report(name, _("this is no conversation of Recollect's export"))
        return
    head.pop("turn_count", None)
    yield from conversation_of({**head, "turns": list(_turns(text or ""))}, name, beside)


def read_head(text: str) -> Fields:
    """The fields of the front matter. A value that is not JSON, as people write it, is a text."""
    lines = text[: 64 * 1024].replace("\r\n", "\n").split("\n")
    if lines[0] != "---" or "---" not in lines[1:]:
        return {}
    fields = (line.partition(":") for line in lines[1 : lines.index("---", 1)])
    return {
        name: _value(value.strip(" \t\r")) for name, colon, value in fields if colon and re.fullmatch("[a-z_]+", name)
    }


def read_sections(text: str) -> Iterator[tuple[str, Fields, str]]:
    """The kind, the fields and the text of every section. Fields that are not valid JSON are empty."""
    marks = list(_MARK.finditer(text))
    for mark, following in zip(marks, [*marks[1:], None], strict=False):
        if mark["kind"] != "end":
            fields = _value(mark["fields"])
            inner = text[mark.end() + 1 : following.start() if following else len(text)]
            heading = _HEADING.match(inner)
            inner = inner[heading.end() if heading else 0 :].removeprefix("\n").removesuffix("\n").removesuffix("\n")
            yield mark["kind"], fields if isinstance(fields, dict) else {}, _ESCAPED.sub("", inner)


def _value(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def _turns(text: str) -> Iterator[Fields]:
    turn: Fields | None = None
    for kind, fields, written in read_sections(text):
        if kind == "turn":
            if turn:
                yield turn
            turn = {**fields, "user_message": written, "assistant_message": ""}
        elif kind == "answer" and turn:
            turn["assistant_message"] = written
    if turn:
        yield turn


def _documents(files: Files) -> Items:
    names = {found["path"]: name for name in files.names() if (found := _DOCUMENT_NAME.match(name))}
    times = _times(files)
    # In the order in which they were written, so that the next export has the same order.
    for path in [*(path for path in times if path in names), *(path for path in names if path not in times)]:
        if (text := _text(files, names[path])) is not None:
            yield document_of({**_kind_of(path), **times.get(path, {}), "content": text}, path)


def _kind_of(path: str) -> Fields:
    if path.startswith("memory/"):
        return {"kind": "daily_log", "date": path.removeprefix("memory/").removesuffix(".md")}
    if path.startswith("projects/"):
        return {"kind": "memory", "date": None, "project": path.removeprefix("projects/").removesuffix(".md")}
    return {"kind": "memory" if path == "MEMORY.md" else "about", "date": None}


def _times(files: Files) -> dict[str, Fields]:
    for name in filter(_TIMES_NAME.match, files.names()):
        found = [object_of(value) for _, value in streamed(files, name, members)]
        return {text_of(each, "file"): {k: v for k, v in each.items() if k != "file"} for each in found}
    return {}


def _records(files: Files, name: str) -> Items:
    for number, (kind, fields, written) in enumerate(read_sections(_text(files, name) or ""), 1):
        if kind == "record":
            is_proposed = name.endswith("proposals.md")
            yield record_of({**fields, "content": written}, f"{name}:{number}", is_proposed=is_proposed)


def _text(files: Files, name: str) -> str | None:
    """None, and a report, for a file that cannot be read."""
    reason = _("this file is too large")
    if files.size(name) <= _LONGEST_FILE:
        try:
            with files.open(name) as stream:
                return text_of(stream.read(_LONGEST_FILE).decode(errors="replace"))
        except UnreadableExport as error:
            reason = sentence_of(error)
    files.report(name, reason)
    return None


READER = ExportReader(
    product=PRODUCT,
    label="Recollect",
    recognises=_recognises,
    read=_read,
    looks_for=_("recollect.json or the zip of Markdown files that Recollect exports"),
    wordless=r"(?:^|/)(?:activity|tools)\.json\Z",
)
