"""From the row that a text's words are saved in to the postings: nothing is lost, doubled or left of what is deleted."""

from concurrent.futures import ThreadPoolExecutor
from threading import Event

import pytest
from django.db import connection, transaction
from django.db.models import Count, Sum

from core.isolation.acting import acting_as
from core.testing.examiner import as_a_worker
from intake.models import Turn, User
from intake.tests.factories import a_person, a_turn
from memory import indexing
from memory.models import Corpus, IndexedText, Posting, TextTotals, UnpostedWords
from memory.models.corpora import Scope
from memory.recounting import sweep
from memory.terms import flush, score
from memory.tests.indexed import words
from memory.tests.threads import at_once

pytestmark = pytest.mark.django_db


@pytest.fixture
def alice():
    return a_person()


def assert_counted():
    """The totals and what is not posted yet are all texts there are, no more and no less."""
    counts = {"texts": Count("pk"), "said": Sum("said_length"), "answered": Sum("answered_length")}
    posted = IndexedText.objects.exclude(pk__in=UnpostedWords.objects.values("pk"))
    wanted = {
        (row["user"], row["corpus"]): (row["texts"], row["said"], row["answered"])
        for row in posted.values("user", "corpus").annotate(**counts)
    }
    totals = {
        (row.user_id, row.corpus): (row.texts, row.said_length, row.answered_length)
        for row in TextTotals.objects.exclude(texts=0)
    }
    assert totals == wanted
    assert not TextTotals.objects.filter(texts=0).exclude(said_length=0, answered_length=0).exists()
    assert set(Posting.objects.values_list("text", flat=True)) <= set(posted.values_list("pk", flat=True))


def search(user, query):
    return [hit.key[1] for hit in score(Scope(user, (Corpus.CHAT,)), query=query, limit=100).hits]


def test_saving_a_turn_writes_its_words_in_one_row_and_no_posting(alice):
    a_turn(alice, "The cat likes cats", "A cat is a feline")
    assert not Posting.objects.exists()
    (row,) = UnpostedWords.objects.all()
    kept = sorted(zip(row.lexemes, row.said, row.answered, strict=True))
    assert kept == [("cat", 0, 1), ("cat", 2, 0), ("felin", 0, 1), ("like", 1, 0)]
    assert (row.said_length, row.answered_length) == (3, 2)
    assert_counted()


def test_a_worker_posts_words_before_it_makes_vectors_and_with_its_own_rights(alice):
    a_turn(alice, "I adopted a cat")
    a_turn(alice, "What was it?", "It was.")
    with as_a_worker():
        indexing.embed_pending()
    assert not UnpostedWords.objects.exists()
    assert set(Posting.objects.values_list("lexeme", flat=True)) == {"adopt", "cat", "note"}
    assert TextTotals.objects.get().texts == 2
    assert_counted()


def test_words_are_posted_while_the_model_is_away(alice, monkeypatch):
    from memory.embedders import EmbedderUnavailable, get_embedder

    def away(_):
        raise EmbedderUnavailable("The endpoint answered 503.")

    monkeypatch.setattr(get_embedder(), "embed_documents", away)
    a_turn(alice, "I adopted a cat")
    indexing.embed_pending()
    assert not UnpostedWords.objects.exists()
    assert_counted()


def test_posting_again_changes_nothing(alice):
    a_turn(alice, "I adopted a cat")
    assert flush() == 1
    before = words()
    assert flush() == 0
    assert words() == before
    assert_counted()


def test_more_than_is_taken_at_once_is_posted_in_turns(alice, monkeypatch):
    monkeypatch.setattr("memory.terms.BATCH_TEXTS", 2)
    for number in range(5):
        a_turn(alice, f"Turn {number}")
    assert flush() == 5
    assert_counted()


@pytest.mark.parametrize("deleted", [0, 1, 2])
def test_a_deleted_turn_is_no_longer_counted_whether_its_words_were_posted_or_not(alice, deleted):
    turns = [a_turn(alice, "cat"), a_turn(alice, "dog")]
    flush()
    turns.append(a_turn(alice, "bird"))
    with acting_as(alice):
        Turn.objects.get(pk=turns[deleted].pk).delete()
    assert_counted()
    flush()
    assert_counted()
    assert set(words()) == {"cat", "dog", "bird", "note"} - {["cat", "dog", "bird"][deleted]}


def test_what_is_deleted_in_the_database_itself_is_not_found_and_counted_no_more_after_a_sweep(alice):
    turns = [a_turn(alice, text) for text in ("cat", "dog", "bird")]
    flush()
    turns.append(a_turn(alice, "fish"))
    with connection.cursor() as cursor:
        cursor.execute("DELETE FROM intake_conversation_turns WHERE id = ANY(%s)", [[turns[1].pk, turns[3].pk]])
    assert set(words()) == {"cat", "bird", "note"}
    assert search(alice, "dog fish") == []
    with as_a_worker():
        assert (sweep(), sweep()) == (1, 0)
    assert_counted()
    assert TextTotals.objects.get().texts == 2


def test_a_turn_that_changes_is_counted_once(alice):
    turn = a_turn(alice, "I adopted a cat")
    flush()
    turn.user_message = "We adopted two quiet dogs"
    turn.save()
    assert_counted()
    flush()
    assert TextTotals.objects.get().texts == 1
    assert_counted()


def test_a_deleted_person_leaves_neither_words_nor_totals(alice):
    a_turn(alice, "I adopted a cat")
    flush()
    a_turn(alice, "I adopted a dog")
    alice.delete()
    for model in (IndexedText, Posting, UnpostedWords, TextTotals):
        assert not model.objects.exists()


def test_words_that_are_posted_are_found_as_before(alice):
    turns = [a_turn(alice, f"cat {'dog ' * number}", conversation=None) for number in range(4)]
    assert len(turns) == 4
    before = score(Scope(alice, (Corpus.CHAT,)), query="cat dog", limit=100).hits
    flush()
    assert score(Scope(alice, (Corpus.CHAT,)), query="cat dog", limit=100).hits == before != []


@pytest.mark.django_db(transaction=True)
def test_of_workers_that_post_at_once_each_text_is_posted_by_one(alice):
    bob = a_person("bob@example.com")
    for number in range(40):
        a_turn(alice if number % 3 else bob, f"Turn {number}")

    def work():
        with as_a_worker():
            return flush()

    assert all(isinstance(posted, int) for posted in at_once(*[work] * 4))
    work()
    assert not UnpostedWords.objects.exists()
    assert sorted(TextTotals.objects.values_list("texts", flat=True)) == [14, 26]
    assert_counted()


@pytest.mark.django_db(transaction=True)
def test_a_turn_deleted_while_its_words_are_posted_leaves_none(alice):
    turn = a_turn(alice, "Forget this")
    a_turn(alice, "Keep that")
    is_posted, is_deleting = Event(), Event()

    def post_and_wait():
        with as_a_worker(), transaction.atomic():
            flush()
            is_posted.set()
            assert is_deleting.wait(10)
            # Long enough for the deletion to reach the rows that are held here.
            with connection.cursor() as cursor:
                cursor.execute("SELECT pg_sleep(0.3)")

    def delete():
        assert is_posted.wait(10)
        is_deleting.set()
        with acting_as(alice):
            Turn.objects.get(pk=turn.pk).delete()

    assert at_once(post_and_wait, delete) == [None, None]
    assert set(words()) == {"keep", "note"}
    assert_counted()


@pytest.mark.django_db(transaction=True)
def test_what_somebody_is_deleting_is_left_to_them(alice):
    turn = a_turn(alice, "Forget this")
    a_turn(alice, "Keep that")
    with acting_as(alice), transaction.atomic():
        Turn.objects.get(pk=turn.pk).delete()
        with ThreadPoolExecutor(1) as thread:

            def work():
                try:
                    with as_a_worker():
                        return flush()
                finally:
                    connection.close()

            assert thread.submit(work).result(timeout=10) == 1
    assert set(words()) == {"keep", "note"}
    assert User.objects.count() == 1
    assert_counted()
