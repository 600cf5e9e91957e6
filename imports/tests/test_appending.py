"""An agent's session is appended while it runs: each turn once, however it comes in again."""

import io
import json
import threading
import zipfile

import pytest
from django.db import connections
from django.test import Client

from core.isolation.acting import acting_as
from imports.models import Import, ImportedItem
from imports.tests.over_rest import Importer
from intake.chats.deleting import delete_conversation, delete_turn
from intake.models import Conversation, Turn
from intake.tests.factories import a_person, a_turn, caller_for
from memory.models import Embedding

pytestmark = pytest.mark.django_db
URL = "/api/v1/sessions/append/"


@pytest.fixture
def alice():
    return a_person()


@pytest.fixture
def append(alice):
    return appender(alice)


@pytest.fixture
def importer(alice):
    client = Client()
    client.force_login(alice)
    return Importer(client)


def appender(user):
    client = Client()
    client.force_login(user)

    def call(*turns, status=200, **fields):
        body = {"product": "claude-code", "session": "s1", "turns": turns, **fields}
        answer = client.post(URL, json.dumps(body), "application/json")
        assert answer.status_code == status, answer.content
        return answer.json()

    return call


def at(minute):
    return f"2025-11-20T06:{minute:02}:00.000Z"


def turn(number, answer=None, **fields):
    answer = f"Answer {number}" if answer is None else answer
    return {"uuid": f"u{number}", "saidAt": at(number), "user": f"Question {number}", "answer": answer, **fields}


def line(uuid, parent, role, text, minute, session="s1", **fields):
    message = {"role": role, "content": text}
    shared = {"type": role, "uuid": uuid, "parentUuid": parent, "sessionId": session, "timestamp": at(minute)}
    return json.dumps({**shared, "message": message, **fields})


def session_lines(count, *, session="s1", start=1, parent=None, **fields):
    """The lines that Claude Code writes for the same turns."""
    for number in range(start, start + count):
        yield line(f"u{number}", parent, "user", f"Question {number}", number, session, **fields)
        yield line(f"a{number}", f"u{number}", "assistant", f"Answer {number}", number, session, **fields)
        parent = f"a{number}"


def export(**sessions):
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        for name, lines in sessions.items():
            archive.writestr(f"projects/-src/{name}.jsonl", "\n".join(lines))
    return packed.getvalue()


def stored():
    return list(Turn.objects.order_by("pk").values_list("user_message", "assistant_message", "parent_number"))


QUESTIONS = [(f"Question {number}", f"Answer {number}", number - 1 or None) for number in (1, 2, 3)]


def test_turns_are_stored_with_their_times_in_one_conversation_and_wait_for_vectors(append, alice):
    assert append(turn(1), turn(2), project="me/app") == {"stored": 2, "here": 0}
    assert append(turn(3, model="claude-x", tools=["Read"])) == {"stored": 1, "here": 0}
    assert stored() == QUESTIONS
    conversation = Conversation.objects.get()
    assert (conversation.source, conversation.external_id) == ("claude-code", "s1")
    assert (conversation.project, conversation.title, conversation.current_number) == ("me/app", "Question 1", 3)
    last = Turn.objects.get(turn_number=3)
    assert last.said_at.isoformat() == "2025-11-20T06:03:00+00:00"
    assert (last.usage, last.tool_calls) == ({"model": "claude-x"}, [{"id": "imported-1", "name": "Read", "input": {}}])
    assert Embedding.objects.filter(user=alice, vector=None).count() == 3


def test_half_a_surrogate_pair_is_replaced(append):
    assert append(turn(1, answer="cut \ud83d")) == {"stored": 1, "here": 0}
    assert stored() == [("Question 1", "cut \ufffd", None)]


def test_the_same_call_again_stores_nothing(append):
    append(turn(1), turn(2))
    assert append(turn(1), turn(2)) == {"stored": 0, "here": 2}
    assert append(turn(2), turn(3)) == {"stored": 1, "here": 1}
    assert stored() == QUESTIONS
    assert Import.objects.count() == 1


def test_an_import_of_the_session_adds_nothing_to_what_was_appended(append, importer):
    append(turn(1), turn(2), turn(3))
    done = importer.bring(export(s1=session_lines(3)))
    assert (done["found"]["here"], sum(done["stored"].values())) == (1, 0)
    assert stored() == QUESTIONS
    assert append(turn(1), turn(2), turn(3)) == {"stored": 0, "here": 3}


def test_an_import_adds_what_was_not_appended_and_the_other_way_round(append, importer):
    append(turn(1))
    importer.bring(export(s1=session_lines(2)))
    assert append(turn(1), turn(2), turn(3)) == {"stored": 1, "here": 2}
    assert stored() == QUESTIONS


def test_what_was_imported_is_not_appended_again(append, importer):
    importer.bring(export(s1=session_lines(3)))
    assert append(turn(1), turn(2), turn(3)) == {"stored": 0, "here": 3}
    assert append(turn(4)) == {"stored": 1, "here": 0}
    assert stored() == [*QUESTIONS, ("Question 4", "Answer 4", 3)]
    assert Conversation.objects.count() == 1


def test_another_answer_to_an_appended_question_is_still_imported_as_a_version(append, importer):
    append(turn(1))
    lines = [*session_lines(1), line("b1", "u1", "assistant", "Another answer", 2)]
    importer.bring(export(s1=lines))
    importer.bring(export(s1=lines))
    assert sorted(answer for _, answer, _ in stored()) == ["Another answer", "Answer 1"]


def test_codex_and_its_import_agree_by_the_lines_of_the_rollout(append, importer):
    words = [("user", "input_text", "Rename it."), ("assistant", "output_text", "Renamed.")]
    lines = [json.dumps({"timestamp": at(1), "type": "session_meta", "payload": {"id": "c1", "cwd": "/src/app"}})]
    for role, kind, text in words:
        payload = {"type": "message", "role": role, "content": [{"type": kind, "text": text}]}
        lines.append(json.dumps({"timestamp": at(2), "type": "response_item", "payload": payload}))
    append({**turn(2, "Renamed."), "uuid": "2", "user": "Rename it."}, product="codex", session="c1", cwd="/src/app")
    assert Conversation.objects.get().project == "app"
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        archive.writestr("sessions/2025/11/20/rollout-2025-11-20T06-01-00-c1.jsonl", "\n".join(lines))
    assert sum(importer.bring(packed.getvalue())["stored"].values()) == 0
    assert stored() == [("Rename it.", "Renamed.", None)]


def test_a_program_s_own_words_are_taken_off_as_by_the_importer(append, importer):
    wrapped = "<system-reminder>Be brief</system-reminder>Question 1"
    append({**turn(1), "user": wrapped})
    importer.bring(export(s1=[line("u1", None, "user", wrapped, 1), line("a1", "u1", "assistant", "Answer 1", 1)]))
    assert stored() == QUESTIONS[:1]


def test_a_turn_in_which_the_user_says_nothing_is_left_out_and_counted(append):
    prompt = {**turn(2), "user": "<task-notification>done</task-notification>"}
    assert append(turn(1), prompt) == {"stored": 1, "here": 0, "leftOut": 1}
    assert stored() == QUESTIONS[:1]


def test_an_answer_that_has_become_longer_is_brought_up_to_date(append, importer):
    append(turn(1, "Let me"))
    assert append(turn(1, "Let me see.")) == {"stored": 1, "here": 0}
    assert append(turn(1, "Let me")) == {"stored": 0, "here": 1}
    assert [answer for _, answer, _ in stored()] == ["Let me see."]


def test_a_turn_follows_the_parent_that_it_names_and_the_newest_way_is_chosen(append):
    append(turn(1), turn(2))
    append(turn(3, parent="u1"))
    assert [parent for *_, parent in stored()] == [None, 1, 1]
    assert Conversation.objects.get().current_number == 3
    append(turn(4))
    assert stored()[-1][2] == 3


def test_a_conversation_that_was_continued_here_keeps_its_way(append, alice):
    append(turn(1))
    a_turn(alice, "And here?", conversation=Conversation.objects.get())
    Conversation.objects.update(current_number=2)
    append(turn(2, parent="u1"))
    assert [parent for *_, parent in stored()] == [None, 1, 1]
    assert Conversation.objects.get().current_number == 2


@pytest.mark.parametrize("way", ["append", "import"])
def test_what_was_deleted_here_stays_deleted(append, importer, alice, way):
    append(turn(1), turn(2)) if way == "append" else importer.bring(export(s1=session_lines(2)))
    with acting_as(alice):
        delete_turn(caller=caller_for(alice), conversation_id=Conversation.objects.get().pk, turn_number=2)
    assert append(turn(1), turn(2), turn(3)) == {"stored": 1, "here": 2}
    assert [question for question, *_ in stored()] == ["Question 1", "Question 3"]


def test_the_same_words_said_again_after_a_deletion_are_new(append, importer, alice):
    importer.bring(export(s1=session_lines(2)))
    with acting_as(alice):
        delete_turn(caller=caller_for(alice), conversation_id=Conversation.objects.get().pk, turn_number=1)
    later = {**turn(1), "uuid": "u9", "saidAt": Import.objects.get().updated_at.isoformat()}
    assert append(later) == {"stored": 1, "here": 0}


def test_a_conversation_that_was_deleted_here_stays_deleted(append, alice):
    append(turn(1))
    with acting_as(alice):
        delete_conversation(caller=caller_for(alice), conversation_id=Conversation.objects.get().pk)
    assert append(turn(1), turn(2)) == {"stored": 0, "here": 2}
    assert stored() == []


def test_a_resumed_session_goes_on_in_the_conversation_that_an_import_made_of_both(append, importer):
    first = list(session_lines(1))
    resumed = [*session_lines(1, session="s2"), *session_lines(1, session="s2", start=2, parent="a1")]
    importer.bring(export(s1=first, s2=resumed))
    assert Conversation.objects.get().external_id == "s1"
    assert append(turn(2), turn(3), session="s2") == {"stored": 1, "here": 1}
    assert stored() == QUESTIONS


def test_an_import_leaves_a_resumed_session_where_it_was_appended(append, importer):
    append(turn(1))
    append(turn(2), session="s2")
    resumed = [*session_lines(1, session="s2"), *session_lines(2, session="s2", start=2, parent="a1")]
    importer.bring(export(s1=session_lines(1), s2=resumed))
    found = Turn.objects.order_by("user_message").values_list("user_message", "conversation__external_id")
    assert list(found) == [("Question 1", "s1"), ("Question 2", "s2"), ("Question 3", "s1")]


def test_what_a_product_appends_on_a_day_is_undone_like_an_import(append, importer):
    append(turn(1))
    append(turn(2))
    append(turn(1), session="s2", product="codex")
    made = {each["product"]: each for each in importer.get("").json()["imports"]}
    claude = made["claude-code"]
    assert (claude["state"], claude["can_undo"], claude["stored"]["turns"]) == ("done", True, 2)
    (entry,) = importer.get(f"{claude['id']}/preview/", status="stored").json()["items"]
    assert (entry["external_id"], entry["stored"], entry["title"]) == ("s1", 2, "Question 1")
    assert importer.undo(claude["id"]).status_code == 202
    assert Conversation.objects.get().source == "codex"
    assert append(turn(1)) == {"stored": 1, "here": 0}
    assert Import.objects.filter(product="claude-code").count() == 2


def test_the_project_is_the_repository_or_else_the_folder(append):
    append(turn(1), project="git@github.com:me/app.git", cwd="/home/me/app-2")
    append(turn(1), session="s2", cwd="/home/me/app-2")
    assert dict(Conversation.objects.values_list("external_id", "project")) == {"s1": "me/app", "s2": "app-2"}


def test_no_session_is_stored_under_a_name_that_means_everything_but_it(append):
    append(turn(1), project="-notes", cwd="/home/me/-notes")
    append(turn(1), session="s2", cwd="/home/me/--notes")
    assert set(Conversation.objects.values_list("project", flat=True)) == {"notes"}


def test_an_agent_s_project_takes_the_place_of_an_imported_folder_s(append, importer):
    importer.bring(export(s1=session_lines(1, cwd="/home/me/app")))
    assert Conversation.objects.get().project == "app"
    append(turn(2), project="me/app")
    assert Conversation.objects.get().project == "me/app"
    importer.bring(export(s1=session_lines(3, cwd="/home/me/app")))
    assert Conversation.objects.get().project == "me/app"


def test_nul_and_half_an_emoji_keep_no_word_out(append):
    append({**turn(1), "user": "Question\0 1", "answer": "Answer \ud83d1"})
    assert stored() == [("Question 1", "Answer \ufffd1", None)]


@pytest.mark.parametrize(
    ("turns", "fields", "field"),
    [
        ([], {}, "turns"),
        ([turn(1)] * 2, {}, "turns.0.uuid"),
        ([{**turn(1), "saidAt": "1999-01-01T00:00:00Z"}], {}, "turns.0.saidAt"),
        ([{**turn(1), "saidAt": "yesterday"}], {}, "turns.0.saidAt"),
        ([{**turn(1), "uuid": "  "}], {}, "turns.0.uuid"),
        ([{**turn(1), "user": "x" * 400_001}], {}, "turns.0.user"),
        ([{**turn(1), "output": "x"}], {}, "turns.0.output"),
        ([turn(number) for number in range(101)], {}, "turns"),
        ([turn(1)], {"product": "chat"}, "product"),
        ([turn(1)], {"product": "Claude Code"}, "product"),
        ([turn(1)], {"session": "a\0b"}, "session"),
        ([turn(1)], {"project": "x" * 201}, "project"),
    ],
)
def test_bad_input_is_refused_with_the_name_of_its_field(append, turns, fields, field):
    problem = append(*turns, status=400, **fields)
    assert (problem["code"], next(iter(problem["errors"]))) == ("validation_error", field)
    assert stored() == []


@pytest.mark.parametrize("at", ["yesterday", "2026-03-01", "2026-03-01T25:00:00Z", 1_772_366_400])
def test_what_is_no_time_is_refused_with_how_one_is_written(append, at):
    problem = append({**turn(1), "saidAt": at}, status=400)
    assert problem["errors"] == {"turns.0.saidAt": ["A time is written with its offset, such as 2025-03-01T00:00:00Z."]}


def test_a_quota_refuses_new_turns_and_lets_repeated_ones_pass(append, settings):
    settings.QUOTA_TURNS = 2
    append(turn(1), turn(2))
    assert append(turn(3), status=413)["code"] == "quota_exceeded"
    assert append(turn(1), turn(2)) == {"stored": 0, "here": 2}


def test_a_session_of_another_user_is_theirs(append):
    bob = appender(a_person("bob@example.com"))
    append(turn(1))
    assert bob(turn(1), turn(2)) == {"stored": 2, "here": 0}
    assert Conversation.objects.count() == 2


@pytest.mark.django_db(transaction=True)
def test_two_calls_at_the_same_moment_store_each_turn_once(alice):
    append, answers = appender(alice), []
    start = threading.Barrier(2)

    def call():
        try:
            start.wait(10)
            answers.append(append(turn(1), turn(2), turn(3)))
        finally:
            connections.close_all()

    threads = [threading.Thread(target=call) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert sorted(answer["stored"] for answer in answers) == [0, 3]
    assert stored() == QUESTIONS
    assert ImportedItem.objects.filter(kind="turn").count() == 3
