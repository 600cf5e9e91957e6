"""All of a long text is found by meaning: every passage has a vector, and none keeps other texts, or people, waiting."""

from dataclasses import replace
from datetime import timedelta
from typing import ClassVar

import numpy as np
import pytest
from django.utils import timezone

from core.isolation.acting import acting_as
from intake.tests.factories import NOW, a_person, a_turn
from memory import index, records
from memory.backends.embedders import TUNED, FakeEmbedder, get_embedder
from memory.backends.rerankers import Reranker
from memory.chunking import CUTTING_RULES, Side
from memory.index import vectors
from memory.index.vectors import Meaning
from memory.models import Corpus, Embedding, EmbeddingModel
from memory.models.documents import Scope
from memory.search import SearchMode, search_chat_history
from memory.search.history import HistoryRequest, search_history
from memory.tests.rows import a_place
from memory.tests.vectors import directions

pytestmark = pytest.mark.django_db

FOX = "Once upon a time there was a fox. "
LIGHTHOUSE = "The lighthouse keeper waved. "
LONG_ANSWER = 500_000


def long_turn(user, *, characters=40_000, said="Tell me a story", at=NOW):
    """A fact in the middle of a long answer."""
    half = FOX * (characters // 2 // len(FOX))
    return a_turn(user, said, half + "\n\n" + LIGHTHOUSE * 20 + "\n\n" + half, said_at=at)


def search(user, query, *, limit=5, mode=SearchMode.SEMANTIC):
    with acting_as(user):
        return search_chat_history(user=user, query=query, limit=limit, mode=mode).matches


@pytest.mark.parametrize("mode", [SearchMode.SEMANTIC, SearchMode.HYBRID])
def test_a_fact_deep_in_a_long_answer_is_found_by_meaning(mode):
    alice = a_person()
    for number in range(20):
        a_turn(alice, f"Note {number}: we bought apples")
    turn = long_turn(alice)
    index.embed_pending()
    assert search(alice, "lighthouse keeper waved", mode=mode)[0].key[0] == turn.conversation_id


@pytest.mark.extended
def test_every_character_of_the_longest_texts_is_in_a_passage_with_a_vector():
    message, answer = ("word " * 6_400)[:32_000], ("An answer of words. " * 25_000)[:LONG_ANSWER]
    a_turn(a_person(), message, answer)
    index.embed_pending()
    assert not Embedding.objects.filter(vector=None).exists()
    for side, text in ((Side.USER, message), (Side.ASSISTANT, answer)):
        end = 0
        for row in Embedding.objects.filter(side=side).order_by("part").defer("vector"):
            assert row.start <= end < row.start + row.length
            end = row.start + row.length
        assert end == len(text.rstrip())


def test_a_long_answer_is_not_cut_again_for_each_batch(monkeypatch, settings):
    settings.EMBEDDING_BATCH_SIZE = 4
    long_turn(a_person())
    embedder, read = get_embedder(), []
    real = embedder.token_offsets
    monkeypatch.setattr(embedder, "token_offsets", lambda text, most=None: read.append(len(text)) or real(text, most))
    # What the model itself reads is not counted.
    monkeypatch.setattr(embedder, "embed_documents", lambda texts: directions(len(texts), seed=len(read)))
    index.embed_pending()
    assert not Embedding.objects.filter(vector=None).exists()
    assert max(read) < 1_000


def test_what_is_further_on_waits_behind_everything_else_of_the_persons(settings):
    settings.EMBEDDING_BATCH_SIZE = 4
    alice = a_person()
    earlier = [a_turn(alice, f"Said before {number}", said_at=NOW - timedelta(days=number)) for number in range(1, 6)]
    long_turn(alice)
    taken = []
    while rows := index.claim(embedder=get_embedder(), now=timezone.now()):
        taken += rows
    assert [row.is_further for row in taken] == sorted(row.is_further for row in taken)
    first = {row.source_id for row in taken[: 2 + len(earlier)]}
    assert {turn.conversation_id for turn in earlier} <= first
    assert len(taken) > 20


def test_what_somebody_else_says_does_not_wait_for_a_long_answer(settings):
    settings.EMBEDDING_BATCH_SIZE = 4
    long_turn(a_person())
    bob = a_person("bob@example.com")
    turn = a_turn(bob, "Mine", said_at=NOW - timedelta(days=30))
    claimed = index.claim(embedder=get_embedder(), now=timezone.now())
    assert turn.conversation_id in {row.source_id for row in claimed}


def test_what_older_rules_have_cut_is_cut_again_and_keeps_the_vectors_that_still_fit(monkeypatch):
    alice = a_person()
    long_turn(alice)
    kept = a_turn(alice, "Short and cut by the rules of today")
    index.embed_pending()
    rows = Embedding.objects.exclude(source_id=kept.conversation_id)
    count = rows.count()
    rows.filter(is_further=True).delete()
    rows.update(cutting_rules=CUTTING_RULES - 1)

    assert index.enqueue_missing(now=timezone.now()) == 1
    assert rows.count() == count
    assert set(Embedding.objects.values_list("cutting_rules", flat=True)) == {CUTTING_RULES}
    assert not rows.filter(is_further=False, vector=None).exists()
    assert not rows.filter(is_further=True).exclude(vector=None).exists()
    assert index.enqueue_missing(now=timezone.now()) == 0
    index.embed_pending()
    assert len(search(alice, "lighthouse keeper waved", limit=1)) == 1


def test_a_pending_row_of_older_rules_is_never_embedded(monkeypatch):
    long_turn(a_person())
    Embedding.objects.update(cutting_rules=CUTTING_RULES - 1)
    index.embed_pending()
    assert set(Embedding.objects.values_list("cutting_rules", flat=True)) == {CUTTING_RULES}
    assert not Embedding.objects.filter(vector=None).exists()


# -- One text of many passages beside many of one ----------------------------------------------------------------------


def fill(user, made, *, passages_each=1, first=1, further=False):
    """A text for every `passages_each` of the vectors."""
    numbers = range(first, first + len(made) // passages_each)
    source_id = a_place(user, turns=numbers)
    model = EmbeddingModel.named(get_embedder().name, get_embedder().dimensions)
    Embedding.objects.bulk_create(
        Embedding(
            user=user,
            corpus=Corpus.CHAT,
            source_id=source_id,
            chunk_index=first + number // passages_each,
            part=number % passages_each,
            side=Side.ASSISTANT,
            start=100 * (number % passages_each),
            length=100,
            is_further=further and number % passages_each > 0,
            model=model,
            vector=vector,
            content_hash=b"0" * 16,
            said_at=NOW,
            embedded_at=NOW,
        )
        for number, vector in enumerate(made)
    )
    return source_id


@pytest.fixture
def crowded():
    """A person with a text of 300 passages, each nearer to the query than all of the other 60 texts."""
    alice, query = a_person(), directions(1, seed=3)[0]
    near = query + 0.02 * directions(300, seed=1)
    long = fill(alice, near / np.linalg.norm(near, axis=1, keepdims=True), passages_each=300, further=True)
    others = directions(60, seed=2)
    source = fill(alice, others)
    order = np.argsort(-(others.astype(np.float16).astype(float) @ query.astype(np.float16).astype(float)))
    return alice, query, long, [(source, int(place) + 1) for place in order]


@pytest.mark.parametrize("limit", [1, 2, 10, 61])
def test_a_text_of_300_passages_is_one_hit_and_crowds_nobody_out(crowded, limit):
    alice, query, long, others = crowded
    hits, _ = vectors.nearest(Scope(alice, (Corpus.CHAT,)), Meaning(get_embedder(), query), limit=limit)
    assert [hit.key for hit in hits] == [(long, 1), *others][:limit]


@pytest.mark.medium
@pytest.mark.parametrize("mode", [SearchMode.SEMANTIC, SearchMode.HYBRID])
def test_a_text_of_300_passages_leaves_the_others_among_the_candidates(mode):
    alice = a_person()
    for number in range(40):
        a_turn(alice, f"We met a vixen, number {number}")
    a_turn(alice, "Tell me about foxes", "The fox sat by the fox and saw a fox. " * 5_000)
    index.embed_pending()
    assert Embedding.objects.filter(is_further=True).count() > 150
    # No word in common with the query: by their vectors alone.
    assert len(search(alice, "fox", limit=30, mode=mode)) == 30


@pytest.mark.parametrize("with_bits", [False, True])
@pytest.mark.parametrize("further", [0.0, 0.06, 0.5])
def test_further_passages_count_as_so_much_farther(with_bits, further):
    alice, query = a_person(), directions(1, seed=3)[0]
    made = directions(400, seed=1)
    source = fill(alice, made, passages_each=4, further=True)
    if with_bits:
        vectors.add_missing_bits()
    distances = 1 - made.astype(np.float16).astype(float) @ query.astype(np.float16).astype(float)
    distances = distances.reshape(100, 4) + np.array([0, further, further, further])
    order = [int(place) + 1 for place in np.argsort(distances.min(axis=1), kind="stable")]
    scope, embedder = Scope(alice, (Corpus.CHAT,)), FakeEmbedder()
    embedder.calibration = replace(TUNED, further=further)
    hits, _ = vectors.nearest(scope, Meaning(embedder, query), limit=20)
    assert [hit.key[1] for hit in hits] == order[:20]
    assert [hit.distance for hit in hits] == pytest.approx(np.sort(distances.min(axis=1))[:20], abs=2e-3)

    keys = [(source, number) for number in range(1, 101)]
    spans = vectors.nearest_passages(scope, Meaning(embedder, query), keys)
    assert [spans[key].start // 100 for key in keys] == list(distances.argmin(axis=1))


# -- What is shown of it -----------------------------------------------------------------------------------------------


def meaning(monkeypatch, text):
    """Everything is indexed, and from now on a question means the text, without a word in common with it."""
    index.embed_pending()
    embedder = get_embedder()
    asked = embedder.embed_query(text)
    monkeypatch.setattr(embedder, "embed_query", lambda text: asked)


def shown(user, query):
    index.embed_pending()
    with acting_as(user):
        (result,) = search_history(HistoryRequest(query=query, max_results=1), user=user, now=NOW).results
    return result.excerpt.text


OTHER_WORDS = "Captain Silver hid the chest beneath palm trees. " * 20


@pytest.mark.parametrize("characters", [40_000, pytest.param(LONG_ANSWER, marks=pytest.mark.extended)])
def test_an_excerpt_opens_at_the_passage_that_was_found_by_its_meaning(characters, monkeypatch):
    alice = a_person()
    half = FOX * (characters // 2 // len(FOX))
    a_turn(alice, "Tell me a story", half + "\n\n" + OTHER_WORDS + "\n\n" + half)
    meaning(monkeypatch, OTHER_WORDS)
    assert "beneath palm trees" in shown(alice, "pirate treasure")


def test_an_excerpt_is_of_the_place_that_has_the_querys_words_when_the_passage_has_none(monkeypatch):
    alice = a_person()
    half = FOX * 200
    a_turn(alice, "Tell me a story", half + "\n\n" + OTHER_WORDS + "\n\n" + half + "The treasure of a pirate.")
    meaning(monkeypatch, OTHER_WORDS)
    assert shown(alice, "pirate treasure").endswith("The treasure of a pirate.")


@pytest.mark.extended
def test_the_letters_of_the_query_are_shown_wherever_they_are():
    alice = a_person()
    half = FOX * (LONG_ANSWER // 2 // len(FOX))
    a_turn(alice, "Tell me a story", half + OTHER_WORDS + half + "Order 4711-XY.")
    assert shown(alice, "4711-XY").endswith("Order 4711-XY.")


def test_a_record_opens_at_its_passage_too(monkeypatch):
    alice = a_person()
    with acting_as(alice):
        records.create(user=alice, content=FOX * 400 + "\n\n" + OTHER_WORDS + "\n\n" + FOX * 200, now=NOW)
    meaning(monkeypatch, OTHER_WORDS)
    assert "beneath palm trees" in shown(alice, "pirate treasure")


class ListeningReranker(Reranker):
    read: ClassVar[list[str]] = []

    def scores(self, query, texts, *, seconds):
        self.read.extend(texts)
        return [0.0] * len(texts)


def test_the_reranker_reads_the_passage_that_was_found(monkeypatch, settings):
    settings.RERANKER = {"BACKEND": f"{__name__}.ListeningReranker"}
    alice = a_person()
    half = FOX * 600
    a_turn(alice, "Tell me a story", half + "\n\n" + OTHER_WORDS + "\n\n" + half)
    index.embed_pending()
    meaning(monkeypatch, OTHER_WORDS)
    with acting_as(alice):
        search_chat_history(user=alice, query="pirate treasure", limit=1, mode=SearchMode.HYBRID, rerank=True)
    assert "beneath palm trees" in ListeningReranker.read[0]


# -- By its words ------------------------------------------------------------------------------------------------------


@pytest.mark.medium
@pytest.mark.parametrize(
    ("filler", "fact", "query"),
    [
        (FOX, "The treasure is under the zebra crossing.", "zebra"),
        ("狐狸住在森林里。", "斑马线下面有宝藏。", "斑马线"),
        ("x", " zebra", "zebra"),
        ("ABCD/EFG+", " zebra", "zebra"),
    ],
)
def test_the_end_of_the_longest_answer_is_found_by_its_words(filler, fact, query):
    alice = a_person()
    turn = a_turn(alice, "What is it?", (filler * (LONG_ANSWER // len(filler)))[: LONG_ANSWER - len(fact)] + fact)
    assert [hit.key[0] for hit in search(alice, query, mode=SearchMode.LEXICAL)] == [turn.conversation_id]


def test_as_many_different_words_as_a_text_can_have_are_kept():
    alice = a_person()
    a_turn(alice, "What is it?", " ".join(f"{number:x}z" for number in range(75_000)) + " zebra")
    assert len(search(alice, "zebra", mode=SearchMode.LEXICAL)) == 1


@pytest.mark.medium
def test_a_change_at_the_end_of_a_long_text_is_indexed():
    alice = a_person()
    turn = a_turn(alice, "What is it?", "Of words. " * 40_000)
    turn.assistant_message += "zebra"
    turn.save()
    assert len(search(alice, "zebra", mode=SearchMode.LEXICAL)) == 1
