"""Where the indexed text comes from: each corpus has a reader here, and nothing else knows how many there are."""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import Any

from memory.embedders import Embedder
from memory.models import Corpus
from memory.sources.base import Entry, Place, Reader, Source, SourceKey, Text, content_hash
from memory.sources.documents import DocumentReader
from memory.sources.records import RecordReader
from memory.sources.turns import TurnReader

__all__ = [
    "READERS",
    "Entry",
    "Place",
    "Reader",
    "Source",
    "SourceKey",
    "Text",
    "content_hash",
    "cut",
    "load",
]

READERS: dict[Corpus, Reader[Any]] = {
    reader.corpus: reader
    for reader in (TurnReader(), DocumentReader(Corpus.MEMORY), DocumentReader(Corpus.DAILY_LOG), RecordReader())
}


def load(keys: Iterable[SourceKey], embedder: Embedder) -> Iterator[Source]:
    """The sources that still exist, in a query for each corpus; what was deleted meanwhile does not come back."""
    by_corpus: dict[Corpus, set[SourceKey]] = defaultdict(set)
    for key in keys:
        by_corpus[key.corpus].add(key)
    for corpus, wanted in by_corpus.items():
        reader = READERS[corpus]
        for row in reader.rows_of(wanted):
            yield from (cut(text, embedder) for text in reader.entry(row).texts if text.key in wanted)


def cut(text: Text, embedder: Embedder) -> Source:
    """The text in the parts that this model embeds."""
    return Source(text=text, parts=READERS[text.key.corpus].parts(text, embedder))
