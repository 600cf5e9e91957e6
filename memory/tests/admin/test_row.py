"""One embedding with its nearest neighbours, the models, and the page of the index's health."""

import re

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from memory.admin import draw
from memory.admin_lists import nearest_neighbours
from memory.tests.admin.pages import HEALTH, row_url
from memory.tests.rows import NOW, add_failed, add_quarantined, add_row, model_named

pytestmark = pytest.mark.django_db


def test_a_row_is_shown_with_its_neighbours_nearest_first(viewer, alice):
    row = add_row(alice, vector=[1, 0, 0])
    far = add_row(alice, vector=[0, 1, 0])
    near = add_row(alice, vector=[1, 1, 0])

    response = viewer.get(row_url(row))

    found = [(neighbour["pk"], round(neighbour["distance"], 3)) for neighbour in response.context["neighbours"]]
    assert found == [(near.pk, 0.293), (far.pk, 1.0)]
    assert row_url(near) in response.text


def test_neighbours_are_of_the_same_person_and_model_and_of_other_sources(alice, bob):
    row = add_row(alice, vector=[1, 0, 0])
    add_row(alice, vector=[1, 0, 0], source_id=row.source_id, part=1)
    add_row(alice, vector=[1, 0, 0], model=model_named("other"))
    add_row(bob, vector=[1, 0, 0])
    add_row(alice)
    mine = add_row(alice, vector=[0, 1, 0])

    assert [neighbour["pk"] for neighbour in nearest_neighbours(row)] == [mine.pk]


def test_at_most_ten_neighbours_are_shown(alice):
    row = add_row(alice, vector=[1, 0, 0])
    for _ in range(12):
        add_row(alice, vector=[1, 1, 0])

    assert len(nearest_neighbours(row)) == 10


def test_a_row_that_waits_is_shown_without_neighbours(viewer, alice):
    add_row(alice, vector=[1, 0, 0])
    assert "There is no vector yet" in viewer.get(row_url(add_row(alice))).text


def test_a_rows_vector_is_drawn_with_its_extremes_and_nothing_inline_that_the_policy_refuses(viewer, alice):
    page = viewer.get(row_url(add_row(alice, vector=[0.6, -0.8, 0]))).text
    assert "from -0.7998 to 0.6001, 1 of them 0" in page
    assert 'd="M0.5 100v-75M1.5 100v100"' in page
    assert " style=" not in page.split("<svg class=")[1].split("</svg>")[0]
    assert "no other text in this corpus" in page
    assert draw([0.0, 0.0])["path"] == ""


def test_no_vector_but_the_one_that_is_drawn_leaves_the_database_for_a_row(viewer, alice):
    row = add_row(alice, vector=[1, 0, 0])
    add_row(alice, vector=[0, 1, 0])

    with CaptureQueriesContext(connection) as queries:
        viewer.get(row_url(row))

    selected = [re.split(r"\bFROM\b", query["sql"], maxsplit=1)[0] for query in queries if "embeddings" in query["sql"]]
    drawn = 'SELECT "embeddings"."vector" AS "vector" '
    assert selected.count(drawn) == 1
    selected.remove(drawn)
    for columns in selected:
        bare = re.sub(r'(vector_dims|l2_norm)\("embeddings"\."vector"\)', "", columns)
        assert "content_hash" not in bare
        assert '"vector"' not in bare or "<=>" in bare


def test_a_row_that_does_not_exist_leads_back_to_the_index(viewer):
    assert viewer.get("/admin/memory/embedding/123456/change/").status_code == 302
    assert viewer.get("/admin/memory/embedding/nonsense/change/").status_code == 302


def test_the_health_page_says_what_waits_failed_and_was_set_aside(viewer, alice):
    add_row(alice)
    add_failed(alice, "The model is away.")
    add_quarantined(alice, "ValueError")

    page = viewer.get(HEALTH).text

    for words in ("The model is away.", "ValueError", "Longest wait", "By model", "tiny", "Quarantined"):
        assert words in page


def test_a_model_is_shown_with_the_time_it_took_over(superuser, client):
    model = model_named("next")
    model.activated_at = NOW
    model.save()
    client.force_login(superuser)

    assert "21 Nov" in client.get("/admin/memory/embeddingmodel/").text
    assert "21 Nov" in client.get(f"/admin/memory/embeddingmodel/{model.pk}/change/").text
