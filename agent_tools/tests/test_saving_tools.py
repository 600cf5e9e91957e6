"""`save_memory` and `append_daily_log`: stored once, found again, and said."""

import json
from datetime import UTC, date, datetime
from unittest.mock import patch
from uuid import UUID

import pytest

from agent_tools.models import TokenScope
from agent_tools.tests.callers import call, client_of
from agent_tools.tools import registry
from core.errors import AuthenticationRequired
from core.isolation.acting import acting_as
from intake.models import Conversation
from intake.tests.factories import NOW, a_person
from memory import documents, index, projects, proposals, records
from memory.models import MemoryDocument, MemoryRecord, Proposal

pytestmark = pytest.mark.django_db


def save(api, content="The worktop is oak", headers=None, **fields):
    return call(api, "save_memory", {"content": content, **fields}, **(headers or {}))


def test_what_is_saved_is_said_with_its_id_and_found(api, alice):
    response = save(api, type="decision", project_id="house", tags=["kitchen", "kitchen"])
    assert response.status_code == 200
    kept = MemoryRecord.objects.for_user(alice).get()
    record = response.json()["record"]
    assert record.pop("created_at")
    assert record == {
        "id": str(kept.pk),
        "type": "decision",
        "project_id": "house",
        "tags": ["kitchen"],
        "content": "The worktop is oak",
    }
    assert str(kept.pk) in response.json()["text"]
    index.embed_pending()
    (found,) = call(api, "search_memory", {"query": "oak worktop"}).json()["results"]
    assert found["record"]["id"] == str(kept.pk)


def test_a_memory_is_a_note_of_no_project_unless_said(api):
    for fields in ({}, {"type": None, "project_id": None, "tags": None}):
        record = save(api, **fields).json()["record"]
        assert (record["type"], record["project_id"], record["tags"]) == ("note", "", [])


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"content": ""}, "content"),
        ({"content": "  \n"}, "content"),
        ({"content": "x" * 32_001}, "content"),
        ({"content": "a\x00b"}, "content"),
        ({"content": ["x"]}, "content"),
        ({"type": "x" * 101}, "type"),
        ({"tags": ["x"] * 51}, "tags"),
        ({"tags": {"kitchen": 1}}, "tags"),
        ({"project_id": "x" * 201}, "project_id"),
        ({"user": 1}, "user"),
    ],
)
def test_a_wrong_memory_is_refused_naming_the_field_and_not_kept(api, fields, field):
    response = save(api, **fields)
    assert (response.status_code, list(response.json()["errors"])) == (400, [field])
    assert not MemoryRecord.objects.exists()


def test_lines_go_to_the_log_of_the_day(api, alice):
    first = call(api, "append_daily_log", {"text": "Ordered the worktop", "date": "2026-02-26"}).json()
    second = call(api, "append_daily_log", {"text": "It came\nIt fits", "date": "2026-02-26"}).json()
    log = MemoryDocument.objects.for_user(alice).get()
    assert log.content == "Ordered the worktop\nIt came\nIt fits\n"
    assert first["documentId"] == second["documentId"] == str(log.pk)
    assert (second["date"], second["length"]) == ("2026-02-26", len(log.content))
    assert second["text"] == f"Added 2 lines to the daily log of 2026-02-26 with the id {log.pk}."


def test_today_is_the_persons_own(api, alice):
    alice.time_zone = "Pacific/Auckland"
    alice.save()
    with patch("agent_tools.tools.memory.timezone.now", return_value=datetime(2026, 3, 1, 11, 30, tzinfo=UTC)):
        assert call(api, "append_daily_log", {"text": "Good morning"}).json()["date"] == "2026-03-02"


@pytest.mark.parametrize("date", ["today", "2026-02-30", "20260226", "2026-W09-4", "2026-02-26 later", "1500-01-01"])
def test_what_is_no_day_is_refused(api, date):
    response = call(api, "append_daily_log", {"text": "x", "date": date})
    assert (response.status_code, list(response.json()["errors"])) == (400, ["date"])
    assert not MemoryDocument.objects.exists()


def test_a_full_log_takes_no_more_and_loses_nothing(api, alice, monkeypatch):
    call(api, "append_daily_log", {"text": "Short", "date": "2026-02-26"})
    response = call(api, "append_daily_log", {"text": "x" * 999_999, "date": "2026-02-26"})
    assert response.status_code in (400, 413)
    assert MemoryDocument.objects.for_user(alice).get().content == "Short\n"


@pytest.mark.parametrize("name", ["save_memory", "append_daily_log"])
def test_saving_needs_the_scope_to_write(alice, name):
    response = call(client_of(alice, scopes=[TokenScope.SEARCH]), name, {"content": "x"})
    assert (response.status_code, response.json()["code"]) == (403, "insufficient_scope")
    assert not registry.get(name).is_read_only


@pytest.mark.parametrize(("name", "data"), [("save_memory", {"content": "x"}), ("append_daily_log", {"text": "x"})])
def test_a_visitor_is_told_that_an_identity_is_needed(name, data):
    with pytest.raises(AuthenticationRequired):
        registry.get(name).call(data, user=None)


def test_the_same_request_under_one_key_is_stored_once_and_answered_alike(api):
    key = {"headers": {"Idempotency-Key": "8e03978e-40d5-43e8-bc93-6894a57f9324"}}
    first, second = save(api, **key), save(api, **key)
    assert first.status_code == second.status_code == 200
    assert first.content == second.content
    assert "Idempotency-Replayed" not in first.headers
    assert second.headers["Idempotency-Replayed"] == "true"
    assert MemoryRecord.objects.count() == 1


def test_another_request_under_the_same_key_is_refused(api):
    key = {"headers": {"Idempotency-Key": "k"}}
    save(api, **key)
    for response in (
        save(api, content="Another", **key),
        call(api, "append_daily_log", {"text": "x"}, **key["headers"]),
    ):
        assert (response.status_code, response.json()["code"]) == (422, "idempotency_key_reused")
    assert MemoryRecord.objects.count() == 1


def test_a_key_that_is_none_is_refused_and_nothing_stored(api):
    response = save(api, headers={"Idempotency-Key": "x" * 256})
    assert (response.status_code, list(response.json()["errors"])) == (400, ["Idempotency-Key"])
    assert not MemoryRecord.objects.exists()


def test_a_refused_request_does_not_use_up_its_key(api):
    key = {"headers": {"Idempotency-Key": "k"}}
    assert save(api, content="", **key).status_code == 400
    assert save(api, **key).status_code == 200


def test_a_search_takes_no_notice_of_a_key(api):
    for query in ("cat", "dog"):
        response = call(api, "search_chat_history", {"query": query}, **{"Idempotency-Key": "k"})
        assert response.json()["query"] == query


def test_people_are_shown_what_was_stored(alice):
    for name, data, told in (
        ("save_memory", {"content": "x"}, "Saved a note"),
        ("append_daily_log", {"text": "x", "date": "2026-02-26"}, "Added to the log of 2026-02-26"),
    ):
        tool = registry.get(name)
        assert tool.summarise(tool.call(data, user=alice), alice) == told


def test_the_same_text_is_saved_once_and_the_answer_has_its_id(api, alice):
    first = save(api, "No nuts", type="fact", tags=["food"]).json()
    again = save(api, "No nuts").json()
    assert "alreadySaved" not in first
    assert (again["alreadySaved"], again["record"]["id"]) == (True, first["record"]["id"])
    assert again["text"] == f"This was saved before, with the id {first['record']['id']}."
    assert save(api, "No nuts", project_id="kitchen").json()["record"]["id"] != first["record"]["id"]
    assert MemoryRecord.objects.count() == 2


def test_who_may_only_write_learns_nothing_of_the_record_that_is_there(api, alice):
    first = save(api, "No nuts", type="secret type", tags=["secret tag"]).json()
    writer = client_of(alice, scopes=[TokenScope.WRITE])
    again = save(writer, "No nuts").json()
    assert again["record"]["id"] == first["record"]["id"]
    assert "secret" not in json.dumps(again)


def test_what_is_nearly_the_same_is_named_with_its_id(api):
    first = save(api, "The worktop in the kitchen is oak, oiled twice a year.").json()
    other = save(api, "The floor of the hall is stone.").json()
    again = save(api, "the worktop in the kitchen is oak - oiled twice a year").json()
    assert "nearlySame" not in first and "nearlySame" not in other
    assert again["nearlySame"] == [first["record"]["id"]]
    assert again["text"].endswith(f" Nearly the same was saved before, with the id {first['record']['id']}.")
    third = save(api, "So: the worktop in the kitchen is oak, oiled twice a year.").json()
    assert set(third["nearlySame"]) == {first["record"]["id"], again["record"]["id"]}
    assert "with the ids " in third["text"]
    assert MemoryRecord.objects.count() == 4


@pytest.mark.parametrize(
    "content",
    [
        "The worktop in the kitchen is oak, oiled 3 times a year.",
        "The worktop in the kitchen",
        "The worktop in the hall is pine, waxed every spring.",
    ],
)
def test_another_number_or_half_of_the_words_is_not_nearly_the_same(api, content):
    save(api, "The worktop in the kitchen is oak, oiled 2 times a year.")
    assert "nearlySame" not in save(api, content).json()


def test_nothing_of_another_project_or_another_person_is_nearly_the_same(api):
    bob = client_of(a_person("bob@example.com"))
    save(bob, "The worktop in the kitchen is oak")
    save(api, "The worktop in the kitchen is oak", project_id="house")
    assert "nearlySame" not in save(api, "The worktop in the kitchen is oak!").json()


def test_who_may_only_write_is_not_told_what_is_nearly_the_same(api, alice):
    first = save(api, "The worktop in the kitchen is oak").json()
    writer = client_of(alice, scopes=[TokenScope.WRITE])
    again = save(writer, "The worktop in the kitchen is oak!")
    assert "nearlySame" not in again.json()
    assert first["record"]["id"] not in again.content.decode()


def test_a_saved_memory_replaces_another_in_both_searches(api):
    oak = save(api).json()["record"]
    walnut = save(api, "The worktop is walnut", replaces=oak["id"])
    assert walnut.json()["record"]["replaces"] == oak["id"]
    assert f"It replaces {oak['id']}." in walnut.json()["text"]
    again = save(api, "The worktop is walnut", replaces=oak["id"])
    assert again.json()["alreadySaved"]
    index.embed_pending()
    for tool in ("search_memory", "search_history"):
        found = call(api, tool, {"query": "worktop"}).json()
        assert (len(found["results"]), "walnut" in found["text"]) == (1, True)
        everything = call(api, tool, {"query": "worktop", "include_replaced": True}).json()
        assert len(everything["results"]) == 2
        assert f" by {walnut.json()['record']['id']}" in everything["text"]
        assert "replaced on " in everything["text"]


def test_what_was_replaced_is_saved_again_as_a_new_memory(api):
    oak = save(api).json()["record"]
    save(api, "The worktop is walnut", replaces=oak["id"])
    assert save(api).json()["record"]["id"] != oak["id"]


def test_a_memory_cannot_replace_one_with_its_own_text(api):
    oak = save(api).json()["record"]
    problem = save(api, replaces=oak["id"])
    assert (problem.status_code, list(problem.json()["errors"])) == (400, ["replaces"])


def test_the_text_of_a_saved_todo_marks_that_one(api, alice):
    made = save(api, "Oil the worktop", type="todo").json()["record"]
    done = save(api, "Oil the worktop", done=True).json()
    assert (done["marked"], done["record"]["id"]) == ("done", made["id"])
    assert "marked" not in save(api, "Oil the worktop", done=True).json()
    assert MemoryRecord.objects.for_user(alice).get().done_at is not None
    assert save(api, "Oil the worktop", done=False).json()["marked"] == "open"
    assert MemoryRecord.objects.for_user(alice).get().done_at is None


def test_the_context_of_a_session_has_no_replaced_memory(api):
    oak = save(api).json()["record"]
    save(api, "The worktop is walnut", replaces=oak["id"])
    text = call(api, "get_context", {"for": "session"}).json()["text"]
    assert ("walnut" in text, "oak" in text) == (True, False)


def test_lines_go_to_the_log_of_a_project_only_if_it_is_named(api, alice):
    day = {"date": "2026-02-26"}
    first = call(api, "append_daily_log", {"text": "Sown", "project": "https://github.com/me/garden", **day}).json()
    second = call(api, "append_daily_log", {"text": "Slept", **day}).json()
    assert first["project"] == "me/garden" and "of the project 'me/garden'" in first["text"]
    assert second.get("project") is None and first["documentId"] != second["documentId"]
    read = documents.read(user=alice, day=date(2026, 2, 26), project="me/garden")
    assert (read.id, read.content) == (UUID(first["documentId"]), "Sown\n")
    refused = call(api, "append_daily_log", {"text": "x", "project": "x" * 201})
    assert refused.status_code == 400 and "project" in refused.json()["errors"]


# -- Proposals: the person decides ---------------------------------------------------------------------------------------


def test_what_is_proposed_is_no_record_until_the_person_accepts_it(api, alice):
    answer = save(api, propose=True, type="decision", project_id="house").json()
    found = Proposal.objects.for_user(alice).get()
    assert (answer["proposed"], answer["record"]["id"], found.state) == (True, str(found.pk), "waiting")
    assert not MemoryRecord.objects.exists()
    index.embed_pending()
    assert call(api, "search_memory", {"query": "oak worktop"}).json()["results"] == []


def test_an_agent_is_told_when_the_person_refused_the_same_before(api, alice):
    save(api, propose=True)
    Proposal.objects.update(state="rejected")
    refused = save(api, "the worktop is OAK", propose=True)
    assert (refused.status_code, refused.json()["errors"]["content"]) == (400, [proposals.REFUSED])
    with_key = save(api, propose=True, headers={"Idempotency-Key": "k"})
    assert (with_key.status_code, Proposal.objects.count()) == (400, 1)


def test_a_proposal_has_no_tags_and_no_days(api):
    for name, value in (("tags", ["x"]), ("validFrom", "2026-01-01"), ("done", True)):
        refused = save(api, propose=True, **{name: value})
        assert (refused.status_code, list(refused.json()["errors"])) == (400, [name])
    assert not Proposal.objects.exists()


def test_a_proposal_of_a_chat_is_withdrawn_by_its_undo_unless_it_is_decided(api, alice):
    output = registry.get("save_memory").call({"content": "The worktop is oak", "propose": True}, user=alice)
    tool = registry.get("save_memory")
    requested = tool.read({"content": "The worktop is oak", "propose": True})
    stored = tool.kept(requested, output)
    assert "oak" in stored.text
    with acting_as(alice):
        tool.undo(requested, stored.place, alice, datetime.now(UTC))
        tool.undo(requested, stored.place, alice, datetime.now(UTC))
    assert not Proposal.objects.exists()


@pytest.mark.parametrize("name", ["git@github.com:me/shop.git", "https://github.com/me/shop", " me/shop ", "/src/Shop"])
def test_a_memory_saved_under_an_address_is_of_the_project(api, alice, name):
    with acting_as(alice):
        projects.save_project(user=alice, name="Shop", labels=["me/shop"])
    saved = call(api, "save_memory", {"content": "Orders are kept for ten years", "project_id": name}).json()
    assert saved["record"]["project_id"] == "Shop"
    again = call(api, "save_memory", {"content": "Orders are kept for ten years", "project_id": "me/shop"}).json()
    assert again["alreadySaved"] is True
    index.embed_pending()
    for query in (name, "Shop", "me/shop"):
        (found,) = call(api, "search_memory", {"query": "orders", "project_id": query}).json()["results"]
        assert found["record"]["id"] == saved["record"]["id"]
        assert (
            call(api, "search_memory", {"query": "orders", "project_id": f"-{query.strip()}"}).json()["results"] == []
        )


def test_a_memory_from_before_is_found_by_the_address_that_it_has(api, alice):
    record = records.create(user=alice, content="Orders are kept for ten years", now=NOW)
    MemoryRecord.objects.filter(pk=record.id).update(project_id="/src/shop")
    index.embed_pending()
    (found,) = call(api, "search_memory", {"query": "orders", "project_id": "/src/shop"}).json()["results"]
    assert found["record"]["project_id"] == "/src/shop"
    # Its text can be changed without its project.
    with acting_as(alice):
        changed = records.rewrite(
            user=alice, record_id=record.id, content="For eleven years", project_id="/src/shop", now=NOW
        )
    assert changed.project_id == "/src/shop"


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("post", "/api/v1/tools/save_memory/", {"content": "x", "project_id": "-shop"}),
        ("post", "/api/v1/tools/save_memory/", {"content": "x", "project_id": "/src/-shop", "propose": True}),
        ("post", "/api/v1/memory/records/", {"content": "x", "project_id": " -shop"}),
        ("patch", "/api/v1/memory/records/{id}/", {"project_id": "-shop"}),
        ("post", "/api/v1/intake/chat", {"message": "x", "project": "-shop"}),
    ],
)
def test_nothing_is_stored_under_a_name_that_means_everything_but_it(api, alice, method, path, body):
    record = records.create(user=alice, content="A cat", now=NOW)
    address = path.format(id=record.id)
    answer = getattr(api, method)(address, json.dumps(body), content_type="application/json")
    assert answer.status_code == 400
    field = "project" if "message" in body else "project_id"
    assert answer.json()["errors"] == {field: ["Enter a name. It cannot begin with a hyphen."]}
    assert not MemoryRecord.objects.exclude(project_id="").exists() and not Conversation.objects.exists()
