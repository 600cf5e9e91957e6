"""The words of many made-up turns, counted at once: as the database's parser would, since it said what each word is."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
from django.db import connection
from numpy.typing import NDArray

from evals import synthetic
from evals.synthetic import SyntheticTurn
from memory.terms import configurations

Integers = NDArray[np.int64]

STOP_WORD = -1


@dataclass(frozen=True, slots=True)
class Counted:
    """Postings by turn: those of turn i from `starts[i]` up to `starts[i + 1]`. The two lengths are of turns."""

    starts: Integers
    lexemes: NDArray[np.bytes_]
    said: Integers
    answered: Integers
    said_lengths: Integers
    answered_lengths: Integers


def count_words(turns: Sequence[SyntheticTurn]) -> Counted:
    """The terms that the text-search configuration finds in both sides of the turns."""
    known, _ = _lexemes(configurations()[0])
    said_keys, said_counts = _keys((turn.user_message for turn in turns), len(known))
    answered_keys, answered_counts = _keys((turn.assistant_message for turn in turns), len(known))
    keys = np.union1d(said_keys, answered_keys)
    said, answered = np.zeros((2, len(keys)), np.int64)
    said[np.searchsorted(keys, said_keys)] = said_counts
    answered[np.searchsorted(keys, answered_keys)] = answered_counts
    turn = keys // len(known)
    return Counted(
        starts=np.searchsorted(turn, np.arange(len(turns) + 1)),
        lexemes=known[keys % len(known)],
        said=said,
        answered=answered,
        said_lengths=np.bincount(turn, said, len(turns)).astype(np.int64),
        answered_lengths=np.bincount(turn, answered, len(turns)).astype(np.int64),
    )


def _keys(texts: Iterable[str], lexemes: int) -> tuple[Integers, Integers]:
    """One number for each text and lexeme in it, ascending, and how often the lexeme is there."""
    _, of_word = _lexemes(configurations()[0])
    keys = [np.empty(0, np.int64)]
    for number, text in enumerate(texts):
        found = of_word[synthetic.words_in(text)]
        keys.append(number * lexemes + found[found != STOP_WORD])
    return np.unique(np.concatenate(keys), return_counts=True)


@cache
def _lexemes(configuration: str) -> tuple[NDArray[np.bytes_], Integers]:
    """The lexemes of the vocabulary, and for each of its words which of them it is."""
    with connection.cursor() as cursor:
        cursor.execute(
            """
            SELECT (SELECT convert_to(min(lexeme), 'UTF8') FROM unnest(to_tsvector(%s::regconfig, word)))
              FROM unnest(%s::text[]) WITH ORDINALITY AS said (word, place)
             ORDER BY place
            """,
            [configuration, synthetic.vocabulary().tolist()],
        )
        found = [row[0] and bytes(row[0]) for row in cursor.fetchall()]
    places = {lexeme: place for place, lexeme in enumerate(sorted({one for one in found if one is not None}))}
    of_word = np.array([STOP_WORD if one is None else places[one] for one in found])
    return np.array(list(places)), of_word
