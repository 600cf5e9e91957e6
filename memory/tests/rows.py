"""Rows of the index for tests, written as the workers leave them."""

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from uuid import UUID

from core.ids import uuid7
from intake.models import Conversation, Turn, User
from memory import index
from memory.index.sources import record_entry
from memory.models import Embedding, EmbeddingModel, MemoryRecord

NOW = datetime(2026, 11, 20, 12, tzinfo=UTC)


def model_named(name: str = "tiny") -> EmbeddingModel:
    return EmbeddingModel.objects.get_or_create(name=name, defaults={"dimensions": 3})[0]


def a_place(user: User, source_id: UUID | None = None, *, turns: Iterable[int]) -> UUID:
    """A conversation with turns of these numbers, as far as they are missing, whose rows the index may have."""
    source_id = source_id or uuid7()
    Conversation.objects.get_or_create(pk=source_id, defaults={"user": user})
    Turn.objects.bulk_create(
        [
            Turn(conversation_id=source_id, user=user, turn_number=number, status=Turn.Status.COMPLETE, said_at=NOW)
            for number in turns
        ],
        ignore_conflicts=True,
    )
    return source_id


def add_records(user: User, contents: Iterable[str], *, every: timedelta = timedelta(), **fields) -> list[MemoryRecord]:
    """As the service saves them, from NOW on, and in a few statements."""
    rows = MemoryRecord.objects.bulk_create(
        MemoryRecord(user=user, content=content, created_at=NOW + number * every, **fields)
        for number, content in enumerate(contents)
    )
    index.index_new([record_entry(row) for row in rows])
    return rows


def add_row(user: User, *, vector=None, source_id: UUID | None = None, created_at=NOW, embedded_at=NOW, **fields):
    """A row with this vector, or one that waits when there is none."""
    fields["model"] = fields.get("model") or model_named()
    turn = fields.pop("chunk_index", 1)
    source_id = a_place(user, source_id, turns=[turn])
    fields.setdefault("next_attempt_at", created_at)
    row = Embedding.objects.create(
        user=user,
        corpus="chat",
        source_id=source_id,
        chunk_index=turn,
        vector=vector,
        embedded_at=embedded_at if vector is not None else None,
        attempts=fields.pop("attempts", 1 if vector is not None else 0),
        length=100,
        content_hash=b"\0" * 16,
        said_at=created_at,
        **fields,
    )
    Embedding.objects.filter(pk=row.pk).update(created_at=created_at)
    return row


def add_failed(user: User, error: str = "The model is away.", **fields):
    return add_row(user, attempts=2, last_error=error, next_attempt_at=NOW + timedelta(minutes=5), **fields)


def add_quarantined(user: User, error: str = "ValueError", **fields):
    return add_row(user, attempts=5, last_error=error, quarantined_at=NOW, **fields)
