"""Converts a conversation, document or record of Recollect's own export into an item, or reports why it is invalid.

The export may have been edited or forged, so every field is checked.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import fields as fields_of
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any
from uuid import UUID

from core.pg_text import storable
from imports.reading.assembly import NOTHING_SAID
from imports.reading.items import (
    ExportedConversation,
    ExportedTurn,
    ImportedConversation,
    ImportedDocument,
    ImportedMessage,
    ImportedRecord,
    Role,
    Skipped,
    SkippedMessage,
)
from imports.reading.values import list_of, object_of, objects_of, text_of

PRODUCT = "recollect"
# The limits of the database and the chat: longer texts are reported here, with their position. Readers do not use
# Django.
LONGEST = {"title": 80, "source": 32, "external_id": 200, "type": 100, "project_id": 200, "tag": 100}
LONGEST |= {"model": 200, "instructions": 4_000}
HOTTEST = 2.0
LONGEST_RECORD = 32_000
LONGEST_DOCUMENT = 500_000
LONGEST_TITLE_OF_A_NOTE = 300
MOST_TAGS = 50
LAST_NUMBER = 2**31 - 1
_STATUSES = {"complete": "complete", "interrupted": "interrupted", "failed": "failed", "streaming": "interrupted"}
_CONVERSATION = {field.name for field in fields_of(ExportedConversation)} | {"title"}
_TURN = {field.name for field in fields_of(ExportedTurn)}
_TITLES = {"memory": "MEMORY", "about": "USER"}


class _Unusable(Exception):
    """An invalid field, with the sentence for the report."""


def conversation_of(fields: Mapping[str, Any], where: str) -> ImportedConversation | Skipped:
    """The conversation with all readable turns; it lists the others."""
    turns, skipped = _turns(objects_of(fields.get("turns")))
    try:
        title = _short(fields, "title")
        exported = ExportedConversation(
            id=_uuid(fields, "id"),
            source=_short(fields, "source") or "chat",
            external_id=_short(fields, "external_id"),
            started_at=_time(fields, "started_at"),
            last_active_at=_time(fields, "last_active_at"),
            titled_by=text_of(fields.get("titled_by")),
            pinned_at=_time(fields, "pinned_at") if fields.get("pinned_at") else None,
            archived_at=_time(fields, "archived_at") if fields.get("archived_at") else None,
            current_number=_number_among(turns, fields.get("current_number")),
            turns=turns,
            **_branch(fields),
            model=_short(fields, "model"),
            instructions=_short(fields, "instructions"),
            temperature=_temperature(plain(fields.get("temperature"))),
            uses_memory=fields.get("uses_memory") is not False,
            others=_others(fields, _CONVERSATION),
        )
    except _Unusable as error:
        return Skipped(where=where, reason=str(error), external_id=text_of(fields.get("id")) or None)
    if not turns and not skipped:
        return Skipped(where=where, reason=NOTHING_SAID, external_id=str(exported.id))
    if not turns:
        reason = f"none of its turns can be read: {skipped[0].why}"
        return Skipped(where=where, reason=reason, external_id=str(exported.id))
    messages = _messages(exported)
    return ImportedConversation(
        product=PRODUCT,
        external_id=str(exported.id),
        title=title or None,
        created_at=exported.started_at,
        last_at=exported.last_active_at,
        is_archived=exported.archived_at is not None,
        messages=messages[0],
        other_branches=messages[1],
        skipped=skipped,
        exported=exported,
    )


def document_of(fields: Mapping[str, Any], where: str) -> ImportedDocument | Skipped:
    try:
        kind, day = text_of(fields.get("kind")), _day(fields)
        if kind not in ("memory", "about", "daily_log", "note") or (kind == "daily_log") != (day is not None):
            raise _Unusable("this is neither MEMORY.md nor USER.md nor the log of a day nor a note")
        key = _uuid(fields, "id") if kind == "note" else None
        updated_at = _time(fields, "updated_at") if "updated_at" in fields else None
        title = _text(fields, "title", at_most=LONGEST_TITLE_OF_A_NOTE) if key else str(day or _TITLES[kind])
        return ImportedDocument(
            product=PRODUCT,
            id=key,
            external_id=str(key) if key else f"memory/{title}.md" if day else f"{title}.md",
            title=title,
            text=_text(fields, "content", at_most=LONGEST_DOCUMENT),
            at=updated_at if key else day,
            kind=kind,  # type: ignore[arg-type]  # one of the four above
            created_at=_time(fields, "created_at") if "created_at" in fields else None,
            updated_at=updated_at,
        )
    except _Unusable as error:
        return Skipped(where=where, reason=str(error), external_id=text_of(fields.get("id")) or None)


def record_of(fields: Mapping[str, Any], where: str) -> ImportedRecord | Skipped:
    try:
        tags = tuple(text_of(each)[: LONGEST["tag"]] for each in list_of(fields.get("tags")))
        content = _text(fields, "content", at_most=LONGEST_RECORD)
        if not content.strip():
            raise _Unusable("this record is empty")
        return ImportedRecord(
            product=PRODUCT,
            id=_uuid(fields, "id"),
            content=content,
            type=_short(fields, "type") or "note",
            project_id=_short(fields, "project_id"),
            tags=tags[:MOST_TAGS],
            created_at=_time(fields, "created_at"),
        )
    except _Unusable as error:
        return Skipped(where=where, reason=str(error), external_id=text_of(fields.get("id")) or None)


def _turns(found: list[dict[str, Any]]) -> tuple[tuple[ExportedTurn, ...], tuple[SkippedMessage, ...]]:
    turns: dict[int, ExportedTurn] = {}
    skipped = []
    for fields in found:
        try:
            turn = _turn(fields, before=max(turns, default=None))
            if turn.turn_number in turns:
                raise _Unusable("a second turn of the same number")
            turns[turn.turn_number] = turn
        except _Unusable as error:
            skipped.append(SkippedMessage(id=str(fields.get("turn_number"))[:20], why=str(error)))
    return tuple(turns[number] for number in sorted(turns)), tuple(skipped)


def _turn(fields: dict[str, Any], *, before: int | None) -> ExportedTurn:
    number, status = fields.get("turn_number"), fields.get("status")
    if isinstance(number, bool) or not isinstance(number, int) or not 0 < number <= LAST_NUMBER:
        raise _Unusable("its number is none that a turn can have")
    if not isinstance(status, str) or status not in _STATUSES:
        raise _Unusable("its status is unknown")
    return ExportedTurn(
        turn_number=number,
        parent_number=_parent(fields, number) if "parent_number" in fields else before,
        user_message=_text(fields, "user_message"),
        assistant_message=_text(fields, "assistant_message"),
        said_at=_time(fields, "said_at"),
        status=_STATUSES[status],
        is_recall=fields.get("is_recall") is True,
        tool_calls=tuple(list_of(plain(fields.get("tool_calls")))),
        error=object_of(plain(fields.get("error"))) or None,
        usage=object_of(plain(fields.get("usage"))) or None,
        reasoning=_text(fields, "reasoning"),
        others=_others(fields, _TURN),
    )


def _parent(fields: dict[str, Any], number: int) -> int | None:
    parent = fields.get("parent_number")
    if parent is None:
        return None
    if isinstance(parent, bool) or not isinstance(parent, int) or not 0 < parent < number:
        raise _Unusable("it follows no earlier turn")
    return parent


def _number_among(turns: Iterable[ExportedTurn], number: Any) -> int | None:
    return number if isinstance(number, int) and any(turn.turn_number == number for turn in turns) else None


def _temperature(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if 0 <= value <= HOTTEST else None


def _branch(fields: Mapping[str, Any]) -> dict[str, Any]:
    """The conversation and turn from which a branch continues; empty without a branch."""
    after = fields.get("branched_after")
    if fields.get("branched_from") is None or not isinstance(after, int) or not 0 < after <= LAST_NUMBER:
        return {}
    return {"branched_from": _uuid(fields, "branched_from"), "branched_after": int(after)}


def path_of(conversation: ExportedConversation) -> set[int]:
    """The numbers of the turns on the chosen path: from its end, or the last turn, up to the first."""
    parents = {turn.turn_number: turn.parent_number for turn in conversation.turns}
    number = conversation.current_number or max(parents, default=None)
    path = set()
    # A parent's number is smaller than its child's, so this ends.
    while number is not None:
        path.add(number)
        number = parents.get(number)
    return path


def _messages(conversation: ExportedConversation) -> tuple[tuple[ImportedMessage, ...], tuple[ImportedMessage, ...]]:
    """The chosen path and the other versions as messages of every product are, for a preview and for comparing."""
    path = path_of(conversation)
    last: dict[int | None, str | None] = {None: None}
    current: list[ImportedMessage] = []
    others: list[ImportedMessage] = []
    for turn in conversation.turns:
        above = last.get(turn.parent_number)
        sides: tuple[tuple[Role, str], ...] = (("user", turn.user_message), ("assistant", turn.assistant_message))
        for role, text in sides:
            if text or role == "user":
                key = f"{turn.turn_number}-{role}"
                message = ImportedMessage(id=key, parent=above, role=role, text=text, at=turn.said_at)
                (current if turn.turn_number in path else others).append(message)
                above = key
        last[turn.turn_number] = above
    return tuple(current), tuple(others)


def plain(value: Any) -> Any:
    """The value with JSON's own types, for the database; None for excessive nesting."""
    try:
        return storable(json.loads(json.dumps(value, default=_number)))
    except (RecursionError, ValueError, TypeError):
        return None


def _number(value: Any) -> float:
    if isinstance(value, Decimal):
        return float(value)
    raise TypeError


def _others(fields: Mapping[str, Any], known: set[str]) -> dict[str, Any]:
    found: dict[str, Any] = plain({name: value for name, value in fields.items() if name not in known}) or {}
    return found


def _uuid(fields: Mapping[str, Any], name: str) -> UUID:
    try:
        return UUID(text_of(fields.get(name)))
    except ValueError:
        raise _Unusable("its id is none of Recollect's") from None


def _time(fields: Mapping[str, Any], name: str) -> datetime:
    """Unchanged, if it is a time with a zone."""
    value = fields.get(name)
    try:
        at = datetime.fromisoformat(value) if isinstance(value, str) else None
        if at is not None and at.tzinfo is not None:
            return at.astimezone(UTC)
    except (ValueError, OverflowError):
        pass
    raise _Unusable(f"its {name} is no time")


def _day(fields: Mapping[str, Any]) -> date | None:
    value = fields.get("date")
    if value is None:
        return None
    try:
        return date.fromisoformat(text_of(value))
    except ValueError:
        raise _Unusable("its date is no day") from None


def _short(fields: Mapping[str, Any], name: str) -> str:
    return _text(fields, name, at_most=LONGEST[name])


def _text(fields: Mapping[str, Any], name: str, *, at_most: int | None = None) -> str:
    value = fields.get(name, "")
    if not isinstance(value, str):
        raise _Unusable(f"its {name} is no text")
    if at_most is not None and len(value) > at_most:
        raise _Unusable(f"its {name} has more than {at_most:,} characters")
    return text_of(value)
