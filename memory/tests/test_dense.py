"""The scan for the nearest vectors: what numpy says, wherever they stand, and a plan that reads one person's alone."""

import re
from datetime import timedelta

import pytest
from django.db import connection

from core.isolation.acting import acting_as
from intake.tests.factories import NOW, a_person, a_turn
from memory import index
from memory.backends.embedders import get_embedder
from memory.index import scoring
from memory.index import vectors as stored
from memory.index.vectors import pack_all
from memory.models import Corpus, EmbeddingModel, VectorBlock
from memory.models.documents import Scope
from memory.tests.plans import plans
from memory.tests.vectors import by_brute_force, directions, fill, nearest

pytestmark = pytest.mark.django_db

QUERY = directions(1, seed=3)[0]


@pytest.fixture
def alice():
    return a_person()


def nearest_to_query(user, *, limit):
    scope = Scope(user, (Corpus.CHAT,))
    return stored.nearest(scope, model=get_embedder().name, vector=QUERY, limit=limit, further=0.0)


@pytest.mark.medium
@pytest.mark.parametrize("packed", [0, 7, 10, 203, 500])
def test_the_order_is_that_of_a_brute_force_ranking_whether_in_blocks_or_loose(alice, packed):
    vectors, others = directions(500, seed=1), directions(500, seed=2)
    bob = a_person("bob@example.com")
    fill(bob, others)
    source = fill(alice, vectors[:packed])
    pack_all()
    rest = fill(alice, vectors[packed:])
    places = {
        row.source_id: start for row, start in [*((row, 0) for row in source[:1]), *((row, packed) for row in rest[:1])]
    }
    ranking = by_brute_force(vectors, QUERY)
    for limit in (1, 10, 60, 300, 600):
        hits, _ = nearest_to_query(alice, limit=limit)
        assert [places[hit.key[0]] + hit.key[1] - 1 for hit in hits] == ranking[:limit], limit


@pytest.mark.medium
@pytest.mark.parametrize("oldest", ["nearest", "farthest", "all alike"])
def test_the_order_is_exact_however_unlike_the_others_the_oldest_are(alice, oldest):
    vectors = directions(500, seed=1)
    vectors = vectors[by_brute_force(vectors, QUERY)]
    if oldest == "farthest":
        vectors = vectors[::-1]
    if oldest == "all alike":
        vectors[:300] = vectors[0]
    fill(alice, vectors)
    pack_all()
    for limit in (10, 60, 300, 600):
        assert nearest(alice, QUERY, limit=limit) == by_brute_force(vectors, QUERY)[:limit], limit


def test_of_a_block_only_what_was_said_in_time_is_found(alice):
    vectors = directions(95, seed=1)
    fill(alice, vectors)
    pack_all()
    first, last = 17, 92
    period = {"since": NOW + timedelta(hours=first), "until": NOW + timedelta(hours=last)}
    requested = [place for place in by_brute_force(vectors, QUERY) if first <= place < last]
    assert nearest(alice, QUERY, limit=95, **period) == requested
    assert nearest(alice, QUERY, limit=5, **period) == requested[:5]


def test_hits_keep_their_order_and_figures_when_their_distances_are_measured(alice):
    turns = [a_turn(alice, text) for text in ("I adopted a cat", "My cat sleeps", "A dog barks", "The cat ran off")]
    index.embed_pending()
    later = a_turn(alice, "One more cat")
    scope, query = Scope(alice, (Corpus.CHAT,)), get_embedder().embed_query("cat")
    hits, _ = scoring.score(scope, query="cat", limit=10)
    keys = {(turn.conversation_id, turn.turn_number) for turn in (*turns, later)}
    arguments = {"model": get_embedder().name, "vector": query, "further": 0.0, "hits": hits}

    alone, unrelated, pending, _ = stored.distances(scope, passages=0, **arguments)
    assert [hit._replace(distance=None, user_distance=None) for hit in alone] == hits
    assert [hit.key for hit in alone if hit.distance is None] == [(later.conversation_id, later.turn_number)]
    assert (unrelated is None, pending) == (False, 1)

    both, *_ = stored.distances(scope, passages=100, **arguments)
    assert [hit.key for hit in both[: len(hits)]] == [hit.key for hit in hits]
    (dog,) = both[len(hits) :]
    assert {hit.key for hit in both} == keys
    assert (dog.key, dog.shares_terms) == ((turns[2].conversation_id, turns[2].turn_number), False)


@pytest.mark.parametrize(("dimensions", "in_a_block"), [(3, 10), (384, 10), (768, 5), (1024, 3), (1300, 3)])
def test_vectors_of_every_size_are_scanned_in_blocks_that_fit_a_page(alice, dimensions, in_a_block):
    model = EmbeddingModel.objects.create(name="other", dimensions=dimensions)
    vectors, query = directions(31, seed=1, dimensions=dimensions), directions(1, seed=3, dimensions=dimensions)[0]
    fill(alice, vectors, model=model)
    pack_all()
    assert VectorBlock.objects.count() == 31 // in_a_block
    assert nearest(alice, query, limit=31, model="other") == by_brute_force(vectors, query)


@pytest.mark.extended
@pytest.mark.django_db(transaction=True)
def test_the_plan_reads_the_persons_own_blocks_and_loose_rows_alone():
    for number in range(3):
        fill(a_person(f"person{number}@example.com"), directions(405, seed=number))
    alice = a_person()
    fill(alice, directions(1205, seed=99))
    pack_all()
    with connection.cursor() as cursor:
        cursor.execute("VACUUM ANALYZE embeddings, embedding_blocks")
    # How it reads an index is not asserted: that depends on what snapshots other connections to the test database hold
    # while it is vacuumed.
    with acting_as(alice), plans("WITH asked") as explained:
        nearest_to_query(alice, limit=10)
    (plan,) = explained
    for name in ("idx_embedding_blocks_scan", "idx_embeddings_loose"):
        assert re.search(rf"Scan (using|on) {name}.*\n *Index Cond: \(\(user_id = {alice.pk}\)", plan), plan
