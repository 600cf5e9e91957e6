"""Synthetic histories, with every row that the product would have written for them, by table and column.

Splitting, hashing and counting a text takes longer than storing its rows does. So a pool of turns is worked out once,
by the product's own code; each person says those turns in an order, at times and with vectors of their own.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import numpy as np
from django.db import transaction

from core.ids import uuid7
from evals import synthetic
from evals.benchmarks.search.binary_copy import Octets, copy_rows, microseconds
from evals.benchmarks.search.counting import Integers, count_words
from evals.benchmarks.search.meaning import meanings, with_noise
from intake.models import Conversation, Turn
from intake.services import title_from
from memory import terms
from memory.chunking import CUTTING_RULES
from memory.embedders import Embedder
from memory.models import Corpus, Embedding, EmbeddingModel, IndexedText, PendingTerms
from memory.sources import READERS, Text, content_hash, cut
from memory.terms import configurations

CONVERSATION_TURNS = 20
BETWEEN_TURNS = timedelta(minutes=50)
# Bounds what one stream holds in memory.
AT_ONCE = 1_000


@dataclass(frozen=True, slots=True)
class SyntheticPerson:
    """A user and how many turns of the pool they have; `first_text` is the number of their first `IndexedText`."""

    user_id: int
    turns: int
    first_text: int


class Pool:
    """Turns, with all that does not depend on who says them, in arrays by turn and by part."""

    def __init__(self, size: int, *, embedder: Embedder, seed: int) -> None:
        self.model = EmbeddingModel.objects.for_embedder(embedder)
        self.turns = list(synthetic.turns(size, seed=seed))
        self.words = count_words(self.turns)
        texts = [_text(turn) for turn in self.turns]
        rows = [terms.row_of(text) for text in texts]
        self.text_hashes = _digests([row["text_hash"] for row in rows])
        self.signatures = [row["signature"] for row in rows]
        parts = [list(cut(text, embedder)) for text in texts]
        self.part_starts = np.cumsum([0, *map(len, parts)])
        spans, every = zip(*(part for of_turn in parts for part in of_turn), strict=True)
        self.part_spans = np.array(spans)
        self.part_hashes = _digests([content_hash(part) for part in every])
        self.vectors = meanings(every, dimensions=embedder.dimensions)


def save(person: SyntheticPerson, pool: Pool, *, now: datetime) -> int:
    """Write everything that a person said, up to `now`, with its index; returns how many vectors that makes.

    The terms are pending.
    """
    rng = np.random.default_rng(person.user_id)
    order = rng.permutation(len(pool.turns))[: person.turns]
    conversations = [uuid7() for _ in range(0, person.turns, CONVERSATION_TURNS)]
    begun = now - person.turns * BETWEEN_TURNS
    with transaction.atomic():
        _save_conversations(person, conversations, [pool.turns[index].user_message for index in order], begun)
        return sum(
            _save_turns(_Said(person, pool, order[start : start + AT_ONCE], start, conversations, begun, now), rng)
            for start in range(0, person.turns, AT_ONCE)
        )


@dataclass(frozen=True, slots=True)
class _Said:
    """Some consecutive turns of a person: `chosen` are their places in the pool, `start` the number of the first."""

    person: SyntheticPerson
    pool: Pool
    chosen: Integers
    start: int
    conversations: list[UUID]
    begun: datetime
    now: datetime

    @property
    def numbers(self) -> Integers:
        return self.start + np.arange(len(self.chosen))

    @property
    def said_at(self) -> Integers:
        return microseconds(self.begun) + self.numbers * round(BETWEEN_TURNS.total_seconds() * 1_000_000)

    @property
    def source(self) -> dict[str, Any]:
        """Which texts these are."""
        ids = np.array([list(one.bytes) for one in self.conversations], np.uint8)
        return {
            "user_id": self.person.user_id,
            "corpus": Corpus.CHAT.value,
            "source_id": ids[self.numbers // CONVERSATION_TURNS],
            "chunk_index": self.numbers % CONVERSATION_TURNS + 1,
        }


def _save_conversations(person: SyntheticPerson, ids: list[UUID], messages: list[str], begun: datetime) -> None:
    first = range(0, person.turns, CONVERSATION_TURNS)
    last = [min(number + CONVERSATION_TURNS, person.turns) - 1 for number in first]
    Conversation.objects.bulk_create(
        Conversation(
            id=key,
            user_id=person.user_id,
            title=title_from(messages[start]),
            turn_count=end - start + 1,
            current_number=end - start + 1,
            started_at=begun + start * BETWEEN_TURNS,
            last_active_at=begun + end * BETWEEN_TURNS,
        )
        for key, start, end in zip(ids, first, last, strict=True)
    )


def _save_turns(said: _Said, rng: np.random.Generator) -> int:
    _copy_turns(said)
    _copy_texts(said)
    _copy_terms(said)
    return _copy_embeddings(said, rng)


def _copy_turns(said: _Said) -> None:
    turns = [said.pool.turns[index] for index in said.chosen]
    source = said.source
    values = {
        "conversation_id": source["source_id"],
        "user_id": source["user_id"],
        "turn_number": source["chunk_index"],
        "parent_number": np.ma.masked_equal(source["chunk_index"] - 1, 0),
        "user_message": [turn.user_message for turn in turns],
        "assistant_message": [turn.assistant_message for turn in turns],
        "status": Turn.Status.COMPLETE.value,
        "said_at": said.said_at,
        "created_at": said.said_at,
        "updated_at": said.said_at,
    }
    copy_rows(Turn, values, count=len(turns))


def _copy_texts(said: _Said) -> None:
    counted = said.pool.words
    values = {
        **said.source,
        "id": said.person.first_text + said.numbers,
        "said_length": counted.said_lengths[said.chosen],
        "answered_length": counted.answered_lengths[said.chosen],
        "said_at": said.said_at,
        "signature": [said.pool.signatures[index] for index in said.chosen],
        "configuration": configurations()[0],
        "content_hash": said.pool.text_hashes[said.chosen],
    }
    copy_rows(IndexedText, values, count=len(said.chosen))


def _copy_terms(said: _Said) -> None:
    counted = said.pool.words
    posting = [slice(*counted.starts[index : index + 2]) for index in said.chosen]
    values = {
        "user_id": said.person.user_id,
        "corpus": Corpus.CHAT.value,
        "text_id": said.person.first_text + said.numbers,
        "said_length": counted.said_lengths[said.chosen],
        "answered_length": counted.answered_lengths[said.chosen],
        "lexemes": [counted.lexemes[one] for one in posting],
        "said": [counted.said[one] for one in posting],
        "answered": [counted.answered[one] for one in posting],
    }
    copy_rows(PendingTerms, values, count=len(posting))


def _copy_embeddings(said: _Said, rng: np.random.Generator) -> int:
    pool = said.pool
    part, turn = _members(pool.part_starts, said.chosen)
    sides, starts, ends, are_further = pool.part_spans[part].T
    values = {
        **{column: one if np.isscalar(one) else one[turn] for column, one in said.source.items()},
        "side": sides,
        "start": starts,
        "length": ends - starts,
        "is_further": are_further.astype(bool),
        "cutting_rules": CUTTING_RULES,
        "part": part - pool.part_starts[said.chosen][turn],
        "model_id": pool.model.pk,
        "vector": with_noise(pool.vectors[part], rng),
        "content_hash": pool.part_hashes[part],
        "said_at": said.said_at[turn],
        "created_at": said.said_at[turn],
        "embedded_at": microseconds(said.now),
        "attempts": 1,
        "next_attempt_at": microseconds(said.now),
    }
    copy_rows(Embedding, values, count=len(part))
    return len(part)


def _members(starts: Integers, chosen: Integers) -> tuple[Integers, Integers]:
    """The rows that belong to the chosen texts, in their order, and the text of each."""
    sizes = starts[chosen + 1] - starts[chosen]
    owner = np.repeat(np.arange(len(chosen)), sizes)
    within = np.arange(sizes.sum()) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    return starts[chosen][owner] + within, owner


def _text(turn: synthetic.SyntheticTurn) -> Text:
    """As memory reads a turn that somebody has saved."""
    saved = Turn(user_id=0, turn_number=0, user_message=turn.user_message, assistant_message=turn.assistant_message)
    (text,) = READERS[Corpus.CHAT].entry(saved).texts
    return text


def _digests(digests: list[bytes]) -> Octets:
    return np.frombuffer(b"".join(digests), np.uint8).reshape(len(digests), -1)
