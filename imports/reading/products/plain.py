"""The plain form for products without a reader of their own: JSON, JSON Lines or CSV of messages with roles.

A value is `{title?, id?, createdAt?, messages: [{role, content, createdAt?, id?}]}`; messages without such a value
around them are one conversation.
"""

import csv
import io
from collections.abc import Iterator
from dataclasses import replace
from itertools import islice
from typing import Any

from core.text import gettext_noop as _
from imports.reading.attached import embedded
from imports.reading.drafts import ConversationDraft, NotShown
from imports.reading.files import Files, beginning_of
from imports.reading.items import ImportedConversation, Item, Items, Skipped
from imports.reading.json_lines import json_lines
from imports.reading.json_streams import LOOKED_AT, names_with, records
from imports.reading.notes import note_text
from imports.reading.products import ExportReader
from imports.reading.session_tree import (
    calls_in,
    pictures_in,
    role_of,
    texts_of,
    thinking,
    unknown_kinds,
    unknown_roles,
)
from imports.reading.values import (
    Fields,
    first_of,
    first_time,
    id_of,
    joined,
    line_of,
    list_of,
    object_of,
    objects_of,
    stable_id,
    text_of,
)

_SHAPES = (
    {"messages.role", "messages.content"},
    {"role", "content"},
    {"conversations.messages"},
    {"chats.messages"},
    {"data.messages"},
)
_COLUMNS = {
    "role": ("role", "author", "sender", "from", "speaker"),
    "content": ("content", "text", "message", "body"),
    "createdAt": ("createdat", "created_at", "timestamp", "time", "date"),
    "conversation": ("conversation_id", "conversation", "chat_id", "chat", "thread_id", "session_id", "session"),
    "title": ("title", "conversation_title", "chat_title"),
}
_TIMES = ("createdAt", "created_at", "timestamp", "create_time", "time")
# Where several conversations stand in one value.
_LISTS = ("conversations", "chats", "data")


def _recognises(files: Files) -> int:
    return 10 if names_with(files, *_SHAPES, at_most=LOOKED_AT) or _tables(files) else 0


def _read(files: Files) -> Items:
    not_shown, taken = NotShown(), set[str]()
    for name in names_with(files, *_SHAPES):
        loose: list[Any] = []
        for where, value in _values(files, name):
            if isinstance(value, Skipped):
                yield value
            elif "role" in object_of(value):
                loose.append(value)
            else:
                yield from (_conversation(where, each, not_shown, files, taken) for each in _records(value))
        if loose:
            yield _conversation(name, {"messages": loose}, not_shown, files, taken)
    for name in _tables(files):
        for record in _of_a_table(note_text(files, name)):
            yield _conversation(name, record, not_shown, files, taken)
    yield from not_shown.listed()


def _values(files: Files, name: str) -> Iterator[tuple[str, Any]]:
    """The values of the file; a `Skipped` in the place of a line that is broken, which leaves the others whole."""
    if name.lower().endswith((".jsonl", ".ndjson")):
        return ((f"{name}:{number}", line) for number, line in json_lines(files, name))
    return records(files, name)


def _records(value: Any) -> list[Fields]:
    """The conversations of a value: one, a bare list of messages, or a list of conversations under a name."""
    if isinstance(value, list):
        return [{"messages": value}]
    fields = object_of(value)
    listed = next((objects_of(fields[name]) for name in _LISTS if fields.get(name)), [])
    return [fields] if "messages" in fields or not listed else listed


def _conversation(where: str, record: Fields, not_shown: NotShown, files: Files, taken: set[str]) -> Item:
    draft = ConversationDraft(
        product="plain",
        where=where,
        external_id=first_of(record, "id", "conversationId", "conversation_id", "uuid"),
        title=first_of(record, "title", "name"),
        created_at=first_time(record, *_TIMES),
    )
    before = None
    for place, message in enumerate(objects_of(record, "messages")):
        node = id_of(message, "id") or f"message-{place}"
        node = f"{node}#{place}" if node in draft.parents else node
        _say(draft, node, before, message, files)
        not_shown.prompts += line_of(message, "role").casefold() in ("tool", "function")
        kinds = (*unknown_roles(message, "role"), *unknown_kinds(message.get("content")))
        not_shown.note(f"{where} {node}", *kinds)
        before = node
    found = draft.finished()
    if isinstance(found, ImportedConversation) and not draft.external_id:
        # Conversations without ids that begin alike are told apart by all their words.
        if found.external_id in taken:
            found = replace(found, external_id=stable_id(*(message.text for message in found.messages)))
        taken.add(found.external_id)
    return found


def _say(draft: ConversationDraft, node: str, before: str | None, message: Fields, files: Files) -> None:
    content, role = message.get("content"), role_of(message, "role")
    calls = list(calls_in(content))
    for call in list_of(message, "tool_calls"):
        name, arguments = line_of(call, "function", "name") or "tool", text_of(call, "function", "arguments")
        calls.append({"name": name, "input": arguments})
    draft.say(
        node,
        before,
        first_time(message, *_TIMES),
        role,
        joined(texts_of(content)),
        model=line_of(message, "model"),
        names=pictures_in(content),
        files=embedded(files, content) if role else (),
        calls=[*calls, *thinking(text_of(message, "reasoning_content").strip())],
    )


def _tables(files: Files) -> list[str]:
    """The CSV files whose first line names a column of roles and one of texts."""
    names = files.names()
    found = []
    for name in names if len(names) == 1 else [name for name in names if name.lower().endswith((".csv", ".tsv"))]:
        first = beginning_of(files, name, 4096).partition("\n")[0]
        if {"role", "content"} <= _columns(first).keys():
            found.append(name)
    return found


def _columns(first: str) -> dict[str, int]:
    """The number of each column that is known, by the first line of a table."""
    heads = [head.strip(' "\t').casefold() for head in first.splitlines()[0].split(_delimiter(first))] if first else []
    named = {field: next((name for name in names if name in heads), None) for field, names in _COLUMNS.items()}
    return {field: heads.index(name) for field, name in named.items() if name is not None}


def _delimiter(first: str) -> str:
    return max(",;\t", key=first.count)


def _of_a_table(text: str) -> list[Fields]:
    """The conversations of a table: by its column of their ids or titles, else all rows are one."""
    first = text.partition("\n")[0]
    columns = _columns(first)
    found: dict[str, Fields] = {}
    for row in islice(csv.reader(io.StringIO(text), delimiter=_delimiter(first)), 1, None):
        fields = {field: row[number] for field, number in columns.items() if number < len(row)}
        named = fields.get("conversation", "")
        chat = found.setdefault(
            named or fields.get("title", ""),
            # Microsoft's Copilot has titles in its column of conversations.
            {"id": named, "title": fields.get("title") or (named if " " in named else ""), "messages": []},
        )
        chat["messages"].append(fields)
    return list(found.values())


READER = ExportReader(
    product="plain",
    label="Plain messages",
    recognises=_recognises,
    read=_read,
    looks_for=_("JSON, JSON Lines or CSV of messages with a role and a content"),
)
