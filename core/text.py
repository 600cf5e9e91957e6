"""Texts at the border: what PostgreSQL can store, where a text may be cut, and sentences that can be translated.

A sign is what a reader sees as one (a grapheme cluster, https://unicode.org/reports/tr29/): a letter with its accents,
a flag, a family.
"""

import math
import re
import secrets
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from typing import Any

import regex
from django.conf import settings
from django.utils.formats import date_format, number_format
from django.utils.translation import get_language, gettext, override

_UNSTORABLE = re.compile("[\\x00\\ud800-\\udfff]")


def pg_text(text: str) -> str:
    """Remove NUL characters, and replace halves of surrogate pairs, which have no UTF-8, with U+FFFD."""
    return _UNSTORABLE.sub(lambda found: "" if found[0] == "\0" else "\ufffd", text)


# An escaped pair, half of one, or any other escape of JSON.
_ESCAPE = re.compile(rb"\\(?:u[dD][89abAB]..\\u[dD][c-fC-F]..|(u[dD][89a-fA-F][0-9a-fA-F]{2})|.)", re.DOTALL)


def with_whole_pairs(body: bytes) -> bytes:
    """JSON in which each half of a surrogate pair is U+FFFD, as programs write that cut a text inside a sign."""
    return _ESCAPE.sub(lambda found: rb"\ufffd" if found[1] else found[0], body) if rb"\u" in body else body


def pg_value(value: Any) -> Any:
    """Make every text of a JSON value storable; a number that JSON does not have becomes its name."""
    match value:
        case str():
            return pg_text(value)
        case float() if not math.isfinite(value):
            return str(value)
        case dict():
            return {pg_text(str(name)): pg_value(each) for name, each in value.items()}
        case list():
            return [pg_value(each) for each in value]
        case _:
            return value


# The address of a repository, and what a path on a disk begins with.
_REMOTE = re.compile(r"(?:[a-z][a-z0-9+.-]{0,20}://[^/\s]+/|[^/@:\s]+@[^/@:\s]+:)(?P<path>\S+)", re.IGNORECASE)
_FOLDER = re.compile(r"[/~\\]|[a-z]:[/\\]", re.IGNORECASE)
LONGEST_PROJECT = 200


# Signs that nobody sees, within a range of a regular expression.
UNSEEN = (
    "\\u00ad\\u034f\\u061c\\u180b-\\u180e\\u200b-\\u200f\\u202a-\\u202e\\u2060-\\u206f"
    "\\ufe00-\\ufe0f\\ufeff\\U000e0000-\\U000e01ef"
)
_UNSEEN, _OTHER_LETTERS = re.compile(f"[{UNSEEN}]"), re.compile(r"[\u0370-\u03ff\u0400-\u052f]")
# The letters of Cyrillic and Greek that look like these of Latin.
_LOOKALIKES = str.maketrans(
    "аеорсухіјѕһԁԛԝкмнтвьгАВЕКМНОРСТУХІЈЅԌԚԜαεικνορτυχηςΑΒΕΖΗΙΚΜΝΟΡΤΥΧ",
    "aeopcyxijshdqwkmhtbbrABEKMHOPCTYXIJSGQWaeikvoptuxnsABEZHIKMNOPTYX",
)


def as_it_looks(text: str) -> str:
    """The text for comparing: without signs that nobody sees, and each word in Latin letters if it looks so."""
    if text.isascii():
        return text
    text = _UNSEEN.sub("", unicodedata.normalize("NFKC", text))

    words = ((word[0], word[0].translate(_LOOKALIKES)) for word in re.finditer(r"\w+|\W+", text))
    return "".join(word if _OTHER_LETTERS.search(latin) else latin for word, latin in words)


def project_label(name: str) -> str:
    """The label of a project: a repository's name at its host (`me/app`) of its address, a folder's name of its path.

    Any other text is the label itself. So an import, which knows folders, and an agent agree on one label.
    """
    name = " ".join(pg_text(name).split())
    if remote := _REMOTE.fullmatch(name):
        name = remote["path"].strip("/").removesuffix(".git")
    elif _FOLDER.match(name):
        name = re.split(r"[/\\]", name.rstrip("/\\"))[-1]
    return name[:LONGEST_PROJECT]


def stored_label(name: str) -> str:
    """The label of what an import or a session brings, which nobody is there to correct: without hyphens in front.

    In searches they mean everything but the project.
    """
    label = project_label(name)
    while label.startswith("-"):
        label = project_label(label.lstrip("- "))
    return label


ELLIPSIS = "…"
# The longest sign that is kept whole: a family has a dozen code points, and a text may have thousands of accents.
LONGEST_SIGN = 32
_SIGN = regex.compile(r"\X")


def shortened(text: str, length: int) -> str:
    """The text, or its beginning with an ellipsis, `length` code points at most; cut between words if there are any."""
    if len(text) <= length:
        return text
    end = cut_point(text, length - len(ELLIPSIS))
    # How far a cut moves back to fall between two words. Scripts without spaces have none there.
    space = text.rfind(" ", max(0, end - 30), end)
    return text[: space if space > 0 else end].rstrip(" ,;:") + ELLIPSIS


def first_line(text: str) -> str:
    """The first line with any words, without the marks of a Markdown heading or list; empty if there is none."""
    lines = (" ".join(line.split()).lstrip("#>*+- ") for line in text.splitlines())
    return shortened(next(filter(None, lines), ""), 90)


def cut(text: str, length: int) -> str:
    """The beginning of a text without an ellipsis, `length` code points at most, and without a half sign at its end."""
    return text[: cut_point(text, length)]


def cut_point(text: str, length: int) -> int:
    """The last place at or before `length` that is not inside a sign."""
    end = min(length, len(text))
    for index in range(end, max(0, end - LONGEST_SIGN), -1):
        if index == len(text) or not is_inside_sign(text, index):
            return index
    return 0 if end < LONGEST_SIGN else end


def is_inside_sign(text: str, index: int) -> bool:
    """Whether a cut before this position would separate an accent from its letter, or split an emoji or a syllable."""
    # The pattern looks back as far as it must, and no further ahead than the next character.
    return bool(_SIGN.match(text, index - 1, index + 1).end() > index)


def capped(text: str, at_most: int) -> str:
    """The text, or its beginning with an ellipsis and the number of characters that are left out."""
    return text if len(text) <= at_most else f"{text[:at_most]}… ({len(text) - at_most:,} more characters)"


def gettext_noop(message: str) -> str:
    """Marks a message for translation. Django's own reads the settings, which import modules with messages."""
    return message


# A name or another text of the user, which stays as it is; another sentence; a number; a day; several of these.
Value = str | int | date | Sequence["Value"]

# The language of the page whose script asks. Requests of programs have no such header, and get English.
PAGE_LANGUAGE = "X-Recollect-Language"


class Sentence(str):
    """An English text that knows its message, such as "At most %(count)s characters.", and the values in it.

    An error, a tool's summary and a line of an import's report are such sentences. Code marks a message for translation
    where it says it (`gettext_noop`), and gives its values beside it. The API, the tools and the database have the
    English text. A page formats the message again with its translation (`in_page_language`). A text without values is
    its own message, so it stays an ordinary `str`.
    """

    __slots__ = ("message", "values")

    message: str
    values: dict[str, Value]

    def __new__(cls, message: str, /, **values: Value) -> "Sentence":
        text = message % {name: _in_english(value) for name, value in values.items()} if values else message
        sentence = super().__new__(cls, text)
        sentence.message, sentence.values = message, values
        return sentence


def _in_english(value: Value) -> str:
    match value:
        case str():
            return str(value)
        case int():
            return f"{value:,}"
        case date():
            return value.isoformat()
    return ", ".join(map(_in_english, value))


def in_page_language(text: str) -> str:
    """In the active language; unchanged if that is English or has no translation."""
    if not text or (get_language() or "en").startswith("en"):
        return str(text)
    if isinstance(text, Sentence) and text.values:
        return gettext(text.message) % {name: _in_language(value) for name, value in text.values.items()}
    return gettext(text)


def _in_language(value: Value) -> str:
    match value:
        case Sentence():
            return in_page_language(value)
        case str():
            return value
        case int():
            return number_format(value, force_grouping=True)
        case date():
            return date_format(value, "DATE_FORMAT")
    return ", ".join(map(_in_language, value))


def page_language(headers: Mapping[str, str]) -> str:
    """The language in which a response's sentences are: of the page whose script asks, or else English."""
    language = headers.get(PAGE_LANGUAGE, "")
    return language if language in dict(settings.LANGUAGES) else str(settings.LANGUAGE_CODE)


def in_language(text: str, language: str) -> str:
    if language.startswith("en"):
        return str(text)
    with override(language):
        return in_page_language(text)


def sentence_of(error: Exception) -> str:
    """The sentence that an exception was raised with; `str(error)` has lost its values."""
    return str(error) if not error.args or not isinstance(error.args[0], str) else error.args[0]


def kept(text: str) -> dict[str, Any]:
    """The JSON beside a text in its row: `{"sentence": {"message", "values"}}`, or nothing without values."""
    return {"sentence": as_json(text)} if isinstance(text, Sentence) and text.values else {}


def restored(row: Mapping[str, Any], name: str) -> str:
    """The sentence of a row whose field `name` has the text. A row of an earlier version has the text alone."""
    text = row[name] or ""
    try:
        sentence = _from_json(row.get("sentence"))
    except (ValueError, TypeError, KeyError, AttributeError):
        return str(text)
    # Of a text that was cut or changed, the values say too much.
    return sentence if isinstance(sentence, Sentence) and sentence == text else str(text)


def without_values(row: Mapping[str, Any]) -> dict[str, Any]:
    """The row as programs get it, without what is for pages alone."""
    return {name: value for name, value in row.items() if name not in ("sentence", "found", "shows")}


def as_json(value: Value) -> Any:
    match value:
        case Sentence():
            return {"message": value.message, "values": {name: as_json(each) for name, each in value.values.items()}}
        case str() | int():
            return value
        case date():
            return {"date": value.isoformat()}
    return [as_json(each) for each in value]


def _from_json(value: Any) -> Value:
    match value:
        case {"message": str(message), "values": dict(values)}:
            return Sentence(message, **{name: _from_json(each) for name, each in values.items()})
        case {"date": str(day)}:
            return date.fromisoformat(day)
        case list():
            return [_from_json(each) for each in value]
        case str() | int():
            return value
    raise ValueError("not a value of a sentence")


_TAG_OF_A_FRAME = re.compile(r"<(?=/?\s*(?:data|recollect-context|system-reminder)\b)", re.IGNORECASE)


def without_frames(text: str) -> str:
    """The text for inside a frame of ours: no tag of it looks like a frame's end, or like another program's words."""
    return _TAG_OF_A_FRAME.sub("\u2039", text)


@dataclass(frozen=True, slots=True)
class UntrustedData:
    """Recalled text reaches the model between markers that the text cannot contain, so that the model treats it as
    data.

    Each answer has a new marker. Earlier text cannot know it, and it is removed from text that is written meanwhile.
    """

    mark: str = field(default_factory=lambda: secrets.token_hex(8))

    @property
    def opening(self) -> str:
        return f"<data {self.mark}>"

    @property
    def closing(self) -> str:
        return f"</data {self.mark}>"

    def around(self, text: str, *, keeps_tags: bool = False) -> str:
        return f"{self.opening}\n{self.cleaned(text, keeps_tags=keeps_tags)}\n{self.closing}"

    def cleaned(self, text: str, *, keeps_tags: bool = False) -> str:
        """`keeps_tags`: for what a tool returns, whose bytes a model may write back."""
        # Repeated, because removing a marker may form a new one.
        while self.mark and self.mark in text:
            text = text.replace(self.mark, "")
        return text if keeps_tags else without_frames(text)
