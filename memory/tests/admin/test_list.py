"""The list of embeddings, at any size: bounded reads in an order that an index serves, and no vector leaves the database."""

from datetime import timedelta

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from memory import admin_lists
from memory.tests.admin.pages import LIST, listed
from memory.tests.rows import NOW, add_failed, add_quarantined, add_row

pytestmark = pytest.mark.django_db


def test_the_list_tells_dimensions_and_norm_and_leaves_the_vectors_in_the_database(viewer, alice):
    add_row(alice, vector=[3, 4, 0])

    with CaptureQueriesContext(
        connection,
    ) as queries:
        page = viewer.get(LIST).text

    assert 'field-dimensions">3<' in page
    assert 'field-norm">5.0000<' in page
    statements = [query["sql"] for query in queries if '"embeddings"' in query["sql"]]
    assert statements
    for sql in statements:
        assert '"vector"' not in sql.replace('vector_dims("embeddings"."vector")', "").replace(
            'l2_norm("embeddings"."vector")', ""
        )
        assert "content_hash" not in sql
        assert "LIMIT" in sql or "IN (" in sql or "MIN(" in sql, f"reads without a bound: {sql}"


def test_the_list_takes_the_same_queries_for_one_row_as_for_many(viewer, alice):
    add_row(alice, vector=[1, 0, 0])
    with CaptureQueriesContext(connection) as for_one:
        viewer.get(LIST)
    for _ in range(20):
        add_row(alice, vector=[1, 0, 0])
    with CaptureQueriesContext(connection) as for_many:
        viewer.get(LIST)

    assert len(for_many) == len(for_one)


def test_counting_stops_at_the_cap_and_paging_with_it(viewer, alice, monkeypatch):
    monkeypatch.setattr(admin_lists, "count_up_to_cap", lambda rows: admin_lists.Quantity(60, "at least"))
    for _ in range(3):
        add_row(alice)

    response = viewer.get(LIST)

    assert response.context["cl"].paginator.num_pages == 2
    assert "of about" in response.text


def test_the_newest_row_comes_first(viewer, alice):
    old = add_row(alice, created_at=NOW - timedelta(days=1))
    new = add_row(alice)

    assert listed(viewer.get(LIST)) == [new.pk, old.pk]


def test_an_order_that_no_index_serves_cannot_be_asked_for(viewer, alice):
    low, high = add_row(alice, part=0), add_row(alice, part=1)

    assert listed(viewer.get(LIST + "?o=5")) == [high.pk, low.pk]


@pytest.mark.parametrize(
    ("query", "index"),
    [
        ("", "idx_embeddings_listed"),
        ("created=2026-11", "idx_embeddings_listed"),
        ("state=waiting", "idx_embeddings_waiting"),
        ("state=failed", "idx_embeddings_failed"),
        ("state=quarantined", "idx_embeddings_quarantined"),
        ("q=alice@example.org", "embeddings_part_once"),
    ],
)
def test_each_way_of_narrowing_the_list_has_an_order_that_its_index_serves(viewer, alice, query, index):
    add_failed(alice)
    add_quarantined(alice)
    with CaptureQueriesContext(connection) as queries:
        viewer.get(f"{LIST}?{query}")
    (page_of_ids,) = (q["sql"] for q in queries if q["sql"].startswith('SELECT "embeddings"."id" AS "pk"'))

    with connection.cursor() as cursor:
        # The table is far too small for the planner to want an index: leave it no other way, if there is this one.
        cursor.execute("SET LOCAL enable_seqscan = off; SET LOCAL enable_bitmapscan = off; SET LOCAL enable_sort = off")
        cursor.execute(f"EXPLAIN {page_of_ids}")
        plan = "\n".join(line for (line,) in cursor.fetchall())

    assert index in plan
    assert "Sort" not in plan
