"""The literal retriever: the texts that contain the query as it stands, or exact pieces of it, such as an order number;
and the texts that fulfil the query's operators.

Terms find words, and vectors meaning; this finds half a word, a sign or a line of code. Both searches rank what it
found by the same rules: no merely similar text is above a literal match, and texts with an exact piece come first.
"""

import re
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Self
from uuid import UUID

from intake.models import Conversation
from memory.chunking import UNSPACED
from memory.index.trigrams import containing, fold, texts_of, written
from memory.models import Corpus, IndexedText
from memory.models.documents import Hit, Key, Scope
from memory.search.query import Query, Speaker, flags, identifiers

# A query's exact pieces beyond these are left out, and the answer says so.
MOST_PIECES = 8
# Texts that contain a literal piece of the query: several times the largest limit.
LITERAL = 100
# The texts of a chat or with a quotation that are ranked, the newest: as many as can be read and measured in time.
MOST_FITTING = 500
# The whole query is an exact piece, like a name, if at most this many texts contain it; otherwise it is a common word.
FEW = 3

PIECES_LEFT_OUT = f"Of the quotations and identifiers only the first {MOST_PIECES} were searched literally, not: {{}}"
NO_TEXT_HAS = "No text has {} word for word"
NO_TEXT_HAS_WORDS = "No text has: {}"
THESE_ARE_NEAREST = ": these are the nearest"
NO_CHAT_HAS = "No chat has {} in its title"
NO_TIME_FOR_PIECES = "The quotations and identifiers could not be searched literally in time"


@dataclass(frozen=True)
class LiteralHits:
    """`whole`: the texts with the whole query, at most a hundred, the newest first. `pieces`: the same for each of its
    exact pieces. `left_out`: the exact pieces that were not searched. `as_sent`: the texts of any day with the query as
    it was sent, where more than its words was read in it; they are in `whole` too.
    """

    whole: Sequence[Hit] = ()
    pieces: Sequence[Sequence[Hit]] = ()
    left_out: Sequence[str] = ()
    is_whole_exact: bool = False
    as_sent: Collection[Key] = ()

    @property
    def lists(self) -> tuple[Sequence[Hit], ...]:
        return (self.whole, *self.pieces)

    @cached_property
    def hits(self) -> dict[Key, Hit]:
        return {hit.key: hit for found in self.lists for hit in found}

    def without(self, keys: Collection[Key]) -> Self:
        """Without these texts, which contain it and answer nothing."""
        if self.hits.keys().isdisjoint(keys):
            return self
        whole, *pieces = ([hit for hit in found if hit.key not in keys] for found in self.lists)
        return replace(self, whole=whole, pieces=pieces)

    def beside(self, known: Collection[Key], query: Query) -> list[Hit]:
        """Those that are results though neither terms nor meaning found them: in a narrowed search only those that
        contain the query as it was sent, because the others do not fit.
        """
        return [
            hit for key, hit in self.hits.items() if key not in known and (key in self.as_sent or not query.narrows)
        ]

    @cached_property
    def exact(self) -> Counter[Key]:
        """How many exact pieces each text contains: quoted text, identifiers, or the whole query if few contain it."""
        is_exact = self.is_whole_exact or len(self.whole) <= FEW
        return Counter(hit.key for found in (*self.pieces, self.whole if is_exact else ()) for hit in found)


def find_literal(scope: Scope, query: Query, *, everywhere: Scope) -> LiteralHits:
    """One scan; one more for the options of a command, which are words of their own; one more if the query has accents,
    ligatures or indices, for the texts that have them too; and one of `everywhere`, the scope before the days that the
    query names, if more than its words was read in the query.
    """
    options = flags(query.text)[:MOST_PIECES]
    exact = [piece for piece in dict.fromkeys([*query.quotations, *identifiers(query.text)]) if piece not in options]
    searched, left_out = exact[:MOST_PIECES], exact[MOST_PIECES:]
    wholes = [piece for piece in (query.written if query.quotes_only else "", query.text) if piece]
    pieces = list(dict.fromkeys([*wholes, *searched]))
    limit = MOST_FITTING if query.quotations else LITERAL
    found = dict(zip(pieces, containing(scope, texts=pieces, limit=limit, speaker=query.speaker), strict=True))
    whole = next((found[piece] for piece in wholes if found[piece]), [])
    if written(query.text) != fold(query.text):
        (as_written,) = containing(scope, texts=[query.text], limit=LITERAL, as_written=True, speaker=query.speaker)
        whole = as_written or whole
    as_sent: Sequence[Hit] = ()
    if query.sent not in wholes or scope != everywhere:
        (as_sent,) = containing(everywhere, texts=[query.sent], limit=LITERAL)
    others = [found[piece] for piece in searched if piece != query.text]
    others += containing(scope, texts=options, limit=LITERAL, speaker=query.speaker, is_word=True)
    return LiteralHits(
        as_sent or whole,
        others,
        left_out,
        is_whole_exact=query.text in searched,
        as_sent={hit.key for hit in as_sent},
    )


def with_literal(relevances: Mapping[Key, float], literal: Collection[Key]) -> dict[Key, float]:
    """The relevance of every text that either way found, 0 to 1.

    A literal match counts as much again as the best text without one. So among texts of the same age no merely similar
    one is above a literal match, and the engine orders the literal matches. A literal match that the engine does not
    find (half a word, a piece of code) has only that value.
    """
    having = set(literal)
    merely_alike = {key: relevance for key, relevance in relevances.items() if key not in having}
    # The score of a text that contains the query literally, if no text is similar to it.
    worth = max(merely_alike.values(), default=0.0) or 0.5
    return merely_alike | {key: 1 - (1 - relevances.get(key, 0.0)) * (1 - worth) for key in having}


_FENCE = "```"
_CODE = re.compile(r"^[ \t]{0,3}(?:```|~~~)|`[^`\n]+`", re.MULTILINE)
_UNSPACED = re.compile(rf"[{UNSPACED}]")


@dataclass(frozen=True)
class Narrowing:
    """The texts that a narrowed search ranks beside those that its words find, and the chats it is limited to.

    `conversations`: None for all.
    """

    query: Query
    scope: Scope
    conversations: frozenset[UUID] | None
    candidates: Sequence[Hit] = ()

    @classmethod
    def of(cls, scope: Scope, query: Query) -> Self:
        """Without candidates yet."""
        if not query.titles:
            return cls(query, scope, None)
        titled = Conversation.objects.for_user(scope.user)
        for title in query.titles:
            titled = titled.filter(title__icontains=title)
        return cls(query, scope, frozenset(titled.values_list("pk", flat=True)))

    @property
    def lacks_title(self) -> bool:
        return self.conversations is not None and not self.conversations

    def is_in_chat(self, source_id: UUID) -> bool:
        return self.conversations is None or source_id in self.conversations

    def fitting(self, hits: Sequence[Hit]) -> list[Hit]:
        """Those of them that fulfil the query's operators, in their order."""
        hits = [hit for hit in hits if self.is_in_chat(hit.key[0]) and _is_by(self.query.speaker, hit)]
        texts = {(text.key.source_id, text.key.chunk_index): text for text in texts_of(self.scope, hits)}
        return [hit for hit in hits if hit.key in texts and self.fits(texts[hit.key].said, texts[hit.key].answered)]

    def fits(self, said: str, answered: str = "") -> bool:
        """Whether the sides of a text by the speaker fulfil all operators but those about its place."""
        said = "" if self.query.speaker == "assistant" else said
        answered = "" if self.query.speaker == "me" else answered
        if not (said or answered).strip():
            return False
        if self.query.has_code and not (_CODE.search(said) or _CODE.search(answered)):
            return False
        sides = [fold(said), fold(answered)]
        return all(_has(words, sides) for words in self.query.quotations) and not any(
            _has(words, sides, is_option=False) for words in self.query.excluded
        )


def narrow(scope: Scope, query: Query, literal: LiteralHits) -> Narrowing:
    """With the newest texts that can fit, if the operators say which: those with a quotation are literal hits."""
    narrowing = Narrowing.of(scope, query)
    candidates: Sequence[Hit] = ()
    if query.titles or query.is_listing:
        candidates = newest_in(scope, narrowing.conversations)
    elif query.has_code:
        (candidates,) = containing(scope, texts=[_FENCE], limit=MOST_FITTING)
    every = {hit.key: hit for hit in (*candidates, *literal.hits.values())}
    return replace(narrowing, candidates=list(every.values()))


def newest_in(scope: Scope, conversations: frozenset[UUID] | None) -> list[Hit]:
    """The newest texts of these conversations, or of all."""
    texts = IndexedText.objects.in_scope(scope)
    if conversations is not None:
        texts = texts.filter(source_id__in=conversations)
    rows = texts.order_by("-said_at", "source_id", "chunk_index")[:MOST_FITTING]
    return [
        Hit((source, place), corpus, at)
        for source, place, corpus, at in rows.values_list("source_id", "chunk_index", "corpus", "said_at")
    ]


def _is_by(speaker: Speaker | None, hit: Hit) -> bool:
    """Whether the query's terms are on the speaker's side, if the text has any."""
    match speaker:
        case "me":
            return not hit.lexical or hit.user_lexical > 0
        case "assistant":
            return hit.corpus == Corpus.CHAT and (not hit.lexical or hit.lexical > hit.user_lexical)
    return True


def _has(words: str, sides: Sequence[str], *, is_option: bool = True) -> bool:
    """Whether a folded side has exactly these words; in scripts without spaces their ends are not marked. Unless
    `is_option`, only where they are not a command's option, with a hyphen before them.
    """
    piece = fold(words)
    return bool(piece) and any(_has_words(piece, side, is_option=is_option) for side in sides)


def _has_words(piece: str, side: str, *, is_option: bool) -> bool:
    start = side.find(piece)
    while start >= 0:
        end = start + len(piece)
        is_one = _is_one_word(side[start - 1 : start] + piece[0]) or _is_one_word(piece[-1] + side[end : end + 1])
        if not is_one and (is_option or f" {side[:start]}"[-2:] != " -"):
            return True
        start = side.find(piece, start + 1)
    return False


def _is_one_word(two: str) -> bool:
    """Whether two characters are within one word."""
    return len(two) > 1 and all(each.isalnum() or each == "_" for each in two) and not _UNSPACED.search(two)
