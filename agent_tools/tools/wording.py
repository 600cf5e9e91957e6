"""Texts that the tools share: the note for visitors, links in summaries, and marks around stored text."""

import re
import unicodedata
from collections.abc import Sequence
from datetime import date
from typing import Annotated, Any

from django.utils.text import Truncator
from pydantic import Field

from core.errors import AuthenticationRequired
from core.text import Sentence, Value
from core.text import gettext_noop as _
from intake.models import User
from memory.records import RecordOutput
from memory.search.sources import Reference

NO_CALLER = "user identity required"
NOBODY = _("Nothing to search yet: register or log in to have a memory")
NOTHING = _("Nothing found")
MaxTokens = Annotated[int | None, Field(alias="maxTokens", ge=200, le=8_000, description="Of text.")]
INCLUDE_REPLACED = "Also memories that were replaced or ended."
LINKS = 3


def known(user: User | None) -> User:
    if user is None:
        raise AuthenticationRequired(NO_CALLER)
    return user


def counted(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def link(title: str, path: str) -> str:
    """With a short title, without characters that would end the link in Markdown."""
    plain = title.translate(str.maketrans("[]\\`", "()/'")) or "Conversation"
    return f"[{Truncator(plain).chars(48)}]({path})"


def first_of(places: Sequence[str]) -> Value:
    """The value of a summary's `places`."""
    if len(places) <= LINKS:
        return list(places)
    return Sentence(_("%(place)s and %(more)s more"), place=list(places[:LINKS]), more=len(places) - LINKS)


# The chat's model gets results between markers that no text contains (`core.text.UntrustedData`), and
# structured results are JSON, where a text ends where its string ends. This module is for the texts of REST and MCP
# beside those.

# The beginnings of a tool's own lines: a result's header, the list's, and a note.
_OURS = re.compile(r"-{2,}|\[\s*search results|note\s*:|id\s*:|project\s*:|no matching|</?\s*data\b", re.IGNORECASE)
_LINES_DRAWN = str.maketrans(dict.fromkeys("\u2500\u2501\u2550\u2212\u00af", "-"))
_UNSEEN = ("Cf", "Cc", "Mn")


def id_lines(id_: object, project: str | None = None) -> list[str]:
    """The id of a result on a line of its own, as `get_conversation` and `fetch` take it, and its project on another
    one, if it has one.
    """
    return [f"id: {id_}", *([f"project: {as_one_line(project)}"] if project else [])]


def later_in_words(result_id: str, day: str) -> str:
    """That the person says otherwise in a later turn, whose id and day these are."""
    return f"the person says otherwise on {day} in {result_id}"


def past_in_words(record: RecordOutput | Reference, today: date) -> list[str]:
    """That a record no longer holds, and since when: `replaced on 2026-03-01 by ID`; nothing for one that does."""
    if record.replaced_by is not None and record.replaced_on is not None and record.replaced_on <= today:
        return [f"replaced on {record.replaced_on} by {record.replaced_by}"]
    return [f"ended on {until}"] if (until := record.valid_until) is not None and until < today else []


def file_id(attachment_id: object, part: int | None) -> str:
    """The id of a passage of a file, as `read_attachment` and `fetch` take it: `file:ATTACHMENT:PART`."""
    return f"file:{attachment_id}:{part or 0}"


def result_id(place: Any) -> str:
    """The id of a result or a `Reference`, as `get_conversation`, `read_attachment` and `fetch` take it."""
    if place.attachment_id is not None:
        return file_id(place.attachment_id, place.part)
    turn = "" if place.turn_number is None else f"/{place.turn_number}"
    return f"{place.conversation_id or place.record_id or place.document_id}{turn}"


def without_our_lines(text: str) -> str:
    """The text, with a backslash before each line that looks like one of a tool's own."""
    lines = text.splitlines()
    if not any(map(_is_like_ours, lines)):
        return text
    return "\n".join("\\" + line if _is_like_ours(line) else line for line in lines)


def as_one_line(label: str, *, without: str = '"') -> str:
    """A title, a type or a tag for a header: one line, with an apostrophe for each mark that would end its part."""
    line = " ".join(label.split())
    for mark in without:
        line = line.replace(mark, "'")
    return line


def _is_like_ours(line: str) -> bool:
    # As it appears to a reader: full-width letters, all dashes and line breaks, and no invisible characters.
    plain = unicodedata.normalize("NFKC", line).translate(_LINES_DRAWN)
    seen = (character for character in plain if unicodedata.category(character) not in _UNSEEN)
    read = "".join("-" if unicodedata.category(character) == "Pd" else character for character in seen)
    return _OURS.match(read.lstrip()) is not None
