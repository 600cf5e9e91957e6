"""Converts a reading into the format of an expectation, and compares the two."""

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import date, datetime
from pathlib import Path
from typing import Any

from imports.reading.items import (
    ImportedConversation,
    ImportedDocument,
    ImportedMessage,
    ImportedRecord,
    Notice,
    Skipped,
    UnreadableExport,
)
from imports.reading.products import read
from imports.reading.values import parse_time

# These must be reported; files and records of other kinds may be.
_REPORTED = {
    "nothing said",
    "no mapping",
    "no time",
    "not JSON",
    "last line is cut off",
    "symbolic link",
    "unsafe name",
}
_PREFIX = 30
_NUMBERS = re.compile(r"^[ \t>]{0,80}\d{1,9}\. ", re.MULTILINE)


@dataclass(kw_only=True)
class Reading:
    """All items of an export, or the sentence that refuses it."""

    conversations: list[ImportedConversation] = field(default_factory=list)
    documents: list[ImportedDocument] = field(default_factory=list)
    records: list[ImportedRecord] = field(default_factory=list)
    skipped: list[Skipped] = field(default_factory=list)
    notices: list[str] = field(default_factory=list)
    refusal: str | None = None

    @property
    def outcome(self) -> str:
        if self.refusal is not None:
            return "refused"
        return "partial" if self.skipped else "imported"


def read_all(path: Path, product: str | None = None) -> Reading:
    """Reads without storing."""
    reading = Reading()
    try:
        for item in read(path, product):
            match item:
                case ImportedConversation():
                    reading.conversations.append(item)
                case ImportedDocument():
                    reading.documents.append(item)
                case ImportedRecord():
                    reading.records.append(item)
                case Skipped():
                    reading.skipped.append(item)
                case Notice():
                    reading.notices.append(str(item.text))
    except UnreadableExport as error:
        return Reading(refusal=str(error))
    return reading


def as_expectation(reading: Reading) -> dict[str, Any]:
    """The reading as JSON in the shape of an expectation, with whole texts."""
    return {
        "outcome": reading.outcome,
        **({"why": reading.refusal} if reading.refusal else {}),
        "conversations": [_conversation(each) for each in reading.conversations],
        "documents": [
            {
                "external_id": each.external_id,
                "title": each.title,
                "at": _iso(each.at),
                "text": each.text,
                **({"properties": dict(each.properties)} if each.properties else {}),
            }
            for each in reading.documents
        ],
        **({"records": [_record(each) for each in reading.records]} if reading.records else {}),
        "skipped": [
            {"where": each.where, "reason": each.reason, "external_id": each.external_id} for each in reading.skipped
        ],
        "notices": reading.notices,
    }


def _record(each: ImportedRecord) -> dict[str, Any]:
    return {
        "id": str(each.id),
        "type": each.type,
        "project_id": each.project_id,
        "tags": list(each.tags),
        "created_at": _iso(each.created_at),
        "content": each.content,
    }


def _conversation(each: ImportedConversation) -> dict[str, Any]:
    return {
        "external_id": each.external_id,
        "also_ids": list(each.also_ids),
        "title": each.title,
        "created_at": _iso(each.created_at),
        "last_at": _iso(each.last_at),
        "archived": each.is_archived,
        "messages": [_message(message) for message in each.messages],
        "other_branches": [_message(message) for message in each.other_branches],
    }


def _message(each: ImportedMessage) -> dict[str, Any]:
    return {
        "id": each.id,
        "parent": each.parent,
        "role": each.role,
        "at": _iso(each.at),
        "at_inferred": each.at_inferred,
        "model": each.model,
        "attachments": list(each.attachments),
        "text": each.text,
    }


def _iso(at: date | datetime | None) -> str | None:
    return at.isoformat() if at else None


def differences(found: dict[str, Any], expected: dict[str, Any]) -> list[str]:
    """A sentence for each difference between the reading and the expectation."""
    allowed = {expected["outcome"], expected.get("or_else")}
    if found["outcome"] == "refused":
        return [] if allowed & {"refused", "any"} else [f"refused: {found.get('why')}"]
    if allowed == {"refused", None}:
        return [f"expected to be refused, but {found['outcome']}"]
    return [
        *_conversation_differences(found["conversations"], expected),
        *_document_differences(found["documents"], expected.get("documents", [])),
        *_record_differences(found.get("records", []), expected.get("records", [])),
        *_skipped_differences(found, expected),
        *(f"{secret!r} must not appear" for secret in expected.get("never", []) if _appears(secret, found)),
    ]


def _conversation_differences(found: list[dict[str, Any]], expected: dict[str, Any]) -> Iterator[str]:
    lenient = set(expected.get("lenient", []))
    left = [each for each in found if each["external_id"] not in lenient]
    for repeated, times in Counter(each["external_id"] for each in left).items():
        if times > 1:
            yield f"conversation {repeated} comes {times} times"
    for requested in expected.get("conversations", []):
        match = next((each for each in left if _is_same(each, requested)), None)
        if match is None:
            yield f"conversation {requested['external_id']} ({requested['title']}) is missing"
            continue
        left.remove(match)
        yield from (f"{requested['external_id'] or requested['title']}: {each}" for each in _fields(match, requested))
    yield from (f"conversation {each['external_id']} ({each['title']}) is not expected" for each in left)


def _is_same(found: dict[str, Any], requested: dict[str, Any]) -> bool:
    if requested["external_id"] is not None:
        return bool(found["external_id"] == requested["external_id"] or requested["external_id"] in found["also_ids"])
    first, first_requested = found["messages"][0], requested["messages"][0]
    return _begins(first["text"], first_requested["text"]) and _is_same_time(first["at"], first_requested.get("at"))


def _fields(found: dict[str, Any], requested: dict[str, Any]) -> Iterator[str]:
    if requested["title"] is not None and _letters(found["title"]) != _letters(requested["title"]):
        yield f"title {found['title']!r}, not {requested['title']!r}"
    for name in ("created_at", "last_at"):
        if requested.get(name) and not _is_same_time(found[name], requested[name]):
            yield f"{name} {found[name]}, not {requested[name]}"
    if found["archived"] is not bool(requested.get("archived", False)):
        yield f"archived {found['archived']}"
    yield from _message_differences(found["messages"], requested["messages"], requested, "")
    yield from _message_differences(
        found["other_branches"], requested.get("other_branches", []), requested, "other branch, ", is_ordered=False
    )
    shown = {message["id"] for message in (*found["messages"], *found["other_branches"])}
    for node in requested.get("skipped_nodes", []):
        if node.get("id") in shown:
            yield f"node {node['id']} ({node['why']}) is shown"


def _message_differences(
    found: list[dict[str, Any]],
    requested: list[dict[str, Any]],
    conversation: dict[str, Any],
    place: str,
    *,
    is_ordered: bool = True,
) -> Iterator[str]:
    if is_ordered:
        found, requested = _joined(found), _joined(requested)
    else:
        found, requested = _by_id(found), _by_id(requested)
    if len(found) != len(requested):
        yield f"{place}{len(found)} messages, not {len(requested)}"
        return
    for number, (one, other) in enumerate(zip(found, requested, strict=True), 1):
        yield from (f"{place}message {number}: {each}" for each in _one_message(one, other, conversation))


def _by_id(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(messages, key=lambda each: str(each.get("id")))


def _joined(messages: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Runs of messages of one role as one: the first beginning, time and ids, the last end."""
    joined: list[dict[str, Any]] = []
    for message in messages:
        if not joined or joined[-1]["role"] != message["role"]:
            joined.append({**message, "last": message, "ids": {message.get("id")}})
            joined[-1]["attachments"] = list(message.get("attachments", []))
        else:
            joined[-1]["last"] = message
            joined[-1]["ids"].add(message.get("id"))
            joined[-1]["attachments"] += message.get("attachments", [])
    return joined


def _one_message(found: dict[str, Any], requested: dict[str, Any], conversation: dict[str, Any]) -> Iterator[str]:
    if requested.get("id") is not None and found["id"] != requested["id"]:
        yield f"id {found['id']}, not {requested['id']}"
    if requested.get("id") is not None and "parent" in requested and found["parent"] != requested["parent"]:
        yield f"parent {found['parent']}, not {requested['parent']}"
    if found["role"] != requested["role"]:
        yield f"role {found['role']}, not {requested['role']}"
    yield from _text_differences(found, requested)
    if requested.get("model") and found["model"] != requested["model"]:
        yield f"model {found['model']!r}, not {requested['model']!r}"
    if len(found["attachments"]) != len(requested.get("attachments", [])):
        yield f"{len(found['attachments'])} attachments, not {len(requested.get('attachments', []))}"
    if not _has_right_time(found, requested, conversation):
        yield f"at {found['at']}, not {requested.get('at')}"


def _text_differences(found: dict[str, Any], requested: dict[str, Any]) -> Iterator[str]:
    if not _begins(found["text"], requested["text"]):
        yield f"text begins {found['text'][:_PREFIX]!r}, not {requested['text'][:_PREFIX]!r}"
    end = requested.get("last", requested).get("end")
    if end and not _ends(found.get("last", found)["text"], end):
        yield f"text ends {found.get('last', found)['text'][-_PREFIX:]!r}, not {end[-_PREFIX:]!r}"


def _has_right_time(found: dict[str, Any], requested: dict[str, Any], conversation: dict[str, Any]) -> bool:
    if requested.get("at") is None:
        return True
    if _is_same_time(found["at"], requested["at"]) or not requested.get("at_inferred"):
        return _is_same_time(found["at"], requested["at"])
    at, first, last = (parse_time(each) for each in (found["at"], conversation["created_at"], conversation["last_at"]))
    return at is not None and (first is None or last is None or first <= at <= last)


def _document_differences(found: list[dict[str, Any]], requested: list[dict[str, Any]]) -> Iterator[str]:
    left = {each["external_id"]: each for each in found}
    for each in requested:
        match = left.pop(each["external_id"], None)
        if match is None:
            yield f"document {each['external_id']} is missing"
        elif not _begins(match["text"], each["text"]) or not _ends(match["text"], each.get("end", "")):
            yield f"document {each['external_id']} has another text"
        elif each["title"] is not None and match["title"] != each["title"]:
            yield f"document {each['external_id']} has the title {match['title']!r}, not {each['title']!r}"
        elif each["at"] is not None and not _is_same_day_or_time(match["at"], each["at"]):
            yield f"document {each['external_id']} has the time {match['at']}, not {each['at']}"
    yield from (f"document {external_id} is not expected" for external_id in left)


def _record_differences(found: list[dict[str, Any]], requested: list[dict[str, Any]]) -> Iterator[str]:
    left = {each["id"]: each for each in found}
    for each in requested:
        match = left.pop(each["id"], None)
        if match is None:
            yield f"record {each['id']} is missing"
        elif match != {**match, **each}:
            yield f"record {each['id']} differs in {', '.join(key for key in each if match.get(key) != each[key])}"
    yield from (f"record {record_id} is not expected" for record_id in left)


def _is_same_day_or_time(found: str | None, requested: str) -> bool:
    return found is not None and (found[:10] == requested if "T" not in requested else _is_same_time(found, requested))


def _skipped_differences(found: dict[str, Any], expected: dict[str, Any]) -> Iterator[str]:
    requested = [each for each in expected.get("skipped", []) if each["reason"] in _REPORTED]
    places = {each["where"] for each in found["skipped"]} | {each["external_id"] for each in found["skipped"]}
    for each in requested:
        if not any(_names(place, each) for place in places if place):
            yield f"{each['where']} ({each['reason']}) is not reported"
    at_least = expected.get("skipped_at_least", 0)
    if len(found["skipped"]) < at_least:
        yield f"{len(found['skipped'])} are reported as skipped, fewer than {at_least}"


def _names(place: str, requested: dict[str, Any]) -> bool:
    return place == requested.get("external_id") or place.endswith(requested["where"])


def _appears(secret: str, found: dict[str, Any]) -> bool:
    """Without the positions in reports: they are not stored."""
    return secret in str(found["conversations"]) or secret in str(found["documents"])


def _letters(text: str | None) -> str:
    return "".join(filter(str.isalnum, text or ""))


def _begins(found: str, requested: str) -> bool:
    """On letters and digits; the numbers of a list may come of its markup alone."""
    return any(_letters(text).startswith(_letters(requested)) for text in (found, _NUMBERS.sub("", found)))


def _ends(found: str, requested: str) -> bool:
    return any(_letters(text).endswith(_letters(requested)) for text in (found, _NUMBERS.sub("", found)))


def _is_same_time(found: str | None, requested: str | None) -> bool:
    if requested is None:
        return True
    one, other = parse_time(found), parse_time(requested)
    return one is not None and other is not None and abs((one - other).total_seconds()) < 1
