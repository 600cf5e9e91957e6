"""Taking back what the chat's model stored: once, only by whose it is, and nothing else with it."""

import json
from datetime import UTC, date, datetime
from uuid import uuid4

import pytest

from agent_tools.tools import registry
from intake.chats.tree import undo_path
from intake.models import Turn
from intake.tests.factories import a_person, a_turn
from memory import documents, records
from memory.models import MemoryDocument, MemoryRecord

pytestmark = pytest.mark.django_db

NOW = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
DAY = date(2026, 2, 28)


def called(user, name, data) -> tuple[Turn, dict]:
    """A turn whose answer called a tool, as the chat keeps it."""
    tool = registry.get(name)
    requested = tool.input_model.model_validate(data)
    kept = tool.kept(requested, tool.call(data, user=user))
    call = {"id": str(uuid4()), "name": name, "input": data, "stored": kept.text, "place": kept.place}
    turn = a_turn(user, "Keep it")
    Turn.objects.filter(pk=turn.pk).update(tool_calls=[call])
    return turn, call


def undo(api, turn, call):
    path = undo_path(turn.conversation_id, turn_number=turn.turn_number, call_id=call["id"])
    return api.post(path)


def post(api, path, body):
    return api.post(path, json.dumps(body), content_type="application/json")


def log(user) -> str:
    return documents.read(user=user, day=DAY).content


def note(user, text):
    documents.append(user=user, day=DAY, text=text, now=NOW)


def append(user, text):
    return called(user, "append_daily_log", {"text": text, "date": DAY.isoformat()})


def test_a_saved_memory_is_gone_and_the_turn_remembers_that_it_was_undone(api, alice):
    turn, call = called(alice, "save_memory", {"content": "The worktop is oak"})
    other = records.create(user=alice, content="The worktop is oak", now=NOW)
    response = undo(api, turn, call)
    assert response.status_code == 200
    assert [record.pk for record in MemoryRecord.objects.for_user(alice)] == [other.id]
    turn.refresh_from_db()
    undone_at = turn.tool_calls[0]["undone_at"]
    assert datetime.fromisoformat(response.json()["undoneAt"]) == datetime.fromisoformat(undone_at)


def test_a_second_time_changes_nothing(api, alice):
    note(alice, "- ran")
    turn, call = append(alice, "- ran")
    first, second = undo(api, turn, call), undo(api, turn, call)
    assert (first.status_code, second.status_code) == (200, 200)
    assert first.json() == second.json()
    assert log(alice) == "- ran\n"


def test_a_memory_deleted_elsewhere_counts_as_undone(api, alice):
    turn, call = called(alice, "save_memory", {"content": "x"})
    MemoryRecord.objects.for_user(alice).delete()
    assert undo(api, turn, call).status_code == 200


@pytest.mark.parametrize("text", ["- ran", "- ran\n", "- ran\n\n", "- ran\n- swam", "- ran ☂️ 🏃"])
def test_exactly_the_lines_that_were_added_are_taken_out(api, alice, text):
    note(alice, "- woke")
    turn, call = append(alice, text)
    note(alice, "- slept")
    assert undo(api, turn, call).status_code == 200
    assert log(alice).replace("\n\n", "\n") == "- woke\n- slept\n"


def test_of_equal_lines_those_are_taken_out_that_this_call_added(api, alice):
    note(alice, "- woke")
    turn, call = append(alice, "- ran")
    note(alice, "- slept\n- ran")
    undo(api, turn, call)
    assert log(alice) == "- woke\n- slept\n- ran\n"


def test_lines_that_moved_are_found(api, alice):
    turn, call = append(alice, "- ran")
    content = "# Today\n- woke\n- ran far\n" + log(alice) + "- slept\n"
    documents.replace(user=alice, day=DAY, content=content, expected=None, now=NOW)
    undo(api, turn, call)
    assert log(alice) == "# Today\n- woke\n- ran far\n- slept\n"


def test_a_log_that_only_this_call_wrote_is_gone(api, alice):
    turn, call = append(alice, "- ran")
    assert undo(api, turn, call).status_code == 200
    assert not MemoryDocument.objects.for_user(alice).exists()


@pytest.mark.parametrize("content", ["- ran far\n", "x- ran\n", "- ran", None])
def test_lines_that_have_been_changed_stay_as_they_are(api, alice, content):
    turn, call = append(alice, "- ran")
    if content is None:
        documents.delete(user=alice, day=DAY, expected=None)
    else:
        documents.replace(user=alice, day=DAY, content=content, expected=None, now=NOW)
    response = undo(api, turn, call)
    assert (response.status_code, response.json()["code"]) == (412, "conflict")
    assert "not in the document any more" in response.json()["detail"]
    turn.refresh_from_db()
    assert "undone_at" not in turn.tool_calls[0]
    assert content is None or log(alice) == content


def test_nothing_is_undone_while_the_answer_is_still_being_written(api, alice):
    turn, call = called(alice, "save_memory", {"content": "x"})
    Turn.objects.filter(pk=turn.pk).update(status=Turn.Status.STREAMING)
    response = undo(api, turn, call)
    assert (response.status_code, response.json()["code"]) == (409, "still_running")
    assert MemoryRecord.objects.exists()


def test_somebody_elses_nobodys_and_a_call_that_stored_nothing_get_the_same_answer(api, alice):
    bob = a_person("bob@example.com")
    theirs, their_call = called(bob, "save_memory", {"content": "x"})
    mine, my_call = called(alice, "save_memory", {"content": "y"})
    search = {"id": "search", "name": "search_memory", "input": {"query": "y"}, "summary": "Nothing found"}
    Turn.objects.filter(pk=mine.pk).update(tool_calls=[my_call, search])
    base = f"/api/v1/conversations/{mine.conversation_id}/turns"
    answers = [
        undo(api, theirs, their_call),
        undo(api, mine, their_call),
        undo(api, mine, search),
        api.post(f"{base}/7/tool-calls/{my_call['id']}/undo/"),
        api.post(f"{base}/x/tool-calls/{my_call['id']}/undo/"),
        api.post(f"/api/v1/conversations/x/turns/1/tool-calls/{my_call['id']}/undo/"),
    ]
    assert {answer.status_code for answer in answers} == {404}
    assert len({answer.content for answer in answers}) == 1
    assert MemoryRecord.objects.count() == 2


def test_without_credentials_nothing_is_undone(alice, client):
    turn, call = called(alice, "save_memory", {"content": "x"})
    assert undo(client, turn, call).status_code == 401
    assert MemoryRecord.objects.exists()


def test_whoever_appended_over_rest_takes_it_back_over_rest(api, alice):
    path = f"/api/v1/memory/documents/daily-logs/{DAY}"
    note(alice, "- woke")
    post(api, f"{path}/append/", {"text": "- ran"})
    taken = post(api, f"{path}/take-back/", {"text": "- ran", "at": 7})
    assert (taken.status_code, taken.json()["content"], taken.json()["version"]) == (200, "- woke\n", 3)
    assert taken["ETag"]
    gone = post(api, f"{path}/take-back/", {"text": "- ran"})
    assert (gone.status_code, gone.json()["code"]) == (412, "conflict")
    assert post(api, f"{path}/take-back/", {"text": "- woke"}).status_code == 204


@pytest.mark.parametrize(
    "body", [{}, {"text": 5}, {"text": "x", "at": -1}, {"text": "x", "at": "7"}, {"text": "x", "user": 1}]
)
def test_a_request_that_makes_no_sense_takes_nothing_back(api, alice, body):
    note(alice, "x")
    path = f"/api/v1/memory/documents/daily-logs/{DAY}/take-back/"
    response = post(api, path, body)
    assert (response.status_code, response.json()["code"]) == (400, "validation_error")
    assert log(alice) == "x\n"


@pytest.mark.parametrize(("text", "status"), [("a\0b", 412), ("\ud800", 412), ("x" * 1_000_000, 400)])
def test_text_that_no_log_can_have_is_not_there(api, alice, text, status):
    note(alice, "x")
    path = f"/api/v1/memory/documents/daily-logs/{DAY}/take-back/"
    assert post(api, path, {"text": text, "at": 10**30}).status_code == status


def test_undoing_a_replacement_brings_the_replaced_memory_back(api, alice):
    oak = records.create(user=alice, content="The worktop is oak", now=NOW)
    turn, call = called(alice, "save_memory", {"content": "The worktop is walnut", "replaces": str(oak.id)})
    assert undo(api, turn, call).status_code == 200
    assert [record.id for record in records.list_records(user=alice).rows] == [oak.id]


def test_undoing_a_tick_opens_the_todo_again(api, alice):
    todo = records.create(user=alice, content="Oil the worktop", type="todo", now=NOW)
    turn, call = called(alice, "save_memory", {"content": "Oil the worktop", "done": True})
    assert records.read(user=alice, record_id=todo.id).done_at is not None
    assert undo(api, turn, call).status_code == 200
    assert records.read(user=alice, record_id=todo.id).done_at is None
