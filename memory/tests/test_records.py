"""Memory records: noted whole, found by their words at once, forgotten when deleted."""

from datetime import timedelta

import pytest

from core.errors import InvalidInput, NotFound
from core.ids import uuid7
from core.paging import Position
from intake.tests.factories import NOW, a_person
from memory import index, records
from memory.models import Embedding, IndexedText, MemoryRecord
from memory.models.documents import MAX_RECORD_LENGTH
from memory.tests.indexed import words

pytestmark = pytest.mark.django_db


def note(user, content="We chose PostgreSQL", *, now=NOW, **fields):
    return records.create(user=user, content=content, now=now, **fields)


def test_a_record_is_read_as_it_was_noted():
    alice = a_person()
    made = note(alice, type="ARCHITECTURAL_DECISION", project_id="recollect", tags=["db", "rca", "db"])
    assert records.read(user=alice, record_id=made.id) == made
    assert (made.type, made.project_id, made.tags) == ("ARCHITECTURAL_DECISION", "recollect", ("db", "rca"))
    assert (made.content, made.created_at) == ("We chose PostgreSQL", NOW)


def test_a_record_of_which_nothing_is_said_is_a_note():
    made = note(a_person())
    assert (made.type, made.project_id, made.tags) == ("note", "", ())


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"content": " "}, "content"),
        ({"content": "a\0b"}, "content"),
        ({"content": "\ud800"}, "content"),
        ({"content": "x" * (MAX_RECORD_LENGTH + 1)}, "content"),
        ({"type": ""}, "type"),
        ({"type": "x" * 101}, "type"),
        ({"type": "a\0b"}, "type"),
        ({"project_id": "x" * 201}, "project_id"),
        ({"project_id": "a\0b"}, "project_id"),
        ({"tags": [""]}, "tags"),
        ({"tags": ["x" * 101]}, "tags"),
        ({"tags": ["a\0b"]}, "tags"),
        ({"tags": [str(number) for number in range(51)]}, "tags"),
    ],
)
def test_what_cannot_be_kept_whole_is_refused_naming_the_field(fields, field):
    with pytest.raises(InvalidInput) as refusal:
        note(a_person(), **fields)
    assert list(refusal.value.errors) == [field]
    assert not MemoryRecord.objects.exists()


def test_somebody_elses_record_is_as_if_it_were_not_there():
    alice, bob = a_person(), a_person("bob@example.com")
    theirs = note(bob)
    for record_id in (theirs.id, uuid7()):
        with pytest.raises(NotFound):
            records.read(user=alice, record_id=record_id)
        with pytest.raises(NotFound):
            records.delete(user=alice, record_id=record_id)
    assert records.read(user=bob, record_id=theirs.id) == theirs


def test_records_are_listed_newest_first_page_by_page():
    alice = a_person()
    note(a_person("bob@example.com"))
    made = [note(alice, f"Number {number}", now=NOW + timedelta(hours=number // 2)) for number in range(7)]
    listed, after = [], None
    while True:
        page = records.list_records(user=alice, after=after, limit=2)
        listed += page.rows
        if page.more is None:
            break
        after = Position.parse(str(page.more))
    assert [record.id for record in listed] == [record.id for record in reversed(made)]


def test_the_list_is_narrowed_by_every_condition_given():
    alice = a_person()
    both = note(alice, type="RCA", project_id="p", tags=["x", "y"])
    note(alice, type="RCA", project_id="q", tags=["x"])
    note(alice, type="FACT", project_id="p", tags=["y"])
    assert len(records.list_records(user=alice, type="RCA").rows) == 2
    assert len(records.list_records(user=alice, project_id="p").rows) == 2
    assert len(records.list_records(user=alice, tag="x").rows) == 2
    assert records.list_records(user=alice, type="RCA", project_id="p", tag="x").rows == [both]
    assert records.list_records(user=alice, type="nothing").rows == []


def test_a_record_is_found_by_its_words_at_once_and_waits_for_its_vector():
    alice = a_person()
    made = note(alice, now=NOW)
    text, row = IndexedText.objects.get(), Embedding.objects.get()
    assert (text.user, text.corpus, text.source_id, text.chunk_index) == (alice, "record", made.id, 0)
    assert (row.user, row.corpus, row.source_id, row.said_at, row.state) == (alice, "record", made.id, NOW, "waiting")
    assert words()["postgresql"] == (1, 0)
    assert index.embed_pending() == 1


def test_no_end_of_the_longest_record_goes_without_a_vector():
    made = note(a_person(), ("I prefer the quiet streets of the old town to its markets. " * 700)[:MAX_RECORD_LENGTH])
    last = Embedding.objects.order_by("part").last().span
    assert made.content.rstrip().endswith(made.content[last.start : last.end])


def test_a_deleted_record_takes_its_words_and_vectors_along():
    alice = a_person()
    made, kept = note(alice), note(alice, "Kept")
    index.embed_pending()
    records.delete(user=alice, record_id=made.id)
    assert IndexedText.objects.get().source_id == Embedding.objects.get().source_id == kept.id
    assert words() == {"kept": (1, 0)}


def test_records_get_words_and_rows_they_lack_from_index_missing():
    note(a_person())
    IndexedText.objects.all().delete()
    assert index.enqueue_missing(now=NOW) == 1
    Embedding.objects.all().delete()
    assert index.enqueue_missing(now=NOW) == 1
    assert index.enqueue_missing(now=NOW) == 0
