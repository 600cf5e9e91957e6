"""Many rows at once: columns of numbers and bytes become PostgreSQL's binary COPY stream, without a loop over rows.

Each value is its length and its bytes (https://www.postgresql.org/docs/current/sql-copy.html, "Binary Format"). Which
bytes is decided by the model's field, so that callers pass plain values by field name.
A user's stored vectors come back the same way, for the peers: they search the very vectors that we do.
"""

import json
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import numpy as np
from django.db import connection, models
from numpy.typing import NDArray

from core.isolation.acting import acting_as
from intake.models import User
from memory.embedders import get_embedder
from memory.embedders.base import Matrix
from memory.models import Corpus, EmbeddingModel
from memory.models.corpora import Key

Octets = NDArray[np.uint8]

EPOCH = datetime(2000, 1, 1, tzinfo=UTC)
SIGNATURE = b"PGCOPY\n\xff\r\n\0" + bytes(8)
TRAILER = b"\xff\xff"
NUMBERS = {"smallint": ">i2", "integer": ">i4", "bigint": ">i8", "boolean": "u1", "timestamp with time zone": ">i8"}
HALF_VECTOR = "halfvec"
# Of arrays, by the type of their elements: the number by which PostgreSQL knows it.
ELEMENTS = {"text": 25, "smallint": 21}
ARRAY = "[]"


@dataclass(frozen=True, slots=True)
class _Column:
    """The values of all rows, one after another; `lengths` has each one's bytes, -1 for NULL."""

    octets: Octets
    lengths: NDArray[np.int64]


def copy_rows(model: type[models.Model], values: Mapping[str, Any], *, count: int) -> None:
    """Append `count` rows. `values` has, by column, one value for all rows or a sequence with one for each.

    Masked values are NULL. A column that is left out gets its field's default; the key, where the database numbers the
    rows, its number.
    """
    fields = {str(field.column): field for field in model._meta.concrete_fields}
    if unknown := set(values) - set(fields):
        raise ValueError(f"{model.__name__} has no column {', '.join(sorted(unknown))}.")
    filled = {name: field for name, field in fields.items() if name in values or _has_default(field)}
    columns = [_nullable(field, values.get(name, field.get_default()), count) for name, field in filled.items()]
    names = ", ".join(map(connection.ops.quote_name, filled))
    table = connection.ops.quote_name(model._meta.db_table)
    with connection.cursor() as cursor, cursor.copy(f"COPY {table} ({names}) FROM STDIN (FORMAT BINARY)") as copy:
        copy.write(SIGNATURE + _rows(columns, count).tobytes() + TRAILER)


def microseconds(moment: datetime) -> int:
    """A time as PostgreSQL counts it."""
    return round((moment - EPOCH).total_seconds() * 1_000_000)


def _has_default(field: "models.Field[Any, Any]") -> bool:
    return not (field.generated or isinstance(field, models.AutoField | models.CompositePrimaryKey))


def _nullable(field: "models.Field[Any, Any]", values: Any, count: int) -> _Column:
    if not isinstance(values, np.ma.MaskedArray):
        return _column(field, values, count)
    if not values.count():
        return _column(field, None, count)
    present = _column(field, values.compressed(), int(values.count()))
    lengths = np.full(count, -1)
    lengths[~np.ma.getmaskarray(values)] = present.lengths
    return _Column(present.octets, lengths)


def _column(field: "models.Field[Any, Any]", values: Any, count: int) -> _Column:
    if values is None:
        return _Column(np.empty(0, np.uint8), np.full(count, -1))
    kind = str(field.db_type(connection))
    if kind == HALF_VECTOR:
        return _half_vectors(values)
    if kind in NUMBERS:
        return _fixed(np.broadcast_to(np.asarray(values), count).astype(NUMBERS[kind]))
    if isinstance(values, np.ndarray):
        return _words(values) if values.dtype.kind == "S" else _fixed(values)
    if isinstance(values, Sequence) and not isinstance(values, str | bytes) and kind != "jsonb":
        return _varying([_octets(kind, value) for value in values])
    return _fixed(np.broadcast_to(np.frombuffer(_octets(kind, values), np.uint8), (count, len(_octets(kind, values)))))


def _octets(kind: str, value: Any) -> bytes:
    if kind.endswith(ARRAY):
        return _array(kind.removesuffix(ARRAY), value)
    if kind == "jsonb":
        return b"\x01" + json.dumps(value).encode()  # behind the number of jsonb's format
    if kind == "varbit":
        bits = bytes.fromhex(value.removeprefix("x"))
        return (8 * len(bits)).to_bytes(4) + bits  # behind how many bits they are
    return value.encode() if isinstance(value, str) else bytes(value)


def _array(kind: str, values: NDArray[Any]) -> bytes:
    """Dimensions, none of them NULL, whose elements, how many from which number on; and each as a column has it."""
    if not len(values):
        return struct.pack(">iii", 0, 0, ELEMENTS[kind])
    head = struct.pack(">iiiii", 1, 0, ELEMENTS[kind], len(values), 1)
    if kind not in NUMBERS:
        return head + b"".join(len(value).to_bytes(4) + value for value in values.tolist())
    elements = np.empty(len(values), [("length", ">i4"), ("value", NUMBERS[kind])])
    elements["length"], elements["value"] = elements.dtype["value"].itemsize, values
    return head + elements.tobytes()


def _fixed(values: NDArray[Any]) -> _Column:
    octets = np.ascontiguousarray(values).view(np.uint8).reshape(len(values), -1)
    return _Column(octets.reshape(-1), np.full(len(values), octets.shape[1]))


def _varying(values: Sequence[bytes]) -> _Column:
    return _Column(np.frombuffer(b"".join(values), np.uint8), np.array([len(value) for value in values]))


def _words(values: NDArray[np.bytes_]) -> _Column:
    """NumPy fills them up with zeros to one width."""
    lengths = np.strings.str_len(values)
    octets = _fixed(values).octets.reshape(len(values), -1)
    return _Column(octets[np.arange(octets.shape[1]) < lengths[:, None]], lengths)


def _half_vectors(vectors: NDArray[np.float32]) -> _Column:
    """pgvector's own: the dimensions and an unused number in two bytes each, then the halves."""
    count, dimensions = vectors.shape
    head = np.broadcast_to(np.array([dimensions, 0], ">i2").view(np.uint8), (count, 4))
    return _fixed(np.hstack([head, vectors.astype(">f2").view(np.uint8)]))


def _rows(columns: Sequence[_Column], count: int) -> Octets:
    """Every column's bytes set down in every row's place."""
    sizes = np.array([np.maximum(column.lengths, 0) + 4 for column in columns])
    width = sizes.sum(axis=0) + 2
    place = np.cumsum(width) - width
    out = np.empty(int(width.sum()), np.uint8)
    _set_down(out, place, _fixed(np.full(count, len(columns), ">i2")))
    place = place + 2
    for column, size in zip(columns, sizes, strict=True):
        _set_down(out, place, _fixed(column.lengths.astype(">i4")))
        _set_down(out, place + 4, column)
        place = place + size
    return out


def _set_down(out: Octets, place: NDArray[np.int64], column: _Column) -> None:
    lengths = np.maximum(column.lengths, 0)
    if not len(column.octets):
        return
    if (lengths == lengths[0]).all():
        width = int(lengths[0])
        out[place[:, None] + np.arange(width)] = column.octets.reshape(-1, width)
        return
    begins = np.cumsum(lengths) - lengths
    out[np.repeat(place - begins, lengths) + np.arange(len(column.octets))] = column.octets


@dataclass(frozen=True, slots=True)
class Stored:
    """A person's parts: row i of `vectors` is a part of the turn `keys[i]`; the vectors are float32, as stored.

    `is_further`: which of the parts are further on in a long text.
    """

    user: User
    keys: list[Key]
    vectors: Matrix
    is_further: NDArray[np.bool_]


def read(user: User) -> Stored:
    """Everything of one person, as the database streams it out: rows of one width, taken apart without a loop."""
    model = EmbeddingModel.objects.for_embedder(get_embedder())
    with acting_as(user), connection.cursor() as cursor:
        statement = """
            COPY (SELECT source_id, chunk_index, is_further, vector
                    FROM embeddings
                   WHERE user_id = %s AND corpus = %s AND model_id = %s AND vector IS NOT NULL
                   ORDER BY source_id, chunk_index, part)
              TO STDOUT (FORMAT BINARY)
            """
        with cursor.copy(statement, [user.pk, Corpus.CHAT.value, model.pk]) as copy:
            stream = b"".join(bytes(block) for block in copy)
    rows = np.frombuffer(stream[len(SIGNATURE) : -len(TRAILER)], _row(model.dimensions))
    keys = [(UUID(bytes=bytes(row)), int(number)) for row, number in zip(rows["source"], rows["number"], strict=True)]
    return Stored(user, keys, rows["vector"].astype(np.float32), rows["is_further"].astype(bool))


def _row(dimensions: int) -> np.dtype:
    """Each value behind its length in bytes; a halfvec begins with its dimensions and an unused number."""
    return np.dtype(
        [
            ("fields", ">i2"),
            ("source_bytes", ">i4"),
            ("source", "V16"),
            ("number_bytes", ">i4"),
            ("number", ">i4"),
            ("is_further_bytes", ">i4"),
            ("is_further", "u1"),
            ("vector_bytes", ">i4"),
            ("vector_head", "V4"),
            ("vector", ">f2", dimensions),
        ]
    )
