"""Vectors in half precision, on their way into PostgreSQL: a `Halves` is a parameter, to be cast to halfvec."""

import struct

import numpy as np
import psycopg
from psycopg.adapt import Dumper
from psycopg.pq import Format

from memory.embedders.base import Vector

# How many numbers there are, and two bytes that pgvector wants to be 0: see `halfvec_recv`.
_HEAD = struct.Struct(">HH")
_BIG_ENDIAN = np.dtype(">f2")


class Halves:
    """A vector as the database keeps it. Its string is what PostgreSQL reads: five digits tell all halves apart."""

    __slots__ = ("values",)

    def __init__(self, vector: Vector) -> None:
        self.values = vector.astype(np.float16)

    def __str__(self) -> str:
        return "[" + ",".join(["%.5g"] * len(self.values)) % tuple(self.values.tolist()) + "]"


class _Written(Dumper):
    """For statements that parameters are written into."""

    def dump(self, obj: Halves) -> bytes:
        return str(obj).encode()


class _Sent(Dumper):
    """For parameters that the server binds. Their type is the one that it takes them for."""

    format = Format.BINARY

    def dump(self, obj: Halves) -> bytes:
        return _HEAD.pack(len(obj.values), 0) + obj.values.astype(_BIG_ENDIAN).tobytes()


for _dumper in (_Written, _Sent):
    psycopg.adapters.register_dumper(Halves, _dumper)
