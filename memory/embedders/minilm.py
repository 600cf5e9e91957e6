"""The built-in model, all-MiniLM-L6-v2 in int8 on onnxruntime: no network, no key, no GPU."""

import re
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import onnxruntime  # type: ignore[import-untyped]
from tokenizers import Encoding, Tokenizer

from memory.embedders.base import Embedder, EmbedderMisconfigured, Matrix, Span, Vector
from memory.embedders.model_files import TOKENIZER_SHA256, WEIGHTS_SHA256, check_file, find_model_dir, load_graph

START_TOKEN, END_TOKEN = 101, 102  # [CLS] and [SEP], around every text
# Half of a surrogate pair can reach a str through JSON; the tokenizer takes whole characters only.
_LONE_SURROGATE = re.compile("[\ud800-\udfff]")


class MiniLMEmbedder(Embedder):
    """Loads its parts when they are first needed: saving a turn needs the tokenizer only.

    `cache_dir` keeps the graph made from the weights. `threads` is how many texts are embedded at once, each on one
    core: small matrices gain less from being shared out.
    """

    name = "all-MiniLM-L6-v2/int8"
    dimensions = 384
    max_tokens = 254  # 256 with the two around them

    def __init__(self, *, cache_dir: Path, threads: int = 2, model_dir: Path | None = None) -> None:
        self._cache_dir = Path(cache_dir)
        self._model_dir = Path(model_dir) if model_dir else None
        self._threads = threads
        self._lock = threading.Lock()
        self._loaded_tokenizer: Tokenizer | None = None
        self._loaded_session: onnxruntime.InferenceSession | None = None
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="embed")

    def embed_query(self, text: str) -> Vector:
        """See Embedder; a text beyond `max_tokens` is read up to there."""
        return self._embed(self._ids(text))

    def embed_documents(self, texts: Sequence[str]) -> Matrix:
        """See Embedder; a text beyond `max_tokens` is read up to there."""
        token_ids = [self._ids(text) for text in texts]
        # The longest first, so that no core is left alone with a long text at the end.
        order = sorted(range(len(texts)), key=lambda index: -len(token_ids[index]))
        vectors = np.empty((len(texts), self.dimensions), np.float32)
        for index, vector in zip(order, self._pool.map(self._embed, [token_ids[i] for i in order]), strict=True):
            vectors[index] = vector
        return vectors

    def token_offsets(self, text: str) -> list[Span]:
        """See Embedder."""
        offsets: list[Span] = self._encode(text).offsets
        return offsets

    def warm_up(self) -> None:
        """See Embedder."""
        self.embed_query("warm")

    def _embed(self, token_ids: list[int]) -> Vector:
        # One text at a time: see bert_graph. onnxruntime lets go of the GIL while it computes.
        framed = np.array([[START_TOKEN, *token_ids, END_TOKEN]], np.int64)
        vector: Vector = self._session().run(None, {"input_ids": framed})[0][0]
        return vector

    def _ids(self, text: str) -> list[int]:
        ids: list[int] = self._encode(text).ids
        return ids[: self.max_tokens]

    def _encode(self, text: str) -> Encoding:
        return self._tokenizer().encode(_LONE_SURROGATE.sub("\ufffd", text), add_special_tokens=False)

    def _tokenizer(self) -> Tokenizer:
        if self._loaded_tokenizer is None:
            with self._lock:
                if self._loaded_tokenizer is None:
                    self._loaded_tokenizer = self._load_tokenizer()
        return self._loaded_tokenizer

    def _session(self) -> onnxruntime.InferenceSession:
        if self._loaded_session is None:
            with self._lock:
                if self._loaded_session is None:
                    self._loaded_session = self._load_session()
        return self._loaded_session

    def _load_tokenizer(self) -> Tokenizer:
        path = check_file(self._find("tokenizer.json"), TOKENIZER_SHA256)
        tokenizer = Tokenizer.from_file(str(path))
        # The file asks for 128 tokens, padded; chunking has to see all of a text.
        tokenizer.no_truncation()
        tokenizer.no_padding()
        return tokenizer

    def _load_session(self) -> onnxruntime.InferenceSession:
        weights = check_file(self._find("model.safetensors"), WEIGHTS_SHA256)
        return start_session(load_graph(weights, self._cache_dir))

    def _find(self, file_name: str) -> Path:
        return (self._model_dir or find_model_dir()) / file_name


def start_session(graph: bytes) -> onnxruntime.InferenceSession:
    """Return a session of one thread. Raise EmbedderMisconfigured when this onnxruntime cannot run the graph."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    # The arena keeps the largest request's memory for ever, and one pattern per text length.
    options.enable_cpu_mem_arena = False
    options.enable_mem_pattern = False
    # The graph is fused as far as it pays: the next level would undo that (see bert_graph).
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_BASIC
    options.log_severity_level = 3
    try:
        return onnxruntime.InferenceSession(graph, options, providers=["CPUExecutionProvider"])
    except Exception as error:  # its exceptions share no public base class
        raise EmbedderMisconfigured(
            f"onnxruntime {onnxruntime.__version__} cannot run the embedding graph: install the pinned version."
        ) from error
