"""From pending terms to segments, merged and rewritten: nothing is lost, doubled or left of what is deleted."""

import re
from concurrent.futures import ThreadPoolExecutor
from threading import Event

import pytest
from django.db import connection, transaction

from core.isolation.acting import acting_as
from intake.chats.deleting import delete_account
from intake.models import Turn, User
from intake.tests.factories import a_person, a_turn
from memory.index.scoring import score
from memory.index.segments import MOST_TEXTS, flush, mark_lost, purge, segments_to_merge
from memory.models import Corpus, DeletedText, IndexedText, PendingTerms, TermBlock, TermSegment
from memory.models.documents import Scope
from memory.tasks import embed_pending, flush_terms
from memory.tests.indexed import postings, stored_postings, words
from memory.tests.plans import plans
from memory.tests.threads import at_once
from testing.examiner import as_a_worker

pytestmark = pytest.mark.django_db


@pytest.fixture
def alice():
    return a_person()


def assert_counted():
    """Each text is pending or in one segment, under the lengths that it has; what is in none of them is deleted."""
    pending = list(PendingTerms.objects.values_list("user", "pk", "said_length", "answered_length"))
    flushed = [
        (segment.user_id, *text)
        for segment in TermSegment.objects.all()
        for text in zip(segment.text_ids, segment.said_lengths, segment.answered_lengths, strict=True)
    ]
    deleted = set(DeletedText.objects.values_list("user", "text_id"))
    kept = [text for text in flushed if text[:2] not in deleted]
    requested = IndexedText.objects.values_list("user", "pk", "said_length", "answered_length")
    assert sorted(pending + kept) == sorted(requested)
    assert {each[:2] for each in stored_postings()} <= {text[:2] for text in flushed}
    assert all(segment.texts for segment in TermSegment.objects.all())


def search(user, query):
    hits = score(Scope(user, (Corpus.CHAT,)), query=query, limit=100).hits
    return [hit.key[1] for hit in hits]


def test_saving_a_turn_writes_its_terms_in_one_row_and_no_segment(alice):
    a_turn(alice, "The cat likes cats", "A cat is a feline")
    assert not TermSegment.objects.exists()
    (row,) = PendingTerms.objects.all()
    kept = sorted(zip(row.lexemes, row.said, row.answered, strict=True))
    assert kept == [("cat", 0, 1), ("cat", 2, 0), ("felin", 0, 1), ("like", 1, 0)]
    assert (row.said_length, row.answered_length) == (3, 2)
    assert_counted()


def test_a_worker_flushes_terms_with_its_own_rights(alice):
    a_turn(alice, "I adopted a cat")
    a_turn(alice, "What was it?", "It was.")
    with as_a_worker():
        flush_terms()
    assert not PendingTerms.objects.exists()
    assert {each.lexeme for each in postings()} == {"adopt", "cat", "note"}
    assert TermSegment.objects.get().texts == 2
    assert_counted()


def test_terms_are_flushed_after_vectors_are_made_and_while_the_model_is_away(alice, monkeypatch):
    from memory.backends.embedders import EmbedderError, get_embedder

    def away(_):
        raise EmbedderError("The endpoint answered 503.")

    monkeypatch.setattr(flush_terms, "apply_async", lambda **_: flush_terms())
    a_turn(alice, "I adopted a cat")
    embed_pending()
    assert not PendingTerms.objects.exists()
    monkeypatch.setattr(get_embedder(), "embed_documents", away)
    a_turn(alice, "I adopted a dog")
    embed_pending()
    assert not PendingTerms.objects.exists()
    assert_counted()


def test_flushing_again_changes_nothing(alice):
    a_turn(alice, "I adopted a cat")
    assert flush() == 1
    before = words()
    assert flush() == 0
    assert words() == before
    assert_counted()


def test_the_texts_to_flush_are_chosen_once_however_few_the_planner_expects(alice):
    for number in range(5):
        a_turn(alice, f"Turn {number}")
    with acting_as(alice), plans("WITH pending") as explained:
        flush()
    # In a subquery PostgreSQL may choose them again for each pending row, which took minutes after a large import.
    for name in ("pending", "kept"):
        assert re.search(rf"CTE {name}\n.*?-> +LockRows [^\n]*loops=1\)", explained[0], re.DOTALL), explained[0]
    assert "Subquery Scan" not in explained[0].split("CTE text\n")[0], explained[0]


def test_more_than_is_taken_at_once_is_flushed_in_turns_and_merged(alice, monkeypatch):
    monkeypatch.setattr("memory.index.segments.BATCH_TEXTS", 2)
    for number in range(5):
        a_turn(alice, f"Turn {number}")
    assert flush() == 5
    assert sorted(TermSegment.objects.values_list("texts", flat=True)) == [1, 4]
    assert_counted()


@pytest.mark.parametrize("deleted", [0, 1, 2])
def test_a_deleted_turn_is_no_longer_counted_whether_its_terms_were_flushed_or_not(alice, deleted):
    turns = [a_turn(alice, "cat"), a_turn(alice, "dog")]
    flush()
    turns.append(a_turn(alice, "bird"))
    with acting_as(alice):
        Turn.objects.get(pk=turns[deleted].pk).delete()
    assert_counted()
    flush()
    assert_counted()
    assert set(words()) == {"cat", "dog", "bird", "note"} - {["cat", "dog", "bird"][deleted]}


@pytest.mark.parametrize("is_whole", [False, True])
def test_what_is_deleted_in_the_database_itself_is_not_found_and_after_a_sweep_neither_counted_nor_there(
    alice, is_whole
):
    turns = [a_turn(alice, text) for text in ("cat", "dog", "bird")]
    flush()
    turns.append(a_turn(alice, "fish"))
    gone = turns if is_whole else [turns[1], turns[3]]
    with connection.cursor() as cursor:
        cursor.execute("DELETE FROM intake_conversation_turns WHERE id = ANY(%s)", [[turn.pk for turn in gone]])
    assert search(alice, "dog fish") == []
    with as_a_worker():
        assert (mark_lost(alice.pk), mark_lost(alice.pk)) == (3 if is_whole else 1, 0)
    assert_counted()
    assert set(words()) == (set() if is_whole else {"cat", "bird", "note"})
    assert "dog" in {each.lexeme for each in stored_postings()}
    with as_a_worker():
        assert (purge(), purge()) == (1, 0)
    assert_counted()
    assert {each.lexeme for each in stored_postings()} == set(words())
    assert not any("dog" in block.lexemes for block in TermBlock.objects.all())
    assert not DeletedText.objects.exists()
    assert sum(TermSegment.objects.values_list("texts", flat=True)) == (0 if is_whole else 2)


def test_a_text_that_is_deleted_before_its_terms_are_flushed_leaves_no_tombstone(alice):
    a_turn(alice, "cat").delete()
    assert not DeletedText.objects.exists()


def test_a_worker_that_a_deletion_wakes_removes_its_terms(alice, django_capture_on_commit_callbacks, monkeypatch):
    turn = a_turn(alice, "Forget this")
    a_turn(alice, "Keep that")
    flush()
    woken = []
    monkeypatch.setattr("memory.index.writer.wake_worker", lambda: woken.append(True))
    with django_capture_on_commit_callbacks(execute=True):
        turn.delete()
    assert woken
    with as_a_worker():
        flush_terms()
    assert {each.lexeme for each in stored_postings()} == {"keep", "note"}


def test_a_merge_leaves_deleted_texts_behind(alice):
    turn = a_turn(alice, "Forget this")
    flush()
    turn.delete()
    a_turn(alice, "Keep that")
    flush()
    assert {each.lexeme for each in stored_postings()} == {"keep", "note"}
    assert_counted()


def test_a_turn_that_changes_is_counted_once(alice):
    turn = a_turn(alice, "I adopted a cat")
    flush()
    turn.user_message = "We adopted two quiet dogs"
    turn.save()
    assert_counted()
    assert search(alice, "cat") == []
    flush()
    assert TermSegment.objects.get().texts == 1
    assert_counted()


@pytest.mark.parametrize(
    ("sizes", "merged"),
    [
        ([], []),
        ([5], []),
        ([1, 1], [0, 1]),
        ([1, 3, 4], [0, 1, 2]),
        ([1, 4], []),
        ([1, 2, 10, 500], [0, 1]),
        ([200, 400, 8000], [0, 1]),
        ([MOST_TEXTS // 2, MOST_TEXTS // 2 + 1], []),
        ([MOST_TEXTS // 2, MOST_TEXTS // 2], [0, 1]),
    ],
)
def test_segments_are_merged_with_smaller_ones_until_they_are_as_large_as_may_be(sizes, merged):
    assert segments_to_merge(list(enumerate(sizes))) == merged


def test_a_history_has_few_segments_however_it_came_about(alice):
    conversation = None
    for number in range(24):
        conversation = a_turn(alice, f"cat number{number}", "", conversation=conversation).conversation
        flush()
    assert TermSegment.objects.count() <= 4
    assert len(search(alice, "cat")) == 24
    assert_counted()


def test_a_deleted_person_leaves_nothing(alice):
    a_turn(alice, "I adopted a cat")
    flush()
    a_turn(alice, "I adopted a dog")
    alice.delete()
    for model in (IndexedText, PendingTerms, TermSegment, TermBlock, DeletedText):
        assert not model.objects.exists()


def test_terms_that_are_flushed_are_found_as_before(alice):
    turns = [a_turn(alice, f"cat {'dog ' * number}", conversation=None) for number in range(4)]
    assert len(turns) == 4
    before = score(Scope(alice, (Corpus.CHAT,)), query="cat dog", limit=100)
    flush()
    assert score(Scope(alice, (Corpus.CHAT,)), query="cat dog", limit=100) == before
    assert len(before[0]) == 4


@pytest.mark.django_db(transaction=True)
def test_of_workers_that_flush_at_once_each_text_is_flushed_by_one(alice):
    bob = a_person("bob@example.com")
    for number in range(40):
        a_turn(alice if number % 3 else bob, f"Turn {number}")

    def work():
        with as_a_worker():
            return flush()

    assert sum(at_once(*[work] * 4)) <= 40
    work()
    assert not PendingTerms.objects.exists()
    assert len(postings(user=alice)) == 3 * 26
    assert_counted()


@pytest.mark.django_db(transaction=True)
def test_a_turn_deleted_while_its_terms_are_flushed_is_not_found(alice):
    turn = a_turn(alice, "Forget this")
    a_turn(alice, "Keep that")
    is_flushed, is_deleting = Event(), Event()

    def flush_and_wait():
        with as_a_worker(), transaction.atomic():
            flush()
            is_flushed.set()
            assert is_deleting.wait(10)
            # Long enough for the deletion to reach the rows that are held here.
            with connection.cursor() as cursor:
                cursor.execute("SELECT pg_sleep(0.3)")

    def delete():
        assert is_flushed.wait(10)
        is_deleting.set()
        with acting_as(alice):
            Turn.objects.get(pk=turn.pk).delete()

    assert at_once(flush_and_wait, delete) == [None, None]
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


@pytest.mark.django_db(transaction=True)
def test_a_deletion_waits_for_no_merge_and_is_not_undone_by_it(alice):
    turn = a_turn(alice, "Forget this")
    flush()
    a_turn(alice, "Keep that")
    is_merged, is_deleted = Event(), Event()

    def merge_and_wait():
        with as_a_worker(), transaction.atomic():
            flush()
            is_merged.set()
            assert is_deleted.wait(10)

    def delete():
        assert is_merged.wait(10)
        with acting_as(alice):
            Turn.objects.get(pk=turn.pk).delete()
        is_deleted.set()

    assert at_once(merge_and_wait, delete) == [None, None]
    assert {each.lexeme for each in stored_postings()} == {"forget", "keep", "note"}
    assert search(alice, "forget") == []
    assert_counted()
    purge()
    assert {each.lexeme for each in stored_postings()} == {"keep", "note"}
    assert not DeletedText.objects.exists()


@pytest.mark.django_db(transaction=True)
def test_an_account_deleted_while_its_terms_are_flushed_leaves_nothing_and_nobody_waits_for_ever(alice):
    a_turn(alice, "Forget this")
    flush()
    a_turn(alice, "And that")
    is_flushed = Event()

    def flush_slowly():
        with as_a_worker(), transaction.atomic():
            flush()
            is_flushed.set()
            with connection.cursor() as cursor:
                cursor.execute("SELECT pg_sleep(0.3)")

    def delete():
        assert is_flushed.wait(10)
        delete_account(user=alice)

    assert at_once(flush_slowly, delete) == [None, None]
    for model in (IndexedText, PendingTerms, TermSegment, TermBlock, DeletedText):
        assert not model.objects.exists()
