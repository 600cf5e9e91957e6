"""Vectors in blocks: packed as they are made, and out of their block in the moment in which their row is no more."""

import pytest
from django.core.management import call_command
from django.db import connection, transaction
from django.utils import timezone

from core.isolation.acting import acting_as, acting_as_staff
from intake.models import Turn
from intake.tests.factories import a_person, a_turn
from memory import index
from memory.admin import requeue
from memory.backends.embedders import get_embedder
from memory.index.vectors import delete as delete_rows
from memory.index.vectors import pack_all, slots_for, sweep
from memory.models import Embedding, VectorBlock
from memory.models.embeddings import SLOTS
from memory.tests.rows import NOW
from memory.tests.threads import at_once
from memory.tests.vectors import directions, fill, nearest
from testing.examiner import as_a_worker

pytestmark = pytest.mark.django_db

QUERY = directions(1, seed=3)[0]


@pytest.fixture
def alice():
    return a_person()


def packed_in(block):
    """The keys of the rows in a block; a slot holds all of key, time and vector, or nothing."""
    slots = [[getattr(block, f"{prefix}{slot}") for prefix in "ptv"] for slot in range(SLOTS)]
    assert all(len({value is None for value in slot}) == 1 for slot in slots)
    return {key for key, _, _ in slots if key is not None}


def assert_in_step():
    """Each block has the rows that say they are in it, and their very vectors."""
    rows = {row.pk: row for row in Embedding.objects.exclude(block=None)}
    blocks = list(VectorBlock.objects.all())
    assert sorted(key for block in blocks for key in packed_in(block)) == sorted(rows)
    for block in blocks:
        for slot in range(SLOTS):
            if (key := getattr(block, f"p{slot}")) is not None:
                row = rows[key]
                assert (row.block_id, row.user_id, row.corpus) == (block.pk, block.user_id, block.corpus)
                assert (row.said_at, row.vector) == (getattr(block, f"t{slot}"), getattr(block, f"v{slot}"))


def test_turns_become_a_block_as_soon_as_enough_are_embedded(alice):
    for number in range(SLOTS - 1):
        a_turn(alice, f"Turn {number}")
    index.embed_pending()
    assert not VectorBlock.objects.exists()
    a_turn(alice, "The one that makes it full")
    index.embed_pending()
    (block,) = VectorBlock.objects.all()
    assert packed_in(block) == set(Embedding.objects.values_list("pk", flat=True))
    assert_in_step()


def test_a_block_holds_one_persons_vectors_of_one_corpus(alice):
    bob = a_person("bob@example.com")
    for number in range(SLOTS // 2):
        a_turn(alice, f"Turn {number}")
        a_turn(bob, f"Turn {number}")
    index.embed_pending()
    assert not VectorBlock.objects.exists()


def test_a_batch_of_several_people_goes_into_blocks_with_what_lay_loose_beside_it(alice):
    bob = a_person("bob@example.com")
    for person, turns in ((alice, SLOTS - 3), (bob, 2)):
        for number in range(turns):
            a_turn(person, f"Turn {number}")
    index.embed_pending()
    for person, turns in ((alice, 5), (bob, SLOTS)):
        for number in range(turns):
            a_turn(person, f"Later turn {number}")
    with as_a_worker():
        index.embed_pending()
    assert_in_step()
    assert [Embedding.objects.filter(user=person, block=None).count() for person in (alice, bob)] == [2, 2]
    assert not Embedding.objects.filter(vector=None).exists()


def test_a_vector_that_two_workers_made_is_stored_once(alice):
    for number in range(SLOTS):
        a_turn(alice, f"Turn {number}")
    embedder = get_embedder()
    claimed = index.claim(embedder=embedder, now=timezone.now())
    for _ in range(2):
        index.fill(claimed, embedder=embedder)
        assert_in_step()
    assert VectorBlock.objects.count() == 1


def test_a_worker_packs_with_its_own_rights(alice):
    fill(alice, directions(25, seed=1))
    with as_a_worker():
        assert pack_all() == 20
    assert VectorBlock.objects.count() == 2
    assert_in_step()


def test_a_person_sees_no_block_of_somebody_elses(alice):
    fill(a_person("bob@example.com"), directions(10, seed=1))
    pack_all()
    with acting_as(alice):
        assert not VectorBlock.objects.exists()


@pytest.mark.parametrize("gone", [[4], [0, 3, 9], [4, 14, 17], list(range(10)), list(range(5, 25))])
def test_what_a_person_deletes_takes_its_block_along_and_the_rest_is_packed_anew(alice, gone):
    rows = fill(alice, directions(25, seed=1))
    pack_all()
    with acting_as(alice):
        assert delete_rows(Embedding.objects.filter(pk__in=[rows[place].pk for place in gone])) == len(gone)
    assert_in_step()
    assert set(nearest(alice, QUERY, limit=25)) == set(range(25)) - set(gone)
    with as_a_worker():
        pack_all()
    assert_in_step()
    assert Embedding.objects.exclude(block=None).count() == (25 - len(gone)) // SLOTS * SLOTS


def test_what_is_deleted_in_the_database_itself_is_not_found_and_swept_up_later(alice):
    rows = fill(alice, directions(25, seed=1))
    pack_all()
    with connection.cursor() as cursor:
        cursor.execute("DELETE FROM embeddings WHERE id = %s", [rows[4].pk])
    assert set(nearest(alice, QUERY, limit=25)) == set(range(25)) - {4}
    with as_a_worker():
        assert (sweep(alice.pk), sweep(alice.pk)) == (1, 0)
    assert_in_step()
    assert set(nearest(alice, QUERY, limit=25)) == set(range(25)) - {4}


def test_a_deleted_turn_and_a_deleted_person_leave_no_vector_in_a_block(alice):
    turns = [a_turn(alice, f"Turn {number}") for number in range(SLOTS)]
    index.embed_pending()
    with acting_as(alice):
        Turn.objects.get(pk=turns[3].pk).delete()
    assert_in_step()
    assert not VectorBlock.objects.exists()
    assert Embedding.objects.count() == SLOTS - 1
    a_turn(alice, "One more")
    index.embed_pending()
    assert VectorBlock.objects.exists()
    alice.delete()
    assert not VectorBlock.objects.exists()


def test_a_row_that_staff_send_back_to_the_queue_leaves_its_block_and_returns_to_another(alice):
    for number in range(SLOTS):
        a_turn(alice, f"Turn {number}")
    index.embed_pending()
    (row, *_) = Embedding.objects.all()
    with acting_as_staff():
        requeue(Embedding.objects.filter(pk=row.pk), now=NOW)
    assert Embedding.objects.get(pk=row.pk).block_id is None
    assert_in_step()
    index.embed_pending()
    assert_in_step()
    assert Embedding.objects.get(pk=row.pk).vector is not None


@pytest.mark.django_db(transaction=True)
def test_index_missing_packs_what_was_embedded_before_there_were_blocks(alice):
    for number in range(SLOTS):
        a_turn(alice, f"Turn {number}")
    index.embed_pending()
    VectorBlock.objects.all().delete()
    Embedding.objects.update(block=None)
    call_command("index_missing")
    assert VectorBlock.objects.count() == 1
    assert_in_step()


@pytest.mark.medium
@pytest.mark.django_db(transaction=True)
def test_of_workers_that_pack_at_once_none_packs_what_another_does(alice):
    fill(alice, directions(200, seed=1))

    def pack():
        with as_a_worker():
            return pack_all()

    assert all(isinstance(packed, int) for packed in at_once(*[pack] * 4))
    pack()
    assert VectorBlock.objects.count() == 20
    assert_in_step()


@pytest.mark.django_db(transaction=True)
def test_people_who_delete_from_the_same_blocks_at_once_do_not_wait_in_a_circle(alice):
    rows = fill(alice, directions(100, seed=1))
    pack_all()

    def delete_every_fourth(start):
        def delete():
            for _ in range(3):
                with acting_as(alice), transaction.atomic():
                    delete_rows(Embedding.objects.filter(pk__in=[row.pk for row in rows[start::4]]))

        return delete

    assert at_once(*[delete_every_fourth(start) for start in range(3)]) == [None] * 3
    assert_in_step()
    assert len(nearest(alice, QUERY, limit=100)) == 25


def test_a_block_of_the_largest_vectors_is_one_vector():
    assert [slots_for(dimensions) for dimensions in (1, 384, 1300, 4000, 16000)] == [10, 10, 3, 1, 1]
