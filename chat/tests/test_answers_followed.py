"""An answer belongs to its turn: whoever leaves ends nothing, and anybody may come, come back, or stop it."""

import time
from contextlib import ExitStack

import pytest
from django.apps import apps
from django.conf import settings as project
from django.utils.module_loading import import_string

from chat.tests.test_chat_stream import the_turn
from intake.chats import services
from intake.models import Turn
from testing.fixtures import Client
from testing.model_server import BreakOff, CallTool, Hang, Say
from testing.serving import serving, wait_until
from testing.sse_client import read_events
from testing.traces import traces_of

pytestmark = pytest.mark.django_db(transaction=True)

CHAT = "/api/v1/intake/chat"
WORDS = tuple(f"word{n} " for n in range(60))
AT_LENGTH = Say(WORDS, seconds_apart=0.05)
NOWHERE = "redis://127.0.0.1:1/0"


def begin(client, word="word3 ", message="Talk", **fields):
    """Ask, leave when the answer has come as far as this word; returns the events until then."""
    heard = []
    with client.stream("POST", CHAT, json={"message": message, **fields}, headers=client._csrf()) as response:
        for event in read_events(response.iter_lines()):
            heard.append(event)
            if word in str(event.data):
                return heard
    raise AssertionError(f"no {word} in {heard}")


def follow(client, turn_id, after=None, until=None, **headers):
    """The events of an answer, to its end or as far as a word."""
    headers |= {"Last-Event-ID": after} if after else {}
    heard = []
    with client.stream("GET", f"/api/v1/intake/turns/{turn_id}/events", headers=headers) as response:
        if response.status_code != 200:
            response.read()
            raise AssertionError(f"{response.status_code}: {response.text}")
        for event in read_events(response.iter_lines()):
            heard.append(event)
            if until and until in str(event.data):
                break
    return heard


def stop(client, turn_id):
    return client.post(f"/api/v1/intake/turns/{turn_id}/stop", headers=client._csrf())


def text_of(events):
    return "".join(event.data["text"] for event in events if event.name == "delta")


def shown(events):
    blocks = []
    for event in events:
        if event.name == "blocks":
            blocks[event.data["from"] :] = event.data["html"]
    return "".join(blocks)


@pytest.fixture
def elsewhere(server):
    """Clients of another web process, as far as answers go: its event loop is another, and so is all it knows."""
    with ExitStack() as stack:
        address = stack.enter_context(serving(import_string(project.ASGI_APPLICATION)))
        yield lambda: stack.enter_context(Client(base_url=address, follow_redirects=True, timeout=20))


@pytest.fixture
def there(elsewhere, person):
    """The person at the other web process."""
    client = elsewhere()
    assert client.submit("/login/", username=person.email, password="password").status_code == 200
    return client


def test_whoever_comes_back_hears_it_all_from_the_start(visitor, language_model):
    model = language_model(AT_LENGTH)
    turn = begin(visitor)[0].data
    assert turn["turnId"] == the_turn().pk
    events = follow(visitor, turn["turnId"])
    assert (events[0].data, events[-1].name) == (turn, "done")
    assert text_of(events) == the_turn().assistant_message == "".join(WORDS)
    assert len(model.requests) == 1


def test_whoever_says_where_they_were_goes_on_from_there(visitor, language_model):
    language_model(AT_LENGTH)
    before = begin(visitor)
    events = follow(visitor, before[0].data["turnId"], after=before[-1].id)
    assert [event.name for event in events] == ["delta"] * (len(events) - 1) + ["done"]
    assert text_of(before) + text_of(events) == "".join(WORDS)
    assert len({event.id for event in [*before, *events]}) == len(before) + len(events)


def test_whoever_was_told_an_answer_that_is_over_and_comes_back_begins_anew(visitor, language_model):
    language_model(Say(("One ", "two.")))
    turn_id = begin(visitor, "two.")[0].data["turnId"]
    wait_until(lambda: the_turn().status == "complete")
    told = follow(visitor, turn_id, until="One two.")
    again = follow(visitor, turn_id, after=told[-1].id)
    assert (told[-1].name, again[0].name) == ("delta", "turn")
    assert text_of(told) == text_of(again) == "One two."


@pytest.mark.parametrize("where", ["here", "in another process"])
def test_an_answer_that_has_ended_is_gone_on_with_here_and_told_anew_elsewhere(
    person, log_in, there, language_model, where
):
    language_model(CallTool("search_chat_history", {"query": "cat"}), Say(("One ", "two ", "three.")))
    client = log_in(person)
    before = begin(client, "One ")
    wait_until(lambda: the_turn().status == "complete")
    again = follow(client if where == "here" else there, before[0].data["turnId"], after=before[-1].id)
    if where == "here":
        assert again[0].name == "delta"
        assert text_of(before) + text_of(again) == "One two three."
    else:
        assert [event.name for event in again] == ["turn", "tool_call", "tool_result", "delta", "done"]
        assert text_of(again) == "One two three."
    assert again[-1].data["html"] == '<p dir="auto">One two three.</p>'


def test_a_client_that_reconnects_elsewhere_forgets_and_gets_each_word_once(person, log_in, there, language_model):
    model = language_model(CallTool("search_chat_history", {"query": "cat"}), AT_LENGTH)
    here = log_in(person)
    events = begin(here)
    turn_id = events[0].data["turnId"]
    for client, until in ((there, "word20 "), (there, "word30 "), (here, "word40 "), (there, None)):
        part = follow(client, turn_id, after=events[-1].id, until=until)
        assert part[0].name == "turn"
        assert sum(event.name == "tool_call" for event in part) == 1
        events += part
    text = ""
    for event in events:
        text = "" if event.name == "turn" else text + event.data.get("text", "")
    assert text == "".join(WORDS)
    assert follow(here, turn_id)[-1].data == events[-1].data
    assert len(model.requests) == 2


def test_another_web_process_shows_the_blocks_of_the_whole_answer(person, log_in, there, language_model):
    language_model(Say(("# Title\n\n", "Some **bold", "** words\n\n", "- one\n", "- two\n"), seconds_apart=0.3))
    turn_id = begin(log_in(person), "bold")[0].data["turnId"]
    events = follow(there, turn_id, Prefer="blocks")
    assert shown(events) == events[-1].data["html"]
    assert "blocks" not in {event.name for event in follow(there, turn_id)}


def test_each_reader_of_an_answer_gets_its_labels_in_the_language_of_the_page(person, log_in, language_model):
    language_model(Say(("> [!WARNING]\n> Rye\n\n", "```python\npass\n```\n", "word3 "), seconds_apart=0.2))
    client = log_in(person)
    turn_id = begin(client)[0].data["turnId"]
    for language, warning, copy in (("de", "Warnung", "Kopieren"), ("en", "Warning", "Copy")) * 2:
        events = follow(client, turn_id, Prefer="blocks", **{"X-Recollect-Language": language})
        blocks = shown(events)
        assert f">{warning}</p>" in blocks and f">{copy}</button>" in blocks and events[-1].data["html"] == blocks
        wait_until(lambda: the_turn().status == "complete")


@pytest.mark.parametrize("where", ["here", "in another process"])
def test_stopping_ends_it_within_a_second_and_keeps_what_was_written(person, log_in, there, language_model, where):
    model = language_model(Say(tuple(f"word{n} " for n in range(400)), seconds_apart=0.05))
    client = log_in(person)
    turn_id = begin(client)[0].data["turnId"]
    asked_at = time.monotonic()
    stopped = stop(client if where == "here" else there, turn_id)
    assert (stopped.status_code, stopped.json()) == (200, {"turnId": turn_id, "status": "interrupted"})
    assert wait_until(lambda: model.closed_at) - asked_at < 1
    # Elsewhere, the writer adds what it had written since its last save.
    wait_until(lambda: the_turn().assistant_message.startswith("word0 word1 word2 word3 "))
    again = stop(there, turn_id)
    assert (again.status_code, again.json()) == (200, stopped.json())
    ended = follow(client, turn_id)[-1]
    assert (ended.name, ended.data["status"]) == ("done", "interrupted")


def test_a_silent_answer_that_is_stopped_elsewhere_ends_at_its_next_renewal(
    person, log_in, there, language_model, monkeypatch
):
    model, renewals, save = language_model(Hang()), [], services.save_progress

    def renew(parts, *, now):
        renewals.append(now)
        return save(parts, now=now)

    monkeypatch.setattr(services, "save_progress", renew)
    client = log_in(person)
    with client.stream("POST", CHAT, json={"message": "Talk"}, headers=client._csrf()) as response:
        turn = next(read_events(response.iter_lines())).data
    # At least once a second.
    wait_until(lambda: len(renewals) > 2, seconds=5)
    before = len(renewals)
    assert stop(there, turn["turnId"]).json()["status"] == "interrupted"
    assert wait_until(lambda: model.closed_at)
    assert len(renewals) - before <= 2


def test_all_who_read_along_hear_that_it_was_stopped(person, log_in, there, language_model):
    language_model(Say(tuple(f"word{n} " for n in range(400)), seconds_apart=0.05))
    client = log_in(person)
    turn_id = begin(client)[0].data["turnId"]
    with there.stream("GET", f"/api/v1/intake/turns/{turn_id}/events") as response:
        events = read_events(response.iter_lines())
        assert any("word5 " in str(event.data) for event in events)
        stop(client, turn_id)
        *_, last = events
    assert (last.name, last.data["status"]) == ("done", "interrupted")


@pytest.mark.medium
def test_an_answer_is_nobody_elses_to_follow_or_to_stop(person, stranger, log_in, visitor, new_client, language_model):
    language_model(AT_LENGTH)
    owner = log_in(person)
    turn_id = begin(owner)[0].data["turnId"]
    wrong = [str(turn_id + 1_000_000), "0", "-1", "x", "9" * 30, "1e3", "٣"]
    visitor.get("/")
    begin_as_visitor(visitor, language_model)
    for client in (log_in(stranger), visitor):
        told = [client.get(f"/api/v1/intake/turns/{each}/events") for each in [str(turn_id), *wrong]]
        told += [stop(client, each) for each in [str(turn_id), *wrong]]
        assert {answer.status_code for answer in told} == {404}
        assert len({answer.content for answer in told}) == 1
    nobody = new_client()
    assert nobody.get(f"/api/v1/intake/turns/{turn_id}/events").status_code == 401
    assert stop(nobody, turn_id).status_code == 401
    wait_until(lambda: Turn.objects.get(pk=turn_id).status != "streaming")
    assert Turn.objects.get(pk=turn_id).status == "complete"


def begin_as_visitor(visitor, language_model):
    language_model(Say(("Hello.",)))
    assert visitor.events("Hello")[-1].name == "done"


def test_stopping_needs_the_csrf_token_and_both_need_their_scope(person, log_in, new_client, language_model):
    language_model(AT_LENGTH)
    client = log_in(person)
    turn_id = begin(client)[0].data["turnId"]
    assert client.post(f"/api/v1/intake/turns/{turn_id}/stop").status_code == 401
    for scope, statuses in {"search": (403, 200), "write": (200, 403), "chat": (200, 200)}.items():
        agent = new_client()
        issue = apps.get_model("agent_tools.AccessToken").objects.issue
        agent.headers["Authorization"] = f"Bearer {issue(user=person, scopes=[scope])[1]}"
        got = (
            agent.post(f"/api/v1/intake/turns/{turn_id}/stop").status_code,
            agent.get(f"/api/v1/intake/turns/{turn_id}/events").status_code,
        )
        assert got == statuses


def test_what_is_being_answered_is_listed_for_its_owner_alone(person, stranger, log_in, new_client, language_model):
    language_model(AT_LENGTH)
    client = log_in(person)
    turn = begin(client)[0].data
    listed = client.get("/api/v1/intake/answering").json()
    assert listed == {"answers": [{"turnId": turn["turnId"], "conversationId": turn["conversationId"]}]}
    assert log_in(stranger).get("/api/v1/intake/answering").json() == {"answers": []}
    assert new_client().get("/api/v1/intake/answering").status_code == 401
    stop(client, turn["turnId"])
    assert client.get("/api/v1/intake/answering").json() == {"answers": []}


def test_without_redis_the_chat_answers_is_followed_and_stopped_in_its_process(visitor, language_model, settings):
    settings.REDIS_URL = NOWHERE
    model = language_model(Say(tuple(f"word{n} " for n in range(400)), seconds_apart=0.05), Say(("Whole.",)))
    before = begin(visitor)
    turn_id = before[0].data["turnId"]
    part = follow(visitor, turn_id, after=before[-1].id, until="word20 ")
    assert text_of(before) + text_of(part) == "".join(f"word{n} " for n in range(21))
    asked_at = time.monotonic()
    assert stop(visitor, turn_id).json()["status"] == "interrupted"
    assert wait_until(lambda: model.closed_at) - asked_at < 1
    assert visitor.events("Again")[-1].name == "done"


def test_a_retry_is_another_attempt_and_its_readers_begin_anew(person, log_in, there, language_model):
    language_model(BreakOff(("Half of ", "it")), Say(("The ", "whole."), seconds_apart=0.5))
    client = log_in(person)
    failed = client.events("Talk")
    again = begin(client, "The ", conversation_id=failed[0].data["conversationId"])
    assert again[0].data["turnId"] == failed[0].data["turnId"]
    events = follow(there, again[0].data["turnId"], after=failed[1].id)
    assert events[0].name == "turn"
    assert text_of(events) == "The whole."


@pytest.mark.medium
def test_no_text_of_a_chat_stands_in_redis_and_a_deleted_one_stands_nowhere(person, log_in, language_model):
    language_model(Say(tuple(f"kwyjibo{n} " for n in range(400)), seconds_apart=0.05))
    client = log_in(person)
    turn = begin(client, "kwyjibo5 ")[0].data
    wait_until(lambda: "assistant_message" in str(traces_of("kwyjibo")))
    assert "broker" not in str(traces_of("kwyjibo"))
    client.delete(f"/api/v1/conversations/{turn['conversationId']}/", headers=client._csrf())
    wait_until(lambda: traces_of("kwyjibo") == [], seconds=2)
    time.sleep(0.5)
    assert traces_of("kwyjibo") == []
