"""The second source: turns that are like the query, in words or meaning, and turns that have it in so many letters.

Likeness gives a relevance; a turn that has the very letters is worth its relevance and, on top, as much as the best of
those that have not. So among turns of the same age none that is merely alike stands above one that has the letters,
and of these the engine says which fit best; one that it does not know (half a word, a piece of code) has the bonus
alone.
"""

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import Any

from django.db.models import F, Value
from django.db.models.expressions import Combinable
from django.db.models.functions import Greatest, Lower, StrIndex, Substr

from intake.models import Turn
from memory.chunking import ASSISTANT_LABEL, USER_LABEL
from memory.models import Corpus
from memory.models.corpora import Key, Scope
from memory.search.history.engine import related
from memory.search.history.passages import Part
from memory.search.history.requests import ENGINE_LENGTH
from memory.search.history.sources import Asked, Hit, Kind, Passage, Reference, Source
from memory.trigrams import containing

# Several times what anybody is shown.
LITERAL = 100
# So much of a message is read to find the excerpt in; of a longer one, around the query's very letters if it has them.
STRETCH = 32_000
UNTITLED = "Untitled"


class Messages(Source):
    name = "messages"

    def find(self, asked: Asked) -> list[Hit]:
        """See Source."""
        scope = Scope(asked.user, (Corpus.CHAT,), asked.period.since, asked.period.until)
        found = {each.key: each for each in related(scope, asked)}
        literal = containing(scope, text=asked.query.strip(), limit=LITERAL)
        times = {key: each.said_at for key, each in found.items()}
        times |= _times([key for key in literal if key not in found], asked)
        raw = with_literal({key: each.relevance for key, each in found.items()}, literal)
        return [Hit(self.name, key, raw[key], times[key]) for key in raw if key in times]

    def read(self, keys: Sequence[Key], asked: Asked) -> Mapping[Key, Passage]:
        """See Source: what is being asked right now is no history."""
        turns = Turn.objects.for_user(asked.user).with_keys(keys).exclude(status=Turn.Status.STREAMING)
        piece = asked.query.strip()[:ENGINE_LENGTH]
        rows = turns.annotate(said=_stretch("user_message", piece), answered=_stretch("assistant_message", piece))
        columns = ("conversation_id", "turn_number", "said", "answered", "is_recall", "said_at", "conversation__title")
        return {(row[0], row[1]): _passage(asked, *row) for row in rows.values_list(*columns)}


def with_literal(relevances: Mapping[Key, float], literal: Collection[Key]) -> dict[Key, float]:
    """The raw score of every turn that either way found; relevances are at least 0."""
    having = set(literal)
    bonus = max((relevance for key, relevance in relevances.items() if key not in having), default=0.0) or 1.0
    merely_alike = {key: relevance for key, relevance in relevances.items() if key not in having}
    return merely_alike | {key: relevances.get(key, 0.0) + bonus for key in literal}


def _times(keys: Sequence[Key], asked: Asked) -> dict[Key, datetime]:
    turns = Turn.objects.for_user(asked.user).with_keys(keys)
    return {(row[0], row[1]): row[2] for row in turns.values_list("conversation_id", "turn_number", "said_at")}


def _stretch(column: str, piece: str) -> Combinable:
    start = Greatest(Value(1), StrIndex(Lower(column), Lower(Value(piece))) - Value(STRETCH // 2))
    return Substr(F(column), start, STRETCH)


def _passage(asked: Asked, *row: Any) -> Passage:
    conversation_id, turn_number, said, answered, is_recall, said_at, title = row
    reference = Reference(
        kind=Kind.MESSAGE,
        day=said_at.astimezone(asked.zone).date(),
        conversation_id=conversation_id,
        turn_number=turn_number,
        session=" ".join(title.split()) or UNTITLED,
    )
    # An answer that only quotes the person's history was not searched either.
    sides = [Part(said, before=USER_LABEL), Part("" if is_recall else answered, before=ASSISTANT_LABEL)]
    return Passage(reference=reference, parts=sides, only_matching=True)
