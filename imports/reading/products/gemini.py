"""Gemini: the activity list of a Takeout, JSON or a web page. It has no conversations: gaps in time separate them.

Gemini in Workspace has conversations, one JSON file each.
"""

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

from core.text import Sentence
from core.text import gettext_noop as _
from imports.reading.activity_page import cards, is_activity
from imports.reading.drafts import ConversationDraft, NotShown, items_of
from imports.reading.files import Files, as_utf8, beginning_of
from imports.reading.items import ImportedConversation, ImportedMessage, Items, Notice, Role, Skipped
from imports.reading.json_streams import LOOKED_AT, elements, names_with, records
from imports.reading.products import ExportReader
from imports.reading.values import (
    base_name,
    first_of,
    id_of,
    joined,
    line_of,
    list_of,
    object_of,
    objects_of,
    parse_time,
    stable_id,
    text_of,
)
from intake.attachments.reading.html_text import html_to_text

PRODUCT = "gemini"
_SHAPE = {"header", "title", "time"}
# Of its conversations in Workspace.
_TURNS = {"conversation_turns"}
# Google's search has a mode that answers, whose questions are `Searched for`.
_AI_MODE = re.compile(r"AI Mode|AI Overview|KI-Modus|Modo IA|Mode IA|AIモード", re.IGNORECASE)
_HEADER = re.compile(rf"gemini|bard|{_AI_MODE.pattern}", re.IGNORECASE)
_SEARCHED = re.compile(r"Searched for\s+", re.IGNORECASE)
_VERB = re.compile(r"(?:Prompted with:|Prompted|Asked|Said)\s+", re.IGNORECASE)
# Verbs of other languages are unknown: there, an entry with an answer is a prompt, and shows the verb.
_NOT_A_PROMPT = re.compile(r"(?:Used|Created|Gave feedback|Selected|Viewed|Visited|Searched)\b")
# Before a no-break space, as in web pages, or a colon: short, and without punctuation.
_FOREIGN_VERB = re.compile(r"[^\W\d_][^.?!:\n\xa0]{0,40}?(?::?\xa0|: )")
# An entry of nothing but files, and the line that counts them; other languages put the words in another order.
_ATTACHED = re.compile(r"(?:Attached )?\d{1,4} (?:attached )?files?\.?\s{0,9}\Z", re.IGNORECASE)
# The same line at the end of a question, which the person did not write.
_ATTACHED_LAST = re.compile(r"\s{1,9}(Attached \d{1,4} files?\.?)\s{0,9}\Z", re.IGNORECASE)
_GROUPED = _("Gemini's export does not say which messages belong together: a new conversation begins after 30 minutes.")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Exchange:
    """A question with its time, and its answer if the export has one."""

    where: str
    at: datetime
    # Unchanged, including the verb if its language is unknown.
    question: str
    has_verb: bool
    answer: str
    attachments: tuple[str, ...]


def _recognises(files: Files) -> int:
    for name in names_with(files, _SHAPE, at_most=LOOKED_AT):
        if _HEADER.search(beginning_of(files, name, 65536)):
            return 90
    return 90 if names_with(files, _TURNS, at_most=LOOKED_AT) or _pages(files) else 0


def _pages(files: Files) -> list[str]:
    """Web pages that are activity lists with Gemini in them; a style sheet comes first in such a page."""
    names = files.names()
    pages = names if len(names) == 1 else [name for name in names if name.lower().endswith((".html", ".htm"))]
    found = []
    for name in pages[:50]:
        # The style sheet of a page is long.
        beginning = beginning_of(files, name, 1024 * 1024)
        if _HEADER.search(beginning) and is_activity(beginning):
            found.append(name)
    return found


def _read(files: Files) -> Items:
    yield from items_of(files, names_with(files, _TURNS), _of_workspace)
    exchanges: list[_Exchange] = []
    zones: Counter[str] = Counter()
    for where, record in _entries(files):
        found = _exchange(where, record)
        if isinstance(found, str):
            yield Skipped(where=where, reason=found)
        else:
            exchanges.append(found)
            zones[line_of(record, "unknown_zone")] += 1
    asked = []
    for each in _prompts(exchanges):
        if isinstance(each, Skipped):
            yield each
        else:
            asked.append(each)
    if asked:
        yield Notice(text=_GROUPED)
        yield from _about_zones(zones)
        yield from _conversations(asked)


def _entries(files: Files) -> Iterator[tuple[str, Any]]:
    """The entries of all activity lists; one that repeats another is reported."""
    lists = names_with(files, _SHAPE)
    folders = {name.rpartition("/")[0] for name in lists}
    for name in [*lists, *_pages(files)]:
        is_list = name in lists
        if not is_list and name.rpartition("/")[0] in folders:
            files.report(name, _("the list beside it has the same entries"))
            continue
        yield from records(files, name, elements if is_list else lambda stream: cards(as_utf8(stream)))


def _about_zones(zones: Counter[str]) -> Iterator[Notice]:
    for zone, times in zones.items():
        if zone:
            message = _("The time zone %(zone)s is not known. Times in it were read as UTC: %(count)s.")
            yield Notice(text=Sentence(message, zone=zone, count=times))


def _exchange(where: str, record: Any) -> _Exchange | str:
    """Or the reason why it is none."""
    if not isinstance(record, dict):
        return _("not an entry of the activity list")
    if not _HEADER.search(text_of(record, "header")):
        return _("an entry of another product")
    at = parse_time(record, "time")
    if at is None:
        return _("it has no usable time")
    title = text_of(record, "title").strip()
    answer = "\n\n".join(html_to_text(text_of(each, "html")) for each in objects_of(record, "safeHtmlItem")).strip()
    verb = _VERB.match(title) or (_AI_MODE.search(text_of(record, "header")) and _SEARCHED.match(title))
    if not verb and _NOT_A_PROMPT.match(title):
        return _("not a prompt")
    question = title[verb.end() :] if verb else title
    attachments = _attachments(record)
    if only_files := _ATTACHED.match(question):
        attachments = attachments or (only_files[0].strip(),)
    elif counted := _ATTACHED_LAST.search(question):
        question, attachments = question[: counted.start()].rstrip(), attachments or (counted[1],)
    return _Exchange(
        where=where,
        at=at,
        question="" if only_files else question,
        has_verb=verb is not None or only_files is not None or (not title and bool(attachments)),
        answer=answer,
        attachments=attachments,
    )


def _of_workspace(where: str, value: Any, not_shown: NotShown) -> Items:
    record, before = object_of(value), None
    draft = ConversationDraft(
        product=PRODUCT,
        where=where,
        external_id=id_of(record, "conversation_id") or base_name(where).partition(".")[0],
        title=line_of(record, "title"),
        created_at=parse_time(record, "creation_time"),
        last_at=parse_time(record, "last_modification_time"),
    )
    for place, turn in enumerate(objects_of(record, "conversation_turns")):
        asked, answered = object_of(turn, "user_turn"), object_of(turn, "system_turn")
        is_user = "user_turn" in turn
        fields = asked if is_user else answered
        texts = [text_of(fields, "prompt"), *(text_of(each, "data") for each in objects_of(fields, "text"))]
        names = [first_of(each, "name", "title") for each in objects_of(fields, "attachments")]
        node, at = f"turn-{id_of(fields, 'turn_index') or place}", parse_time(fields, "turn_last_modified")
        role: Role = "user" if is_user else "assistant"
        draft.say(node, before, at, role, joined(texts), names=filter(None, names))
        not_shown.note(f"{where} {node}", *(turn.keys() - {"user_turn", "system_turn"}))
        before = node
    yield draft.finished()


def _prompts(exchanges: list[_Exchange]) -> Iterator[_Exchange | Skipped]:
    """The entries that are prompts: with a known verb, with the verb of answered entries, or answered themselves."""
    verbs_with_answers = Counter(
        _foreign_verb(each.question) for each in exchanges if each.answer and not each.has_verb
    )
    verbs = {verb for verb, times in verbs_with_answers.items() if verb.endswith("\xa0") or times >= 3}
    for each in exchanges:
        verb = _foreign_verb(each.question)
        if each.has_verb:
            yield each
        elif verb and verb in verbs:
            yield replace(each, question=each.question[len(verb) :].lstrip())
        elif each.answer:
            yield each
        else:
            yield Skipped(where=each.where, reason=_("not a prompt"))


def _foreign_verb(title: str) -> str:
    """The text before a no-break space or a colon, if it may be a verb."""
    found = _FOREIGN_VERB.match(title)
    return found[0] if found else ""


def _attachments(record: dict[str, Any]) -> tuple[str, ...]:
    """Names of files; where the list only counts them, its line."""
    subtitles = objects_of(record, "subtitles")
    listed = [line_of(each, "url") or line_of(each, "name").lstrip("- \xa0") for each in subtitles]
    images = record.get("imageFile")
    named = [line_of(each) for each in (list_of(images) or [images])]
    names = [name for name in dict.fromkeys([*listed, *named]) if name]
    return tuple([name for name in names if not _ATTACHED.match(name)] or names)


def _conversations(exchanges: list[_Exchange]) -> Items:
    exchanges.sort(key=lambda each: each.at)
    group: list[_Exchange] = []
    for each in exchanges:
        if group and each.at - group[-1].at > timedelta(minutes=30):
            yield _conversation(group)
            group = []
        group.append(each)
    yield _conversation(group)


def _conversation(group: list[_Exchange]) -> ImportedConversation:
    return ImportedConversation(
        product=PRODUCT,
        # By its first question: the conversation keeps its id when it becomes longer.
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


READER = ExportReader(
    product=PRODUCT,
    label="Gemini",
    recognises=_recognises,
    read=_read,
    looks_for=_("My Activity's MyActivity.json or .html with Gemini's entries, or the conversations of Workspace"),
    wordless=r"(?:^|/)archive_browser\.html\Z",
)
