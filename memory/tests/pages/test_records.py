"""Records in the browser: noted, narrowed, read and deleted."""

import re
from datetime import timedelta
from html import unescape

import pytest
from django.urls import reverse

from intake.tests.factories import NOW
from memory import records
from memory.models.documents import MAX_RECORD_LENGTH
from memory.tests.pages.pages import (
    HOSTILE,
    RECORDS,
    page_of,
    send,
    state_on,
    text_on,
)

pytestmark = pytest.mark.django_db


def contents_on(page: str) -> list[str]:
    return [unescape(text) for text in re.findall(r'class="record-content"[^>]*>(.*?)</p>', page, re.DOTALL)]


def test_a_record_is_noted_and_listed_with_what_it_is(client, alice):
    form = {"content": "We keep\r\nvectors", "type": "DECISION", "project_id": "recollect", "tags": "database, , a b ,"}
    assert send(client, RECORDS, **form) == RECORDS
    page = page_of(client, RECORDS)
    assert contents_on(page) == ["We keep\nvectors"]
    [record] = records.list_records(user=alice).rows
    assert (record.type, record.project_id, record.tags) == ("DECISION", "recollect", ("database", "a b"))
    for link in ("?type=DECISION", "?project=recollect", "?tag=a%20b"):
        assert f'href="{RECORDS}{link}"' in page


@pytest.mark.parametrize(
    ("form", "sentence"),
    [
        ({"content": "  "}, "Enter some text."),
        ({"content": "x" * (MAX_RECORD_LENGTH + 1)}, "At most 32,000 characters; this has 32,001."),
        ({"content": "a\0b"}, "NUL character"),
        ({"type": ""}, "This field is required."),
        ({"type": "x" * 101}, "at most 100 characters"),
        ({"project_id": "x" * 201}, "at most 200 characters"),
        ({"tags": ",".join(f"t{number}" for number in range(51))}, "At most 50; these are 51."),
        ({"tags": "x" * 101}, "At most 100 characters; this has 101."),
        ({"tags": "a\0b"}, "Null characters are not allowed."),
    ],
)
def test_what_cannot_be_noted_is_said_beside_its_field(client, alice, form, sentence):
    page = send(client, RECORDS, status=400, **{"content": "Keep this", "type": "note", "tags": "", **form})
    assert sentence in unescape(page)
    assert '<details class="fold" open>' in page
    assert text_on(page) == form.get("content", "Keep this")
    assert records.list_records(user=alice).rows == []


def test_records_are_narrowed_by_type_project_and_tag(client, alice):
    note = {"user": alice, "now": NOW}
    records.create(content="one", type="decision", project_id="p", tags=["a", "b"], **note)
    records.create(content="two", type="decision", tags=["a"], **note)
    records.create(content="three", type="lesson", project_id="p", **note)
    assert set(contents_on(page_of(client, RECORDS, type="decision"))) == {"one", "two"}
    assert set(contents_on(page_of(client, RECORDS, project="p"))) == {"one", "three"}
    assert set(contents_on(page_of(client, RECORDS, tag="a"))) == {"one", "two"}
    assert contents_on(page_of(client, RECORDS, tag="a", project="p")) == ["one"]
    assert len(contents_on(page_of(client, RECORDS, type="", project="", tag=""))) == 3
    page = page_of(client, RECORDS, tag="c")
    assert contents_on(page) == []
    assert "No record fits" in page
    page_of(client, RECORDS, status=400, tag="a\0b")


def test_older_records_are_a_link_away_with_the_same_filter(client, alice):
    for number in range(32):
        records.create(user=alice, content=f"number {number}", type="log & note", now=NOW + timedelta(minutes=number))
    page = page_of(client, RECORDS, type="log & note")
    assert contents_on(page)[0] == "number 31"
    assert len(contents_on(page)) == 30
    link = unescape(re.search(r'href="(\?[^"]*after=[^"]*)"', page).group(1))
    assert contents_on(page_of(client, RECORDS + link)) == ["number 1", "number 0"]


def test_a_record_has_a_page_and_is_deleted_after_it_was_asked(client, alice):
    record = records.create(user=alice, content=HOSTILE, type="note", tags=[HOSTILE[:90]], now=NOW)
    path, delete = (reverse(f"memory:{name}", args=[record.id]) for name in ("record", "delete_record"))
    for page in (page_of(client, path), page_of(client, delete), page_of(client, RECORDS)):
        assert HOSTILE in unescape(page)
        assert "<script>alert" not in page
    assert send(client, delete) == RECORDS
    assert records.list_records(user=alice).rows == []
    page_of(client, path, status=404)
    send(client, delete, status=404)


def test_a_record_is_edited_and_of_two_who_do_so_the_second_sees_what_the_first_wrote(client, alice):
    noted = records.create(user=alice, content="We chose MySQL", tags=["db", "x"], now=NOW)
    path = reverse("memory:edit_record", args=[noted.id])
    page = page_of(client, path)
    assert (text_on(page), 'value="db, x"' in page) == ("We chose MySQL", True)
    state = state_on(page)
    form = {"content": "We chose PostgreSQL", "type": "DECISION", "project_id": "", "tags": "db", "state": state}
    assert send(client, path, **form) == reverse("memory:record", args=[noted.id])
    now = records.read(user=alice, record_id=noted.id)
    assert (now.content, now.type, now.tags, now.created_at) == ("We chose PostgreSQL", "DECISION", ("db",), NOW)
    page = send(client, path, status=409, **{**form, "content": "We chose SQLite"})
    assert "We chose PostgreSQL" in page
    assert text_on(page) == "We chose SQLite"
    send(client, path, **{**form, "content": "We chose SQLite", "state": state_on(page)})
    assert records.read(user=alice, record_id=noted.id).content == "We chose SQLite"
    assert "Enter some text." in send(client, path, status=400, **{**form, "content": ""})
