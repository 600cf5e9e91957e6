"""The words that the index has, as a test looks at them: kept with their text, then posted, and the same both ways."""

from collections import Counter

from memory.models import Posting, UnpostedWords
from memory.terms import flush


def words(**which):
    """How often both sides of the texts have each word: {lexeme: (said, answered)}. Afterwards everything is posted."""
    kept = _posted(which) + _unposted(which)
    flush()
    assert not UnpostedWords.objects.exists()
    assert _posted(which) == kept
    return {lexeme: (kept[lexeme, "said"], kept[lexeme, "answered"]) for lexeme, _ in kept}


def _posted(which):
    counts = Counter()
    for row in Posting.objects.filter(**which):
        counts += _counted(row.lexeme, row.said, row.answered)
    return counts


def _unposted(which):
    counts = Counter()
    for row in UnpostedWords.objects.filter(**which):
        for word in zip(row.lexemes, row.said, row.answered, strict=True):
            counts += _counted(*word)
    return counts


def _counted(lexeme, said, answered):
    return Counter({(lexeme, "said"): said, (lexeme, "answered"): answered})
