"""Grok: `prod-grok-backend.json`, one object whose conversations have responses, each with its parent."""

import re
from functools import partial
from typing import Any

from imports.reading.attached import ExportFiles
from imports.reading.drafts import NO_MESSAGES, ConversationDraft, NotShown, items_of
from imports.reading.files import Files
from imports.reading.items import Items, Skipped
from imports.reading.json_streams import names_with, of_shapes, parts
from imports.reading.products import ExportReader
from imports.reading.session_tree import role_of, thinking
from imports.reading.values import id_of, line_of, list_of, object_of, objects_of, parse_time, text_of

_SHAPE = {"conversations.conversation", "conversations.responses"}
# Citations, as cards of the page.
_CARD = re.compile(r"<grok:render\b[^<>]{0,400}>.{0,2000}?</grok:render>", re.DOTALL)


def _read(files: Files) -> Items:
    beside = ExportFiles(files)
    yield from items_of(files, names_with(files, _SHAPE), partial(_conversation, beside), parts)
    yield from beside.notice()


def _conversation(beside: ExportFiles, where: str, value: Any, not_shown: NotShown) -> Items:
    record, about = object_of(value), object_of(value, "conversation")
    if "responses" not in record:
        # A project, a task, a picture that was made.
        yield Skipped(where=where, reason=NO_MESSAGES, external_id=id_of(record, "id") or None)
        return
    draft = ConversationDraft(
        product="grok",
        where=where,
        external_id=id_of(about, "id"),
        title=line_of(about, "title"),
        created_at=_time(about.get("create_time")),
        last_at=_time(about.get("modify_time")),
        leaf=id_of(about, "leaf_response_id"),
    )
    for place, each in enumerate(objects_of(record["responses"])):
        response = object_of(each, "response") or each
        node = id_of(response, "_id") or id_of(response, "id") or f"response-{place}"
        role = role_of(response, "sender")
        if role is None:
            not_shown.note(f"{where} {node}", f"sender {line_of(response, 'sender').lower()}")
        attached = [id_of(file) or id_of(file, "id") for file in list_of(response, "file_attachments")] if role else []
        draft.say(
            node,
            id_of(response, "parent_response_id"),
            _time(response.get("create_time")),
            role,
            _CARD.sub("", text_of(response, "message")).strip(),
            model=line_of(response, "model"),
            names=attached,
            files=[file for id_ in attached if id_ and (file := beside.find(id_))],
            calls=thinking(text_of(response, "thinking_trace").strip()),
        )
    yield draft.finished()


def _time(value: Any) -> Any:
    """A time, also as MongoDB writes it: `{"$date": {"$numberLong": "1757400000000"}}`."""
    while isinstance(value, dict):
        value = next(iter(value.values()), None)
    return parse_time(value)


READER = ExportReader(
    product="grok",
    label="Grok",
    recognises=of_shapes(_SHAPE),
    read=_read,
    looks_for="prod-grok-backend.json",
    wordless=r"(?:^|/)prod-mc-auth-mgmt-api\.json\Z",
)
