"""MEMORY.md and the daily logs: nobody overwrites what they have not read, nothing appended is lost."""

import threading
from datetime import UTC, date, datetime, timedelta
from zoneinfo import ZoneInfo

import numpy as np
import pytest
from django.db import connections

from intake.acting import acting_as
from intake.errors import Conflict, InvalidInput, NotFound, TooLarge
from intake.tests.factories import NOW, a_person
from memory import documents, indexing
from memory.embedders import EmbedderMisconfigured, get_embedder
from memory.models import Corpus, Embedding, EmbeddingModel, IndexedText, MemoryDocument, Posting
from memory.models.documents import MAX_DOCUMENT_LENGTH
from memory.sources import SourceKey, load

pytestmark = pytest.mark.django_db

DAY = date(2026, 3, 1)
LATER = NOW + timedelta(hours=1)


def create(user, content, day=None):
    with acting_as(user):
        return documents.create(user=user, day=day, content=content, now=NOW)


def replace(user, content, expected, day=None):
    with acting_as(user):
        return documents.replace(user=user, day=day, content=content, expected=expected, now=LATER)


def append(user, text, day=DAY):
    with acting_as(user):
        return documents.append(user=user, day=day, text=text, now=LATER)


def at_once(number, work):
    """Run `work(index)` in so many threads that begin together; returns what each returned or raised."""
    barrier, results = threading.Barrier(number), [None] * number

    def run(index):
        try:
            barrier.wait(20)
            results[index] = work(index)
        except Exception as error:
            results[index] = error
        finally:
            connections.close_all()

    threads = [threading.Thread(target=run, args=(index,)) for index in range(number)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    return results


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
    results = at_once(2, lambda index: replace(alice, f"writer {index}", {state}))
    (won,) = [result for result in results if isinstance(result, documents.Document)]
    (lost,) = [result for result in results if result is not won]
    assert isinstance(lost, Conflict)
    found = documents.read(user=alice, day=None)
    assert (found.content, found.version) == (won.content, 2)
    (source,) = load([SourceKey(Corpus.MEMORY, won.id, 0)], get_embedder())
    assert source.parts == [won.content]
    assert set(Posting.objects.values_list("lexeme", flat=True)) == {"writer", won.content[-1]}


@pytest.mark.django_db(transaction=True)
def test_twenty_appends_at_once_all_survive_also_the_one_that_makes_the_log():
    alice = a_person()
    results = at_once(20, lambda index: append(alice, f"entry{index}"))
    assert not [result for result in results if isinstance(result, Exception)]
    log = documents.read(user=alice, day=DAY)
    assert sorted(log.content.split()) == sorted(f"entry{index}" for index in range(20))
    assert log.version == 20
    assert set(Posting.objects.values_list("lexeme", flat=True)) == set(log.content.split())


@pytest.mark.django_db(transaction=True)
def test_of_two_first_writes_one_is_told_of_the_other():
    alice = a_person()
    results = at_once(2, lambda index: create(alice, f"writer {index}"))
    assert sorted(type(result) for result in results if isinstance(result, Exception)) == [Conflict]
    assert MemoryDocument.objects.count() == 1


# -- The index --------------------------------------------------------------------------------------------------------


def long_log(user):
    """Of many chunks; all of them embedded."""
    content = "".join(f"- {number}: went to the market and bought {number} apples from Vera\n" for number in range(400))
    log = create(user, content, DAY)
    indexing.embed_pending()
    return log


def rows():
    return {
        (row.chunk_index, row.part): (row.pk, row.embedded_at)
        for row in Embedding.objects.exclude(vector=None).order_by("chunk_index", "part")
    }


@pytest.mark.parametrize(("day", "corpus"), [(None, "memory"), (DAY, "daily_log")])
def test_a_document_is_found_by_its_words_at_once_and_waits_for_its_vectors(day, corpus):
    alice = a_person()
    written = create(alice, "I live in Lisbon", day)
    text = IndexedText.objects.get()
    assert (text.user, text.corpus, text.source_id, text.chunk_index) == (alice, corpus, written.id, 0)
    row = Embedding.objects.get()
    assert (row.user, row.corpus, row.source_id, row.state) == (alice, corpus, written.id, "waiting")
    assert Posting.objects.filter(lexeme="lisbon", corpus=corpus, said=1, answered=0).exists()
    assert indexing.embed_pending().embedded == 1


def test_a_document_without_text_is_not_indexed():
    create(a_person(), " \n\n")
    assert not IndexedText.objects.exists()
    assert not Embedding.objects.exists()
    assert indexing.enqueue_missing(now=NOW) == 0


def test_appending_leaves_the_vectors_and_words_of_unchanged_chunks_alone():
    alice = a_person()
    long_log(alice)
    before, words = rows(), dict(IndexedText.objects.values_list("chunk_index", "pk"))
    assert len(words) > 10
    append(alice, "- and then home")
    last = max(words)
    kept = {place: row for place, row in before.items() if place[0] < last}
    assert {place: row for place, row in rows().items() if place[0] < last} == kept
    after = dict(IndexedText.objects.values_list("chunk_index", "pk"))
    assert {index: pk for index, pk in after.items() if index < last} == {i: pk for i, pk in words.items() if i < last}
    assert after[last] != words[last]
    assert Embedding.objects.filter(vector=None).exists()


def test_appending_cuts_up_only_the_chunks_that_changed(monkeypatch):
    alice = a_person()
    long_log(alice)
    embedder, read = get_embedder(), []
    real = embedder.token_offsets
    monkeypatch.setattr(embedder, "token_offsets", lambda text: read.append(text) or real(text))
    append(alice, "- and then home")
    assert len(read) <= 2


def test_what_only_moved_takes_its_vectors_along(monkeypatch):
    alice = a_person()
    sections = [f"## Section {number}\n" + f"Line of section {number}.\n" * 20 for number in range(60)]
    first = create(alice, "".join(sections))
    indexing.embed_pending()
    embedder, asked = get_embedder(), []
    real = embedder.embed_documents
    monkeypatch.setattr(embedder, "embed_documents", lambda texts: asked.extend(texts) or real(texts))
    replace(alice, "A new first line.\n\n" + "".join(sections), {first.state})
    indexing.embed_pending()
    assert 0 < len(asked) < Embedding.objects.count() / 2
    assert not Embedding.objects.filter(vector=None).exists()
    for row in Embedding.objects.order_by("?")[:10]:
        (source,) = load([SourceKey(Corpus.MEMORY, row.source_id, row.chunk_index)], embedder)
        assert np.dot(row.vector, embedder.embed_query(source.parts[row.part])) > 0.99


def test_a_shorter_document_loses_the_chunks_it_no_longer_has():
    alice = a_person()
    log = long_log(alice)
    documents.replace(user=alice, day=DAY, content="Nothing happened", expected={log.state}, now=LATER)
    assert IndexedText.objects.count() == Embedding.objects.count() == 1


def test_a_deleted_document_takes_its_words_and_vectors_along():
    alice = a_person()
    long_log(alice)
    create(alice, "kept")
    documents.delete(user=alice, day=DAY, expected=None)
    assert set(IndexedText.objects.values_list("corpus", flat=True)) == {"memory"}
    assert set(Embedding.objects.values_list("corpus", flat=True)) == {"memory"}
    assert set(Posting.objects.values_list("corpus", flat=True)) == {"memory"}


@pytest.mark.parametrize(("zone", "noon"), [("Asia/Tokyo", 3), ("America/New_York", 17), ("Mars/Olympus", 12)])
def test_a_log_was_said_at_noon_of_its_day_where_the_person_lives(zone, noon):
    alice = a_person()
    alice.time_zone = zone
    alice.save()
    create(alice, "Met Vera", DAY)
    assert Embedding.objects.get().said_at == datetime(2026, 3, 1, noon, tzinfo=UTC)
    if zone != "Mars/Olympus":
        assert Embedding.objects.get().said_at.astimezone(ZoneInfo(zone)).date() == DAY


def test_a_memory_was_said_when_it_was_last_written():
    alice = a_person()
    first = create(alice, "I live in Lisbon")
    assert Embedding.objects.get().said_at == NOW
    replace(alice, "I live in Porto", {first.state})
    assert Embedding.objects.get().said_at == LATER


def test_a_long_chunk_has_several_parts_and_each_fits_the_model():
    alice = a_person()
    create(alice, "a b c d e f g h i j " * 70)
    parts = Embedding.objects.values_list("part", flat=True).order_by("part")
    assert list(parts) == list(range(len(parts)))
    assert len(parts) > 1
    embedder = get_embedder()
    (source,) = load([SourceKey(Corpus.MEMORY, MemoryDocument.objects.get().pk, 0)], embedder)
    assert all(len(embedder.token_offsets(part)) <= embedder.max_tokens for part in source.parts)


def test_a_document_is_kept_and_worded_without_a_model_and_queued_once_there_is_one(monkeypatch):
    from memory.indexing import queueing

    def broken():
        raise EmbedderMisconfigured("No model.")

    alice = a_person()
    first = create(alice, "I live in Lisbon")
    indexing.embed_pending()
    with monkeypatch.context() as patch:
        patch.setattr(queueing, "get_embedder", broken)
        replace(alice, "I live in Porto", {first.state})
        append(alice, "Moved house")
    assert {"porto", "move", "hous"} <= set(Posting.objects.values_list("lexeme", flat=True))
    assert not Embedding.objects.exists(), "no vector of what is no longer written"
    assert indexing.enqueue_missing(now=NOW) == 2
    assert indexing.enqueue_missing(now=NOW) == 0
    assert set(Embedding.objects.values_list("corpus", flat=True)) == {"memory", "daily_log"}


def test_documents_get_words_and_rows_they_lack_from_index_missing():
    alice = a_person()
    create(alice, "I live in Lisbon")
    create(alice, "Met Vera", DAY)
    IndexedText.objects.all().delete()
    assert indexing.enqueue_missing(now=NOW) == 2
    Embedding.objects.all().delete()
    assert indexing.enqueue_missing(now=NOW) == 2
    assert indexing.enqueue_missing(now=NOW) == 0


def test_another_models_rows_go_when_the_chunks_they_speak_of_change():
    alice = a_person()
    log = long_log(alice)
    Embedding.objects.update(model=EmbeddingModel.objects.create(name="another", dimensions=384))
    documents.replace(user=alice, day=DAY, content="Nothing happened", expected={log.state}, now=LATER)
    assert set(Embedding.objects.values_list("model__name", flat=True)) == {get_embedder().name}


def test_a_row_whose_chunk_changed_past_every_service_is_made_anew():
    alice = a_person()
    create(alice, "I live in Lisbon")
    MemoryDocument.objects.update(content="I live in Porto")
    indexing.embed_pending()
    indexing.embed_pending()
    row = Embedding.objects.get()
    embedder = get_embedder()
    assert row.state == "embedded"
    assert np.dot(row.vector, embedder.embed_query("I live in Porto")) > 0.99
    assert Posting.objects.filter(lexeme="porto").exists()
