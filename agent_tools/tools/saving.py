"""`save_memory` and `append_daily_log`: save a user's notes; both only add."""

import datetime as dt
import string
from contextlib import suppress
from typing import Annotated, Any
from uuid import UUID

from django.utils import timezone
from pydantic import Field

from agent_tools.registry import StoredByCall, Tool, ToolInput, ToolOutput
from agent_tools.tools.memory import MemoryRecordOutput, record_output
from agent_tools.tools.wording import known
from core.errors import InvalidInput, NotFound
from core.validation import parse_day, text_limit
from intake.models import User
from memory import documents, records
from memory.models.documents import (
    MAX_DOCUMENT_LENGTH,
    MAX_LABEL_LENGTH,
    MAX_PROJECT_LENGTH,
    MAX_RECORD_LENGTH,
    MAX_TAGS,
)


class SaveMemoryInput(ToolInput):
    content: Annotated[
        str,
        Field(
            description=f"What to remember, in words that stand for themselves a year from now: 1 to "
            f"{MAX_RECORD_LENGTH:,} characters.",
            json_schema_extra=text_limit(MAX_RECORD_LENGTH),
        ),
    ]
    type: Annotated[
        str | None,
        Field(
            description="What kind of memory: decision, lesson, preference, fact, note (if not given), or a word of "
            f"your own of at most {MAX_LABEL_LENGTH} characters. `search_memory` can be narrowed by it.",
            json_schema_extra=text_limit(MAX_LABEL_LENGTH),
        ),
    ] = None
    project_id: Annotated[
        str | None,
        Field(
            description=f"The project it belongs to, if to one, in at most {MAX_PROJECT_LENGTH} characters.",
            json_schema_extra=text_limit(MAX_PROJECT_LENGTH),
        ),
    ] = None
    tags: Annotated[
        list[Annotated[str, Field(json_schema_extra=text_limit(MAX_LABEL_LENGTH))]] | None,
        Field(
            description=f"At most {MAX_TAGS} labels to find it by, of at most {MAX_LABEL_LENGTH} characters each.",
            json_schema_extra={"maxItems": MAX_TAGS},
        ),
    ] = None


class SaveMemoryOutput(ToolOutput):
    record: Annotated[MemoryRecordOutput, Field(description="The record as it is kept.")]
    text: Annotated[str, Field(description="What was stored, and its id, in a sentence.")]


class AppendDailyLogInput(ToolInput):
    text: Annotated[
        str,
        Field(
            description=f"The lines to add; a log may have {MAX_DOCUMENT_LENGTH:,} characters in all.",
            json_schema_extra=text_limit(MAX_DOCUMENT_LENGTH),
        ),
    ]
    date: Annotated[
        str | None,
        Field(
            description="The day whose log to add to, as YYYY-MM-DD; today in the person's time zone if not given.",
            json_schema_extra={**text_limit(len("YYYY-MM-DD")), "format": "date"},
        ),
    ] = None


class AppendDailyLogOutput(ToolOutput):
    document_id: Annotated[UUID, Field(description="The log's id.")]
    date: Annotated[dt.date | None, Field(description="The day whose log it is.")] = None
    length: Annotated[int | None, Field(description="How many characters the log has now.")] = None
    text: Annotated[
        str,
        Field(description="What was stored, and the log's id, in a sentence; to a token that may not read, the lines."),
    ]


def save(wanted: SaveMemoryInput, user: User | None) -> SaveMemoryOutput:
    record = records.create(
        user=known(user),
        content=wanted.content,
        type=records.DEFAULT_TYPE if wanted.type is None else wanted.type,
        project_id=wanted.project_id or "",
        tags=wanted.tags or (),
        now=timezone.now(),
    )
    length = f"{len(record.content):,} characters"
    text = f"Saved a memory of type {record.type!r} ({length}) with the id {record.id}."
    return SaveMemoryOutput(record=record_output(record), text=text)


def append(wanted: AppendDailyLogInput, user: User | None) -> AppendDailyLogOutput:
    user, now = known(user), timezone.now()
    day = user.local_time(now).date() if wanted.date is None else _day(wanted.date)
    document = documents.append(user=user, day=day, text=wanted.text, now=now)
    lines = len(wanted.text.splitlines())
    text = f"Added {lines} {'line' if lines == 1 else 'lines'} to the daily log of {day} with the id {document.id}."
    return AppendDailyLogOutput(document_id=document.id, date=day, length=len(document.content), text=text)


def appended_only(wanted: AppendDailyLogInput, output: AppendDailyLogOutput) -> AppendDailyLogOutput:
    return AppendDailyLogOutput(document_id=output.document_id, text=wanted.text)


def kept_record(wanted: SaveMemoryInput, output: SaveMemoryOutput) -> StoredByCall:
    return StoredByCall(output.record.content, {"recordId": str(output.record.id)})


def delete_record(wanted: SaveMemoryInput, place: dict[str, Any], user: User, now: dt.datetime) -> None:
    """A record that was deleted elsewhere counts as undone."""
    with suppress(NotFound):
        records.delete(user=user, record_id=UUID(place["recordId"]))


def kept_lines(wanted: AppendDailyLogInput, output: AppendDailyLogOutput) -> StoredByCall:
    assert output.length is not None and output.date is not None, "the chat reads"  # noqa: S101 - tells the types
    at = output.length - len(documents.as_lines(wanted.text))
    return StoredByCall(wanted.text, {"date": output.date.isoformat(), "at": at})


def take_back_lines(wanted: AppendDailyLogInput, place: dict[str, Any], user: User, now: dt.datetime) -> None:
    day = dt.date.fromisoformat(place["date"])
    documents.take_back(user=user, day=day, text=wanted.text, at=place["at"], now=now)


def _say_record(output: SaveMemoryOutput, user: User | None) -> str:
    record = output.record
    about = [f"project {_plain(record.project_id)}"] if record.project_id else []
    about += [f"tagged {', '.join(map(_plain, record.tags))}"] if record.tags else []
    return f"Saved a {_plain(record.type)}" + "".join(f", {each}" for each in about)


def _plain(label: str) -> str:
    """A label as Markdown that displays as that label."""
    return "".join(f"\\{character}" if character in string.punctuation else character for character in label)


def _day(text: str) -> dt.date:
    try:
        return parse_day(text)
    except ValueError:
        message = f"Date must be in YYYY-MM-DD format: {text[:50]}"
        raise InvalidInput(message, errors={"date": [message]}) from None


save_memory = Tool(
    name="save_memory",
    description=(
        "Save one thing for the person's long-term memory, where `search_memory` and `search_history` find it from "
        "now on. Use it when they ask for something to be remembered, and for decisions, preferences and lessons that "
        "will matter again. One thing per call, complete in itself, with names and dates written out rather than "
        "'he' or 'tomorrow'. Every call adds a record: search first if it may have been saved already. The answer has "
        "the record as it is kept, with its id."
    ),
    input_model=SaveMemoryInput,
    output_model=SaveMemoryOutput,
    is_read_only=False,
    run=save,
    summarise=_say_record,
    kept=kept_record,
    undo=delete_record,
)

append_daily_log = Tool(
    name="append_daily_log",
    description=(
        "Add lines to the person's daily log, the diary that has one document per day. Use it for what happened, was "
        "done or came up on a day; for what stays true beyond it use `save_memory`. Every call appends at the end and "
        "changes nothing above. The answer names the day, the log's id, and `length`, how many characters it has now."
    ),
    input_model=AppendDailyLogInput,
    output_model=AppendDailyLogOutput,
    is_read_only=False,
    run=append,
    summarise=lambda output, user: f"Added to the log of {output.date}",
    kept=kept_lines,
    for_writers=appended_only,
    undo=take_back_lines,
)
