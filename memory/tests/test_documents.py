"""MEMORY.md and the daily logs: nobody overwrites what they have not read, nothing appended is lost."""

from datetime import date, timedelta
from functools import partial

import pytest

from core.errors import Conflict, InvalidInput, NotFound, TooLarge
from intake.tests.factories import NOW, a_person
from memory import documents
from memory.index.sources import SourceKey, load
from memory.models import Corpus, MemoryDocument
from memory.models.documents import MAX_DOCUMENT_LENGTH
from memory.tests.indexed import words
from memory.tests.threads import at_once
from memory.tests.writing import DAY, LATER, append, create, replace

pytestmark = pytest.mark.django_db


@pytest.mark.parametrize("day", [None, DAY])
def test_a_document_is_read_as_it_was_written(day):
    alice = a_person()
    written = create(alice, "# Me\nI live in Lisbon. 🐈\n", day)
    found = documents.read(user=alice, day=day)
    assert found == written
    assert (found.content, found.date, found.version) == ("# Me\nI live in Lisbon. 🐈\n", day, 1)
    assert (found.created_at, found.updated_at) == (NOW, NOW)


def test_what_is_not_there_or_somebody_elses_is_not_found():
    alice, bob = a_person(), a_person("bob@example.com")
    create(bob, "Bob's")
    with pytest.raises(NotFound):
        documents.read(user=alice, day=None)
    create(alice, "Alice's")
    assert documents.read(user=bob, day=None).content == "Bob's"


def test_a_second_creation_is_a_conflict_and_loses_nothing():
    alice = a_person()
    create(alice, "first")
    with pytest.raises(Conflict, match="already"):
        create(alice, "second")
    assert documents.read(user=alice, day=None).content == "first"


def test_overwriting_takes_the_state_that_was_read():
    alice = a_person()
    first = create(alice, "first")
    second = replace(alice, "second", {first.state})
    assert (second.content, second.version, second.updated_at, second.id) == ("second", 2, LATER, first.id)
    with pytest.raises(Conflict):
        replace(alice, "third", {first.state})
    assert documents.read(user=alice, day=None) == second


def test_any_state_will_do_for_who_says_so():
    alice = a_person()
    create(alice, "first")
    assert replace(alice, "second", None).content == "second"


def test_a_document_that_is_not_there_is_in_no_state():
    with pytest.raises(Conflict):
        replace(a_person(), "x", None)


def test_a_document_deleted_and_written_anew_is_never_in_an_old_state():
    alice = a_person()
    old = create(alice, "old")
    documents.delete(user=alice, day=None, expected={old.state})
    new = create(alice, "new")
    assert new.version == old.version
    with pytest.raises(Conflict):
        replace(alice, "based on the old", {old.state})


def test_deleting_takes_the_state_that_was_read():
    alice = a_person()
    first = create(alice, "first")
    replace(alice, "second", {first.state})
    with pytest.raises(Conflict):
        documents.delete(user=alice, day=None, expected={first.state})
    documents.delete(user=alice, day=None, expected=None)
    assert not MemoryDocument.objects.exists()


def test_appending_makes_the_log_and_then_adds_whole_lines():
    alice = a_person()
    assert append(alice, "Met Vera").content == "Met Vera\n"
    log = append(alice, "Bought bread\n")
    assert (log.content, log.version, log.updated_at) == ("Met Vera\nBought bread\n", 2, LATER)


def test_appending_ends_a_last_line_that_has_no_end():
    alice = a_person()
    create(alice, "no end", DAY)
    assert append(alice, "next").content == "no end\nnext\n"


def test_appending_to_an_emptied_log_begins_it():
    alice = a_person()
    create(alice, "", DAY)
    assert append(alice, "next").content == "next\n"


@pytest.mark.medium
def test_a_full_document_refuses_what_is_too_much_and_keeps_the_rest():
    alice = a_person()
    create(alice, "x" * (MAX_DOCUMENT_LENGTH - 10), DAY)
    assert len(append(alice, "12345678").content) == MAX_DOCUMENT_LENGTH
    with pytest.raises(TooLarge, match="500,000"):
        append(alice, "1")
    with pytest.raises(TooLarge):
        append(alice, "x" * MAX_DOCUMENT_LENGTH, date(2026, 3, 2))
    assert MemoryDocument.objects.count() == 1
    assert documents.read(user=alice, day=DAY).version == 2


@pytest.mark.parametrize("text", ["a\0b", "half \ud800 pair", "x" * (MAX_DOCUMENT_LENGTH + 1)])
def test_a_text_that_cannot_be_kept_whole_is_refused_by_every_write(text):
    alice = a_person()
    create(alice, "kept")
    for write, field in ((lambda: replace(alice, text, None), "content"), (lambda: append(alice, text), "text")):
        with pytest.raises(InvalidInput) as refusal:
            write()
        assert list(refusal.value.errors) == [field]
        assert text not in str(refusal.value.errors)
    with pytest.raises(InvalidInput):
        create(alice, text, DAY)
    assert [row.content for row in MemoryDocument.objects.all()] == ["kept"]


def test_nothing_is_not_appended():
    with pytest.raises(InvalidInput):
        append(a_person(), " \n")


@pytest.mark.parametrize("year", [1, 1899, 3000, 9999])
def test_a_day_that_nobody_means_is_refused(year):
    alice = a_person()
    for write in (create, append):
        with pytest.raises(InvalidInput) as refusal:
            write(alice, "x", day=date(year, 12, 31))
        assert list(refusal.value.errors) == ["date"]


def test_logs_are_listed_latest_day_first_page_by_page():
    alice = a_person()
    create(a_person("bob@example.com"), "Bob's", DAY)
    create(alice, "not a log")
    days = [DAY + timedelta(days=number) for number in (3, 0, 2, 1)]
    for day in days:
        create(alice, "x" * day.day, day)
    first = documents.list_daily_logs(user=alice, limit=3)
    assert [log.date.day for log in first.logs] == [4, 3, 2]
    assert [log.length for log in first.logs] == [4, 3, 2]
    rest = documents.list_daily_logs(user=alice, before=first.before, limit=3)
    assert [log.date for log in rest.logs] == [DAY]
    assert rest.before is None


@pytest.mark.django_db(transaction=True)
def test_of_two_writers_who_read_the_same_exactly_one_wins():
    alice = a_person()
    state = create(alice, "read by both").state
    results = at_once(*(partial(replace, alice, f"writer {index}", {state}) for index in range(2)))
    (won,) = [result for result in results if isinstance(result, documents.DocumentOutput)]
    (lost,) = [result for result in results if result is not won]
    assert isinstance(lost, Conflict)
    found = documents.read(user=alice, day=None)
    assert (found.content, found.version) == (won.content, 2)
    (text,) = load([SourceKey(alice.pk, Corpus.MEMORY, won.id, 0)])
    assert text.said == won.content
    assert set(words()) == {"writer", won.content[-1]}


@pytest.mark.medium
@pytest.mark.django_db(transaction=True)
def test_twenty_appends_at_once_all_survive_also_the_one_that_makes_the_log():
    alice = a_person()
    results = at_once(*(partial(append, alice, f"entry{index}") for index in range(20)))
    assert not [result for result in results if isinstance(result, Exception)]
    log = documents.read(user=alice, day=DAY)
    assert sorted(log.content.split()) == sorted(f"entry{index}" for index in range(20))
    assert log.version == 20
    assert set(words()) == set(log.content.split())


@pytest.mark.django_db(transaction=True)
def test_of_two_first_writes_one_is_told_of_the_other():
    alice = a_person()
    results = at_once(*(partial(create, alice, f"writer {index}") for index in range(2)))
    assert sorted(type(result) for result in results if isinstance(result, Exception)) == [Conflict]
    assert MemoryDocument.objects.count() == 1
