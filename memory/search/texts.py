"""What an excerpt needs of the database: both sides of a turn, and which words of a text are the query's, inflected."""

from collections.abc import Collection, Iterable, Iterator
from datetime import datetime
from typing import NamedTuple
from uuid import UUID

from django.conf import settings
from django.db import connection
from django.db.models import F, Value
from django.db.models.expressions import Combinable
from django.db.models.functions import Greatest, Lower, StrIndex, Substr

from intake.models import Turn, User
from memory.chunking import ASSISTANT_LABEL, USER_LABEL
from memory.models.corpora import Key
from memory.search.excerpts import Matcher, Segment
from memory.terms import indexed_form

# So much of a message is read; of a longer one, around the query's very letters if it has them.
STRETCH = 32_000
# Of a query as much is searched: more than an embedding model reads, and no more terms than a search can look up.
SEARCHED_LENGTH = 2_000

_SAME = """
WITH asked AS MATERIALIZED (
    SELECT tsvector_to_array(to_tsvector(%(configuration)s::regconfig, %(query)s)) AS lexemes
)
SELECT word
  FROM unnest(%(words)s::text[], %(forms)s::text[]) AS candidate(word, form)
 CROSS JOIN asked
 WHERE tsvector_to_array(to_tsvector(%(configuration)s::regconfig, form)) && lexemes
"""


class TurnText(NamedTuple):
    """`answered` is empty where it only quotes the person's history, for that was not searched either."""

    conversation_id: UUID
    turn_number: int
    said: str
    answered: str
    said_at: datetime
    title: str

    @property
    def key(self) -> Key:
        return (self.conversation_id, self.turn_number)

    @property
    def segments(self) -> list[Segment]:
        return [Segment(self.said, before=USER_LABEL), Segment(self.answered, before=ASSISTANT_LABEL)]


def read_turns(user: User, keys: Collection[Key], *, query: str) -> Iterator[TurnText]:
    """Those of the keys that are turns of the person's; what is being asked right now is no history."""
    turns = Turn.objects.for_user(user).with_keys(keys).exclude(status=Turn.Status.STREAMING)
    piece = query.strip()[:SEARCHED_LENGTH]
    rows = turns.annotate(said=_stretch("user_message", piece), answered=_stretch("assistant_message", piece))
    columns = ("conversation_id", "turn_number", "said", "answered", "said_at", "conversation__title", "is_recall")
    for *columns_of_text, is_recall in rows.values_list(*columns):
        text = TurnText(*columns_of_text)
        yield text._replace(answered="") if is_recall else text


def _stretch(column: str, piece: str) -> Combinable:
    start = Greatest(Value(1), StrIndex(Lower(column), Lower(Value(piece))) - Value(STRETCH // 2))
    return Substr(F(column), start, STRETCH)


class Inflections:
    """Learns as it is shown texts; a word is asked about once."""

    def __init__(self, query: str) -> None:
        self._query = query
        self._asked: set[str] = set()
        self._known: set[str] = set()
        self._matcher = Matcher.of(query)

    def matcher_for(self, texts: Iterable[str]) -> Matcher:
        """Knows every word of these texts that is one of the query's, inflected or not."""
        new = self._matcher.candidates(texts) - self._asked
        if new:
            self._asked |= new
            self._known |= self._same(new)
        return self._matcher.knowing(self._known)

    def _same(self, words: set[str]) -> set[str]:
        with connection.cursor() as cursor:
            cursor.execute(
                _SAME,
                {
                    "configuration": settings.TEXT_SEARCH_CONFIG,
                    "query": indexed_form(self._query[:SEARCHED_LENGTH]),
                    "words": list(words),
                    "forms": [indexed_form(word) for word in words],
                },
            )
            return {word for (word,) in cursor.fetchall()}
