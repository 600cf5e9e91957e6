"""Who may see the index in the admin: staff whom somebody allowed to, and nobody may change it by hand."""

import pytest

from memory.models import Embedding
from memory.tests.admin.pages import HEALTH, LIST, row_url, staff_with
from memory.tests.rows import add_row

pytestmark = pytest.mark.django_db


def pages_of(row: Embedding) -> list[str]:
    models = "/admin/memory/embeddingmodel/"
    return [LIST, HEALTH, row_url(row), row_url(row).replace("change", "history"), models]


def test_visitors_are_asked_to_log_in(client, alice):
    for url in pages_of(add_row(alice)):
        assert client.get(url).headers["Location"].startswith("/admin/login/"), url


def test_ordinary_people_are_asked_to_log_in_as_somebody_else(client, alice):
    client.force_login(alice)
    for url in pages_of(add_row(alice)):
        assert client.get(url).headers["Location"].startswith("/admin/login/"), url


def test_staff_without_the_permission_see_nothing(client, alice):
    client.force_login(staff_with())
    for url in pages_of(add_row(alice)):
        assert client.get(url).status_code == 403, url
    assert "Health of the index" not in client.get("/admin/").text


def test_staff_with_the_view_permission_see_the_index(viewer, alice):
    row = add_row(alice, vector=[3, 4, 0])
    for url in (LIST, HEALTH, row_url(row)):
        assert viewer.get(url).status_code == 200, url
    assert HEALTH in viewer.get("/admin/").text
    assert HEALTH in viewer.get(LIST).text


@pytest.mark.parametrize("model", ["embedding", "embeddingmodel"])
def test_nobody_adds_changes_or_deletes_through_a_form(client, alice, superuser, model):
    row = add_row(alice, vector=[1, 0, 0])
    pk = {"embedding": row.pk, "embeddingmodel": row.model_id}[model]
    client.force_login(superuser)

    assert client.get(f"/admin/memory/{model}/add/").status_code == 403
    assert client.post(f"/admin/memory/{model}/{pk}/change/", {"corpus": "x", "name": "x"}).status_code == 403
    assert client.post(f"/admin/memory/{model}/{pk}/delete/", {"post": "yes"}).status_code == 403
    assert client.post(
        f"/admin/memory/{model}/", {"action": "delete_selected", "_selected_action": [pk]}
    ).status_code in (200, 302)
    row.refresh_from_db()
    assert row.embedded_at
    assert row.model.name == "tiny"


def test_conversations_and_turns_are_unknown_to_the_admin(client, superuser):
    client.force_login(superuser)
    for name in ("conversation", "turn", "sessionlink"):
        assert client.get(f"/admin/intake/{name}/").status_code == 404
