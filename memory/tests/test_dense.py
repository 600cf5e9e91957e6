"""The search for the nearest vectors: what numpy says, and a plan that reads one person's alone."""

import re
from dataclasses import replace
from datetime import timedelta
from types import SimpleNamespace

import numpy as np
import pytest
from django.conf import settings
from django.db import IntegrityError, connection

from core.isolation.acting import acting_as, bound_to
from core.isolation.connecting import connected_as_owner
from core.isolation.fitting import tables_found
from intake.models import Conversation
from intake.tests.factories import NOW, a_person, a_turn
from memory import index
from memory.backends.embedders import get_embedder
from memory.index import scoring
from memory.index import vectors as stored
from memory.index.vectors import Meaning
from memory.models import Corpus, Embedding, EmbeddingModel, TermSegment
from memory.models.documents import Scope
from memory.tests.plans import plans
from memory.tests.vectors import by_brute_force, directions, fill, nearest
from testing.examiner import as_a_worker

pytestmark = pytest.mark.django_db

QUERY = directions(1, seed=3)[0]


@pytest.fixture
def alice():
    return a_person()


def nearest_to_query(user, *, limit):
    scope = Scope(user, (Corpus.CHAT,))
    return stored.nearest(scope, Meaning(get_embedder(), QUERY), limit=limit)


@pytest.mark.medium
@pytest.mark.parametrize("with_bits", [0, 7, 203, 500])
def test_the_order_is_that_of_a_brute_force_ranking_with_bits_and_without(alice, with_bits, monkeypatch):
    monkeypatch.setattr(stored, "CANDIDATES", 500)
    vectors = directions(500, seed=1)
    fill(a_person("bob@example.com"), directions(500, seed=2))
    places = {
        row.source_id: start
        for start, some, has_bits in ((0, vectors[:with_bits], True), (with_bits, vectors[with_bits:], False))
        for row in fill(alice, some, has_bits=has_bits)[:1]
    }
    ranking = by_brute_force(vectors, QUERY)
    for limit in (1, 10, 60, 300, 600):
        hits, _ = nearest_to_query(alice, limit=limit)
        assert [places[hit.key[0]] + hit.key[1] - 1 for hit in hits] == ranking[:limit], limit


def test_the_nearest_by_their_bits_are_measured_even_if_hardly_more_than_are_wanted(alice, monkeypatch):
    monkeypatch.setattr(stored, "CANDIDATES", 40)
    near = QUERY + np.linspace(0.1, 0.9, 20)[:, np.newaxis] * directions(20, seed=4)
    vectors = np.concatenate([directions(400, seed=1), near / np.linalg.norm(near, axis=1, keepdims=True)])
    fill(alice, vectors)
    assert nearest(alice, QUERY, limit=10) == by_brute_force(vectors, QUERY)[:10]


def test_of_many_texts_more_candidates_are_measured(alice, monkeypatch):
    monkeypatch.setattr(stored, "CANDIDATES", 3)
    lengths = {"said_length": 0, "answered_length": 0, "text_ids": [], "said_lengths": [], "answered_lengths": []}
    TermSegment.objects.create(user=alice, corpus=Corpus.CHAT, texts=800, **lengths)
    vectors = directions(100, seed=1)
    fill(alice, vectors)
    assert nearest(alice, QUERY, limit=1) == by_brute_force(vectors, QUERY)[:1]
    with plans("WITH asked") as explained:
        nearest(alice, QUERY, limit=1)
    assert re.search(r"Limit \(actual [^)]*rows=96", explained[0]), explained


def test_a_search_narrows_to_its_days_before_it_cuts_the_candidates(alice, monkeypatch):
    monkeypatch.setattr(stored, "CANDIDATES", 10)
    vectors = directions(95, seed=1)
    fill(alice, vectors[by_brute_force(vectors, QUERY)])
    # The farthest of all.
    period = {"since": NOW + timedelta(hours=85), "until": NOW + timedelta(hours=95)}
    assert nearest(alice, QUERY, limit=10, **period) == list(range(85, 95))
    assert nearest(alice, QUERY, limit=3, **period) == [85, 86, 87]


def test_vectors_without_bits_get_them_from_a_worker_and_are_found_alike(alice, tmp_path, monkeypatch):
    vectors = directions(40, seed=1)
    fill(alice, vectors, has_bits=False)
    (stored_bits,) = {tuple(stored.signs(vectors.astype(np.float16), model=get_embedder().name))}
    with as_a_worker():
        monkeypatch.setattr(settings, "DATABASE_FOLDER", tmp_path)
        monkeypatch.setattr("shutil.disk_usage", lambda _: SimpleNamespace(free=stored.FREE_BYTES - 1))
        assert stored.add_missing_bits() == 0
        monkeypatch.undo()
        assert (stored.add_missing_bits(), stored.add_missing_bits()) == (40, 0)
    assert tuple(Embedding.objects.order_by("pk").values_list("bits", flat=True)) == stored_bits
    assert nearest(alice, QUERY, limit=40) == by_brute_force(vectors, QUERY)


@pytest.mark.medium
def test_adding_bits_stops_in_time_and_goes_on_and_all_is_found_meanwhile(alice, monkeypatch):
    monkeypatch.setattr(stored, "CANDIDATES", 600)
    vectors = directions(600, seed=1)
    fill(alice, vectors, has_bits=False)
    times = iter([NOW, NOW + timedelta(seconds=1)])
    with monkeypatch.context() as patched, as_a_worker():
        patched.setattr(stored, "timezone", SimpleNamespace(now=lambda: next(times)))
        assert stored.add_missing_bits(until=NOW + timedelta(seconds=1)) == 500
    assert nearest(alice, QUERY, limit=100) == by_brute_force(vectors, QUERY)[:100]
    with as_a_worker():
        assert stored.add_missing_bits() == 100
    assert nearest(alice, QUERY, limit=100) == by_brute_force(vectors, QUERY)[:100]


@pytest.mark.django_db(transaction=True)
def test_the_blocks_of_version_1_0_are_emptied_and_gone_when_all_vectors_have_bits(alice):
    fill(alice, directions(3, seed=1), has_bits=False)
    roles = settings.DATABASE_ROLES
    with connected_as_owner(), connection.cursor() as cursor:
        cursor.execute("CREATE TABLE embedding_blocks AS SELECT 1 AS id")
        cursor.execute("ALTER TABLE embeddings ADD block_id bigint DEFAULT 1")
        stored.retire_blocks()
        cursor.execute(
            "SELECT (SELECT count(*) FROM embedding_blocks), has_column_privilege(%s, 'embeddings', 'block_id', 'UPDATE'),"
            " (SELECT relforcerowsecurity FROM pg_class WHERE oid = 'embeddings'::regclass)",
            [roles.worker],
        )
        assert cursor.fetchone() == (0, True, True)
    with as_a_worker(), connection.cursor() as cursor:
        # As version 1.0 does, to which one may go back until then.
        cursor.execute("UPDATE embeddings SET block_id = 1 WHERE block_id IS NULL")
        assert cursor.rowcount == 3
        stored.add_missing_bits()
    with connected_as_owner(), connection.cursor() as cursor:
        stored.retire_blocks()
        cursor.execute("SELECT to_regclass('embedding_blocks')")
        assert cursor.fetchone() == (None,)
    assert "block_id" not in tables_found()["embeddings"]


@pytest.mark.parametrize("dimensions", [3, 768, 16_000])
def test_bits_are_as_many_as_dimensions_and_differ_as_the_angle_does(alice, dimensions):
    query, other = directions(2, seed=3, dimensions=dimensions)
    between = query + 0.5 * other
    (asked, opposite, near) = (
        np.array(list(bits)) for bits in stored.signs(np.stack([query, -query, between]), model="any")
    )
    assert len(asked) == dimensions
    assert (asked != opposite).all()
    angle = np.arccos(between @ query / np.linalg.norm(between))
    assert (asked != near).mean() == pytest.approx(angle / np.pi, abs=1 / np.sqrt(dimensions))


def test_the_database_refuses_bits_of_another_length_than_the_vector(alice):
    (row,) = fill(alice, directions(1, seed=1))
    with pytest.raises(IntegrityError, match="embeddings_bits_of_the_vector"):
        Embedding.objects.filter(pk=row.pk).update(bits="0" * 383)


def test_hits_keep_their_order_and_figures_when_their_distances_are_measured(alice):
    turns = [a_turn(alice, text) for text in ("I adopted a cat", "My cat sleeps", "A dog barks", "The cat ran off")]
    index.embed_pending()
    later = a_turn(alice, "One more cat")
    scope, query = Scope(alice, (Corpus.CHAT,)), get_embedder().embed_query("cat")
    hits = scoring.score(scope, query="cat", limit=10).hits
    keys = {(turn.conversation_id, turn.turn_number) for turn in (*turns, later)}
    meaning = Meaning(get_embedder(), query)

    alone, unrelated, pending, _ = stored.distances(scope, meaning, passages=0, hits=hits)
    assert [hit._replace(distance=None, user_distance=None) for hit in alone] == hits
    assert [hit.key for hit in alone if hit.distance is None] == [(later.conversation_id, later.turn_number)]
    assert (unrelated is None, pending) == (False, 1)

    both, *_ = stored.distances(scope, meaning, passages=100, hits=hits)
    assert [hit.key for hit in both[: len(hits)]] == [hit.key for hit in hits]
    (dog,) = both[len(hits) :]
    assert {hit.key for hit in both} == keys
    assert (dog.key, dog.shares_terms) == ((turns[2].conversation_id, turns[2].turn_number), False)


@pytest.mark.parametrize("dimensions", [3, 768, 1300])
def test_vectors_of_every_size_are_searched(alice, dimensions):
    model = EmbeddingModel.objects.create(name="other", dimensions=dimensions)
    vectors, query = directions(31, seed=1, dimensions=dimensions), directions(1, seed=3, dimensions=dimensions)[0]
    fill(alice, vectors, model=model)
    assert nearest(alice, query, limit=31, model="other") == by_brute_force(vectors, query)


_COPIES = """
INSERT INTO embeddings (user_id, corpus, source_id, chunk_index, part, side, start, is_further, cutting_rules, model_id,
                        visibility, vector, bits, length, content_hash, said_at, created_at, embedded_at, attempts,
                        last_error, next_attempt_at)
SELECT user_id, 'attachment', gen_random_uuid(), 1, 0, 0, 0, false, 0, model_id, visibility, vector, bits, 1, '',
       said_at, said_at, said_at, 0, '', said_at
  FROM embeddings CROSS JOIN generate_series(1, %(copies)s)
 WHERE user_id = %(user_id)s AND corpus = 'chat'
"""


@pytest.mark.extended
@pytest.mark.django_db(transaction=True)
def test_among_40000_passages_a_day_and_a_bound_project_are_searched_whole(alice):
    """And the plan scans the index of the bits, for this person's rows alone."""
    for user in (a_person("bob@example.com"), alice):
        fill(user, directions(100, seed=1))
        with connection.cursor() as cursor:
            cursor.execute(_COPIES, {"user_id": user.pk, "copies": 400})
    vectors = directions(50, seed=2) - QUERY
    source_id = fill(alice, vectors)[0].source_id
    Conversation.objects.filter(pk=source_id).update(project="me/app")
    with connection.cursor() as cursor:
        cursor.execute("VACUUM ANALYZE embeddings")
    ranking = by_brute_force(vectors, QUERY)
    scope = Scope(alice, (Corpus.CHAT, Corpus.ATTACHMENT))
    a_day = replace(scope, since=NOW - timedelta(days=401), until=NOW - timedelta(days=399))

    def nearest_in(scope):
        hits, _ = stored.nearest(scope, Meaning(get_embedder(), QUERY), limit=10)
        return [(hit.key[0], hit.key[1] - 1) for hit in hits]

    expected = [(source_id, place) for place in ranking[:10]]
    with bound_to("me/app"), acting_as(alice):
        assert nearest_in(scope) == expected
    Embedding.objects.filter(source_id=source_id).update(said_at=NOW - timedelta(days=400))
    with acting_as(alice), plans("WITH asked") as explained:
        assert nearest_in(a_day) == expected
        assert nearest_in(scope) != expected
    for plan in explained:
        assert re.search(rf"Scan (using|on) idx_embeddings_bits.*\n *Index Cond: \(\(user_id = {alice.pk}\)", plan), (
            plan
        )
