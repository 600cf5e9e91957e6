"""Staff have rows embedded again: as if they were new, so many at a time, and without a vector being read."""

import pytest
from django.contrib.admin.models import LogEntry
from django.db import connection
from django.test.utils import CaptureQueriesContext

from intake.tests.factories import a_turn
from memory import admin as requeueing
from memory import index
from memory.admin import requeue
from memory.models import Embedding
from memory.tests.admin.pages import LIST, embed_again
from memory.tests.rows import NOW, a_place, add_quarantined, add_row

pytestmark = pytest.mark.django_db


def test_embedding_again_makes_rows_wait_as_if_they_were_new(editor, alice):
    done, broken = add_row(alice, vector=[1, 0, 0]), add_quarantined(alice)
    untouched = add_row(alice, vector=[1, 0, 0])

    response = embed_again(editor, done, broken)

    assert "2 embeddings wait for new vectors" in response.text
    for row in (done, broken):
        row.refresh_from_db()
        assert (row.vector, row.embedded_at, row.attempts, row.last_error, row.quarantined_at) == (
            None,
            None,
            0,
            "",
            None,
        )
    untouched.refresh_from_db()
    assert untouched.embedded_at


def copy_of(row, **changes):
    fields = [field.attname for field in Embedding._meta.concrete_fields if not (field.primary_key or field.generated)]
    return Embedding(**{name: getattr(row, name) for name in fields} | changes)


def test_all_rows_of_a_narrowed_list_are_embedded_again_across_its_pages(editor, alice, bob):
    first = add_row(alice, vector=[1, 0, 0])
    a_place(alice, first.source_id, turns=range(2, 61))
    Embedding.objects.bulk_create(copy_of(first, chunk_index=number) for number in range(2, 61))
    other = add_row(bob, vector=[1, 0, 0])

    embed_again(editor, first, everything=True, query="?q=alice@example.org")

    assert Embedding.objects.filter(user=alice, vector=None).count() == 60
    other.refresh_from_db()
    assert other.embedded_at


def test_a_row_embedded_again_gets_its_vector_back(editor, alice):
    a_turn(alice, "I adopted a cat")
    index.embed_pending()
    row = Embedding.objects.get()
    vector = list(row.vector)

    embed_again(editor, row)
    assert index.embed_pending() == 1

    row.refresh_from_db()
    assert list(row.vector) == vector


def test_the_workers_are_told_that_rows_wait(alice, django_capture_on_commit_callbacks):
    add_row(alice, vector=[1, 0, 0])
    rows = Embedding.objects.order_by("-id")

    with django_capture_on_commit_callbacks() as first:
        requeue(rows, now=NOW)
    with django_capture_on_commit_callbacks() as second:
        requeue(rows, now=NOW)

    assert (len(first), len(second)) == (1, 0)


def test_one_run_is_bounded_and_the_next_goes_on_where_it_stopped(alice, monkeypatch):
    monkeypatch.setattr(requeueing, "LIMIT", 4)
    monkeypatch.setattr(requeueing, "BATCH", 3)
    for _ in range(6):
        add_row(alice, vector=[1, 0, 0])
    newest_first = Embedding.objects.order_by("-created_at", "-id")

    assert [requeue(newest_first, now=NOW) for _ in range(3)] == [4, 2, 0]


def test_embedding_again_loads_no_vector(alice):
    add_row(alice, vector=[1, 0, 0])

    with CaptureQueriesContext(connection) as queries:
        requeue(Embedding.objects.order_by("-id"), now=NOW)

    selects = [query["sql"] for query in queries if query["sql"].startswith("SELECT")]
    assert selects
    assert not [select for select in selects if '"vector"' in select.split("FROM")[0]]


def test_embedding_again_is_logged_by_number_only(editor, alice):
    embed_again(editor, add_row(alice, vector=[1, 0, 0]))

    entry = LogEntry.objects.get()
    assert (entry.object_repr, entry.object_id) == ("1 embeddings", None)
    assert entry.user.email == "staff@example.org"


def test_who_may_only_look_cannot_have_rows_embedded_again(viewer, alice):
    row = add_row(alice, vector=[1, 0, 0])

    embed_again(viewer, row)

    row.refresh_from_db()
    assert row.embedded_at
    assert "embed_again" not in viewer.get(LIST).text
