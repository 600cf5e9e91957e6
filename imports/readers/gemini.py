"""Gemini: the activity list of a Takeout. It has no conversations: they are made by gaps in time."""

import html
import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from imports.assembly import broken_off
from imports.files import Files
from imports.items import ImportedConversation, ImportedMessage, Item, Items, Notice, Skipped
from imports.json_streams import BrokenJSON, names_with, records
from imports.readers import ExportReader
from imports.times import parse_time
from imports.values import line_of, list_of, objects_of, stable_id, text_of

_GAP = timedelta(minutes=30)
_SHAPE = {"header", "title", "time"}
_HEADER = re.compile(r"gemini|bard", re.IGNORECASE)
_VERB = re.compile(r"(?:Prompted with:|Prompted|Asked|Said)\s+", re.IGNORECASE)
# Verbs of other languages are not known: there, an entry with an answer is a prompt.
_NOT_A_PROMPT = re.compile(r"(?:Used|Created|Gave feedback|Selected|Viewed|Visited|Searched)\b")
_BREAKS = re.compile(r"<\s*(?:br|/p|/li|/h[1-6]|/tr|/pre|/div|/ol|/ul)\b[^<>]*>", re.IGNORECASE)
_ITEMS = re.compile(r"<li\b[^<>]*>", re.IGNORECASE)
_TAGS = re.compile(r"<[^<>]*>")
_BLANKS = re.compile(r"\n\s*\n\s*")
_GROUPED = "Gemini's export does not say which messages belong together: a new conversation begins after 30 minutes."


@dataclass(frozen=True, slots=True, kw_only=True)
class _Exchange:
    """A question at a time, with its answer if the export has one."""

    at: datetime
    question: str
    answer: str
    attachments: tuple[str, ...]


def _recognises(files: Files) -> int:
    for name in names_with(files, _SHAPE):
        with files.open(name) as stream:
            if _HEADER.search(stream.read(65536).decode(errors="replace")):
                return 90
    return 0


def _read(files: Files) -> Items:
    exchanges: list[_Exchange] = []
    for name in names_with(files, _SHAPE):
        try:
            for where, record in records(files, name):
                found = _exchange(where, record)
                if isinstance(found, Skipped):
                    yield found
                else:
                    exchanges.append(found)
        except BrokenJSON as error:
            yield broken_off(name, error)
    if exchanges:
        yield Notice(text=_GROUPED)
        yield from _conversations(exchanges)


def _exchange(where: str, record: Any) -> _Exchange | Skipped:
    if not isinstance(record, dict):
        return Skipped(where=where, reason="not an entry of the activity list")
    if not _HEADER.search(text_of(record.get("header"))):
        return Skipped(where=where, reason="an entry of another product")
    at = parse_time(record.get("time"))
    if at is None:
        return Skipped(where=where, reason="it has no usable time")
    title = text_of(record.get("title")).strip()
    answer = "\n\n".join(_plain(text_of(each.get("html"))) for each in objects_of(record.get("safeHtmlItem"))).strip()
    verb = _VERB.match(title)
    if _NOT_A_PROMPT.match(title) or not (verb or answer):
        return Skipped(where=where, reason="not a prompt")
    question = title[verb.end() :] if verb else title
    return _Exchange(at=at, question=question, answer=answer, attachments=_attachments(record))


def _attachments(record: dict[str, Any]) -> tuple[str, ...]:
    linked = [line_of(each.get("url")) for each in objects_of(record.get("subtitles"))]
    images = record.get("imageFile")
    named = [line_of(each) for each in (list_of(images) or [images])]
    return tuple(dict.fromkeys(name for name in [*linked, *named] if name))


def _plain(text: str) -> str:
    """HTML as plain text: lines and list items kept, every tag dropped."""
    text = _TAGS.sub("", _ITEMS.sub("- ", _BREAKS.sub("\n", text)))
    return _BLANKS.sub("\n\n", html.unescape(text)).strip()


def _conversations(exchanges: list[_Exchange]) -> Iterator[Item]:
    exchanges.sort(key=lambda each: each.at)
    group: list[_Exchange] = []
    for each in exchanges:
        if group and each.at - group[-1].at > _GAP:
            yield _conversation(group)
            group = []
        group.append(each)
    yield _conversation(group)


def _conversation(group: list[_Exchange]) -> ImportedConversation:
    return ImportedConversation(
        product="gemini",
        # By its first question: the conversation keeps its id when more is said in it.
        external_id=stable_id("gemini", group[0].at.isoformat(), group[0].question),
        title=None,
        created_at=group[0].at,
        last_at=group[-1].at,
        messages=tuple(_messages(group)),
    )


def _messages(group: list[_Exchange]) -> Iterator[ImportedMessage]:
    parent = None
    for place, each in enumerate(group):
        node = stable_id(each.at.isoformat(), each.question, place)
        if each.question or each.attachments:
            yield ImportedMessage(
                id=node, parent=parent, role="user", text=each.question, at=each.at, attachments=each.attachments
            )
            parent = node
        if each.answer:
            answer = f"{node}-answer"
            yield ImportedMessage(
                id=answer, parent=parent, role="assistant", text=each.answer, at=each.at, at_inferred=True
            )
            parent = answer


READER = ExportReader(product="gemini", label="Gemini", recognises=_recognises, read=_read)
