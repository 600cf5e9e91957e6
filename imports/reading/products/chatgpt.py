"""ChatGPT: `conversations.json`, whole or in shards, each conversation a tree of nodes under `mapping`."""

import re
from collections.abc import Iterator
from typing import Any

from imports.reading.assembly import NO_MESSAGES, ConversationDraft, items_of
from imports.reading.files import Files
from imports.reading.items import ImportedMessage, Item, Items, Role, Skipped
from imports.reading.json_streams import BrokenJSON, names_with, records
from imports.reading.products import ExportReader
from imports.reading.times import parse_time
from imports.reading.values import id_of, joined, line_of, list_of, object_of, objects_of, text_of

_HIDDEN_TYPES = {"user_editable_context", "model_editable_context", "thoughts", "reasoning_recap"}
# U+E200 to U+E201 enclose a citation, older ones stand in 【】 with a dagger.
_CITATIONS = re.compile("\ue200[^\ue200\ue201]*\ue201|【[^【】\n]{0,80}†[^【】\n]{0,200}】|[\ue200-\ue206]")
LONGEST_INPUT = 4000
_ROLES: dict[str, Role] = {"user": "user", "assistant": "assistant"}


def _recognises(files: Files) -> int:
    return 95 if _names(files) else 0


def _names(files: Files) -> list[str]:
    return names_with(files, {"mapping"})


def _read(files: Files) -> Items:
    names = _names(files)
    latest = _latest(files, names)
    return items_of(files, names, lambda where, record: _conversation(where, record, latest))


def _latest(files: Files, names: list[str]) -> dict[str, str]:
    """The position of the newest of several entries of one conversation; the others are left out."""
    newest: dict[str, tuple[float, str]] = {}
    repeated = set()
    for name in names:
        try:
            for where, record in records(files, name):
                if not isinstance(record, dict) or not (external_id := _external_id(record)):
                    continue
                at = parse_time(record.get("update_time"))
                rank = (at.timestamp() if at else 0.0, where)
                repeated |= {external_id} & newest.keys()
                newest[external_id] = max(newest.get(external_id, rank), rank, key=lambda each: each[0])
        except BrokenJSON:
            continue
    return {external_id: newest[external_id][1] for external_id in repeated}


def _external_id(record: dict[str, Any]) -> str:
    return id_of(record.get("conversation_id")) or id_of(record.get("id"))


def _conversation(where: str, record: Any, latest: dict[str, str]) -> Iterator[Item]:
    if not isinstance(record, dict) or not isinstance(record.get("mapping"), dict):
        yield Skipped(where=where, reason=NO_MESSAGES)
        return
    external_id = _external_id(record)
    if latest.get(external_id, where) == where:
        yield _draft(where, record, external_id).finished()


def _draft(where: str, record: dict[str, Any], external_id: str) -> ConversationDraft:
    gizmo = id_of(record.get("gizmo_id"))
    draft = ConversationDraft(
        product="chatgpt",
        where=where,
        external_id=external_id,
        title=line_of(record.get("title")),
        created_at=parse_time(record.get("create_time")),
        last_at=parse_time(record.get("update_time")),
        is_archived=record.get("is_archived") is True,
        project=gizmo if gizmo.startswith("g-p-") else None,
        leaf=id_of(record.get("current_node")) or None,
    )
    model = text_of(record.get("default_model_slug"))
    for key, value in record["mapping"].items():
        node, fields = id_of(key), object_of(value)
        message = object_of(fields.get("message"))
        draft.parents[node] = id_of(fields.get("parent")) or None
        if message:
            at = parse_time(message.get("create_time"))
            draft.add(node, draft.parents[node], at, _message(node, message, model))
            draft.calls[node] = tuple(_calls(message))
    return draft


def _calls(message: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Input for tools, and reasoning: folded into the answer that follows."""
    content, recipient = object_of(message.get("content")), line_of(message.get("recipient"))
    if object_of(message.get("author")).get("role") != "assistant":
        return
    if recipient not in ("", "all"):
        yield {"name": recipient, "input": _text(content)[:LONGEST_INPUT]}
    thoughts = joined(text_of(thought.get("content")) for thought in objects_of(content.get("thoughts")))
    if thoughts:
        yield {"name": "thinking", "summary": thoughts}


def _message(node: str, message: dict[str, Any], model: str) -> ImportedMessage | str:
    """The visible message, or the reason why it is hidden."""
    metadata = object_of(message.get("metadata"))
    content = object_of(message.get("content"))
    if why := _hidden(message, metadata, content):
        return why
    text = _text(content)
    attachments = _attachments(metadata, content)
    if not text and not attachments:
        return "empty"
    role = _ROLES[message["author"]["role"]]
    return ImportedMessage(
        id=node,
        parent=None,
        role=role,
        text=text,
        at=parse_time(message.get("create_time")),
        model=(text_of(metadata.get("model_slug")) or model) if role == "assistant" else "",
        attachments=attachments,
    )


def _hidden(message: dict[str, Any], metadata: dict[str, Any], content: dict[str, Any]) -> str | None:
    role = text_of(object_of(message.get("author")).get("role"))
    kind = text_of(content.get("content_type"))
    recipient = message.get("recipient")
    weight = message.get("weight")
    reasons = {
        f"role {role}": role not in _ROLES,
        f"hidden ({kind})": metadata.get("is_visually_hidden_from_conversation") is True,
        kind: kind in _HIDDEN_TYPES,
        "weight 0": weight == 0 and weight is not None and weight is not False,
        f"to {text_of(recipient)}": isinstance(recipient, str) and recipient != "all",
    }
    return next((reason for reason, holds in reasons.items() if holds), None)


def _text(content: dict[str, Any]) -> str:
    parts = content.get("parts")
    texts = [_part(part) for part in (parts if isinstance(parts, list) else [parts])]
    if not any(texts):
        texts = [text_of(content.get("text"))]
    return _CITATIONS.sub("", joined(texts)).strip()


def _part(part: Any) -> str:
    if isinstance(part, dict) and part.get("content_type") in ("audio_transcription", "text"):
        return text_of(part.get("text"))
    return text_of(part)


def _attachments(metadata: dict[str, Any], content: dict[str, Any]) -> tuple[str, ...]:
    """Names of attached files; a picture that is among them already is not named twice."""
    listed = {
        id_of(each.get("id")): line_of(each.get("name")) or id_of(each.get("id"))
        for each in objects_of(metadata.get("attachments"))
    }
    for part in objects_of(list_of(content.get("parts"))):
        if part.get("content_type") == "image_asset_pointer":
            pointer = text_of(part.get("asset_pointer")).rpartition("://")[2]
            listed.setdefault(pointer, pointer or "image")
    return tuple(name for name in listed.values() if name)


READER = ExportReader(product="chatgpt", label="ChatGPT", recognises=_recognises, read=_read)
