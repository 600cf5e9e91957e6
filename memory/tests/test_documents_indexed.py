"""MEMORY.md and the daily logs in the index: only the chunks that change are made anew."""

from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import numpy as np
import pytest

from intake.tests.factories import NOW, a_person
from memory import documents
from memory import index as indexing
from memory.backends.embedders import EmbedderError, get_embedder
from memory.index.sources import cut, document_entry, key_of, load, passages_of
from memory.models import Embedding, EmbeddingModel, IndexedText, MemoryDocument
from memory.tests.indexed import words
from memory.tests.writing import DAY, LATER, append, create, replace
from testing.kept_rows import kept_rows

pytestmark = pytest.mark.django_db


@kept_rows
def long_log():
    """Whose it is, and the log: of many chunks, all of them embedded."""
    user = a_person()
    content = "".join(f"- {number}: went to the market and bought {number} apples from Vera\n" for number in range(400))
    log = create(user, content, DAY)
    indexing.embed_pending()
    return user, log


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
    assert words(corpus=corpus)["lisbon"] == (1, 0)
    assert indexing.embed_pending() == 1


def test_a_document_without_text_is_not_indexed():
    create(a_person(), " \n\n")
    assert not IndexedText.objects.exists()
    assert not Embedding.objects.exists()
    assert indexing.enqueue_missing(now=NOW) == 0


def test_appending_leaves_the_vectors_and_words_of_unchanged_chunks_alone(long_log):
    alice, _ = long_log
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


def test_appending_cuts_up_only_the_chunks_that_changed(long_log, monkeypatch):
    alice, _ = long_log
    embedder, read = get_embedder(), []
    real = embedder.token_offsets
    monkeypatch.setattr(embedder, "token_offsets", lambda text, most=None: read.append(text) or real(text, most))
    append(alice, "- and then home")
    assert len(read) <= 2


def test_what_only_moved_takes_its_vectors_along(monkeypatch):
    alice = a_person()
    sections = [f"## Section {number}\n" + f"Line of section {number}.\n" * 20 for number in range(20)]
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
        (text,) = load([key_of(row)])
        (passage,) = passages_of(text, [row.span], embedder)
        assert np.dot(row.vector, embedder.embed_query(passage)) > 0.99


def test_a_shorter_document_loses_the_chunks_it_no_longer_has(long_log):
    alice, log = long_log
    documents.replace(user=alice, day=DAY, content="Nothing happened", expected={log.state}, now=LATER)
    assert IndexedText.objects.count() == Embedding.objects.count() == 1


def test_a_deleted_document_takes_its_words_and_vectors_along(long_log):
    alice, _ = long_log
    create(alice, "kept")
    documents.delete(user=alice, day=DAY, expected=None)
    assert set(IndexedText.objects.values_list("corpus", flat=True)) == {"memory"}
    assert set(Embedding.objects.values_list("corpus", flat=True)) == {"memory"}
    assert words() == words(corpus="memory") != {}


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
    (text,) = document_entry(MemoryDocument.objects.get()).texts
    assert all(len(embedder.token_offsets(passage)) <= embedder.max_tokens for _, passage in cut(text, embedder))


def test_a_document_is_kept_and_worded_without_a_model_and_queued_once_there_is_one(monkeypatch):
    from memory.index import writer

    def broken():
        raise EmbedderError("No model.")

    alice = a_person()
    first = create(alice, "I live in Lisbon")
    indexing.embed_pending()
    with monkeypatch.context() as patch:
        patch.setattr(writer, "get_embedder", broken)
        replace(alice, "I live in Porto", {first.state})
        append(alice, "Moved house")
    assert {"porto", "move", "hous"} <= set(words())
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


def test_another_models_rows_go_when_the_chunks_they_speak_of_change(long_log):
    alice, log = long_log
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
    assert "porto" in words()
