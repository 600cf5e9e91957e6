"""Records in the browser: noted, narrowed, read and deleted."""

import re
from datetime import timedelta
from html import unescape
from urllib.parse import unquote

import pytest
from django.urls import reverse

from chat.tests.pages.pages import (
    HOSTILE,
    RECORDS,
    page_of,
    send,
    state_on,
    text_on,
)
from intake.chats.tree import conversation_path
from intake.tests.factories import NOW, a_turn
from memory import documents, records
from memory.models.documents import MAX_RECORD_LENGTH
from memory.tests.rows import add_records

pytestmark = pytest.mark.django_db


def contents_on(page: str) -> list[str]:
    return [unescape(text) for text in re.findall(r'class="row-title[^>]*>(.*?)</span>', page, re.DOTALL)]


def test_a_record_is_noted_and_listed_with_what_it_is(client, alice):
    form = {"content": "We keep\r\nvectors", "type": "DECISION", "project_id": "recollect", "tags": "database, , a b ,"}
    assert send(client, RECORDS, **form) == RECORDS
    page = page_of(client, RECORDS)
    assert contents_on(page) == ["We keep\nvectors"]
    [record] = records.list_records(user=alice).rows
    assert (record.type, record.project_id, record.tags) == ("DECISION", "recollect", ("database", "a b"))
    assert "#database" in page and "recollect" in page
    page = page_of(client, reverse("memory:record", args=[record.id]))
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
    add_records(alice, (f"number {number}" for number in range(32)), every=timedelta(minutes=1), type="log & note")
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
    assert '<option value="DECISION" selected>Decision' in page
    assert text_on(page) == "We chose SQLite"
    send(client, path, **{**form, "content": "We chose SQLite", "state": state_on(page)})
    assert records.read(user=alice, record_id=noted.id).content == "We chose SQLite"
    assert "Enter some text." in send(client, path, status=400, **{**form, "content": ""})


def add(user, content="The worktop is oak", *, type="fact", replaces=None, **facts):
    return records.create(user=user, content=content, type=type, now=NOW, facts={"replaces": replaces, **facts})


def act(client, name, record, **form):
    return client.post(reverse(f"memory:{name}", args=[record.id]), form)


def test_a_record_is_replaced_shown_struck_through_and_brought_back(client, alice):
    oak = add(alice)
    form = {"content": "The worktop is walnut", "type": "fact", "valid_from": "2026-03-01"}
    assert act(client, "replace_record", oak, **form).status_code == 302
    assert contents_on(page_of(client, RECORDS)) == ["The worktop is walnut"]
    page = page_of(client, RECORDS, replaced="1")
    assert contents_on(page) == ["The worktop is walnut", "<del>The worktop is oak</del>"]
    walnut = records.list_records(user=alice).rows[0]
    page = page_of(client, reverse("memory:record", args=[oak.id]))
    assert f'href="{reverse("memory:record", args=[walnut.id])}">this one</a>' in page
    assert act(client, "bring_back_record", oak).status_code == 302
    assert set(contents_on(page_of(client, RECORDS))) == {"The worktop is oak", "The worktop is walnut"}


def test_what_cannot_replace_a_record_is_said_on_the_form(client, alice):
    oak = add(alice)
    add(alice, "The worktop is walnut", replaces=oak.id)
    response = act(client, "replace_record", oak, content="Maple", type="fact")
    assert response.status_code == 400
    assert "was already replaced by" in unescape(response.content.decode())


def test_a_todo_is_ticked_in_the_list_which_stays_narrowed(client, alice):
    todo = add(alice, "Oil the worktop", type="todo")
    response = act(client, "tick_record", todo, done="1", query="type=todo")
    assert response["Location"] == f"{RECORDS}?type=todo"
    assert records.read(user=alice, record_id=todo.id).done_at is not None
    assert 'aria-pressed="true"' in page_of(client, RECORDS, type="todo")
    act(client, "tick_record", todo, done="")
    assert records.read(user=alice, record_id=todo.id).done_at is None


def test_only_a_todo_is_ticked(client, alice):
    assert act(client, "tick_record", add(alice), done="1").status_code == 302
    assert records.list_records(user=alice).rows[0].done_at is None


@pytest.mark.medium
def test_records_and_notes_are_one_list_by_time_page_by_page(client, alice):
    for number in range(20):
        at = NOW + timedelta(minutes=number)
        records.create(user=alice, content=f"record {number}", now=at)
        documents.create_note(user=alice, title=f"note {number}", content="x", at=at + timedelta(seconds=1))
    first = page_of(client, RECORDS)
    [after] = re.findall(r'href="\?after=([^"&]+)"', first)
    second = page_of(client, RECORDS, after=unquote(after))
    texts = [re.sub("<[^>]+>", "", text) for text in contents_on(first) + contents_on(second)]
    assert texts == [f"{kind} {number}" for number in reversed(range(20)) for kind in ("note", "record")]
    assert len(contents_on(first)) == 30


def test_the_list_is_searched_and_narrowed_by_kind(client, alice):
    add(alice)
    add(alice, "Oil the oak worktop", type="Task")
    documents.create_note(user=alice, title="Oak", content="A tree", at=NOW)
    assert len(contents_on(page_of(client, RECORDS, q="oak"))) == 3
    assert contents_on(page_of(client, RECORDS, q="oak", type="todo")) == ["Oil the oak worktop"]
    assert len(contents_on(page_of(client, RECORDS, q="tree", type="note"))) == 1
    assert contents_on(page_of(client, RECORDS, q="tree worktop")) == []


def test_a_record_is_called_by_its_first_line(client, alice):
    record = add(alice, "# The worktop\n\nIt is oak")
    assert "<title>The worktop ·" in page_of(client, reverse("memory:record", args=[record.id]))


def test_a_record_shows_the_turn_it_was_kept_from_while_that_is_there(client, alice):
    turn = a_turn(alice, "The worktop is oak")
    record = add(alice, source_conversation=turn.conversation_id, source_turn=turn.turn_number)
    path = reverse("memory:record", args=[record.id])
    link = f'href="{conversation_path(turn.conversation_id, turn_number=turn.turn_number)}"'
    assert link in page_of(client, path)
    turn.delete()
    assert link not in page_of(client, path)


def test_when_a_record_holds_is_edited(client, alice):
    record = add(alice)
    form = {"content": "The worktop is oak", "type": "fact", "state": record.state}
    days = {"valid_from": "2026-03-01", "valid_until": "2026-03-02"}
    assert act(client, "edit_record", record, **form, **days).status_code == 302
    found = records.read(user=alice, record_id=record.id)
    assert (str(found.valid_from), str(found.valid_until)) == tuple(days.values())
    form["state"] = found.state
    page = act(client, "edit_record", found, **form, valid_from="2026-03-02", valid_until="2026-03-01")
    assert (page.status_code, "before the first" in page.content.decode()) == (400, True)


def test_the_notes_of_a_project_are_listed_with_its_records(client, alice):
    for project in ("Garden", "House", ""):
        documents.create_note(user=alice, title=f"Plan of {project}", content="Two", at=NOW, project=project)
        records.create(user=alice, content=f"Fact of {project}", project_id=project, now=NOW)
    page = page_of(client, RECORDS, project="Garden")
    assert "Plan of Garden" in page and "Fact of Garden" in page and "House" not in page
    note = documents.list_notes(user=alice, project="Garden").rows[0]
    assert 'href="/memory/records/?project=Garden"' in page_of(client, reverse("memory:note", args=[note.pk]))


def test_types_of_records_are_named_in_the_language_of_the_page(client, alice):
    for kind in ("todo", "Decision", "recipe"):
        records.create(user=alice, content=f"A {kind}", type=kind, now=NOW)
    page = client.get(RECORDS, headers={"accept-language": "de"}).content.decode()
    types = re.findall(r'class="row-note">(\w+) ·', page)
    assert sorted(types) == ["Aufgabe", "Entscheidung", "recipe"]


def test_filters_that_are_used_are_not_folded_away(client, alice):
    records.create(user=alice, content="We keep vectors", project_id="shop", now=NOW)
    assert '<details class="narrow-more">' in page_of(client, RECORDS, q="vectors")
    for filters in ({"project": "shop"}, {"tag": "a"}, {"replaced": "1"}):
        assert '<details class="narrow-more" open>' in page_of(client, RECORDS, **filters)
