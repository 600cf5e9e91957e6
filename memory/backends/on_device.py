"""What the built-in models have in common: one onnxruntime session per number of threads, one text at a time.

And the concatenation of two models into one (docs/decisions/0047).
"""

import threading
from abc import abstractmethod
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from math import sqrt
from pathlib import Path

import numpy as np
import numpy.typing as npt
import onnxruntime  # type: ignore[import-untyped]

from core.resilience import step_back
from memory.backends.embedders import (
    Calibration,
    Embedder,
    EmbedderError,
    Matrix,
    Span,
    Vector,
    normalised,
)

# Longer than any step of a query that one thread does alone.
AWAKE_MICROSECONDS = 100

Inputs = dict[str, npt.NDArray[np.generic]]
"""By name, each of shape (1, tokens, …)."""


class OnDeviceEmbedder(Embedder):
    """A model on onnxruntime: no network, no key, no GPU.

    Loads its parts on first use: saving a turn needs only the tokenizer. `cache_dir` keeps the graph made from the
    weights. `threads` is the number of cores that share a query, for a fast response, and the number of documents that
    are embedded at once, each on one core, for throughput.
    """

    def __init__(self, *, cache_dir: Path, threads: int = 2) -> None:
        self._cache_dir = Path(cache_dir)
        self._threads = threads
        self._lock = threading.Lock()
        self._sessions: dict[int, onnxruntime.InferenceSession] = {}
        # Texts can wait for their vectors while people wait for their answers.
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="embed", initializer=step_back)

    @abstractmethod
    def _knows_any(self, text: str) -> bool:
        """Whether the model knows one of the tokens that it reads of a query."""

    @abstractmethod
    def _inputs(self, text: str, *, is_query: bool) -> Inputs:
        """What the graph reads of a text, at most `max_tokens` of it."""

    @abstractmethod
    def _graph(self) -> bytes:
        """The graph: `_inputs` go in, and the normalised vector comes out. Raise EmbedderError."""

    def embed_query(self, text: str) -> Vector:
        """See Embedder; reads a text only up to `max_tokens`."""
        if not self._knows_any(text):
            return np.zeros(self.dimensions, np.float32)
        return _embed(self._session(self._threads), self._inputs(text, is_query=True))

    def embed_documents(self, texts: Sequence[str]) -> Matrix:
        """See Embedder; reads a text only up to `max_tokens`."""
        if not texts:
            return np.empty((0, self.dimensions), np.float32)
        session = self._session(1)
        inputs = [self._inputs(text, is_query=False) for text in texts]
        # The longest first, so that no core ends with a long text alone.
        order = sorted(range(len(texts)), key=lambda index: -_tokens(inputs[index]))
        vectors = np.empty((len(texts), self.dimensions), np.float32)
        vectors[order] = list(self._pool.map(lambda index: _embed(session, inputs[index]), order))
        return vectors

    def warm_up(self, *, for_documents: bool = False) -> None:
        """See Embedder."""
        if for_documents:
            self.embed_documents(["warm"])
        else:
            self.embed_query("warm")

    def _session(self, threads: int) -> onnxruntime.InferenceSession:
        if threads not in self._sessions:
            with self._lock:
                if threads not in self._sessions:
                    self._sessions[threads] = start_session(self._graph(), threads=threads)
        return self._sessions[threads]


def _tokens(inputs: Inputs) -> int:
    return max(int(value.shape[1]) for value in inputs.values())


def _embed(session: onnxruntime.InferenceSession, inputs: Inputs) -> Vector:
    # One text at a time: see bert_graph. onnxruntime releases the GIL while it computes.
    vector: Vector = session.run(None, inputs)[0][0]
    return vector


def start_session(graph: bytes, *, threads: int = 1) -> onnxruntime.InferenceSession:
    """Return a session. Raise EmbedderError if this onnxruntime cannot run the graph."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    # Share the work in smaller blocks, so that a slow core does not delay the other.
    options.add_session_config_entry("session.dynamic_block_base", "4")
    # Spin between the steps of a query, but not until the next query: by default the second thread occupied a core for
    # 30 ms after each, which the following search needs for PostgreSQL.
    options.add_session_config_entry("session.intra_op.spin_duration_us", str(AWAKE_MICROSECONDS))
    # The arena would keep the largest request's memory forever, and one pattern per text length.
    options.enable_cpu_mem_arena = False
    options.enable_mem_pattern = False
    # The graph is fused as far as it helps: the next level would undo that (see bert_graph).
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_BASIC
    options.log_severity_level = 3
    try:
        return onnxruntime.InferenceSession(graph, options, providers=["CPUExecutionProvider"])
    except Exception as error:  # its exceptions have no common public base class
        raise EmbedderError(
            f"onnxruntime {onnxruntime.__version__} cannot run the embedding graph: install the pinned version."
        ) from error


class ConcatenatedEmbedder(Embedder):
    """Several models as one: their vectors side by side, so that a cosine is the mean of theirs, by their weights.

    The first model decides where passages end. One that knows no token of a query leaves its place to the others.
    """

    def __init__(self, *parts: tuple[Embedder, float], name: str, calibration: Calibration) -> None:
        self.name = name
        self.calibration = calibration
        self._embedders = [embedder for embedder, _ in parts]
        self._factors = [sqrt(weight) for _, weight in parts]
        self.dimensions = sum(embedder.dimensions for embedder in self._embedders)
        self.max_tokens = self._embedders[0].max_tokens

    def embed_query(self, text: str) -> Vector:
        """See Embedder."""
        return self._together([embedder.embed_query(text) for embedder in self._embedders])

    def embed_documents(self, texts: Sequence[str]) -> Matrix:
        """See Embedder."""
        return self._together([embedder.embed_documents(texts) for embedder in self._embedders])

    def token_offsets(self, text: str, at_most: int | None = None) -> list[Span]:
        """See Embedder."""
        return self._embedders[0].token_offsets(text, at_most)

    def check(self) -> None:
        """See Embedder."""
        for embedder in self._embedders:
            embedder.check()

    def warm_up(self, *, for_documents: bool = False) -> None:
        """See Embedder."""
        for embedder in self._embedders:
            embedder.warm_up(for_documents=for_documents)

    def _together(self, vectors: Sequence[npt.NDArray[np.float32]]) -> npt.NDArray[np.float32]:
        scaled = [factor * vector for factor, vector in zip(self._factors, vectors, strict=True)]
        return normalised(np.concatenate(scaled, axis=-1))
