"""Reads the operators of a query: quotations, -word, from:, in:, before:, after:, has:; and its exact pieces. Pure.

| operator | finds only |
|---|---|
| `"two words"` | texts with exactly these words |
| `-word`, `-"two words"` | texts without them |
| `from:me`, `from:assistant` | what the user said, or what was answered |
| `in:"title"` | messages of chats with this in their title |
| `before:2026-03-01`, `after:2026-03-01` | texts of earlier days; texts of that day and later ones |
| `has:code` | texts with code |

An operator without a meaning, such as `before:soon`, stays in the text as plain words, and so does `-word` if nothing
or a command's option stands before it: `malformed` names both.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import date
from typing import Any, Literal

from memory.search.time_windows import NO_TIMES, PreferredTimes, TimeWindow, preferred_times

READ_AS = "read as: {}; in quotation marks it is searched as written"
PLAIN_WORDS = "Read as plain words, because they are no operators: {}"

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
    """`text`: the words to search, with those in quotation marks; `written`: the same with its operators. `sent`: the
    whole query: a text that contains it is found, whatever was read in it. `operators`: as they are written, in their
    order. `malformed`: what looks like an operator and is read as plain words.

    `before` is the first day that is left out, `after` the first that is not. `times`: those that are preferred.
    """

    text: str
    written: str = ""
    sent: str = ""
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
    def narrows(self) -> bool:
        """Whether a text must fulfil more than its date to be found."""
        return bool(self.quotations or self.excluded or self.titles or self.speaker or self.has_code)

    @property
    def notes(self) -> tuple[str, ...]:
        """Sentences that name what was read as an operator, but quotations, and what was not; in English."""
        read = [
            f'without "{_unquoted(each[1:])}"' if each.startswith("-") else each
            for each in self.operators
            if each[0] not in _MARKS
        ]
        named = ((READ_AS, read), (PLAIN_WORDS, self.malformed))
        return tuple(sentence.format(", ".join(words)) for sentence, words in named if words)

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


def parse_query(query: str) -> Query:
    """Never fails: what cannot be read is plain words."""
    query = query.strip()
    parsed, kept, end = Query("", query, query), "", 0
    for token in _TOKEN.finditer(query):
        kept += query[end : token.start()]
        end = token.end()
        # The word before it; a longer one is cut, so that reading a query takes time in its length alone.
        before = query[max(0, token.start() - 100) : token.start()].split()[-1:] or ["-"]
        # Of a command's options the first has a word before it, like an exclusion; the others have that option.
        is_option = token["excluded"] and before[0].startswith("-") and before[0] not in parsed.operators
        read = None if is_option else _read(parsed, token)
        if read is not None:
            parsed = replace(read, operators=(*read.operators, token[0]))
            kept += f" {token['quotation'].strip(_MARKS)} " if token["quotation"] else " "
        else:
            kept += token[0]
            if not token["quotation"]:
                parsed = replace(parsed, malformed=(*parsed.malformed, token[0]))
    text = kept + query[end:]
    return replace(parsed, text=" ".join(text.split()) if parsed.operators else query)


def _read(parsed: Query, token: re.Match[str]) -> Query | None:
    """With what the operator says; None if it says nothing."""
    value = _unquoted(token["quotation"] or token["excluded"] or token["value"])
    if not value or (token["name"] and token[0].startswith("-")):
        return None
    name = (token["name"] or ("quotation" if token["quotation"] else "exclusion")).lower()
    word, day = value.lower(), _day(value)
    says: dict[str, dict[str, Any] | None] = {
        "quotation": {"quotations": (*parsed.quotations, value)},
        "exclusion": {"excluded": (*parsed.excluded, value)},
        "in": {"titles": (*parsed.titles, value)},
        "from": {"speaker": word} if word in ("me", "assistant") else None,
        "has": {"has_code": True} if word == "code" else None,
        "before": {"before": day} if day else None,
        "after": {"after": day} if day else None,
    }
    changes = says[name]
    return None if changes is None else replace(parsed, **changes)


def _unquoted(value: str) -> str:
    return " ".join(value.strip(_MARKS).split())


def _day(value: str) -> date | None:
    try:
        day = date.fromisoformat(value)
    except ValueError:
        return None
    return day if len(value) == len("2026-03-01") and day.year >= 1900 else None


def without_operator(query: str, operator: str) -> str:
    """The query without this one of its operators; a quotation loses its marks alone."""
    words = operator.strip(_MARKS) if operator[0] in _MARKS else ""
    return " ".join(query.replace(operator, words, 1).split())


def flags(text: str) -> list[str]:
    """The options of a command that were not read as exclusions, with their dashes: `--no-cache`, `-C`."""
    words = (word.strip(".,;:!?()[]{}'\"`") for word in text.split())
    return [word for word in dict.fromkeys(words) if re.fullmatch(r"--?[^\W\d_][\w-]*(?:=\S+)?", word)]


def identifiers(text: str) -> Iterator[str]:
    """The words that are meant to the letter: an order number, an error code, an e-mail address, a file or a
    name_with_underscores; not an amount or a date.
    """
    for word in (word.strip(".,;:!?()[]{}'\"") for word in text.split()):
        letters, digits = sum(map(str.isalpha, word)), sum(map(str.isdigit, word))
        is_mixed = letters > 0 and digits > 0 and letters + digits > 3 and not _AMOUNT.fullmatch(word)
        if is_mixed or "://" in word or "@" in word[1:-1] or "_" in word[1:-1] or _FILE.fullmatch(word):
            yield word
