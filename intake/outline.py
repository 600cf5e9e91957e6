"""The outline of a long chat: its questions in order, the turns with some words, the first turn of a day."""

from dataclasses import dataclass
from datetime import date, datetime, time, tzinfo
from typing import Any

from django.db import connection
from django.db.models import Q

from core.pg_text import storable_text
from intake.models import Conversation, Turn

# As many as fit on a screen, with marks of four pixels; for longer chats every n-th question.
MOST_ENTRIES = 200
MOST_FOUND = 100
BEGINNING = 120
# The length of the text before the match in a snippet.
BEFORE_MATCH = 40
MOST_WORDS = 8

_QUESTIONS = """
SELECT turn_number, said_at, left(user_message, %(length)s)
  FROM (SELECT turn_number, said_at, user_message,
               row_number() OVER (ORDER BY turn_number) - 1 AS place, count(*) OVER () AS total
          FROM intake_conversation_turns
         WHERE conversation_id = %(conversation)s AND user_id = %(user)s) AS turns
 WHERE place %% greatest(1, ceil(total / %(most)s::numeric)::bigint) = 0
 ORDER BY turn_number
"""


@dataclass(frozen=True, slots=True)
class OutlineEntry:
    """One turn of an outline: `text` is the beginning of the message, or the text around the match."""

    turn_number: int
    said_at: datetime
    text: str


def questions(conversation: Conversation) -> list[OutlineEntry]:
    """The user's messages in order; if there are more than 200, a selection at even intervals."""
    parameters: dict[str, Any] = {
        "conversation": conversation.pk,
        "user": conversation.user_id,
        "length": BEGINNING,
        "most": MOST_ENTRIES,
    }
    with connection.cursor() as cursor:
        cursor.execute(_QUESTIONS, parameters)
        return [OutlineEntry(number, said_at, " ".join(text.split())) for number, said_at, text in cursor.fetchall()]


def find(conversation: Conversation, words: str) -> list[OutlineEntry]:
    """The latest 100 turns that contain each of the words, in any case, the latest first."""
    wanted = storable_text(words).split()[:MOST_WORDS]
    turns = Turn.objects.filter(conversation=conversation, user=conversation.user_id)
    for word in wanted:
        turns = turns.filter(Q(user_message__icontains=word) | Q(assistant_message__icontains=word))
    rows = turns.order_by("-turn_number").values_list("turn_number", "said_at", "user_message", "assistant_message")
    return [
        OutlineEntry(number, said_at, _around(wanted, said, answered))
        for number, said_at, said, answered in rows[:MOST_FOUND]
    ]


def first_turn_of(conversation: Conversation, day: date, zone: tzinfo) -> int | None:
    """The number of the first turn on or after that day, or else the last turn's."""
    turns = Turn.objects.filter(conversation=conversation, user=conversation.user_id)
    since = datetime.combine(day, time.min, tzinfo=zone)
    turn = turns.filter(said_at__gte=since).in_order().first() or turns.order_by("-turn_number").first()
    return None if turn is None else turn.turn_number


def _around(words: list[str], *texts: str) -> str:
    for text in texts:
        folded = text.lower()
        places = [place for word in words if (place := folded.find(word.lower())) >= 0]
        if places:
            start = max(0, min(places) - BEFORE_MATCH)
            piece = " ".join(text[start : start + BEGINNING].split())
            return f"…{piece}" if start else piece
    return " ".join(texts[0][:BEGINNING].split())
