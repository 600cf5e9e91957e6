"""From the ranking to the results: texts are read from the top down, until enough say something of their own."""

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice

from memory.models.corpora import Key
from memory.search.history.excerpts import Excerpt
from memory.search.history.overlap import Fingerprint
from memory.search.history.passages import Piece, Shown, matching, show
from memory.search.history.ranking import Ranked
from memory.search.history.sources import Asked, Hit, Kind, Passage, Reference, Source
from memory.search.history.words import Inflections

# A result repeats a better one that has more of its words, in runs, than this.
REPEATS = 0.8
# A session says which conversation, a message which place in it: neither replaces the other, though a title is often
# the first message's words and a preview the last one's.
DIFFERENT_THINGS = {Kind.MESSAGE, Kind.SESSION}
# Read at a time: what is asked for, and some more for those that repeat others.
SPARE = 5


@dataclass(frozen=True, slots=True)
class HistoryResult:
    """`excerpt` is one text; `pieces` are the same by the parts they are from, for whoever shows those apart."""

    reference: Reference
    score: float
    excerpt: Excerpt
    pieces: Sequence[Piece]


def choose(
    ranked: Sequence[Ranked[Hit]], asked: Asked, *, sources: Collection[Source], limit: int
) -> list[HistoryResult]:
    """The first `limit` that repeat no better one, in their order. Only what stands above the last of them is read."""
    return list(islice(_distinct(_shown(ranked, asked, sources, at_once=limit + SPARE)), limit))


def _distinct(shown: Iterator[tuple[HistoryResult, str]]) -> Iterator[HistoryResult]:
    better: list[tuple[Kind, Fingerprint]] = []
    for result, own_words in shown:
        kind, fingerprint = result.reference.kind, Fingerprint.of(own_words)
        if not any(
            {kind, other_kind} != DIFFERENT_THINGS and fingerprint.share_in(other) > REPEATS
            for other_kind, other in better
        ):
            better.append((kind, fingerprint))
            yield result


def _shown(
    ranked: Sequence[Ranked[Hit]], asked: Asked, sources: Collection[Source], *, at_once: int
) -> Iterator[tuple[HistoryResult, str]]:
    """Each with the words by which it is compared; without those whose text is gone."""
    inflections = Inflections(asked.query)
    for start in range(0, len(ranked), at_once):
        batch = ranked[start : start + at_once]
        passages = _read(batch, asked, sources)
        texts = [part.text for passage in passages.values() for part in passage.parts]
        matcher = inflections.matcher_for(texts)
        for each in batch:
            passage = passages.get((each.hit.source, each.hit.key))
            if passage is not None:
                parts = matching(passage.parts, matcher) if passage.only_matching else passage.parts
                shown: Shown = show(parts, matcher)
                yield HistoryResult(passage.reference, each.score, shown.excerpt, shown.pieces), shown.own_words


def _read(batch: Sequence[Ranked[Hit]], asked: Asked, sources: Collection[Source]) -> Mapping[tuple[str, Key], Passage]:
    """A question or two for each source that has a hit in the batch."""
    keys: dict[str, list[Key]] = defaultdict(list)
    for each in batch:
        keys[each.hit.source].append(each.hit.key)
    return {
        (source.name, key): passage
        for source in sources
        if source.name in keys
        for key, passage in source.read(keys[source.name], asked).items()
    }
