"""The third way in: the person's turns that contain a piece of text as it stands, code, a number or half a word."""

from collections.abc import Iterator
from itertools import islice

from django.db import connection

from intake.models import Turn
from memory.models import Corpus
from memory.search.keys import Key
from memory.search.scope import Scope
from memory.signatures import fold, masks

# As many texts are read at a time as make a short list's worth of hits, if most of them do contain the piece.
AT_ONCE = 50
# Nothing tells which texts contain one or two letters, and most do: this many of the newest are read, not all.
MOST_READ_FOR_A_SHORT_PIECE = 2_000

_POSSIBLE = """
SELECT source_id, chunk_index
  FROM indexed_texts
 WHERE user_id = %(user_id)s AND corpus = %(chat)s AND said_at >= %(since)s AND said_at < %(until)s {narrowed}
 ORDER BY said_at DESC, source_id, chunk_index {bounded}
"""


def containing(scope: Scope, *, text: str, limit: int) -> list[Key]:
    """The newest turns in `scope` one side of which contains `text`, whatever the case; its characters are just that.

    Shorter than three letters, it is looked for among the newest 2,000 turns.
    """
    piece = fold(text)
    if not piece or "\0" in piece or Corpus.CHAT not in scope.corpora:
        return []
    return list(islice(_confirmed(scope, piece), limit))


def _confirmed(scope: Scope, piece: str) -> Iterator[Key]:
    possible = _possible(scope, piece)
    for start in range(0, len(possible), AT_ONCE):
        keys = possible[start : start + AT_ONCE]
        turns = Turn.objects.for_user(scope.user).with_keys(keys)
        containing = {
            (turn.conversation_id, turn.turn_number)
            for turn in turns
            if piece in fold(turn.user_message) or piece in fold("" if turn.is_recall else turn.assistant_message)
        }
        yield from (key for key in keys if key in containing)


def _possible(scope: Scope, piece: str) -> list[Key]:
    """The turns whose signature has all of the piece's bits, the newest first."""
    by_length = masks(piece)
    # The shorter of two bit strings would have to be padded to be compared: each length has a mask of its own.
    cases = " ".join(f"WHEN {length} THEN signature & %(m{length})s::varbit = %(m{length})s" for length in by_length)
    statement = _POSSIBLE.format(
        narrowed=f"AND CASE length(signature) {cases} END" if by_length else "",
        bounded="" if by_length else f"LIMIT {MOST_READ_FOR_A_SHORT_PIECE}",
    )
    parameters = {f"m{length}": mask for length, mask in by_length.items()}
    with connection.cursor() as cursor:
        cursor.execute(statement, {**scope.parameters(), **parameters, "chat": Corpus.CHAT})
        return [(source_id, chunk_index) for source_id, chunk_index in cursor.fetchall()]
