"""Notes in the browser are whose they are: nobody else sees or touches them, and no visitor's words are lost."""

import pytest
from django.test import Client
from django.urls import reverse

from chat.tests.pages.pages import (
    DAY,
    DELETE,
    EDIT,
    EDIT_MEMORY,
    LOG,
    LOGS,
    MEMORY,
    RECORDS,
    content_of,
    page_of,
    send,
)
from intake.tests.factories import NOW, a_person
from memory import documents, records

pytestmark = pytest.mark.django_db

PAGES = [MEMORY, LOGS, LOG, EDIT, RECORDS]


@pytest.mark.medium
def test_nobody_sees_or_touches_anybody_elses(client, alice):
    other = a_person("other@example.com")
    documents.create(user=other, day=None, content="my secret", now=NOW)
    documents.create(user=other, day=DAY, content="my secret", now=NOW)
    record = records.create(user=other, content="my secret", type="secret", tags=["secret"], now=NOW)
    for path in PAGES:
        assert "secret" not in page_of(client, path)
    assert "my secret" not in page_of(client, RECORDS, type="secret")
    theirs = [reverse(f"memory:{name}", args=[record.id]) for name in ("record", "delete_record")]
    missing = page_of(client, f"{RECORDS}nothing/", status=404)
    for path in [*theirs, DELETE]:
        assert page_of(client, path, status=404) == missing
        assert send(client, path, status=404, state=documents.read(user=other, day=DAY).state) == missing
    send(client, EDIT, status=409, content="mine", state=documents.read(user=other, day=DAY).state)
    send(client, LOG, text="mine")
    assert content_of(other, DAY) == "my secret"
    assert records.read(user=other, record_id=record.id).content == "my secret"


@pytest.mark.parametrize("path", [*PAGES, DELETE, f"{RECORDS}nothing/", f"{RECORDS}nothing/delete/"])
def test_a_visitor_is_told_how_to_keep_notes(path):
    page = page_of(Client(), path)
    assert "With an account you keep what always holds" in page
    assert f"{reverse('intake:login')}?next={path.replace('/', '%2F')}" in page


@pytest.mark.parametrize(("path", "name"), [(EDIT_MEMORY, "content"), (LOG, "text"), (RECORDS, "content")])
def test_whose_session_ended_while_they_wrote_gets_their_words_back(path, name):
    page = send(Client(), path, status=401, **{name: "A long thought\n& more"})
    assert "You are logged out" in page
    assert "A long thought\n&amp; more</textarea>" in page


def test_no_form_is_taken_from_another_site(alice):
    client = Client(enforce_csrf_checks=True)
    client.force_login(alice)
    for path in [EDIT_MEMORY, LOG, EDIT, DELETE, RECORDS]:
        send(client, path, status=403, content="x", text="x", state="")
    assert not documents.exists(user=alice, day=DAY)
