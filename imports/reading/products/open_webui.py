"""Open WebUI: a list of chats, or one chat, each a map of messages with `parentId` beneath `history`.

Qwen's export is the same within `data`, with an answer's texts in `content_list`.
"""

from dataclasses import replace
from functools import partial
from typing import Any

from core.text import gettext_noop as _
from imports.reading.attached import from_url
from imports.reading.drafts import NO_MESSAGES, ConversationDraft, NotShown, items_of
from imports.reading.envelopes import opened
from imports.reading.files import Files
from imports.reading.items import ImportedFile, Items, Skipped
from imports.reading.json_streams import names_with, of_shapes
from imports.reading.products import ExportReader
from imports.reading.session_tree import role_of, texts_of, thinking, unknown_kinds, unknown_roles
from imports.reading.values import Fields, id_of, line_of, object_of, objects_of, parse_time, text_of, value_at

# What the model thought and did.
_FOLDED_ITEMS = {
    "reasoning", "function_call", "function_call_output", "code_interpreter", "open_webui:code_interpreter",
    "web_search_call",
}  # fmt: skip
# The phases of Qwen's answers that are no thinking and no search.
_SHOWN_PHASES = (None, "", "answer")
_SHAPES = (
    {"chat.history"},
    {"history.messages"},
    {"history", "models"},
    {"chat.messages"},
    {"data.chat.history"},
    {"data.chat.messages"},
    {"models", "messages.role", "messages.content"},
)


def _read(files: Files) -> Items:
    names = names_with(files, *_SHAPES)
    return items_of(files, names, partial(_conversation, files))


def _conversation(files: Files, where: str, record: Any, not_shown: NotShown) -> Items:
    fields = object_of(record)
    for number, each in enumerate(objects_of(fields, "data")):
        yield from _conversation(files, f"{where}:data[{number}]", each, not_shown)
    if fields.get("data") and "chat" not in fields:
        return
    chat = object_of(fields, "chat") or fields
    messages = value_at(chat, "history", "messages")
    found = (isinstance(messages, dict) and messages) or _listed(chat.get("messages")) or messages
    if not isinstance(found, dict):
        yield Skipped(where=where, reason=NO_MESSAGES, external_id=id_of(fields, "id") or None)
        return
    draft = ConversationDraft(
        product="open-webui",
        where=where,
        external_id=id_of(fields, "id"),
        title=line_of(fields, "title") or line_of(chat, "title"),
        created_at=parse_time(fields, "created_at") or parse_time(chat, "timestamp"),
        last_at=parse_time(fields, "updated_at"),
        is_archived=fields.get("archived") is True,
        leaf=id_of(chat, "history", "currentId"),
    )
    merged = {id_of(key): f"{id_of(key)}-merged" for key, value in found.items() if _merged(object_of(value))}
    for key, value in found.items():
        node, message = id_of(key), object_of(value)
        parent = id_of(message, "parentId")
        _say(draft, node, merged.get(parent, parent), message, files)
        if node in merged:
            draft.say(merged[node], node, draft.times[node], "assistant", _merged(message))
        not_shown.note(f"{where} {node}", *_unknown_kinds(message))
    draft.leaf = merged.get(draft.leaf or "", draft.leaf)
    yield draft.finished()


def _listed(messages: Any) -> Fields:
    """The messages of a chat without a history: a list, each after the one before it if it names no parent."""
    found: Fields = {}
    before = None
    for place, message in enumerate(objects_of(messages)):
        node = id_of(message, "id") or f"message-{place}"
        node = f"{node}#{place}" if node in found else node
        found[node] = message if "parentId" in message else {**message, "parentId": before}
        before = node
    return found


def _merged(message: Fields) -> str:
    """The answer that was made of those of several models."""
    return text_of(message, "merged", "content").strip()


def _say(draft: ConversationDraft, node: str, parent: str, message: Fields, files: Files) -> None:
    role, listed = role_of(message, "role"), objects_of(message, "content_list")
    texts = [text for text in texts_of(message.get("content")) if text.strip()]
    # Newer versions keep an answer's blocks beside an empty text.
    texts = texts or [text for item in objects_of(message, "output") for text in _texts_of_item(item)]
    texts = texts or [text_of(each, "content") for each in listed if each.get("phase") in _SHOWN_PHASES]
    thoughts = (text_of(each, "content").strip() for each in listed if each.get("phase") not in _SHOWN_PHASES)
    attached = objects_of(message, "files") if role else []
    draft.say(
        node,
        parent,
        parse_time(message, "timestamp"),
        role,
        opened(texts, "open-webui", is_answer=role == "assistant").text,
        model=line_of(message, "model"),
        names=map(_name, attached),
        files=[found for each in attached if (found := _file(each, files))],
        calls=[call for thought in thoughts for call in thinking(thought)],
    )


def _texts_of_item(item: Fields) -> list[str]:
    return [] if item.get("type") in _FOLDED_ITEMS else [*texts_of(item.get("content")), *texts_of([item])]


def _unknown_kinds(message: Fields) -> list[str]:
    items = (item for item in objects_of(message, "output") if not any(_texts_of_item(item)))
    kinds = (line_of(item, "type") or "no kind" for item in items)
    of_items = [kind for kind in kinds if kind not in ("message", *_FOLDED_ITEMS)]
    return [*unknown_roles(message, "role"), *unknown_kinds(message.get("content")), *of_items]


def _name(file: Fields) -> str:
    return line_of(file, "name") or line_of(file, "file", "filename") or "image"


def _file(file: Fields, files: Files) -> ImportedFile | None:
    """The text that was read from it, or the picture itself."""
    inner = object_of(file, "file", "data")
    text = text_of(file, "data", "content") or text_of(inner, "content")
    if text.strip():
        return ImportedFile(name=_name(file), text=text)
    found = from_url(files, text_of(file, "url"), line_of(file, "name"))
    return found and replace(found, named_as=_name(file))


READER = ExportReader(
    product="open-webui",
    label="Open WebUI",
    recognises=of_shapes(*_SHAPES, is_sure=False),
    read=_read,
    looks_for=_("JSON of chats with a history of messages"),
)
