"""`search_memory`, bullet by bullet of its specification: the order of the tests is that of the bullets."""

import logging
from itertools import combinations

import numpy as np
import pytest
from django.db import OperationalError
from django.db.models import Q

import memory
from core.isolation.acting import acting_as
from intake.tests.factories import NOW, a_person
from memory import MemorySearchError, MemorySearchQuery, MemorySearchResult, records, search_memory
from memory import index as indexing
from memory.backends.embedders import EmbedderError, FakeEmbedder, get_embedder, normalised, using
from memory.index.vectors import USUAL_PASSAGES
from memory.models import Corpus, Embedding, EmbeddingModel, MemoryRecord
from memory.records import RecordOutput
from memory.search import build_filter
from memory.search import records as searching
from memory.tests.rows import add_records
from testing.emptying import delete_past_signals
from testing.examiner import as_the_application
from testing.kept_rows import kept_rows

pytestmark = pytest.mark.django_db


def note(user, content, **fields):
    return records.create(user=user, content=content, now=NOW, **fields)


def find(user, text="cat", **fields):
    return search_memory(MemorySearchQuery(text=text, **fields), user=user)


def found_contents(*args, **fields):
    return [result.record.content for result in find(*args, **fields)]


@pytest.fixture
def alice():
    return a_person()


@kept_rows
def of_many_cats():
    """Somebody with more records than a search may ask for; five of them are of another type, and farther."""
    user = a_person()
    add_records(user, (f"cat cat cat {number}" for number in range(50)), type="NOISE")
    add_records(user, (f"something about {number} and a cat" for number in range(5)), type="WANTED")
    indexing.embed_pending()
    return user


class CountingEmbedder(FakeEmbedder):
    def __init__(self):
        super().__init__()
        self.asked = []

    def embed_query(self, text):
        self.asked.append(text)
        return super().embed_query(text)


def test_the_text_is_embedded_exactly_once_and_raw(alice):
    embedder = CountingEmbedder()
    with using(embedder):
        search_memory(MemorySearchQuery(text="  A cat?\n", types=["x"]), user=alice)
    assert embedder.asked == ["  A cat?\n"]


def test_the_records_are_ranked_by_the_embedded_query(alice):
    far, near = note(alice, "A cat is mentioned in the report due on Friday"), note(alice, "I adopted a cat")
    indexing.embed_pending()
    assert [result.record for result in find(alice, "adopted cat")] == [near, far]


def test_the_limit_is_top_k_and_10_when_nothing_is_said(of_many_cats):
    assert len(find(of_many_cats)) == 10
    assert len(find(of_many_cats, top_k=3)) == 3
    assert len(find(of_many_cats, top_k=12)) == 12


def test_types_are_filtered(alice):
    note(alice, "cat one", type="ARCHITECTURAL_DECISION")
    note(alice, "cat two", type="RCA")
    note(alice, "cat three", type="NOTE")
    indexing.embed_pending()
    assert found_contents(alice, types=["ARCHITECTURAL_DECISION"]) == ["cat one"]
    assert set(found_contents(alice, types=["ARCHITECTURAL_DECISION", "RCA"])) == {"cat one", "cat two"}
    assert len(found_contents(alice, types=[])) == 3


def test_the_project_is_filtered(alice):
    note(alice, "cat one", project_id="p")
    note(alice, "cat two", project_id="q")
    note(alice, "cat three")
    indexing.embed_pending()
    assert found_contents(alice, project_id="p") == ["cat one"]
    assert len(found_contents(alice, project_id=None)) == 3


def test_types_and_project_are_combined_with_and(alice):
    note(alice, "cat one", type="RCA", project_id="p")
    note(alice, "cat two", type="RCA", project_id="q")
    note(alice, "cat three", type="NOTE", project_id="p")
    indexing.embed_pending()
    assert found_contents(alice, types=["RCA"], project_id="p") == ["cat one"]


def test_each_result_is_the_record_and_1_minus_the_cosine_distance(alice):
    made = note(alice, "I adopted a cat", type="NOTE", tags=["pets"])
    indexing.embed_pending()
    (result,) = find(alice, "adopted cat")
    embedder = get_embedder()
    cosine = float(embedder.embed_query("adopted cat") @ embedder.embed_documents(["I adopted a cat"])[0])
    assert isinstance(result, MemorySearchResult)
    assert result.record == made
    assert isinstance(result.record, RecordOutput)
    assert result.similarity == pytest.approx(cosine, abs=2e-3)


def test_results_below_the_least_similarity_are_left_out(alice):
    note(alice, "adopted cat")
    note(alice, "The quarterly report is due on Friday")
    indexing.embed_pending()
    assert found_contents(alice, "adopted cat", min_similarity=0.9) == ["adopted cat"]
    assert found_contents(alice, "adopted cat", min_similarity=1.0) in ([], ["adopted cat"])
    assert found_contents(alice, "nothing like it whatsoever", min_similarity=0.9) == []


def test_what_points_the_other_way_is_below_any_threshold(alice):
    note(alice, "cat")
    indexing.embed_pending()
    Embedding.objects.update(vector=-get_embedder().embed_query("cat"))
    assert find(alice, "cat") == []


def test_tags_are_filtered_by_any_of_them(alice):
    note(alice, "cat one", tags=["rca", "db"])
    note(alice, "cat two", tags=["ui"])
    note(alice, "cat three")
    indexing.embed_pending()
    assert found_contents(alice, tags=["rca"]) == ["cat one"]
    assert set(found_contents(alice, tags=["rca", "ui", "none"])) == {"cat one", "cat two"}
    assert found_contents(alice, tags=["rc"]) == []


def test_a_failing_embedding_becomes_a_memory_search_error_with_its_cause(alice, monkeypatch):
    away = EmbedderError("The endpoint answered 503.")

    def fail(_):
        raise away

    monkeypatch.setattr(get_embedder(), "embed_query", fail)
    with pytest.raises(MemorySearchError) as failure:
        find(alice)
    assert failure.value.cause is failure.value.__cause__ is away


def test_a_failing_database_becomes_a_memory_search_error_with_its_cause(alice, monkeypatch):
    away = OperationalError("connection refused at /secret/socket")

    def fail(*_, **__):
        raise away

    monkeypatch.setattr(searching.vectors, "nearest", fail)
    with pytest.raises(MemorySearchError) as failure:
        find(alice)
    assert failure.value.cause is away
    assert "secret" not in str(failure.value)


def test_nothing_found_is_an_empty_list(alice):
    assert find(alice) == []
    note(alice, "I adopted a cat")
    indexing.embed_pending()
    assert find(alice, types=["NOTHING_OF_THE_KIND"]) == []


CONDITIONS = {
    "types": (["RCA", "NOTE"], Q(type__in=["RCA", "NOTE"])),
    "project_id": ("p", Q(project_id="p")),
    "tags": (["x", "it's"], Q(tags__overlap=["x", "it's"])),
}


@pytest.mark.parametrize(
    "fields", [fields for size in range(4) for fields in combinations(CONDITIONS, size)], ids="+".join
)
def test_the_filter_builder_is_pure_and_combines_whatever_is_given(fields, django_assert_num_queries):
    query = MemorySearchQuery(text="x", **{field: CONDITIONS[field][0] for field in fields})
    with django_assert_num_queries(0):
        built = build_filter(query)
    expected = Q(*(CONDITIONS[field][1] for field in fields)) if fields else None
    assert built == expected


@pytest.mark.parametrize("fields", [{"types": []}, {"tags": ()}, {"project_id": None}, {"project_id": ""}])
def test_the_filter_builder_gives_nothing_for_what_is_empty(fields):
    assert build_filter(MemorySearchQuery(text="x", **fields)) is None


@pytest.mark.parametrize("odd", ["it's", '"', "\\", "%", "'; drop table memory_records; --", "{a,b}", "🐈"])
def test_a_filter_takes_every_character_as_it_stands(alice, odd):
    note(alice, "cat", type=odd, project_id=odd, tags=[odd])
    indexing.embed_pending()
    assert len(find(alice, types=[odd], project_id=odd, tags=[odd])) == 1


def test_vectors_are_normalised_so_that_the_similarity_of_the_identical_is_1(alice):
    note(alice, "I adopted a cat")
    indexing.embed_pending()
    assert np.linalg.norm(Embedding.objects.get().vector) == pytest.approx(1, abs=1e-3)
    (result,) = find(alice, "I adopted a cat")
    assert 0.999 < result.similarity <= 1.0


def test_top_k_beyond_50_is_50_with_a_warning(of_many_cats, caplog):
    with caplog.at_level(logging.WARNING, logger="memory.search.records"):
        assert len(find(of_many_cats, top_k=50)) == 50
        assert caplog.records == []
        assert len(find(of_many_cats, top_k=51)) == 50
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert "51" in caplog.text


@pytest.mark.parametrize("top_k", [0, -1])
def test_top_k_below_1_is_refused(alice, top_k):
    with pytest.raises(MemorySearchError) as failure:
        find(alice, top_k=top_k)
    assert isinstance(failure.value.cause, ValueError)


def test_it_is_exported_from_the_package():
    assert memory.search_memory is searching.search_memory
    assert set(memory.__all__) == {"search_memory", "MemorySearchQuery", "MemorySearchResult", "MemorySearchError"}
    with pytest.raises(AttributeError, match="nonsense"):
        memory.nonsense  # noqa: B018


# -- Beyond the specification -----------------------------------------------------------------------------------------


def test_nobody_elses_records_are_found(alice):
    bob = a_person("bob@example.com")
    note(bob, "Bob's cat", type="RCA", project_id="p", tags=["x"])
    indexing.embed_pending()
    assert find(alice) == []
    assert find(alice, types=["RCA"], project_id="p", tags=["x"]) == []


def test_other_corpora_are_not_searched(alice):
    from intake.tests.factories import a_turn
    from memory import documents

    a_turn(alice, "I adopted a cat")
    documents.create(user=alice, day=None, content="I have a cat", now=NOW)
    indexing.embed_pending()
    assert find(alice) == []


def test_as_many_matches_as_asked_for_are_found_however_many_nearer_records_do_not_fit(of_many_cats):
    assert len(find(of_many_cats, "cat", top_k=5, types=["WANTED"])) == 5


def test_the_results_are_sorted_by_similarity_descending(alice):
    for number in range(8):
        note(alice, "cat " * number + "dog " * (8 - number))
    indexing.embed_pending()
    similarities = [result.similarity for result in find(alice)]
    assert similarities == sorted(similarities, reverse=True)


def test_a_long_record_is_one_result_by_its_nearest_part(alice):
    note(alice, "Once upon a time there was a fox. " * 300 + "The lighthouse keeper waved.")
    note(alice, "A lighthouse")
    indexing.embed_pending()
    assert Embedding.objects.count() > 3
    assert len(find(alice, "lighthouse keeper waved")) == 2


def test_a_record_of_many_near_parts_crowds_nobody_out(alice):
    note(alice, "The fox sat by the fox and saw a fox. " * 300)
    note(alice, "A fox crossed our garden")
    indexing.embed_pending()
    assert Embedding.objects.count() > 2 * USUAL_PASSAGES
    assert len(find(alice, "fox", top_k=2)) == 2


def test_a_deleted_record_is_no_result_also_if_deleted_past_every_signal(alice):
    first, second = note(alice, "cat one"), note(alice, "cat two")
    indexing.embed_pending()
    records.delete(user=alice, record_id=first.id)
    delete_past_signals(MemoryRecord.objects.filter(pk=second.id))
    assert find(alice) == []


def test_records_that_wait_are_counted_and_not_found(alice):
    note(alice, "cat one")
    note(alice, "A long record of a cat. " * 400)
    note(a_person("bob@example.com"), "cat")
    assert searching.count_pending(user=alice) == 2
    assert find(alice) == []
    indexing.embed_pending()
    assert searching.count_pending(user=alice) == 0
    assert len(find(alice)) == 2


def test_vectors_of_another_model_are_never_compared(alice):
    note(alice, "cat")
    indexing.embed_pending()
    Embedding.objects.update(model=EmbeddingModel.objects.create(name="another", dimensions=384))
    assert find(alice) == []


@pytest.mark.parametrize("text", ["", " ", "🐈", "猫", "a\0b", "x" * 10_000, "'; drop table", "\\"])
def test_no_text_is_too_odd_to_be_searched_for(alice, text):
    note(alice, "cat")
    indexing.embed_pending()
    assert len(find(alice, text)) <= 1


def test_a_search_costs_three_queries_whatever_it_finds(alice, django_assert_num_queries):
    for number in range(5):
        note(alice, f"Cat number {number}", tags=["x"])
    indexing.embed_pending()
    with acting_as(alice), django_assert_num_queries(3):  # what fits, vectors, records
        find(alice, tags=["x"])


def fill(user, count, seed):
    """So many records with vectors, straight into the tables."""
    vectors = normalised(np.random.default_rng(seed).normal(size=(count, 384)))
    model = EmbeddingModel.named(get_embedder().name, get_embedder().dimensions)
    rows = MemoryRecord.objects.bulk_create(
        MemoryRecord(user=user, content=f"Record {number}", type="even" if number % 2 == 0 else "odd")
        for number in range(count)
    )
    Embedding.objects.bulk_create(
        Embedding(
            user=user,
            corpus=Corpus.RECORD,
            source_id=row.pk,
            chunk_index=0,
            model=model,
            vector=vector,
            length=1,
            content_hash=b"0" * 16,
            said_at=NOW,
            embedded_at=NOW,
        )
        for row, vector in zip(rows, vectors, strict=True)
    )
    return [row.pk for row in rows], vectors


def test_the_order_is_that_of_a_brute_force_ranking_with_and_without_a_filter(alice):
    fill(a_person("bob@example.com"), 300, seed=2)
    ids, vectors = fill(alice, 300, seed=1)
    halves = vectors.astype(np.float16).astype(np.float64)
    cosines = halves @ get_embedder().embed_query("cat") / np.linalg.norm(halves, axis=1)
    order = [index for index in np.argsort(-cosines) if cosines[index] >= 0]
    assert [result.record.id for result in find(alice)] == [ids[index] for index in order[:10]]
    even = [ids[index] for index in order if index % 2 == 0]
    assert [result.record.id for result in find(alice, types=["even"])] == even[:10]


def test_called_outside_of_any_request_it_acts_as_its_user_by_itself(alice):
    note(alice, "We keep vectors in PostgreSQL")
    indexing.embed_pending()
    with as_the_application():
        assert found_contents(alice, "vectors") == ["We keep vectors in PostgreSQL"]
        assert searching.count_pending(user=alice) == 0
