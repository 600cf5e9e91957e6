import json
import sys
from importlib.util import find_spec
from pathlib import Path
from uuid import UUID

import numpy as np
import pytest
from django.core.management import CommandError, call_command

from evals.benchmarks.search import asking, histories, measuring, running
from evals.benchmarks.search.asking import ask, timed
from evals.benchmarks.search.histories import Pool
from evals.benchmarks.search.meaning import meanings, synthetic_meaning
from evals.benchmarks.search.measuring import Measured
from evals.benchmarks.search.peers import PEERS, AsSpecified, Exact, read
from evals.scratch import as_worker
from evals.tests.test_scratch import database_names
from intake.chats.services import save_exchange
from intake.models import Conversation, Turn, User
from memory.backends.embedders import get_embedder
from memory.index import embed_pending
from memory.index.segments import flush
from memory.models import Embedding, IndexedText
from memory.tests.indexed import stored_postings

pytestmark = [pytest.mark.extended, pytest.mark.django_db, pytest.mark.usefixtures("copied_scratch")]

INDEX = (Embedding, IndexedText)
OVER_HTTP = ["semantic_http", "hybrid_http"]
SAVES = ["save_turn", "bare_insert"]
HAS_PLOTS = find_spec("matplotlib") is not None


@pytest.fixture
def pool():
    return Pool(30, given={}, report=lambda line: None)


@pytest.fixture
def a_person(pool):
    """Somebody whose history was loaded in bulk."""
    return load_person(pool)


def load_person(pool, turns=25, name="bulk"):
    user = User.objects.create_user(f"{name}@example.com")
    pool.copy(user, turns)
    return user


def as_the_worker(function, environment, orders):
    with as_worker():
        return [function(**order) for order in orders]


def test_the_figures_have_the_names_that_machines_know_them_by(tmp_path, capsys, monkeypatch, calls_in_this_process):
    monkeypatch.setattr(measuring, "SECONDS", 0.3)
    monkeypatch.setattr(running, "SHORTER", (10,))
    monkeypatch.setattr(running, "SHORTER_PEOPLE", 2)
    # Both instead of in processes of their own.
    monkeypatch.setattr(histories, "call_at_once", as_the_worker)
    monkeypatch.setattr(measuring, "call", lambda *called, **order: calls_in_this_process(*called, [order])[0])
    installed = [kind.name for kind in PEERS if is_installed(kind, tmp_path)]
    before = database_names()
    target = tmp_path / "figures.json"

    call_command(
        "benchmark", "search", "--users=2", "--turns=40", "--queries=6", f"--json={target}", *plots_into(tmp_path)
    )

    figures = json.loads(target.read_text())
    assert (figures["users"], figures["turns_per_user"]) == (2, 40)
    assert figures["rows"] > 80
    assert set(figures["results"]) == {*asking.OURS, *installed, *OVER_HTTP, *SAVES}
    for timing in figures["results"].values():
        assert 0 < timing["p50_ms"] <= timing["p95_ms"]
        assert timing["n"] >= 6
    assert figures["http_rps"] > 0
    assert figures["recall"]["semantic_db"] > 0.95
    assert set(figures["beside"]) == set(installed)
    assert all(0 < ours["p50_ms"] <= ours["p95_ms"] for ours in figures["beside"].values())
    assert len(figures["scales"]) == 2
    assert [one["turns"] for one in figures["sizes"]] == ([4, 40] if HAS_PLOTS else [40])
    assert "save_turn / bare_insert" in capsys.readouterr().out
    for name in ("search-by-history.png", "search-by-rows.png") if HAS_PLOTS else ():
        assert (tmp_path / name).read_bytes().startswith(b"\x89PNG")
    assert database_names() == before
    assert not list(Path(tmp_path).glob("*.sqlite"))


def plots_into(folder):
    """What draws them is as optional as the peers."""
    return [f"--plots={folder}"] if HAS_PLOTS else []


@pytest.mark.parametrize("option", ["--users=0", "--turns=0", "--queries=0"])
def test_nothing_to_measure_is_an_error_in_words(option):
    with pytest.raises(CommandError, match="must be above 0"):
        call_command("benchmark", "search", option)


def test_copied_rows_are_those_that_the_services_write(a_person):
    loaded = Turn.objects.for_user(a_person).order_by("said_at")
    other = User.objects.create_user("service@example.com")
    conversations = {}
    for turn in loaded:
        if turn.conversation_id not in conversations:
            begun = Conversation.objects.get(pk=turn.conversation_id)
            conversations[turn.conversation_id] = Conversation.objects.create(
                user=other, title=begun.title, started_at=begun.started_at, last_active_at=begun.started_at
            )
        save_exchange(
            conversation=conversations[turn.conversation_id],
            user_message=turn.user_message,
            assistant_message=turn.assistant_message,
            said_at=turn.said_at,
        )
    embed_pending()
    flush()

    keys = {old: new.pk for old, new in conversations.items()}
    for table in (Conversation, Turn, *INDEX):
        assert rows_of(table, a_person, keys) == rows_of(table, other, {key: key for key in keys.values()})
    assert terms_of(a_person) == terms_of(other)
    assert Embedding.objects.for_user(a_person).filter(part__gt=0).exists()


def rows_of(table, user, keys):
    """Everything that does not go by which row it is or when it was written, in an order of its own."""
    left_out = {"user", "vector", "bits", "created_at", "updated_at", "embedded_at", "next_attempt_at"}
    rows = []
    for row in table.objects.filter(user=user):
        values = {
            field.name: field.value_from_object(row)
            for field in table._meta.concrete_fields
            if field.name not in left_out
        }
        if table is Conversation:
            values["id"] = keys[row.pk]
        else:
            del values["id"]
        for name in ("conversation", "source_id"):
            if name in values:
                values[name] = keys[values[name]]
        rows.append({name: bytes(value) if isinstance(value, memoryview) else value for name, value in values.items()})
    assert rows
    return sorted(rows, key=repr)


def terms_of(user):
    order = IndexedText.objects.for_user(user).order_by("said_at").values_list("pk", flat=True)
    places = {pk: place for place, pk in enumerate(order)}
    found = [(places[each.text], *each[2:]) for each in stored_postings(user=user)]
    assert found
    return sorted(found)


def test_loaded_vectors_are_near_those_of_the_same_words(a_person):
    with synthetic_meaning() as embedder:
        (asked,) = ask([a_person], count=20)
        vectors = read(a_person).vectors
        near = [max(vectors @ question.vector) for question in asked.questions]
        unrelated = np.median(vectors @ vectors.T)
        messages = Turn.objects.for_user(a_person).values_list("user_message", flat=True)
        itself = np.median([max(vectors @ embedder.embed_query(message)) for message in messages])

    assert np.linalg.norm(vectors, axis=1) == pytest.approx(1, abs=0.001)
    assert itself > unrelated + 0.15
    assert np.median(near) > 0.2
    assert 0.02 < unrelated < 0.4


def test_questions_differ_and_are_made_of_the_persons_words(a_person):
    (asked,) = ask([a_person], count=20)
    said = " ".join(Turn.objects.for_user(a_person).values_list("user_message", flat=True)).lower()

    texts = [question.text for question in asked.warm_up + asked.questions]
    assert len(set(texts)) == len(texts) >= 20
    assert all(word in said for text in texts for word in text.rstrip("?").split())


def test_a_person_with_one_short_turn_can_be_asked_nevertheless(pool):
    user = load_person(pool, turns=1)

    (asked,) = ask([user], count=200)

    assert asked.questions


def test_what_is_read_back_is_what_is_stored(a_person):
    stored = read(a_person)

    rows = Embedding.objects.for_user(a_person).order_by("source_id", "chunk_index", "part")
    assert stored.keys == list(rows.values_list("source_id", "chunk_index"))
    assert np.array_equal(stored.vectors, np.array([row.vector for row in rows], np.float32))


@pytest.mark.parametrize("kind", PEERS, ids=lambda kind: kind.name)
def test_each_peer_finds_what_is_nearest_among_the_persons_own(kind, tmp_path, pool):
    peer = installed(kind, tmp_path)
    alice, bob = load_person(pool, name="alice"), load_person(pool, name="bob")
    with synthetic_meaning():
        (asked,) = ask([alice], count=10)
        exact = Exact(tmp_path)
        exact.load([read(alice)])

        peer.load([read(alice), read(bob)])

        for question in asked.questions:
            found = peer.search(alice, question.vector, limit=5)
            assert set(found) == set(exact.search(alice, question.vector, limit=5))
            assert all(Turn.objects.for_user(alice).with_keys([key]).exists() for key in found)
    peer.close()


def test_the_specifications_query_answers_with_snippets(tmp_path, a_person):
    peer = installed(AsSpecified, tmp_path)
    peer.load([read(a_person)])
    with synthetic_meaning():
        (asked,) = ask([a_person], count=1)

    (found,) = peer._search(a_person, asked.questions[0].vector, 1)

    turn = Turn.objects.get(conversation_id=UUID(found["conversationId"]), turn_number=found["turnNumber"])
    assert found["snippet"] == turn.user_message[:200]
    peer.close()


@pytest.mark.parametrize(
    ("module", "missing"),
    [("sqlite_vec", ["sqlite_vec_spec", "sqlite_vec_partition"]), ("lancedb", ["lancedb", "lancedb_bitmap"])],
)
def test_a_missing_peer_is_said_to_be_missing_and_the_others_are_measured(monkeypatch, pool, a_person, module, missing):
    monkeypatch.setitem(sys.modules, module, None)
    said = []
    with synthetic_meaning():
        measured = Measured({25: ask([a_person], count=3)})
        measured.peers([a_person], said.append)

    assert not set(missing) & set(measured.results[25])
    assert "numpy" in measured.results[25]
    for name in missing:
        assert any(name in line and "requirements/peers.txt" in line for line in said)


def test_a_sqlite_that_takes_no_extensions_is_a_missing_peer(monkeypatch, tmp_path):
    pytest.importorskip(
        "sqlite_vec", reason="sqlite-vec is not installed: .venv/bin/uv pip install -r requirements/peers.txt"
    )
    monkeypatch.setattr("ctypes.CDLL", no_library)

    with pytest.raises(ImportError, match="takes no extensions"):
        AsSpecified(tmp_path)


def no_library(name):
    raise OSError("no such library")


def test_plots_without_matplotlib_are_refused_before_anything_is_made(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    before = database_names()

    with pytest.raises(CommandError, match=r"matplotlib.*requirements/peers.txt"):
        call_command("benchmark", "search", f"--plots={tmp_path}")

    assert database_names() == before


def test_a_search_is_timed_without_the_embedding_of_its_query(a_person, monkeypatch):
    with synthetic_meaning():
        (asked,) = ask([a_person], count=3)
        monkeypatch.setattr("evals.benchmarks.search.meaning.meanings", None)

        found = asking.search_semantic(a_person, asked.questions[0])

    assert len(found) == asking.LIMIT


def test_every_question_is_asked_twice_and_the_second_time_counts(a_person, monkeypatch):
    with synthetic_meaning():
        (asked,) = ask([a_person], count=3)
    clock, heard = [0.0], []
    monkeypatch.setattr("evals.benchmarks.search.asking.time.perf_counter", lambda: clock[0])

    def search(user, question):
        clock[0] += 0.001 if question.text in heard else 0.005
        heard.append(question.text)
        return question.text

    (found,) = timed([asked], search)

    warm_up, texts = ([question.text for question in part] for part in (asked.warm_up, asked.questions))
    assert heard == warm_up + texts + texts
    assert found.answers == texts
    assert found.figures == {"p50_ms": 1, "p95_ms": 1, "n": len(texts), "first_p50_ms": 5, "first_p95_ms": 5}


def test_made_up_meaning_is_read_by_the_calibration_of_the_model_that_it_stands_in_for():
    calibration = get_embedder().calibration
    with synthetic_meaning() as embedder:
        assert embedder.calibration == calibration is not None


def test_made_up_meaning_goes_by_the_rare_words():
    apart, together, other = meanings(
        ["the and of", "the and of zebra".replace("zebra", rare()), rare()], dimensions=384
    )

    assert together @ other > 0.9
    assert together @ other > together @ apart + 0.3


def rare():
    from evals import synthetic

    return str(synthetic.vocabulary()[-1])


def installed(kind, folder):
    try:
        return kind(folder)
    except ImportError as error:
        pytest.skip(str(error))


def is_installed(kind, folder):
    try:
        kind(folder).close()
    except ImportError:
        return False
    finally:
        for left in folder.glob("*.sqlite"):
            left.unlink()
    return True
