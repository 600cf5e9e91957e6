"""Sentences in the reader's language: those of the API and the database, and tool calls in words.

Translates English sentences of the API and the database into the language of the page.

Failures and tool calls are described once, in English, in the API and in the database. A page translates them when it
shows them; its scripts do the same (static/intake/language.js) with the catalog that they load.
"""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date
from functools import cache
from typing import Any, Self

from django.utils.formats import date_format, number_format
from django.utils.safestring import SafeString
from django.utils.translation import get_language, gettext
from django.utils.translation import gettext_noop as _

from intake.chats.tree import undo_path
from intake.markdown import render_summary
from intake.models import Turn

# `%(name)s` is a value, which may itself be one of these sentences; `places` are several, with commas between them.
SENTENCES = (
    # core.errors, and code that raises them with its own sentence
    _("The input is not valid."),
    _("The request is not valid."),
    _("Log in, or send a valid token."),
    _("This token may not do that."),
    _("You are logged out. Log in."),
    _("This page was made for another account. Reload it."),
    _("Not found."),
    _("It has been changed since it was read. Read it again, and write again."),
    _("These lines are not in the document any more as they were added, and so nothing was taken out."),
    _("The same request is still running. Try again shortly."),
    _("The request is too large."),
    _("Too many requests. Try again in a moment."),
    _("%(count)s of your calls are running. Wait for one to end."),
    _("The request took too long to arrive."),
    _(
        "This server does not know the name that it was asked by. Its administrator adds the name to ALLOWED_HOSTS, "
        "or has the proxy pass on the Host header."
    ),
    _("Something went wrong here. It has been written to the log."),
    _("Search failed."),
    _("Search failed: what was found could not be read in time."),
    _("The service is away for the moment. Try again shortly."),
    _("The database is away for the moment. Try again shortly."),
    _("The disk is full. The administrator of this server has to make room on it."),
    _("The disk is full, and the answer could not be kept. The administrator of this server has to make room."),
    _("The embedding model is away for the moment. Try again shortly."),
    _("Search failed: it took too long."),
    _("Too many searches are running at the moment. Try again shortly."),
    _("The second factor cannot be read: SECRET_KEY has changed."),
    # A chat
    _("The message is empty."),
    _("The message is too long."),
    _("Write something."),
    _("At most %(count)s characters; this has %(length)s."),
    _("At most %(count)s characters."),
    _("A text cannot have a NUL character (U+0000)."),
    _("A text cannot have half of a surrogate pair (U+D800 to U+DFFF)."),
    _("There is no such model."),
    _("Only a new chat can be temporary."),
    _("There is no answer here that broke off or was cut."),
    _("This message has been deleted."),
    _("Your session has ended, or your token was revoked. What was written is kept."),
    _("The answer was ended: it had reached %(count)s characters."),
    _("%(count)s of your answers are being written. Wait for one to end."),
    _("You may keep %(count)s messages with their answers here. Delete some first."),
    _("You may keep %(size)s of text here, and this would be more. Delete something first."),
    _("%(count)s passages of yours wait to be embedded. Try again when there are fewer."),
    _("The language model refused its key: the operator has to change it."),
    _("The language model is not there. Choose another, or tell the operator."),
    _("The language model's quota is used up."),
    _("The language model is busy. Try again in a moment."),
    _("This message is longer than the model's window."),
    _("This conversation is longer than the model's window. Start a new one, or choose another model."),
    _("The model sent nothing. Ask differently, or choose another model."),
    _("The model sent nothing in %(count)s seconds (LLM_TIMEOUT_SECONDS). Try again."),
    _("The language model's server cannot be reached. The operator can check its address (LLM_BASE_URL)."),
    _("The language model refused the request."),
    _("The model went round in circles with its tools. Ask differently."),
    _("The language model is away or broke off. Try again."),
    _("The language model's answer could not be read. Try again."),
    # What is kept, and tokens
    _("The document would have more than %(count)s characters, and so nothing was appended."),
    _("At most %(most)s; these are %(count)s."),
    _("A log's year lies between %(first)s and %(last)s."),
    _("There are %(count)s tokens already. Revoke one that is no longer used."),
    _("From 1 to %(most)s days."),
    # An import
    _("This cannot be done with the import at the moment."),
    _("Other imports are still open. Finish, cancel or delete one first."),
    _("The file is larger than this server takes."),
    _("There is room for %(count)s more bytes, and this file has %(size)s."),
    _("The server's disk has no room for this file at the moment. Ask the server's administrator."),
    _("This export has more than %(count)s files, more than can be read."),
    _("This export unpacks to more than %(count)s GB, more than can be read."),
    _(
        "This zip unpacks to more than %(count)s times its size, as no export does: it is not read. "
        "Download the export again."
    ),
    _("This zip is damaged or incomplete. Download the export again, and wait for the whole file."),
    _("The entries of this zip overlap, as in no export: it is not read."),
    _("This zip is protected with a password. Unpack it, and bring in the folder or a zip without a password."),
    _("This zip holds zips in zips, deeper than can be read. Unpack the outer ones."),
    _("The file is empty. Download the export again and take the whole file."),
    _("The file cannot be opened."),
    _("%(sentence)s What can be read: %(products)s."),
    _("This looks like a Slack export, which is not supported."),
    _("There is no file in this export that can be read."),
    _("This is a web page, not the data of an export: take the whole zip, or conversations.json from it."),
    _("This JSON file has no conversations of a known product."),
    _("Nothing in this export is of a known product."),
    # Why a part of an import was left out
    _("nothing was said in this conversation"),
    _("nothing was said in this session"),
    _("not a conversation: it has no messages"),
    _("not a conversation, a project or a memory"),
    _("this session stands in another file too"),
    _("the file ends early or is damaged here: what stands before it came in"),
    _("this line is too long to be read"),
    _("this line is no JSON"),
    _("this line is no JSON object"),
    _("the last line is cut off"),
    _("symbolic link"),
    _("unsafe name"),
    _("a second entry of the same name"),
    _("packed in a way that is not supported"),
    _("this note is too large"),
    _("this note is empty"),
    _("this is no note"),
    _("this file is too large"),
    _("this is about the agent"),
    _("not an entry of the activity list"),
    _("an entry of another product"),
    _("it has no usable time"),
    _("not a prompt"),
    _("an entry without a text, of an unknown kind: %(kind)s (%(count)s)"),
    _("a prompt that was taken back before it was sent"),
    _("Messages with nothing but a program's own words, such as a scheduler's, are hidden: %(count)s."),
    _("The time zone %(zone)s is not known. Times in it were read as UTC: %(count)s."),
    _("Gemini's export does not say which messages belong together: a new conversation begins after 30 minutes."),
    _("All files of this export are empty. Download the export again."),
    _("%(file)s is damaged or incomplete."),
    _("%(file)s unpacks to far more than a log does: the rest is not read."),
    _("this is no conversation of Recollect's export"),
    _("this is neither MEMORY.md nor USER.md nor the log of a day nor a note"),
    _("this record is empty"),
    _("a second turn of the same number"),
    _("its number is none that a turn can have"),
    _("its status is unknown"),
    _("it follows no earlier turn"),
    _("This took longer than the server allows, and was stopped. Try again in a moment."),
    _("Too many requests with long bodies are under way. Try again in a moment."),
    _(
        "The zips in this zip are much larger than the file, as in no export: "
        "they are not read. Unpack the file, and bring in what was in it."
    ),
    _("The server's disk has no room for this file. Ask the server's administrator."),
    _("it says that it continues a conversation that is not here before it: it came in as one of its own"),
    _("its id is none of Recollect's"),
    _("its date is no day"),
    _("its %(name)s is no time"),
    _("its %(name)s is no text"),
    _("its %(name)s has more than %(count)s characters"),
    _("none of its turns can be read: %(reason)s"),
    _("left out of this turn, since it cannot be read: %(places)s"),
    _("tool calls"),
    _("error"),
    _("usage"),
    _("the end of its thoughts"),
    _("“%(title)s” has instructions. They are off unless this account exported them; set them in the chat: %(place)s"),
    # What a tool call did
    _("Search"),
    _("Fetch"),
    _("Get conversation"),
    _("List recent conversations"),
    _("Save memory"),
    _("Append daily log"),
    _("Nothing to search yet: register or log in to have a memory"),
    _("Nothing found"),
    _("Nothing found about it; the nearest: %(places)s"),
    _("Found 1 result: %(places)s"),
    _("Found %(count)s results: %(places)s"),
    _("Found 1 turn: %(places)s"),
    _("Found %(count)s turns: %(places)s"),
    _("Found 1 memory"),
    _("Found %(count)s memories"),
    _("Found %(count)s"),
    _("Read 1 turn of %(title)s"),
    _("Read %(count)s turns of %(title)s"),
    _("Read %(title)s"),
    _("Listed 1 conversation: %(places)s"),
    _("Listed %(count)s conversations: %(places)s"),
    _("Listed %(count)s conversations"),
    _("Saved a %(type)s, project %(project)s, tagged %(tags)s"),
    _("Saved a %(type)s, project %(project)s"),
    _("Saved a %(type)s, tagged %(tags)s"),
    _("Saved a %(type)s"),
    _("Added to the log of %(date)s"),
    _("That did not work: %(reason)s"),
    _("%(place)s and %(more)s more"),
    # Of a file, or of an item
    _("%(place)s: %(reason)s"),
    _("a saved memory"),
    _("the log of %(date)s"),
    _("a deleted chat"),
)
# The longest names twenty places by their titles. Several values in one expression take quadratic time.
LONGEST_SENTENCE = 2_500
# A reason in a place in a sentence.
DEEPEST_VALUE = 3
_PLACEHOLDER = re.compile(r"%\((\w+)\)s")
_NUMBER = re.compile(r"\d{1,3}(,\d{3})*")


def in_page_language(sentence: str) -> str:
    """In the active language; unchanged without a translation, or if it is longer than any sentence from here."""
    return sentence if (get_language() or "en").startswith("en") else _translated(sentence, DEEPEST_VALUE)


def _translated(sentence: str, levels: int) -> str:
    """Values are sentences again, `levels` deep: a stored text can repeat the form of a sentence within itself."""
    if len(sentence) > LONGEST_SENTENCE or levels < 0:
        return sentence
    if sentence in SENTENCES:
        return gettext(sentence)
    for text, pattern in _patterns():
        if found := pattern.fullmatch(sentence):
            return gettext(text) % {name: _value(name, value, levels - 1) for name, value in found.groupdict().items()}
    return sentence


def _value(name: str, value: str, levels: int) -> str:
    if name == "places":
        return ", ".join(_translated(place, levels) for place in value.split(", "))
    if name == "date":
        try:
            return date_format(date.fromisoformat(value), "DATE_FORMAT")
        except ValueError:
            return value
    if _NUMBER.fullmatch(value):
        return number_format(int(value.replace(",", "")), force_grouping=True)
    return _translated(value, levels)


@cache
def _patterns() -> list[tuple[str, re.Pattern[str]]]:
    """The most specific first: "Read 3 turns of …" is not "Read …"."""
    with_values = [text for text in SENTENCES if _PLACEHOLDER.search(text)]
    with_values.sort(key=lambda text: -len(_PLACEHOLDER.sub("", text)))
    return [(text, _pattern(text)) for text in with_values]


def _pattern(text: str) -> re.Pattern[str]:
    # The odd ones are the names of values.
    pieces = _PLACEHOLDER.split(text)
    kinds = {"date": r"\d{4}-\d\d-\d\d", "count": r"[\d,]+", "more": r"[\d,]+"}
    return re.compile(
        "".join(
            f"(?P<{piece}>{kinds.get(piece, '.+?')})" if place % 2 else re.escape(piece)
            for place, piece in enumerate(pieces)
        ),
        re.DOTALL,
    )


# --- Describes finished tool calls on a page; static/intake/turn.js describes running ones ---

# An id has more characters.
LONGEST_DETAIL = 32


@dataclass(frozen=True, slots=True)
class Step:
    """`stored` is None for a call that stored nothing; `undo_path` is its undo address, if it can be undone."""

    what: str
    called: str
    summary: SafeString | None
    stored: str | None
    undo_path: str | None
    is_error: bool
    is_undone: bool

    @classmethod
    def of(cls, call: dict[str, Any], turn: Turn) -> Self:
        is_kept = bool(call.get("place"))
        return cls(
            what=in_words(call),
            called=as_called(call),
            summary=render_summary(in_page_language(call["summary"])) if call.get("summary") else None,
            stored=call.get("stored"),
            undo_path=(
                undo_path(turn.conversation_id, turn_number=turn.turn_number, call_id=call["id"]) if is_kept else None
            ),
            is_error=bool(call.get("is_error")),
            is_undone=bool(call.get("undone_at")),
        )


def tool_call_views(turn: Turn) -> list[Step]:
    return [Step.of(call, turn) for call in turn.tool_calls]


def in_words(call: dict[str, Any]) -> str:
    """The finished tool call in words; `doing` in static/intake/turn.js has the same while it runs."""
    name = str(call.get("name", ""))
    arguments = call.get("input")
    query = arguments.get("query") if isinstance(arguments, dict) else None
    if name.startswith("search") and query:
        return gettext("Searched your history for “%(query)s”") % {"query": query}
    return in_page_language(name.replace("_", " ").capitalize())


def as_called(call: dict[str, Any]) -> str:
    """The tool's name and its input, without the query and the stored text, which are shown anyway.

    Sorted by name, because the database keeps no order. `called` in static/intake/turn.js has the same.
    """
    return " · ".join([str(call.get("name", "")), *_details(call)])


def _details(call: dict[str, Any]) -> Iterator[str]:
    arguments = call.get("input")
    for name, value in sorted(arguments.items()) if isinstance(arguments, dict) else ():
        if name != "query" and value != call.get("stored") and _is_short(value):
            yield f"{name}: {value if isinstance(value, str) else json.dumps(value)}"


def _is_short(value: Any) -> bool:
    """Lists and long texts are shown elsewhere or not at all, and ids mean nothing to a reader."""
    if isinstance(value, str):
        return 0 < len(value) <= LONGEST_DETAIL
    return isinstance(value, bool | int | float)
