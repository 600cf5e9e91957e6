"""Searching one's own turns by meaning: the right order, one result a turn, nobody else's, and a plan that scales."""

import re

import numpy as np
import pytest
from django.db import connection

from intake.acting import acting_as
from intake.models import Turn
from intake.tests.factories import a_person, a_turn
from memory import indexing
from memory.embedders import EmbedderUnavailable, get_embedder
from memory.errors import EmbeddingModelAway
from memory.models import Corpus, Embedding, EmbeddingModel
from memory.search import SearchMode, hybrid, search_chat_history
from memory.search.dense import nearest_parts
from memory.search.scope import Scope
from memory.tests.plans import plans

pytestmark = pytest.mark.django_db


def search(user, query, limit=5):
    return search_chat_history(user=user, query=query, limit=limit)


def test_the_nearest_turn_comes_first_with_its_snippet_and_distance():
    alice = a_person()
    cat = a_turn(alice, "I adopted a cat named Miso")
    a_turn(alice, "The quarterly report is due on Friday")
    indexing.embed_pending()
    found = search(alice, "adopted a cat")
    assert found.matches[0].snippet == "I adopted a cat named Miso"
    assert found.matches[0].conversation_id == cat.conversation_id
    assert 0 <= found.matches[0].score < found.matches[1].score <= 2


def test_nobody_elses_turns_are_found():
    alice, bob = a_person("alice@example.com"), a_person("bob@example.com")
    a_turn(bob, "I adopted a cat named Miso")
    indexing.embed_pending()
    assert search(alice, "adopted a cat").matches == []


def test_a_long_turn_is_one_result_by_its_nearest_part():
    alice = a_person()
    a_turn(alice, "Tell me a story", "Once upon a time there was a fox. " * 300 + "The lighthouse keeper waved.")
    indexing.embed_pending()
    assert Embedding.objects.count() > 1
    assert len(search(alice, "lighthouse keeper").matches) == 1


def test_a_turn_of_many_near_parts_crowds_nobody_out():
    alice = a_person()
    a_turn(alice, "Tell me about foxes", "The fox sat by the fox and saw a fox. " * 400)
    a_turn(alice, "A fox crossed our garden")
    indexing.embed_pending()
    assert len(search(alice, "fox", limit=2).matches) == 2


def test_a_snippet_is_the_first_200_characters_of_what_the_person_said():
    alice = a_person()
    a_turn(alice, "cat " * 100)
    indexing.embed_pending()
    assert search(alice, "cat").matches[0].snippet == ("cat " * 100)[:200]


def test_turns_without_a_vector_are_counted_once_each_however_many_parts_they_have():
    alice = a_person()
    a_turn(alice, "First")
    a_turn(alice, "Second", "A long answer that needs several parts. " * 200)
    assert search(alice, "first").pending == 2
    indexing.embed_pending()
    assert search(alice, "first").pending == 0


def test_a_turn_deleted_a_moment_ago_is_no_result():
    alice = a_person()
    turn = a_turn(alice, "I adopted a cat")
    indexing.embed_pending()
    Turn.objects.filter(pk=turn.pk).delete()
    assert search(alice, "cat").matches == []


def test_vectors_of_another_model_are_never_compared():
    alice = a_person()
    a_turn(alice, "I adopted a cat")
    indexing.embed_pending()
    Embedding.objects.update(model=EmbeddingModel.objects.create(name="another", dimensions=384))
    assert search(alice, "cat").matches == []


def test_a_model_that_is_away_is_said_so(monkeypatch):
    def away(_):
        raise EmbedderUnavailable("The endpoint answered 503.")

    monkeypatch.setattr(get_embedder(), "embed_query", away)
    with pytest.raises(EmbeddingModelAway):
        search(a_person(), "cat")


def directions(count, seed):
    vectors = np.random.default_rng(seed).normal(size=(count, 384)).astype(np.float32)
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


def fill_with_vectors(user, count, seed):
    return fill(user, directions(count, seed), seed)


def fill(user, vectors, seed=0):
    """An embedded row for each, without their turns, straight into the table and in this order."""
    embedder = get_embedder()
    model = EmbeddingModel.objects.for_embedder(embedder)
    turns = [a_turn(user, f"Row {seed}")]
    Embedding.objects.filter(source_id=turns[0].conversation_id).delete()
    Embedding.objects.bulk_create(
        Embedding(
            user=user,
            corpus=Corpus.CHAT,
            source_id=turns[0].conversation_id,
            chunk_index=number + 1,
            model=model,
            vector=vector,
            length=1,
            content_hash=b"0" * 16,
            said_at=turns[0].said_at,
            embedded_at=turns[0].said_at,
        )
        for number, vector in enumerate(vectors)
    )
    return vectors


def test_the_order_is_that_of_a_brute_force_ranking():
    alice, bob = a_person("alice@example.com"), a_person("bob@example.com")
    vectors = fill_with_vectors(alice, 500, seed=1)
    fill_with_vectors(bob, 500, seed=2)
    query = np.random.default_rng(3).normal(size=384).astype(np.float32)
    assert nearest(alice, query, limit=20) == by_brute_force(vectors, query)[:20]


def nearest(user, query, limit):
    parts = nearest_parts(Scope(user, (Corpus.CHAT,)), model=get_embedder().name, vector=query, limit=limit)
    return [chunk_index - 1 for _, chunk_index, _ in parts]


def by_brute_force(vectors, query):
    # Both are stored and sent in half precision.
    halves, half = vectors.astype(np.float16).astype(np.float64), query.astype(np.float16).astype(np.float64)
    distances = 1 - halves @ half / (np.linalg.norm(halves, axis=1) * np.linalg.norm(half))
    return list(np.argsort(distances, kind="stable"))


@pytest.mark.parametrize("limit", [10, 60, 300, 600])
@pytest.mark.parametrize("oldest", ["nearest", "farthest", "all alike"])
def test_the_order_is_exact_however_unlike_the_others_the_oldest_are(oldest, limit):
    alice = a_person()
    query, vectors = directions(1, seed=3)[0], directions(500, seed=1)
    vectors = vectors[by_brute_force(vectors, query)]
    if oldest == "farthest":
        vectors = vectors[::-1]
    if oldest == "all alike":
        vectors[:300] = vectors[0]
    fill(alice, vectors)
    assert nearest(alice, query, limit) == by_brute_force(vectors, query)[:limit]


@pytest.mark.django_db(transaction=True)
def test_the_plan_is_an_index_only_scan_with_the_user_in_the_index_condition():
    for number in range(8):
        fill_with_vectors(a_person(f"person{number}@example.com"), 300, seed=number)
    alice = a_person()
    fill_with_vectors(alice, 300, seed=99)
    with connection.cursor() as cursor:
        cursor.execute("VACUUM ANALYZE embeddings")
    # How many rows it looks up in the table all the same is not asserted: that depends on what snapshots other
    # connections to the test database hold while it is vacuumed.
    query = np.ones(384, dtype=np.float32)
    with acting_as(alice), plans("WITH sample") as explained:
        nearest_parts(Scope(alice, (Corpus.CHAT,)), model=get_embedder().name, vector=query, limit=10)
    (plan,) = explained
    assert re.search(r"Index Only Scan using idx_embeddings_scan", plan), plan
    assert re.search(rf"Index Cond: \(\(user_id = {alice.pk}\)", plan), plan


def by_both(user, query, limit=5):
    return search_chat_history(user=user, query=query, limit=limit, mode=SearchMode.HYBRID)


def test_hybrid_finds_a_turn_by_its_words_from_the_moment_it_is_saved():
    alice = a_person()
    a_turn(alice, "I adopted a cat named Miso")
    found = by_both(alice, "Miso")
    assert [(match.snippet, match.score) for match in found.matches] == [("I adopted a cat named Miso", 1.0)]
    assert found.pending == 1


def test_hybrid_finds_by_meaning_what_shares_no_stemmed_word():
    alice = a_person()
    a_turn(alice, "What is it about?", "")
    indexing.embed_pending()
    assert len(by_both(alice, "about what").matches) == 1


def test_hybrid_gives_a_distance_also_to_what_only_the_words_found(monkeypatch):
    monkeypatch.setattr(hybrid, "PARTS_BY_MEANING", 1)
    alice = a_person()
    a_turn(alice, "adopted", "")
    a_turn(alice, "I adopted a cat named Miso in the rainy spring of that year", "")
    indexing.embed_pending()
    expected = {match.snippet: match.score for match in search(alice, "adopted").matches}
    found = {match.snippet: match.score for match in by_both(alice, "adopted").matches}
    assert len(found) == 2
    assert found == pytest.approx(expected)


def test_hybrid_gives_one_result_a_turn_and_holds_the_limit():
    alice = a_person()
    for number in range(8):
        a_turn(alice, f"Fox number {number}", "The fox sat by the fox. " * 200)
    indexing.embed_pending()
    keys = [(match.conversation_id, match.turn_number) for match in by_both(alice, "fox", limit=6).matches]
    assert len(keys) == len(set(keys)) == 6


def test_hybrid_finds_nobody_elses_turns():
    alice, bob = a_person("alice@example.com"), a_person("bob@example.com")
    a_turn(bob, "I adopted a cat named Miso")
    indexing.embed_pending()
    a_turn(bob, "Miso sleeps")
    assert by_both(alice, "Miso the cat").matches == []


def test_hybrid_shows_no_turn_that_was_deleted_past_every_signal():
    alice = a_person()
    turn = a_turn(alice, "I adopted a cat")
    indexing.embed_pending()
    Turn.objects.filter(pk=turn.pk)._raw_delete("default")
    assert by_both(alice, "cat").matches == []


def test_hybrid_asks_the_database_once_a_leg(django_assert_num_queries):
    alice = a_person()
    a_turn(alice, "I adopted a cat")
    indexing.embed_pending()
    with django_assert_num_queries(4):  # words, vectors, snippets, how many wait
        by_both(alice, "cat")


@pytest.mark.parametrize("mode", SearchMode)
@pytest.mark.parametrize(
    "query", ["100%", "a_b", "it's", '"quoted"', "\\", "'; drop table", "🐈", "猫", "the", "x" * 500]
)
def test_no_query_is_too_odd_in_any_mode(mode, query):
    alice = a_person()
    a_turn(alice, "I adopted a cat")
    indexing.embed_pending()
    found = search_chat_history(user=alice, query=query, limit=5, mode=mode)
    assert len(found.matches) == (mode is not SearchMode.LEXICAL)
