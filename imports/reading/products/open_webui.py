"""Open WebUI: a list of chats, or one chat, each a map of messages with `parentId` beneath `history`."""

import re
from collections.abc import Iterator
from typing import Any

from imports.reading.assembly import NO_MESSAGES, ConversationDraft, items_of
from imports.reading.files import Files
from imports.reading.items import ImportedMessage, Item, Items, Role, Skipped
from imports.reading.json_streams import names_with
from imports.reading.products import ExportReader
from imports.reading.times import parse_time
from imports.reading.values import id_of, line_of, object_of, objects_of, text_of

_ROLES: dict[str, Role] = {"user": "user", "assistant": "assistant"}
_SHAPES = ({"chat.history"}, {"history.messages"}, {"history", "models"})
_FOLDED_OPEN = re.compile(r'<details\s+type="(?:reasoning|tool_calls|code_interpreter)"[^>]*>', re.IGNORECASE)
_FOLDED_CLOSE = "</details>"


def _recognises(files: Files) -> int:
    return 90 if names_with(files, *_SHAPES) else 0


def _read(files: Files) -> Items:
    return items_of(files, names_with(files, *_SHAPES), _conversation)


def _conversation(where: str, record: Any) -> Iterator[Item]:
    fields = object_of(record)
    chat = object_of(fields.get("chat")) or fields
    messages = object_of(chat.get("history")).get("messages")
    if isinstance(messages, dict):
        yield _draft(where, fields, chat, messages).finished()
    else:
        yield Skipped(where=where, reason=NO_MESSAGES)


def _draft(where: str, record: dict[str, Any], chat: dict[str, Any], messages: dict[str, Any]) -> ConversationDraft:
    draft = ConversationDraft(
        product="open-webui",
        where=where,
        external_id=id_of(record.get("id")),
        title=line_of(record.get("title")) or line_of(chat.get("title")),
        created_at=parse_time(record.get("created_at")) or parse_time(chat.get("timestamp")),
        last_at=parse_time(record.get("updated_at")),
        is_archived=record.get("archived") is True,
        leaf=id_of(object_of(chat.get("history")).get("currentId")) or None,
    )
    for key, value in messages.items():
        message = object_of(value)
        at = parse_time(message.get("timestamp"))
        draft.add(id_of(key), id_of(message.get("parentId")) or None, at, _message(id_of(key), message))
    return draft


def _message(node: str, message: dict[str, Any]) -> ImportedMessage | str:
    role = _ROLES.get(text_of(message.get("role")))
    if role is None:
        return f"role {text_of(message.get('role'))}"
    text = _content(message.get("content"))
    if role == "assistant":
        text = _without_folded(text)
    files = objects_of(message.get("files"))
    if not text.strip() and not files:
        return "error" if message.get("error") else "empty"
    return ImportedMessage(
        id=node,
        parent=None,
        role=role,
        text=text.strip(),
        at=parse_time(message.get("timestamp")),
        model=text_of(message.get("model")) if role == "assistant" else "",
        attachments=tuple(_name(each) for each in files),
        attached_texts=tuple(filter(str.strip, map(_attached_text, files))),
    )


def _content(content: Any) -> str:
    if isinstance(content, list):
        return "\n\n".join(text_of(part.get("text")) for part in objects_of(content))
    return text_of(content)


def _without_folded(text: str) -> str:
    """The text without the blocks of reasoning and tool calls, with one pass over it."""
    kept = []
    at = 0
    while found := _FOLDED_OPEN.search(text, at):
        kept.append(text[at : found.start()])
        end = text.find(_FOLDED_CLOSE, found.end())
        if end < 0:
            at = found.start()
            break
        at = end + len(_FOLDED_CLOSE)
    return "".join([*kept, text[at:]])


def _name(file: dict[str, Any]) -> str:
    return line_of(file.get("name")) or line_of(object_of(file.get("file")).get("filename")) or "image"


def _attached_text(file: dict[str, Any]) -> str:
    inner = object_of(file.get("file"))
    return text_of(object_of(file.get("data")).get("content")) or text_of(object_of(inner.get("data")).get("content"))


READER = ExportReader(product="open-webui", label="Open WebUI", recognises=_recognises, read=_read)
