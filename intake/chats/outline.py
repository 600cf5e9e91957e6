"""The outline of a long chat: its questions in order, the turns with some words, the first turn of a day."""

from datetime import date, datetime, time, tzinfo
from typing import Any

from django.db import connection
from django.db.models import Q

from core.text import cut, pg_text
from intake.chats.tree import shared_turns
from intake.models import Conversation, Turn

BEGINNING = 120
SHOWN = ("conversation_id", "turn_number", "said_at", "user_message", "assistant_message")

_QUESTIONS = """
SELECT turn_number, said_at, left(user_message, %(length)s)
  FROM (SELECT turn_number, said_at, user_message,
               row_number() OVER (ORDER BY turn_number) - 1 AS place, count(*) OVER () AS total
          FROM intake_conversation_turns
         WHERE conversation_id = %(conversation)s AND user_id = %(user)s) AS turns
 WHERE place %% greatest(1, ceil(total / %(most)s::numeric)::bigint) = 0
 ORDER BY turn_number
"""


# One turn of an outline, for its template: `text` is the beginning of the message, or the text around the match.
def _outline_entry(number: int, said_at: datetime, text: str) -> dict[str, Any]:
    return {"turn_number": number, "said_at": said_at, "text": text}


def questions(conversation: Conversation) -> list[dict[str, Any]]:
    """The user's messages in order; if there are more than 200, a selection at even intervals."""
    parameters: dict[str, Any] = {
        "conversation": conversation.pk,
        "user": conversation.user_id,
        "length": BEGINNING,
        # As many as fit on a screen, with marks of four pixels; for longer chats every n-th question.
        "most": 200,
    }
    with connection.cursor() as cursor:
        cursor.execute(_QUESTIONS, parameters)
        return [_outline_entry(number, said_at, " ".join(text.split())) for number, said_at, text in cursor.fetchall()]


def find(conversation: Conversation, words: str) -> list[dict[str, Any]]:
    """The latest 100 turns that contain each of the words, in any case, the latest first."""
    requested = pg_text(words).split()[:8]
    # What a branch shares with its origin is read there.
    shared = [turn.pk for turn in shared_turns(conversation, at_most=1_000)]
    turns = Turn.objects.filter(Q(conversation=conversation) | Q(pk__in=shared), user=conversation.user_id)
    for word in requested:
        turns = turns.filter(Q(user_message__icontains=word) | Q(assistant_message__icontains=word))
    return [
        _outline_entry(
            turn.turn_number, turn.said_at, _excerpt_around(requested, turn.user_message, turn.assistant_message)
        )
        | {"origin": turn.conversation_id if turn.pk in shared else None}
        for turn in turns.only(*SHOWN).order_by("-said_at", "-turn_number")[:100]
    ]


def first_turn_of(conversation: Conversation, day: date, zone: tzinfo) -> int | None:
    """The number of the first turn on or after that day, or else the last turn's."""
    turns = Turn.objects.filter(conversation=conversation, user=conversation.user_id)
    since = datetime.combine(day, time.min, tzinfo=zone)
    turn = turns.filter(said_at__gte=since).in_order().first() or turns.order_by("-turn_number").first()
    return None if turn is None else turn.turn_number


def _excerpt_around(words: list[str], *texts: str) -> str:
    for text in texts:
        folded = text.lower()
        places = [place for word in words if (place := folded.find(word.lower())) >= 0]
        if places:
            # The length of the text before the match in a snippet.
            start = max(0, min(places) - 40)
            piece = " ".join(text[start : start + BEGINNING].split())
            return f"…{piece}" if start else piece
    return " ".join(cut(texts[0], BEGINNING).split())
