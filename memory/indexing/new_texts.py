"""The first time that a text is indexed, as nearly always: few statements, which PostgreSQL runs while Python goes on.

Of a turn that is recorded it counts the words while Python cuts it into parts; the rows of the parts go along with what
is next, in the end with the COMMIT. Any other text is indexed by one statement.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Any

from django.db import transaction

from core.db.statements import Answer, ask, fetch
from memory import nudging, terms
from memory.embedders import Embedder
from memory.models import Embedding
from memory.sources import Entry, Text, content_hash, cut

# Makes the model if this is its first text. Fewer rows than there are parts: some were there, or somebody else made the
# model at the same moment.
_MAKE_PARTS = """
known AS (
    SELECT id FROM embedding_models WHERE name = %(model)s
), first AS (
    INSERT INTO embedding_models (name, dimensions, created_at)
    SELECT %(model)s, %(dimensions)s, now()
     WHERE NOT EXISTS (SELECT FROM known)
        ON CONFLICT DO NOTHING
    RETURNING id
), made AS (
    INSERT INTO embeddings
           (user_id, corpus, source_id, chunk_index, part, model_id, visibility, length, content_hash, said_at,
            created_at, next_attempt_at, attempts, last_error)
    SELECT %(user_id)s, %(corpus)s, %(source_id)s, %(chunk_index)s, part.place - 1, model.id,
           %(visibility)s, part.length, decode(part.content_hash, 'hex'), %(said_at)s, now(), %(now)s, 0, ''
      FROM unnest(%(lengths)s::int[], %(hashes)s::text[]) WITH ORDINALITY AS part(length, content_hash, place)
     CROSS JOIN (SELECT id FROM known UNION ALL SELECT id FROM first) AS model
     {condition}
        ON CONFLICT DO NOTHING
    RETURNING id
)
"""
_PARTS = f"WITH {_MAKE_PARTS.format(condition='')} SELECT count(*) FROM made"  # noqa: S608 - written here
# No parts if there were words.
_WORDS_AND_PARTS = f"""
WITH {terms.KEEP}, {_MAKE_PARTS.format(condition="WHERE EXISTS (SELECT FROM indexed)")}
SELECT (SELECT count(*) FROM indexed), (SELECT count(*) FROM made)
"""  # noqa: S608 - written here


@dataclass(frozen=True, slots=True)
class Begun:
    """A turn whose words are being counted, and its parts."""

    entry: Entry
    words: Answer
    parts: list[str]


def begin(entry: Entry, *, embedder: Embedder) -> Begun:
    """Of a turn that is just being stored, probably there."""
    (text,) = entry.texts
    answer = terms.ask_to_add_latest_turn(text)
    return Begun(entry, answer, cut(text, embedder).parts)


def finish(begun: Begun, *, embedder: Embedder, otherwise: Callable[[], None], now: datetime) -> bool:
    """Whether it is indexed, or will be with the COMMIT.

    Should the index have known some of its parts before, then `otherwise` is called after that.
    """
    if begun.words() != [(1,)]:
        return False
    (text,) = begun.entry.texts
    answer = ask(_PARTS, _parameters(text, begun.parts, embedder=embedder, now=now))
    transaction.on_commit(partial(_look_after, answer, len(begun.parts), otherwise), robust=True)
    return True


def index(text: Text, *, embedder: Embedder, now: datetime) -> tuple[bool, bool]:
    """Whether the text was new, and so has its words; and whether all of its parts have rows."""
    parts = cut(text, embedder).parts
    parameters = terms.row_of(text) | _parameters(text, parts, embedder=embedder, now=now)
    ((indexed, made),) = fetch(_WORDS_AND_PARTS, parameters)
    if made:
        transaction.on_commit(nudging.nudge, robust=True)
    return bool(indexed), made == len(parts)


def _look_after(answer: Answer, parts: int, otherwise: Callable[[], None]) -> None:
    ((made,),) = answer()
    if made:
        nudging.nudge()
    if made < parts:
        otherwise()


def _parameters(text: Text, parts: Sequence[str], *, embedder: Embedder, now: datetime) -> dict[str, Any]:
    return {
        **text.columns(),
        "visibility": Embedding.VISIBILITY,
        "now": now,
        "lengths": [len(part) for part in parts],
        "hashes": [content_hash(part).hex() for part in parts],
        "model": embedder.name,
        "dimensions": embedder.dimensions,
    }
