"""Reads the operators of a query: quotations, -word, from:, in:, before:, after:, has:; and its exact pieces. Pure.

| operator | finds only |
|---|---|
| `"two words"` | texts with exactly these words |
| `-word`, `-"two words"` | texts without them |
| `from:me`, `from:assistant` | what the user said, or what was answered |
| `in:"title"` | messages of chats with this in their title |
| `before:2026-03-01`, `after:2026-03-01` | texts of earlier days; texts of that day and later ones |
| `has:code` | texts with code |

An operator without a meaning, such as `before:soon`, stays in the text as plain words, and is named in `malformed`.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import date
from typing import Literal

from memory.search.time_windows import NO_TIMES, PreferredTimes, TimeWindow, preferred_times

# A query's exact pieces beyond these are left out, and the answer says so.
MOST_PIECES = 8

FIRST_YEAR = 1900

_QUOTATION = r'"[^"]*"|“[^“”]*”|„[^„“”]*[“”]|«[^«»]*»'
_MARKS = '"“”„«»'
_TOKEN = re.compile(
    rf"(?<!\S)-?(?P<name>from|in|before|after|has):(?P<value>{_QUOTATION}|\S*)"
    rf"|(?<!\S)-(?P<excluded>{_QUOTATION}|[^\W\d_][^\W_][^\s\"]*)"
    rf"|(?P<quotation>{_QUOTATION})",
    re.IGNORECASE,
)
# A file's name, and an amount with its unit: 10mg, 24-hour.
_FILE = re.compile(r"(?<![\w.-])[\w.-]*\w\.[a-zA-Z]\w{1,4}")
_AMOUNT = re.compile(r"\d[\d.,]*-?[^\W\d_]+")


Speaker = Literal["me", "assistant"]


@dataclass(frozen=True, slots=True)
class Query:
    """`text`: the words to search, with those in quotation marks; `written`: the whole query. `operators`: as they are
    written, in their order. `malformed`: what looks like an operator and is read as plain words.

    `before` is the first day that is left out, `after` the first that is not. `times`: those that are preferred.
    """

    text: str
    written: str = ""
    quotations: tuple[str, ...] = ()
    excluded: tuple[str, ...] = ()
    speaker: Speaker | None = None
    titles: tuple[str, ...] = ()
    before: date | None = None
    after: date | None = None
    has_code: bool = False
    operators: tuple[str, ...] = ()
    malformed: tuple[str, ...] = ()
    times: PreferredTimes = NO_TIMES

    @property
    def is_dated(self) -> bool:
        return self.before is not None or self.after is not None

    @property
    def narrows(self) -> bool:
        """Whether a text must fulfil more than its date to be found."""
        return bool(self.quotations or self.excluded or self.titles or self.speaker or self.has_code)

    @property
    def to_embed(self) -> str:
        """Quotation marks have a meaning, operators have none; a model needs some text."""
        return self.written if self.quotes_only or not self.text else self.text

    @property
    def is_listing(self) -> bool:
        """Whether there is nothing to search for, so that every text that fits is a result."""
        return not self.text and bool(self.operators)

    @property
    def quotes_only(self) -> bool:
        """Whether quotations are the only operators: then the query itself may be a piece of text with quotes in it."""
        return len(self.operators) == len(self.quotations)

    def about(self, topic: str) -> "Query":
        """With these words alone, if there are any."""
        return replace(self, text=topic, written=topic) if topic else self

    def preferring(self, window: TimeWindow | None) -> "Query":
        """With the times that its words name, and this window; a time within quotation marks is text."""
        text = self.text
        for words in self.quotations:
            text = text.replace(words, " ")
        return replace(self, times=preferred_times(text, window))

    def without_quotations(self) -> "Query":
        return replace(self, quotations=())


def parse_query(query: str) -> Query:
    """Never fails: what cannot be read is plain words."""
    kept: list[str] = []
    end = 0
    parsed = Query("")
    for token in _TOKEN.finditer(query):
        kept.append(query[end : token.start()])
        end = token.end()
        read = _read(parsed, token)
        if read is not None:
            parsed = replace(read, operators=(*read.operators, token[0]))
            kept.append(f" {token['quotation'].strip(_MARKS)} " if token["quotation"] else " ")
        else:
            kept.append(token[0])
            if not token["quotation"]:
                parsed = replace(parsed, malformed=(*parsed.malformed, token[0]))
    text = "".join([*kept, query[end:]])
    return replace(parsed, text=" ".join(text.split()) if parsed.operators else query.strip(), written=query.strip())


def _read(parsed: Query, token: re.Match[str]) -> Query | None:
    """With what the operator says; None if it says nothing."""
    words = _unquoted(token["quotation"] or token["excluded"] or token["value"])
    if not words or (token["name"] and token[0].startswith("-")):
        return None
    if token["quotation"]:
        return replace(parsed, quotations=(*parsed.quotations, words))
    if token["excluded"]:
        return replace(parsed, excluded=(*parsed.excluded, words))
    return _narrowed(parsed, token["name"].lower(), words)


def _narrowed(parsed: Query, name: str, value: str) -> Query | None:
    day = _day(value)
    match name, value.lower():
        case "from", ("me" | "assistant") as speaker:
            return replace(parsed, speaker="me" if speaker == "me" else "assistant")
        case "in", _:
            return replace(parsed, titles=(*parsed.titles, value))
        case "has", "code":
            return replace(parsed, has_code=True)
        case "before", _ if day:
            return replace(parsed, before=day)
        case "after", _ if day:
            return replace(parsed, after=day)
    return None


def _unquoted(value: str) -> str:
    return " ".join(value.strip(_MARKS).split())


def _day(value: str) -> date | None:
    try:
        day = date.fromisoformat(value)
    except ValueError:
        return None
    return day if len(value) == len("2026-03-01") and day.year >= FIRST_YEAR else None


def without_operator(query: str, operator: str) -> str:
    """The query without this one of its operators; a quotation loses its marks alone."""
    words = operator.strip(_MARKS) if operator[0] in _MARKS else ""
    return " ".join(query.replace(operator, words, 1).split())


def searched_pieces(query: Query) -> tuple[list[str], list[str]]:
    """The exact pieces that are searched, and those beyond `MOST_PIECES` that are left out."""
    pieces = list(dict.fromkeys([*query.quotations, *identifiers(query.text)]))
    return pieces[:MOST_PIECES], pieces[MOST_PIECES:]


def identifiers(text: str) -> Iterator[str]:
    """The words that are meant to the letter."""
    return filter(_is_identifier, (word.strip(".,;:!?()[]{}'\"") for word in text.split()))


def _is_identifier(word: str) -> bool:
    """An order number, an error code, an e-mail address, a file, a name_with_underscores; not an amount or a date."""
    if "://" in word or "@" in word[1:-1] or "_" in word[1:-1] or _FILE.fullmatch(word):
        return True
    letters, digits = sum(map(str.isalpha, word)), sum(map(str.isdigit, word))
    return letters > 0 and digits > 0 and letters + digits > 3 and not _AMOUNT.fullmatch(word)  # noqa: PLR2004
