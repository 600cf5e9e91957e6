"""Reads the timeline: the counts of each month, its typical words, and its chats and notes.

Counts are live. A worker finds the words, together with the map (`memory.overview.drawing`).
"""

from calendar import monthrange
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime
from typing import Any

from django.db import connection

from intake.models import User
from memory.models import Corpus, MemoryMap, TellingWord
from memory.overview.atlas import look, words_by_bucket
from memory.overview.sources import Source, references_of
from memory.search.sources import Reference
from memory.search.time_windows import moments_of

PAGE = 100
# The last month that there is has no month after it.
END_OF_TIME = datetime.max.replace(tzinfo=UTC)

# A chat counts its turns; a document with several chunks counts once.
_COUNTS = """
SELECT date_part('year', local)::int, date_part('month', local)::int, corpus,
       CASE corpus WHEN 'chat' THEN count(*) ELSE count(DISTINCT source_id) END
  FROM (SELECT said_at AT TIME ZONE %(zone)s AS local, corpus, source_id
          FROM indexed_texts
         WHERE user_id = %(user_id)s) AS text
 GROUP BY 1, 2, corpus
 ORDER BY 1, 2
"""
_SOURCES = """
SELECT corpus, source_id, count(*), max(said_at), min(chunk_index)
  FROM indexed_texts
 WHERE user_id = %(user_id)s AND said_at >= %(since)s AND said_at < %(until)s
 GROUP BY corpus, source_id
 ORDER BY max(said_at) DESC, source_id
 LIMIT %(limit)s OFFSET %(skip)s
"""


@dataclass(frozen=True, slots=True)
class MonthWord:
    """A typical word of the month, and the number of its texts that contain it, in any inflection."""

    word: str
    texts: int


@dataclass(frozen=True, slots=True)
class Month:
    """`first` is its first day. MEMORY.md counts as a note of the month in which it was last changed."""

    first: date
    turns: int
    logs: int
    records: int
    notes: int
    words: list[MonthWord]

    @property
    def total(self) -> int:
        return self.turns + self.logs + self.records + self.notes

    @property
    def last(self) -> date:
        return last_day(self.first)


@dataclass(frozen=True, slots=True)
class MemoryTimeline:
    """The months from the first with a text to the last, oldest first, without empty years.

    `is_drawing`: a worker has not found the words yet.
    """

    months: list[Month]
    is_drawing: bool


@dataclass(frozen=True, slots=True)
class MonthEntry:
    """A chat, document or record of a month, last changed `at`.

    `turns`: the number of a chat's turns in this month; its reference leads to the first of them.
    """

    corpus: Corpus
    title: str
    at: datetime
    turns: int
    reference: Reference


@dataclass(frozen=True, slots=True)
class MonthEntries:
    """The latest first; `more`: the number to skip for the next page, if there is one."""

    entries: list[MonthEntry]
    more: int | None


def read_timeline(*, user: User, now: datetime) -> MemoryTimeline:
    look(user, now=now)
    counts: dict[date, dict[str, int]] = defaultdict(dict)
    for year, month, corpus, count in _fetch(_COUNTS, {"user_id": user.pk, "zone": user.zone.key}):
        counts[date(year, month, 1)][corpus] = count
    words = words_by_bucket(user, TellingWord.Kind.MONTH)
    months = [_month(first, counts.get(first, {}), words[bucket_of(first)]) for first in _from_first_to_last(counts)]
    drawn = MemoryMap.objects.filter(user=user).exclude(drawn_at=None).exists()
    return MemoryTimeline(months, is_drawing=bool(months) and not drawn)


def read_month(*, user: User, first: date, skip: int = 0) -> MonthEntries:
    since, until = moments_of(first, last_day(first), user.zone)
    parameters = {"user_id": user.pk, "since": since, "until": until or END_OF_TIME}
    rows = _fetch(_SOURCES, {**parameters, "limit": PAGE + 1, "skip": skip})
    found = references_of(user, {Source(corpus, source_id): at for corpus, source_id, _, at, _ in rows})
    entries = []
    for corpus, source_id, count, at, first_turn in rows[:PAGE]:
        if (named := found.get(Source(corpus, source_id))) is not None:
            kind, title, reference = named
            if kind == Corpus.CHAT:
                reference = replace(reference, turn_number=first_turn)
            entries.append(MonthEntry(kind, title, at, count if kind == Corpus.CHAT else 0, reference))
    return MonthEntries(entries, more=skip + PAGE if len(rows) > PAGE else None)


def bucket_of(first: date) -> int:
    return first.year * 100 + first.month


def last_day(first: date) -> date:
    """Of the month that begins with this day."""
    return first.replace(day=monthrange(first.year, first.month)[1])


def _month(first: date, counts: dict[str, int], words: list[TellingWord]) -> Month:
    return Month(
        first,
        turns=counts.get(Corpus.CHAT, 0),
        logs=counts.get(Corpus.DAILY_LOG, 0),
        records=counts.get(Corpus.RECORD, 0),
        notes=counts.get(Corpus.MEMORY, 0),
        words=[MonthWord(word.word, word.texts) for word in words],
    )


def _from_first_to_last(counts: dict[date, dict[str, int]]) -> Iterator[date]:
    """Includes the empty months between them, but not empty years: a log may be of any year from 1900 on."""
    for year in sorted({month.year for month in counts}):
        for number in range(1, 13):
            if min(counts) <= (month := date(year, number, 1)) <= max(counts):
                yield month


def _fetch(statement: str, parameters: dict[str, Any]) -> list[tuple[Any, ...]]:
    with connection.cursor() as cursor:
        cursor.execute(statement, parameters)
        rows: list[tuple[Any, ...]] = cursor.fetchall()
        return rows
