"""Converts a conversation, document or record of Recollect's own export into an item, or reports why it is invalid.

The export may have been edited or forged, so every field is checked.
"""

import json
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from functools import wraps
from types import NoneType
from typing import Any, TypeVar
from uuid import UUID

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from core.text import Sentence, pg_value, sentence_of
from core.text import gettext_noop as _
from imports.reading.attached import ExportFiles
from imports.reading.drafts import NO_WORDS
from imports.reading.items import (
    ExportedConversation,
    ExportedTurn,
    ImportedConversation,
    ImportedDocument,
    ImportedFile,
    ImportedMessage,
    ImportedProject,
    ImportedRecord,
    Items,
    Notice,
    Role,
    Skipped,
)
from imports.reading.values import Fields, base_name, line_of, list_of, objects_of, text_of

T = TypeVar("T")
PRODUCT = "recollect"
# The limits of the database and the chat: longer texts are reported here, with their position. Readers do not use
# Django.
LONGEST = {"title": 80, "source": 32, "external_id": 200, "type": 100, "project_id": 200, "tag": 100, "project": 200}
LONGEST |= {"model": 200, "instructions": 4_000, "name": 200, "colour": 8}
HOTTEST = 2.0
LONGEST_PROPOSAL = 1_000
LAST_NUMBER = 2**31 - 1
_STATUSES = {each: each for each in ("complete", "interrupted", "failed")}
_STATUSES |= dict.fromkeys(("streaming", "waiting"), "interrupted")
_TITLES = {"memory": "MEMORY", "about": "USER"}


# The times of an export outside these are unknown: pages, time zones and indexes count with those of people.
EARLIEST = datetime(1900, 1, 2, tzinfo=UTC)
MOST_AHEAD = timedelta(days=1)
LONGEST_SUMMARY = 4_000
LONGEST_THOUGHTS = 100_000
LONGEST_INPUT = 150_000
LARGEST_COUNT = 2**53


# Of a part of an answer, as pages and the API expect it: unknown names are dropped, and wrong types refused.
_STRICT = ConfigDict(extra="ignore", strict=True, allow_inf_nan=False)


class StoredCall(BaseModel):
    """A tool call. Without `place`: what *Undo* deletes is what a call stored here, never what a file names."""

    model_config = _STRICT

    id: str = Field(min_length=1, max_length=100, pattern=r"^[\w.:-]+$")
    name: str = Field("tool", min_length=1, max_length=100)
    input: Fields = Field(default_factory=dict)
    summary: str | None = Field(None, max_length=LONGEST_SUMMARY)
    stored: str | None = Field(None, max_length=LONGEST_INPUT)
    is_error: bool = False


class StoredError(BaseModel):
    model_config = _STRICT

    code: str = Field("unavailable", max_length=100)
    detail: str = Field("", max_length=2_000)
    retryable: bool = True


class StoredUsage(BaseModel):
    model_config = _STRICT

    model: str | None = Field(None, max_length=200)
    input_tokens: int | None = Field(None, ge=0, le=LARGEST_COUNT)
    output_tokens: int | None = Field(None, ge=0, le=LARGEST_COUNT)
    seconds: float | None = Field(None, ge=0, le=LARGEST_COUNT)
    finish_reason: str | None = Field(None, max_length=100)
    thought_seconds: float | None = Field(None, ge=0, le=LARGEST_COUNT)
    not_sent: int | None = Field(None, ge=0, le=LARGEST_COUNT)
    sent: int | None = Field(None, ge=0, le=LARGEST_COUNT)
    token_ratio: float | None = Field(None, ge=0, le=LARGEST_COUNT)


class _Unusable(Exception):
    """An invalid field, with the sentence for the report."""


def _reported(read: Callable[..., T]) -> Callable[..., T | Skipped]:
    """A reader of which an invalid field leaves a line of the report."""

    @wraps(read)
    def reading(fields: Fields, where: str, **about: Any) -> T | Skipped:
        try:
            return read(fields, where, **about)
        except _Unusable as error:
            return _skipped(fields, where, sentence_of(error))

    return reading


def _skipped(fields: Fields, where: str, reason: str) -> Skipped:
    return Skipped(where=where, reason=reason, external_id=text_of(fields, "id") or None)


def conversation_of(fields: Fields, where: str, beside: ExportFiles) -> Items:
    """The conversation with all readable turns, and what of it is not. `beside`: the attached files of a zip."""
    turns: dict[int, ExportedTurn] = {}
    skipped: list[Skipped] = []
    for each in objects_of(fields, "turns"):
        reason = ""
        try:
            turn = _turn(each, beside, before=max(turns, default=None))
            if turn.turn_number in turns:
                raise _Unusable(_("a second turn of the same number"))
            turns[turn.turn_number] = turn
            if parts := list(_left_out(each, turn)):
                reason = Sentence(_("left out of this turn, since it cannot be read: %(places)s"), places=parts)
        except _Unusable as error:
            reason = sentence_of(error)
        if reason:
            skipped.append(Skipped(where=f"{where}, turn {str(each.get('turn_number'))[:20]}", reason=reason))
    if turns:
        yield _conversation(fields, where, turns=tuple(turns[number] for number in sorted(turns)))
    else:
        nothing = _("none of its turns can be read: %(reason)s")
        yield _skipped(fields, where, Sentence(nothing, reason=Sentence(skipped[0].reason)) if skipped else NO_WORDS)
    yield from skipped
    yield from instructions_of(fields)


def instructions_of(fields: Fields, *, is_project: bool = False) -> Iterator[Notice]:
    """A stranger's orders would be obeyed in all answers of the chat or project: the person sees them and decides."""
    if instructions := text_of(fields, "instructions").strip():
        message = _(
            "“%(title)s” has instructions. They are off unless this account exported them; set them in the chat: "
            "%(place)s"
        )
        if is_project:
            message = _(
                "The project “%(title)s” has instructions. They are off unless this account exported them; set them on "
                "its page: %(place)s"
            )
        title = line_of(fields, "name" if is_project else "title")[: LONGEST["title"]]
        yield Notice(text=Sentence(message, title=title, place=instructions))


def _left_out(fields: Fields, turn: ExportedTurn) -> Iterator[Sentence]:
    """The parts of a turn that do not fit."""
    calls = fields.get("tool_calls")
    if len(turn.tool_calls) < len(list_of(calls)) or not isinstance(calls, list | NoneType):
        yield Sentence(_("tool calls"))
    for name, stored in ((_("error"), turn.error), (_("usage"), turn.usage)):
        if stored is None and fields.get(name) not in (None, {}):
            yield Sentence(name)
    if len(text_of(fields, "reasoning")) > LONGEST_THOUGHTS:
        yield Sentence(_("the end of its thoughts"))


@_reported
def _conversation(fields: Fields, where: str, turns: tuple[ExportedTurn, ...]) -> ImportedConversation:
    current, heat = fields.get("current_number"), plain(fields.get("temperature"))
    is_number = isinstance(heat, int | float) and not isinstance(heat, bool)
    title = _short(fields, "title")
    exported = ExportedConversation(
        id=_uuid(fields, "id"),
        source=_short(fields, "source") or "chat",
        external_id=_short(fields, "external_id"),
        project=_short(fields, "project"),
        started_at=_time(fields, "started_at"),
        last_active_at=_time(fields, "last_active_at"),
        titled_by=text_of(fields, "titled_by"),
        pinned_at=_time(fields, "pinned_at") if fields.get("pinned_at") else None,
        archived_at=_time(fields, "archived_at") if fields.get("archived_at") else None,
        current_number=next((each.turn_number for each in turns if each.turn_number == current), None),
        turns=turns,
        **_branch(fields),
        model=_short(fields, "model"),
        instructions=_short(fields, "instructions"),
        temperature=float(heat) if is_number and 0 <= heat <= HOTTEST else None,
        proof=text_of(fields, "proof")[:200],
        uses_memory=fields.get("uses_memory") is not False,
    )
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
        exported=exported,
    )


@_reported
def document_of(fields: Fields, where: str) -> ImportedDocument:
    kind, day = text_of(fields, "kind"), _day(fields)
    if kind not in ("memory", "about", "daily_log", "note") or (kind == "daily_log") != (day is not None):
        raise _Unusable(_("this is neither MEMORY.md nor USER.md nor the log of a day nor a note"))
    key = _uuid(fields, "id") if kind == "note" else None
    updated_at = _time(fields, "updated_at") if "updated_at" in fields else None
    title = _text(fields, "title", at_most=300) if key else str(day or _TITLES[kind])
    project = _short(fields, "project") if kind != "about" else ""
    path = f"memory/{title}.md" if day else f"{title}.md"
    return ImportedDocument(
        product=PRODUCT,
        id=key,
        external_id=str(key) if key else f"projects/{project}/{path}" if project else path,
        title=f"{title} · {project}" if project and not key else title,
        project=project,
        text=_text(fields, "content", at_most=500_000),
        at=updated_at if key else day,
        kind=kind,  # type: ignore[arg-type]  # one of the four above
        created_at=_time(fields, "created_at") if "created_at" in fields else None,
        updated_at=updated_at,
    )


@_reported
def record_of(fields: Fields, where: str, *, is_proposed: bool = False) -> ImportedRecord:
    content = _text(fields, "content", at_most=LONGEST_PROPOSAL if is_proposed else 32_000)
    if not content.strip():
        raise _Unusable(_("this record is empty"))
    return ImportedRecord(
        product=PRODUCT,
        id=_uuid(fields, "id"),
        content=content,
        type=_short(fields, "type") or "note",
        project_id=_short(fields, "project_id"),
        tags=_labels(fields, "tags", at_most=50, longest=LONGEST["tag"]),
        created_at=_time(fields, "created_at"),
        is_proposed=is_proposed,
        quote=_text(fields, "quote", at_most=LONGEST_PROPOSAL) if is_proposed else "",
        **_facts(fields),
    )


@_reported
def project_of(fields: Fields, where: str) -> ImportedProject:
    name = " ".join(_short(fields, "name").split())
    if not name:
        raise _Unusable(_("this project has no name"))
    return ImportedProject(
        product=PRODUCT,
        id=_uuid(fields, "id"),
        name=name,
        colour=_short(fields, "colour"),
        instructions=_short(fields, "instructions"),
        is_closed=fields.get("is_closed") is True,
        labels=tuple(filter(None, _labels(fields, "labels", at_most=100, longest=LONGEST["project"]))),
        created_at=_time(fields, "created_at"),
        proof=text_of(fields, "proof")[:200],
    )


def _facts(fields: Fields) -> Fields:
    """What only some records say; earlier exports have none of it."""
    readers: dict[str, Callable[[Fields, str], Any]] = {
        "replaces": _uuid,
        "valid_from": _date,
        "valid_until": _date,
        "done_at": _time,
        "source_conversation": _uuid,
        "source_turn": _count,
    }
    return {name: read(fields, name) for name, read in readers.items() if fields.get(name) is not None}


def _date(fields: Fields, name: str) -> date:
    try:
        return date.fromisoformat(text_of(fields, name))
    except ValueError:
        raise _Unusable(Sentence(_("its %(name)s is no day"), name=name)) from None


def _count(fields: Fields, name: str) -> int:
    if number := _number_in(fields, name):
        return number
    raise _Unusable(Sentence(_("its %(name)s is no number"), name=name))


def _number_in(fields: Fields, name: str) -> int | None:
    """The number of a turn; None for anything else."""
    value = fields.get(name)
    is_number = isinstance(value, int) and not isinstance(value, bool) and 0 < value <= LAST_NUMBER
    return value if is_number else None


def _turn(fields: Fields, beside: ExportFiles, *, before: int | None) -> ExportedTurn:
    number, status = _number_in(fields, "turn_number"), fields.get("status")
    if number is None:
        raise _Unusable(_("its number is none that a turn can have"))
    if not isinstance(status, str) or status not in _STATUSES:
        raise _Unusable(_("its status is unknown"))
    return ExportedTurn(
        turn_number=number,
        parent_number=_parent(fields, number) if "parent_number" in fields else before,
        user_message=_text(fields, "user_message"),
        assistant_message=_text(fields, "assistant_message"),
        said_at=_time(fields, "said_at"),
        status=_STATUSES[status],
        is_recall=fields.get("is_recall") is True,
        tool_calls=tuple(_calls(fields)),
        error=_stored(StoredError, fields.get("error")),
        usage=_stored(StoredUsage, fields.get("usage")),
        reasoning=_text(fields, "reasoning")[:LONGEST_THOUGHTS],
        attachments=tuple(_attachments(fields, beside)),
    )


def _attachments(fields: Fields, beside: ExportFiles) -> Iterator[ImportedFile]:
    """The files that lie beside the document; the others are counted."""
    for each in objects_of(fields, "attachments"):
        found = beside.find("", base_name(text_of(each, "file")), line_of(each, "media_type"))
        if found is None:
            continue
        found = replace(found, name=line_of(each, "name") or found.name, kind=text_of(each, "kind"))
        if (address := line_of(each, "address")).startswith(("http://", "https://")):
            # A page shows it as a link.
            found = replace(found, address=address)
        # What was edited by hand comes in as a new file.
        with suppress(_Unusable):
            id_, created_at = _uuid(each, "id"), _time(each, "created_at")
            found = replace(found, id=id_, proof=text_of(each, "proof")[:200], created_at=created_at)
        yield found


def _calls(fields: Fields) -> list[Fields]:
    """The calls that can be shown; a number for each without an id, and each id once."""
    calls: list[Fields] = []
    taken: set[str] = set()
    for number, found in enumerate(list_of(fields, "tool_calls")[:500], start=1):
        entry = {"id": f"imported-{number}", **found} if isinstance(found, dict) else found
        call = _stored(StoredCall, entry)
        if call and call["id"] not in taken and len(json.dumps(call.get("input"))) <= LONGEST_INPUT:
            taken.add(call["id"])
            calls.append(call)
    return calls


def _stored(model: type[BaseModel], value: Any) -> Fields | None:
    """The value as it may be stored; None if there is none or it does not fit."""
    found = plain(value)
    if not isinstance(found, dict) or not found:
        return None
    try:
        return model.model_validate(found).model_dump(exclude_unset=True)
    except (ValidationError, RecursionError):
        return None


def _parent(fields: Fields, number: int) -> int | None:
    parent = _number_in(fields, "parent_number")
    if parent is None and fields.get("parent_number") is None:
        return None
    if parent is None or parent >= number:
        raise _Unusable(_("it follows no earlier turn"))
    return parent


def _branch(fields: Fields) -> Fields:
    """The conversation and turn from which a branch continues; empty without a branch."""
    after = _number_in(fields, "branched_after")
    if fields.get("branched_from") is None or after is None:
        return {}
    return {"branched_from": _uuid(fields, "branched_from"), "branched_after": after}


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
        return pg_value(json.loads(json.dumps(value, default=_number)))
    except (RecursionError, ValueError, TypeError):
        return None


def _number(value: Any) -> float:
    if isinstance(value, Decimal):
        return float(value)
    raise TypeError


def _uuid(fields: Fields, name: str) -> UUID:
    try:
        return UUID(text_of(fields, name))
    except ValueError:
        raise _Unusable(_("its id is none of Recollect's")) from None


def _time(fields: Fields, name: str) -> datetime:
    """Unchanged, if it is a time with a zone from 1900 to tomorrow; any other is unknown, and today stands for it."""
    value = fields.get(name)
    try:
        at = datetime.fromisoformat(value) if isinstance(value, str) else None
        if at is not None and at.tzinfo is not None:
            now = datetime.now(UTC)
            at = at.astimezone(UTC)
            return at if EARLIEST <= at <= now + MOST_AHEAD else now.replace(hour=0, minute=0, second=0, microsecond=0)
    except (ValueError, OverflowError):
        pass
    raise _Unusable(Sentence(_("its %(name)s is no time"), name=name))


def _day(fields: Fields) -> date | None:
    value = fields.get("date")
    if value is None:
        return None
    try:
        day = date.fromisoformat(text_of(value))
        if not EARLIEST.date() <= day <= (datetime.now(UTC) + MOST_AHEAD).date():
            raise ValueError
        return day
    except ValueError:
        raise _Unusable(_("its date is no day")) from None


def _short(fields: Fields, name: str) -> str:
    return _text(fields, name, at_most=LONGEST[name])


def _labels(fields: Fields, name: str, *, at_most: int, longest: int) -> tuple[str, ...]:
    """Raises `_Unusable` for more of them, or for one that is longer: none is cut."""
    found = tuple(text_of(each) for each in list_of(fields, name))
    if len(found) > at_most:
        raise _Unusable(Sentence(_("it has more than %(count)s %(name)s"), name=name, count=at_most))
    if any(len(each) > longest for each in found):
        raise _Unusable(Sentence(_("its %(name)s has more than %(count)s characters"), name=name, count=longest))
    return found


def _text(fields: Fields, name: str, *, at_most: int | None = None) -> str:
    value = fields.get(name, "")
    if not isinstance(value, str):
        raise _Unusable(Sentence(_("its %(name)s is no text"), name=name))
    if at_most is not None and len(value) > at_most:
        raise _Unusable(Sentence(_("its %(name)s has more than %(count)s characters"), name=name, count=at_most))
    return text_of(value)
