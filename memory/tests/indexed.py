"""The terms that the index has, as a test looks at them: pending, then in segments, and the same both ways."""

from collections import Counter
from typing import NamedTuple

from memory.index.segments import flush
from memory.models import DeletedText, PendingTerms, TermBlock, TermSegment


class SeenPosting(NamedTuple):
    user: int
    text: int
    lexeme: str
    said: int
    answered: int
    said_length: int
    answered_length: int


def words(**which):
    """How often both sides of the texts have each term: {lexeme: (said, answered)}. Afterwards everything is flushed."""
    kept = _flushed(which) + _pending(which)
    flush()
    assert not PendingTerms.objects.exists()
    assert _flushed(which) == kept
    return {lexeme: (kept[lexeme, "said"], kept[lexeme, "answered"]) for lexeme, _ in kept}


def postings(**which):
    """The postings in segments, but for those of deleted texts."""
    deleted = set(DeletedText.objects.values_list("user", "text_id"))
    return [each for each in stored_postings(**which) if (each.user, each.text) not in deleted]


def stored_postings(text=None, **which):
    """All postings in segments, or those of one text, read from the blocks' arrays one by one."""
    found = []
    for segment in TermSegment.objects.filter(**which):
        assert segment.texts == len(segment.text_ids) == len(set(segment.text_ids))
        assert segment.said_length == sum(segment.said_lengths)
        assert segment.answered_length == sum(segment.answered_lengths)
        for block in TermBlock.objects.filter(user_id=segment.user_id, segment_id=segment.pk):
            found += _in_block(block, segment)
    return [each for each in found if text is None or each.text == text.pk]


def _in_block(block, segment):
    assert block.lexemes == sorted(set(block.lexemes))
    assert block.first_lexeme == block.lexemes[0]
    assert block.ends[-1] == len(block.ordinals) == len(block.said) == len(block.answered)
    for lexeme, first, last in zip(block.lexemes, [0, *block.ends], block.ends, strict=False):
        assert block.ordinals[first:last] == sorted(set(block.ordinals[first:last])) != []
        for place in range(first, last):
            text = block.ordinals[place] - 1
            yield SeenPosting(
                segment.user_id,
                segment.text_ids[text],
                lexeme,
                block.said[place],
                block.answered[place],
                segment.said_lengths[text],
                segment.answered_lengths[text],
            )


def _flushed(which):
    counts = Counter()
    for posting in postings(**which):
        counts += _counted(posting.lexeme, posting.said, posting.answered)
    return counts


def _pending(which):
    counts = Counter()
    for row in PendingTerms.objects.filter(**which):
        for term in zip(row.lexemes, row.said, row.answered, strict=True):
            counts += _counted(*term)
    return counts


def _counted(lexeme, said, answered):
    return Counter({(lexeme, "said"): said, (lexeme, "answered"): answered})
