"""Builds the quantised graph of a built-in model from the published weights; a separate command, to free its memory.

`python -m memory.backends.bert_graph model.safetensors out.onnx` writes the quantised graph. One text goes in and its
normalised vector comes out (float32, shape (1, 384)): without a batch there is no padding, no mask, and no vector that
depends on its neighbours through a shared quantisation range. all-MiniLM-L6-v2 reads token ids (int64, shape
(1, tokens)). Of multilingual-e5-small the word vectors go in (float32, shape (1, tokens, 384)): its table of words is
four times the rest, and stays in its file. The architecture is BERT (Devlin et al., 2018) with mean pooling; nodes of
the `com.microsoft` domain are onnxruntime's fused forms of it.
"""

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
from onnx import TensorProto, helper, numpy_helper

from memory.backends.e5_file import E5_MEAN, E5File

WORDS = "embeddings.word_embeddings.weight"
WIDTH = 384
LAYER_NORM_EPSILON = 1e-12
FUSED = "com.microsoft"

Array = npt.NDArray[np.float32]


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
) -> onnx.ModelProto:
    """Return the whole model, without a word table if `weights` has none; float32 throughout unless `is_quantised`.

    `mean`: what all vectors of the model have in common, shape (WIDTH,); it is subtracted from each.
    """
    graph = _Graph(weights, is_quantised=is_quantised)
    if WORDS in weights:
        reads = helper.make_tensor_value_info("input_ids", TensorProto.INT64, [1, "tokens"])
        hidden = graph.embeddings(graph.word_vectors("input_ids"), "input_ids")
    else:
        reads = helper.make_tensor_value_info("word_vectors", TensorProto.FLOAT, [1, "tokens", WIDTH])
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
    return helper.make_model(
        helper.make_graph(
            graph.nodes,
            name,
            [reads],
            [helper.make_tensor_value_info("vector", TensorProto.FLOAT, [1, WIDTH])],
            graph.constants,
        ),
        opset_imports=[helper.make_opsetid("", 18), helper.make_opsetid(FUSED, 1)],
        ir_version=9,
        producer_name="recollect",
    )


class _Graph:
    """Nodes and constants, written layer by layer; each method returns the name of its result."""

    def __init__(self, weights: dict[str, Array], *, is_quantised: bool) -> None:
        self._weights = weights
        self._is_quantised = is_quantised
        self.nodes: list[onnx.NodeProto] = []
        self.constants: list[onnx.TensorProto] = []

    def constant(self, name: str, value: npt.NDArray[np.generic]) -> str:
        self.constants.append(numpy_helper.from_array(np.ascontiguousarray(value), name))
        return name

    def node(self, operator: str, inputs: Sequence[str], result: str, **attributes: Any) -> str:
        self.nodes.append(helper.make_node(operator, inputs, [result], **attributes))
        return result

    def word_vectors(self, token_ids: str) -> str:
        words = self._weights[WORDS]
        # Half precision changes no vector in its third decimal and saves 23 MB of every process.
        words_name = self.constant("words", words.astype(np.float16) if self._is_quantised else words)
        self.node("Gather", [words_name, token_ids], "gathered")
        return self.node("Cast", ["gathered"], "word_vectors", to=TensorProto.FLOAT)

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
        return self.node("LayerNormalization", ["summed", *norm], "embedded", epsilon=LAYER_NORM_EPSILON)

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
        self.nodes.append(helper.make_node("Split", [together], parts, axis=-1, num_outputs=3))
        return self.node("MultiHeadAttention", parts, f"{name}.context", domain=FUSED, num_heads=12)

    def _add_and_norm(self, name: str, inner: str, residual: str) -> str:
        # Two nodes: the fused SkipLayerNormalization takes five times as long as both (onnxruntime 1.31, CPU).
        self.node("Add", [self._linear([f"{name}.dense"], inner), residual], f"{name}.sum")
        norm = self._norm_constants(f"{name}.LayerNorm")
        return self.node("LayerNormalization", [f"{name}.sum", *norm], name, epsilon=LAYER_NORM_EPSILON)

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
    Path(sys.argv[2]).write_bytes(model.SerializeToString(deterministic=True))
