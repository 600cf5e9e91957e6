"""Notes from elsewhere, and the page about the person: read, found by a search that leads to them, changed, deleted."""

import json

import pytest
from django.test import Client

from core.isolation.acting import acting_as
from intake.tests.factories import NOW, a_person
from memory import documents
from memory.models import MemoryDocument

pytestmark = pytest.mark.django_db


@pytest.fixture
def alice():
    return a_person()


@pytest.fixture
def client(alice):
    client = Client()
    client.force_login(alice)
    return client


def a_note(user, title="Trip", content="To Norway, by train.", at=NOW):
    with acting_as(user):
        return documents.create_note(user=user, title=title, content=content, at=at)


def test_a_note_is_listed_read_found_and_deleted(client, alice):
    note = a_note(alice)
    path = f"/memory/notes/{note.pk}/"
    assert client.get("/memory/notes/").headers["Location"] == "/memory/records/?type=note"
    assert path in client.get("/memory/records/?type=note").content.decode()
    page = client.get(path).content.decode()
    assert "<h1" in page
    assert "To Norway, by train." in page
    found = client.get("/search/", {"q": "Norway train"}).content.decode()
    assert path in found
    assert client.get(f"{path}delete/").status_code == 200
    assert client.post(f"{path}delete/").status_code == 302
    assert client.get(path).status_code == 404
    assert path not in client.get("/search/", {"q": "Norway train"}).content.decode()


def test_a_note_without_a_title_is_named_all_the_same(client, alice):
    note = a_note(alice, title="")
    assert "Untitled" in client.get("/memory/records/?type=note").content.decode()
    assert "Untitled" in client.get(f"/memory/notes/{note.pk}/").content.decode()


@pytest.mark.parametrize("note_id", ["nonsense", "0190c0de-0000-7000-8000-000000000001"])
def test_what_is_no_note_is_not_there(client, note_id):
    assert client.get(f"/memory/notes/{note_id}/").status_code == 404


def test_the_page_about_the_person_is_written_and_searched_like_memory(client):
    assert client.post("/memory/about/edit/", {"content": "Allergic to hazelnuts.", "state": ""}).status_code == 302
    assert client.get("/memory/about/").headers["Location"] == "/memory/#who"
    page = client.get("/memory/").content.decode()
    assert "Allergic to hazelnuts." in page
    assert "Who I am" in page and "What always holds" in page
    assert MemoryDocument.objects.get().kind == "about"
    assert '/memory/about/"' in client.get("/search/", {"q": "hazelnuts"}).content.decode()
    assert "Allergic" not in client.get("/memory/?project=Garden").content.decode()


def test_the_page_about_the_person_is_written_over_rest(client):
    def put(content, **headers):
        return client.put(
            "/api/v1/memory/documents/about/",
            json.dumps({"content": content}),
            content_type="application/json",
            headers=headers,
        )

    assert put("Vegetarian", **{"if-none-match": "*"}).status_code == 201
    read = client.get("/api/v1/memory/documents/about/")
    assert (read.status_code, read.json()["content"], read.json()["date"]) == (200, "Vegetarian", None)
    assert put("Vegan", **{"if-match": read.headers["ETag"]}).status_code == 200
    assert client.get("/api/v1/memory/documents/memory/").status_code == 404
