"""Builds the quantised graph of a built-in model from the published weights; a separate command, to free its memory.

`python -m memory.backends.bert_graph model.safetensors out.onnx` writes the quantised graph. One text goes in and its
normalised vector comes out (float32, shape (1, 384)): without a batch there is no padding, no mask, and no vector that
depends on its neighbours through a shared quantisation range. all-MiniLM-L6-v2 reads token ids (int64, shape
(1, tokens)). Of multilingual-e5-small the word vectors go in (float32, shape (1, tokens, 384)): its table of words is
four times the rest, and stays in its file. The architecture is BERT (Devlin et al., 2018) with mean pooling; nodes of
the `com.microsoft` domain are onnxruntime's fused forms of it.
"""

import json
import struct
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from memory.backends.e5_file import E5_MEAN, E5File

WORDS = "embeddings.word_embeddings.weight"
WIDTH = 384
FUSED = "com.microsoft"

Array = npt.NDArray[np.float32]

# ONNX's numbers of the types (`TensorProto.DataType`).
TYPES = {"float32": 1, "int8": 3, "int64": 7, "float16": 10}


def message(*fields: tuple[int, int | float | str | bytes]) -> bytes:
    """Encode a message of Protocol Buffers: fields by their numbers, of which an absent one is left out.

    ONNX (`onnx.proto`) needs no more than this: whole numbers, floats of 32 bits, texts, and messages in them.
    """
    made = []
    for number, value in fields:
        match value:
            case int():
                made += [_varint(number << 3), _varint(value)]
            case float():
                made += [_varint(number << 3 | 5), struct.pack("<f", value)]
            case str() | bytes():
                data = value.encode() if isinstance(value, str) else value
                made += [_varint(number << 3 | 2), _varint(len(data)), data]
    return b"".join(made)


def _varint(value: int) -> bytes:
    """Seven bits a byte, the lowest first; a negative number in 64 bits."""
    value, made = value % 2**64, bytearray()
    while value > 0x7F:
        made.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*made, value])


def described(name: str, kind: str, shape: Sequence[int | str]) -> bytes:
    """A `ValueInfoProto`: an input or output with its type and shape, in which a text names a variable length."""
    sizes = message(*((1, message((1 if isinstance(size, int) else 2, size))) for size in shape))
    return message((1, name), (2, message((1, message((1, TYPES[kind]), (2, sizes))))))


def read_safetensors(path: Path) -> dict[str, Array]:
    """Return the float32 tensors of a safetensors file: a length, a JSON table, then the numbers."""
    data = path.read_bytes()
    start = 8 + int.from_bytes(data[:8], "little")
    table = json.loads(data[8:start])
    tensors = {}
    for name, entry in table.items():
        if entry.get("dtype") == "F32":
            begin, end = entry["data_offsets"]
            tensors[name] = np.frombuffer(data[start + begin : start + end], "<f4").reshape(entry["shape"])
    return tensors


def build_model(
    weights: dict[str, Array], *, is_quantised: bool, name: str = "all-MiniLM-L6-v2", mean: Array | None = None
) -> bytes:
    """Return the whole model as an ONNX file, without a word table if `weights` has none.

    It is float32 throughout unless `is_quantised`.
    `mean`: what all vectors of the model have in common, shape (WIDTH,); it is subtracted from each.
    """
    graph = _Graph(weights, is_quantised=is_quantised)
    if WORDS in weights:
        reads = described("input_ids", "int64", [1, "tokens"])
        hidden = graph.embeddings(graph.word_vectors("input_ids"), "input_ids")
    else:
        reads = described("word_vectors", "float32", [1, "tokens", WIDTH])
        hidden = graph.embeddings("word_vectors", "word_vectors")
    for layer in range(sum(key.endswith("intermediate.dense.weight") for key in weights)):
        hidden = graph.encoder_layer(layer, hidden)
    graph.node("ReduceMean", [hidden, graph.constant("token_axis", np.array([1]))], "mean", keepdims=0)
    if mean is None:
        graph.node("LpNormalization", ["mean"], "vector", axis=-1, p=2)
    else:
        graph.node("LpNormalization", ["mean"], "direction", axis=-1, p=2)
        graph.node("Sub", ["direction", graph.constant("common", mean)], "difference")
        graph.node("LpNormalization", ["difference"], "vector", axis=-1, p=2)
    written = message(
        *((1, node) for node in graph.nodes),
        (2, name),
        *((5, constant) for constant in graph.constants),
        (11, reads),
        (12, described("vector", "float32", [1, WIDTH])),
    )
    operators = [message((1, domain), (2, version)) for domain, version in (("", 18), (FUSED, 1))]
    return message((1, 9), (2, "recollect"), (7, written), *((8, each) for each in operators))


class _Graph:
    """Nodes and constants, written layer by layer; each method returns the name of its result."""

    def __init__(self, weights: dict[str, Array], *, is_quantised: bool) -> None:
        self._weights = weights
        self._is_quantised = is_quantised
        self.nodes: list[bytes] = []
        self.constants: list[bytes] = []

    def constant(self, name: str, value: npt.NDArray[np.generic]) -> str:
        dimensions = [(1, size) for size in value.shape]
        data = np.ascontiguousarray(value).tobytes()
        self.constants.append(message(*dimensions, (2, TYPES[value.dtype.name]), (8, name), (9, data)))
        return name

    def node(
        self, operator: str, inputs: Sequence[str], *results: str, domain: str | None = None, **attributes: int | float
    ) -> str:
        named = [
            (5, message((1, name), (2 if isinstance(value, float) else 3, value), (20, 1 + isinstance(value, int))))
            for name, value in sorted(attributes.items())
        ]
        places: list[tuple[int, str | bytes]] = [
            *((1, each) for each in inputs),
            *((2, each) for each in results),
            (4, operator),
            *named,
        ]
        self.nodes.append(message(*places, *([(7, domain)] if domain else [])))
        return results[0]

    def word_vectors(self, token_ids: str) -> str:
        words = self._weights[WORDS]
        # Half precision changes no vector in its third decimal and saves 23 MB of every process.
        words_name = self.constant("words", words.astype(np.float16) if self._is_quantised else words)
        self.node("Gather", [words_name, token_ids], "gathered")
        return self.node("Cast", ["gathered"], "word_vectors", to=TYPES["float32"])

    def embeddings(self, word_vectors: str, tokens: str) -> str:
        """`tokens`: what goes into the graph, one after the other along its second axis."""
        # Every text belongs to the first segment, so its type vector is added to the positions.
        # Both models have 512 positions. Longer passages are found worse.
        places = self._weights["embeddings.position_embeddings.weight"][:256]
        places = places + self._weights["embeddings.token_type_embeddings.weight"][0]
        self.node("Shape", [tokens], "length", start=1, end=2)
        starts = self.constant("zero", np.array([0]))
        self.node("Slice", [self.constant("places", places), starts, "length"], "place_vectors")
        self.node("Add", [word_vectors, "place_vectors"], "summed")
        norm = self._norm_constants("embeddings.LayerNorm")
        return self.node("LayerNormalization", ["summed", *norm], "embedded", epsilon=1e-12)

    def encoder_layer(self, number: int, hidden: str) -> str:
        layer = f"encoder.layer.{number}"
        attended = self._attention(f"{layer}.attention", hidden)
        hidden = self._add_and_norm(f"{layer}.attention.output", attended, hidden)
        widened = self._linear([f"{layer}.intermediate.dense"], hidden)
        bent = self.node("Gelu", [widened], f"{layer}.gelu", domain=FUSED)
        return self._add_and_norm(f"{layer}.output", bent, hidden)

    def _attention(self, name: str, hidden: str) -> str:
        together = self._linear([f"{name}.self.{part}" for part in ("query", "key", "value")], hidden)
        parts = [f"{name}.{part}" for part in ("q", "k", "v")]
        self.node("Split", [together], *parts, axis=-1, num_outputs=3)
        return self.node("MultiHeadAttention", parts, f"{name}.context", domain=FUSED, num_heads=12)

    def _add_and_norm(self, name: str, inner: str, residual: str) -> str:
        # Two nodes: the fused SkipLayerNormalization takes five times as long as both (onnxruntime 1.31, CPU).
        self.node("Add", [self._linear([f"{name}.dense"], inner), residual], f"{name}.sum")
        norm = self._norm_constants(f"{name}.LayerNorm")
        return self.node("LayerNormalization", [f"{name}.sum", *norm], name, epsilon=1e-12)

    def _norm_constants(self, name: str) -> list[str]:
        return [self.constant(f"{name}.{part}", self._weights[f"{name}.{part}"]) for part in ("weight", "bias")]

    def _linear(self, names: list[str], inputs: str) -> str:
        """One multiplication for several layers with the same input: their outputs are side by side."""
        weight = np.concatenate([self._weights[f"{name}.weight"] for name in names]).T
        bias = self.constant(f"{names[0]}.bias", np.concatenate([self._weights[f"{name}.bias"] for name in names]))
        if not self._is_quantised:
            self.node("MatMul", [inputs, self.constant(f"{names[0]}.weight", weight)], f"{names[0]}.product")
            return self.node("Add", [f"{names[0]}.product", bias], names[0])
        levels, scales = quantise_columns(weight)
        inputs_of_node = [
            inputs,
            self.constant(f"{names[0]}.weight", levels),
            self.constant(f"{names[0]}.scale", scales),
            self.constant(f"{names[0]}.zero", np.zeros(scales.shape, np.int8)),
            bias,
        ]
        return self.node("DynamicQuantizeMatMul", inputs_of_node, names[0], domain=FUSED)


def quantise_columns(weight: Array) -> tuple[npt.NDArray[np.int8], Array]:
    """Return whole numbers in ±63 and each column's scale: weight ≈ levels * scales."""
    # 7 bits, not 8: processors without VNNI add two products in 16 bits, and 2 * 255 * 127 would not fit.
    scales = np.abs(weight).max(axis=0) / np.float32(63)
    return np.rint(weight / scales).astype(np.int8), scales


if __name__ == "__main__":
    source = Path(sys.argv[1])
    if source.suffix == ".safetensors":
        model = build_model(read_safetensors(source), is_quantised=True)
    else:
        weights, mean = E5File(source).encoder_weights(), np.load(E5_MEAN)
        model = build_model(weights, is_quantised=True, name="multilingual-e5-small", mean=mean)
    Path(sys.argv[2]).write_bytes(model)
