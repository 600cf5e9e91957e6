"""A message sent again under its key: one turn, whatever became of the first answer, and never anybody else's."""

import json
import threading
import time

import pytest
from django.apps import apps
from django.db import OperationalError
from psycopg.errors import DiskFull

from chat.answers import writer
from chat.tests.test_chat_stream import the_turn
from intake.chats import services
from intake.models import Conversation, IdempotentAnswer, Turn
from testing.model_server import BreakOff, CallTool, Refuse, Say
from testing.serving import wait_until
from testing.sse_client import read_events

pytestmark = pytest.mark.django_db(transaction=True)

CHAT = "/api/v1/intake/chat"
KEY = {"Idempotency-Key": "k"}
SLOWLY = Say(tuple(f"word{n} " for n in range(200)), seconds_apart=0.05)


def events_of(response):
    assert response.status_code == 200, response.text
    return list(read_events(response.text.splitlines()))


def names(response):
    return [event.name for event in events_of(response)]


def ask(client, message="Hello", key=KEY, **fields):
    return client.post(CHAT, json={"message": message, **fields}, headers={**client._csrf(), **key})


def begin_to_read(client, word, **fields):
    """Ask, and leave as soon as the answer has come as far as this word."""
    with client.stream(
        "POST", CHAT, json={"message": "Hello", **fields}, headers={**client._csrf(), **KEY}
    ) as response:
        for line in response.iter_lines():
            if word in line:
                return


@pytest.fixture
def with_token(new_client, person):
    client = new_client()
    _, secret = apps.get_model("agent_tools.AccessToken").objects.issue(user=person)
    client.headers["Authorization"] = f"Bearer {secret}"
    return client


@pytest.mark.parametrize("path", [CHAT, "/api/v1/tools/save_memory/", "/api/v1/attachments/"])
def test_an_empty_key_is_refused_with_a_sentence(with_token, path):
    sent = {"files": {"file": ("a.txt", b"a")}} if "attachments" in path else {"json": {"message": "a"}}
    answer = with_token.post(path, headers={"Idempotency-Key": ""}, **sent)
    assert (answer.status_code, answer.json()["detail"]) == (400, "The Idempotency-Key is not valid.")


@pytest.fixture(params=["visitor", "person", "token"])
def anybody(request, new_client):
    """A visitor, a person in their session, a person's agent: a key is good for each of them."""
    if request.param == "visitor":
        return new_client()
    person = request.getfixturevalue("person")
    return (
        request.getfixturevalue("with_token") if request.param == "token" else request.getfixturevalue("log_in")(person)
    )


def test_a_whole_answer_is_told_again_and_the_first_message_makes_one_conversation(anybody, language_model):
    model = language_model(Say(("Good ", "morning.")))
    first, again = ask(anybody), ask(anybody)
    assert (Turn.objects.count(), Conversation.objects.count(), len(model.requests)) == (1, 1, 1)
    assert ("Idempotency-Replayed" in first.headers, again.headers["Idempotency-Replayed"]) == (False, "true")
    assert names(again) == ["turn", "delta", "done"]
    assert events_of(again)[1].data == {"text": "Good morning."}
    for place in (0, -1):
        assert events_of(again)[place] == events_of(first)[place]


def test_calls_are_told_again_with_what_they_found_and_what_can_be_taken_back(person, log_in, language_model):
    language_model(CallTool("save_memory", {"content": "Ana likes oaks"}), Say(("Noted.",)))
    client = log_in(person)
    first, again = ask(client), ask(client)
    calls = [[event for event in events_of(each) if event.name.startswith("tool_")] for each in (first, again)]
    # While the answer was written, the step of the call ran and what it stored could not be taken back yet.
    live, later = ([event.data.pop("html") for event in each] for each in calls)
    assert ("running" in live[0], "running" in later[0]) == (True, False)
    assert live[1].replace(" disabled", "") == later[1]
    assert calls[0] == calls[1]
    assert calls[1][1].data["undo"]["method"] == "POST"
    assert apps.get_model("memory", "MemoryRecord").objects.count() == 1


def test_another_key_and_no_key_are_other_messages(person, log_in, language_model):
    language_model(*[Say(("Yes.",))] * 3)
    client = log_in(person)
    for key in (KEY, {"Idempotency-Key": "other"}, {}):
        ask(client, key=key)
    assert Turn.objects.count() == 3


@pytest.mark.parametrize("fields", [{"message": "Other"}, {"conversation_id": "its own"}])
def test_another_request_under_the_same_key_is_refused(person, log_in, language_model, fields):
    language_model(Say(("Yes.",)))
    client = log_in(person)
    ask(client)
    if "conversation_id" in fields:
        fields = {"conversation_id": str(the_turn().conversation_id)}
    refused = ask(client, **fields)
    assert (refused.status_code, refused.json()["code"]) == (422, "idempotency_key_reused")
    assert Turn.objects.count() == 1


@pytest.mark.parametrize("key", ["a b", "ü".encode(), "x" * 256])
def test_a_key_that_is_none_is_refused_and_nothing_is_kept(anybody, key):
    refused = ask(anybody, key={"Idempotency-Key": key})
    assert (refused.status_code, list(refused.json()["errors"])) == (400, ["Idempotency-Key"])
    assert not Turn.objects.exists()


def test_a_refused_message_has_not_used_up_its_key(person, log_in, language_model):
    language_model(Say(("Yes.",)))
    client = log_in(person)
    assert ask(client, message="").status_code == 400
    assert not IdempotentAnswer.objects.exists()
    assert names(ask(client))[-1] == "done"


def test_an_answer_that_is_still_being_written_is_followed_and_not_begun_twice(person, log_in, language_model):
    words = tuple(f"word{n} " for n in range(40))
    model = language_model(Say(words, seconds_apart=0.05))
    client, other = log_in(person), log_in(person)
    begin_to_read(client, "word3 ")
    again = ask(other)
    assert again.headers["Idempotency-Replayed"] == "true"
    told = events_of(again)
    assert (told[0].name, told[-1].name) == ("turn", "done")
    assert "".join(event.data["text"] for event in told if event.name == "delta") == "".join(words)
    assert (Turn.objects.count(), len(model.requests)) == (1, 1)


@pytest.mark.parametrize("first_try", [Refuse(500), BreakOff(("Half",))])
def test_an_answer_that_failed_is_made_anew_in_the_same_turn(anybody, language_model, first_try):
    tries = [first_try, first_try] if isinstance(first_try, Refuse) else [first_try]
    language_model(*tries, Say(("Whole.",)))
    first, again = ask(anybody), ask(anybody)
    assert (names(first)[-1], names(again)) == ("error", ["turn", "delta", "done"])
    assert "Idempotency-Replayed" not in again.headers
    assert (the_turn().assistant_message, the_turn().status) == ("Whole.", "complete")
    assert Conversation.objects.count() == 1


def failing(function, times, cause=None):
    """The function, of which the first calls find no database."""
    left = iter(range(times))

    def fails_at_first(*args, **kwargs):
        if next(left, None) is not None:
            raise OperationalError("gone") from cause
        return function(*args, **kwargs)

    return fails_at_first


@pytest.fixture
def impatient(monkeypatch):
    """The last save of an answer is retried at once."""
    monkeypatch.setattr(writer, "SHORTEST_WAIT", 0.01)
    monkeypatch.setattr(writer, "LONGEST_WAIT", 0.01)


def test_an_answer_waits_for_a_database_that_is_away_so_that_nobody_repeats_its_message(
    visitor, language_model, impatient, monkeypatch
):
    monkeypatch.setattr(services, "finish_turn", failing(services.finish_turn, times=20))
    language_model(Say(("Whole.",)))
    assert names(ask(visitor, key={})) == ["turn", "delta", "done"]
    assert (the_turn().assistant_message, the_turn().status) == ("Whole.", "complete")


def test_a_last_save_whose_commit_was_not_confirmed_is_no_failure(visitor, language_model, impatient, monkeypatch):
    as_caller, unconfirmed = writer.as_caller, []

    async def without_confirmation(caller, function, *args, **kwargs):
        done = await as_caller(caller, function, *args, **kwargs)
        if function is services.finish_turn and not unconfirmed:
            unconfirmed.append(done.status)
            raise OperationalError("gone")
        return done

    monkeypatch.setattr(writer, "as_caller", without_confirmation)
    monkeypatch.setattr(writer, "load_turn", failing(writer.load_turn, times=1))
    language_model(Say(("Whole.",)))
    assert names(ask(visitor, key={})) == ["turn", "delta", "done"]
    assert unconfirmed == ["complete"]
    assert the_turn().assistant_message == "Whole."


@pytest.mark.parametrize("cause", [None, DiskFull()])
def test_an_answer_that_could_not_be_kept_is_made_anew_in_the_same_turn(
    person, log_in, language_model, impatient, monkeypatch, cause
):
    monkeypatch.setattr(writer, "LAST_SAVE_SECONDS", 0.1)
    client = log_in(person)
    language_model(Say(("Lost.",)), Say(("Whole.",)))
    with monkeypatch.context() as away:
        away.setattr(services, "finish_turn", failing(services.finish_turn, times=1000, cause=cause))
        failure = events_of(ask(client))[-1]
    assert (failure.name, failure.data["code"], failure.data["retryable"]) == ("error", "unavailable", True)
    assert failure.data["detail"].startswith("The disk is full" if cause else "The database is not available")
    assert events_of(ask(client))[-1] == failure
    assert services.interrupt_turn(turn_id=the_turn().pk, attempt=1), "as the sweep does"
    assert names(ask(client)) == ["turn", "delta", "done"]
    assert the_turn().assistant_message == "Whole."


def stop(client):
    response = client.post(f"/api/v1/intake/turns/{the_turn().pk}/stop", headers=client._csrf())
    assert response.status_code == 200, response.text


def test_an_answer_that_was_stopped_is_made_anew_in_the_same_turn(anybody, language_model):
    language_model(SLOWLY, Say(("Whole.",)))
    begin_to_read(anybody, "word3 ")
    stop(anybody)
    wait_until(lambda: the_turn().status == "interrupted")
    assert the_turn().assistant_message.startswith("word0")
    assert names(ask(anybody)) == ["turn", "delta", "done"]
    assert (the_turn().assistant_message, the_turn().status) == ("Whole.", "complete")


def test_a_conversation_that_has_gone_on_leaves_the_earlier_turn_as_it_is(person, log_in, language_model):
    language_model(SLOWLY, Say(("Second.",)))
    client = log_in(person)
    begin_to_read(client, "word3 ")
    stop(client)
    wait_until(lambda: the_turn().status == "interrupted")
    kept = the_turn()
    ask(client, "Second", {}, conversation_id=str(kept.conversation_id))
    again = events_of(ask(client))
    assert [event.name for event in again] == ["turn", "delta", "done"]
    assert again[1].data["text"] == kept.assistant_message
    assert Turn.objects.count() == 2


def test_a_failure_that_others_followed_is_told_again(person, log_in, language_model):
    language_model(Refuse(401), Say(("Second.",)))
    client = log_in(person)
    first = events_of(ask(client))
    ask(client, "Second", {}, conversation_id=first[0].data["conversationId"])
    assert events_of(ask(client)) == first


def test_what_was_deleted_since_does_not_come_back(person, log_in, language_model):
    language_model(Say(("Yes.",)))
    client = log_in(person)
    conversation = events_of(ask(client))[0].data["conversationId"]
    client.delete(f"/api/v1/conversations/{conversation}/", headers=client._csrf())
    refused = ask(client)
    assert (refused.status_code, refused.json()["code"]) == (404, "not_found")
    assert not Turn.objects.exists()


def test_keys_are_each_callers_own(person, stranger, log_in, new_client, language_model):
    language_model(*[Say((text,)) for text in ("Hers.", "His.", "One visitor's.", "Another's.")])
    clients = [log_in(person), log_in(stranger), new_client(), new_client()]
    told = [events_of(ask(client))[1].data["text"] for client in clients]
    assert told == ["Hers.", "His.", "One visitor's.", "Another's."]
    assert [events_of(ask(client))[1].data["text"] for client in clients] == told
    assert Turn.objects.count() == 4


def test_a_visitors_key_is_theirs_when_they_register(visitor, language_model):
    language_model(Say(("Noted.",)))
    ask(visitor)
    visitor.submit("/register/", email="new@example.com", password="a long enough password")
    assert ask(visitor).headers["Idempotency-Replayed"] == "true"
    assert (the_turn().user_id, IdempotentAnswer.objects.get().user_id) == (the_turn().conversation.user_id,) * 2


def test_a_key_that_a_visitor_and_the_person_both_used_stands_for_what_the_person_did(
    person, visitor, log_in, language_model
):
    language_model(Say(("The person's.",)), Say(("The visitor's.",)))
    ask(log_in(person))
    ask(visitor)
    visitor.submit("/login/", username=person.email, password="password")
    assert events_of(ask(visitor))[1].data["text"] == "The person's."
    assert (Turn.objects.filter(user=person).count(), IdempotentAnswer.objects.count()) == (2, 1)


def test_no_word_of_the_message_is_kept_with_its_key(person, log_in, language_model):
    language_model(Say(("Yes.",)))
    ask(log_in(person), message="kwyjibo")
    kept = IdempotentAnswer.objects.get()
    assert json.loads(kept.answer) == {"turn": the_turn().pk}
    assert len(kept.request_digest) == 64


def test_of_many_at_once_one_makes_the_turn(with_token, person, language_model):
    language_model(Say(("Yes. ",) * 10, seconds_apart=0.05))
    told = []

    def work():
        headers = {"Authorization": with_token.headers["Authorization"], **KEY}
        told.append(events_of(with_token.post(CHAT, json={"message": "Hello"}, headers=headers)))

    threads = [threading.Thread(target=work) for _ in range(5)]
    for thread in threads:
        thread.start()
        time.sleep(0.01)
    for thread in threads:
        thread.join()
    assert {events[-1].data["html"] for events in told} == {told[0][-1].data["html"]}
    assert (Turn.objects.count(), Conversation.objects.count()) == (1, 1)
