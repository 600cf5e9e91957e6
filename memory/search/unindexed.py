"""Compares a question by words with turns that no search finds: those of the open chat, and those of a visitor.

Nothing of a visitor or of a temporary chat is indexed, and searches leave the open chat out. Plain arithmetic over
turns that the caller has read.
"""

from collections import defaultdict
from collections.abc import Sequence
from math import log1p

from intake.models import Turn
from memory.search.echoes import ECHO, LONGEST_QUESTION, STEM, are_forms, repeats, telling_words


def compared(*, question: str, turns: Sequence[Turn]) -> list[tuple[float, Turn]]:
    """The turns that share telling words with a question, each with its relevance from 0 to 1.

    The best come first, of equals the newer one, and of those with the same message the best alone.

    A word counts by its rarity among these turns, and one that none of them has as much as one of a single turn. The
    relevance is the square of the share that a turn has: half of the words says little. Of an echo, and of the quotes
    that recall mode answers with, what was asked or quoted counts nothing.
    """
    asked = telling_words(question[:LONGEST_QUESTION])
    are_echoes = [repeats(question, turn.user_message) for turn in turns]
    # The characters of each side that are compared: of all turns together, which takes a second or two.
    read = min(8_000, 4_000_000 // max(1, 2 * len(turns)))
    sides = [
        tuple(
            frozenset(telling_words(text[:read]))
            for text in ("" if is_echo else turn.user_message, "" if turn.is_recall else turn.assistant_message)
        )
        for turn, is_echo in zip(turns, are_echoes, strict=True)
    ]
    # Two forms of a word have the same stem, so each question's word is compared with few of all words.
    by_stem: dict[str, list[str]] = defaultdict(list)
    for word in frozenset[str]().union(*(user | assistant for user, assistant in sides)):
        by_stem[word[:STEM]].append(word)
    forms = [frozenset(word for word in by_stem[each[:STEM]] if are_forms(word, each)) for each in asked]
    weights = []
    for mine in forms:
        having = sum(not (mine.isdisjoint(user) and mine.isdisjoint(assistant)) for user, assistant in sides)
        weights.append(log1p(len(turns) / max(1, having)))
    found: dict[str, tuple[float, Turn]] = {}
    for turn, is_echo, (user, assistant) in zip(turns, are_echoes, sides, strict=True):
        shared = sum(
            # A word of the answer alone counts so much of one that the user wrote.
            weight * (1.0 if not mine.isdisjoint(user) else 0.5 if not mine.isdisjoint(assistant) else 0.0)
            for weight, mine in zip(weights, forms, strict=True)
        )
        relevance = (ECHO if is_echo else 1.0) * (shared / sum(weights)) ** 2 if shared else 0.0
        message = " ".join(turn.user_message.split()).casefold()
        best = found.get(message)
        if relevance and (best is None or (relevance, turn.said_at) > (best[0], best[1].said_at)):
            found[message] = relevance, turn
    return sorted(found.values(), key=lambda each: (each[0], each[1].said_at), reverse=True)
