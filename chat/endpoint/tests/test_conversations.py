"""All requests of one conversation in another program belong to one chat here, if they send all of it or only its end."""

import json
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import httpx2
import pytest

from agent_tools.authentication import create_token, revoke_token
from agent_tools.models import Keeps, TokenScope
from core.isolation.acting import Caller, acting_as
from intake.chats import deleting
from intake.chats.known_answers import forget_gone
from intake.models import Attachment, Conversation, KnownAnswer, PausedTurn, Turn
from intake.tests.factories import NOW
from memory.models import IndexedText
from testing.examiner import as_a_worker
from testing.model_server import CallTool, Hang, Refuse, Say
from testing.serving import wait_until

pytestmark = pytest.mark.extended

LONG = "A long answer about gardens, in which every sentence says something else about roses and tulips. " * 4


class Program:
    """A client that sends its whole history."""

    def __init__(self, http, person, **token):
        made = create_token(user=person, name="My phone", scopes=[TokenScope.CHAT], **token)
        self.id, self.history, self.person, self.http = made.id, [], person, http
        http.headers["Authorization"] = f"Bearer {made.secret}"

    def post(self, messages, headers=None, **fields):
        body = {"model": "recollect", "messages": messages} | fields
        return self.http.post("/v1/chat/completions", json=body, headers=headers or {})

    def say(self, text, *, headers=None, **fields):
        self.history.append({"role": "user", "content": text})
        got = self.post(self.history, headers, **fields)
        assert got.status_code == 200, got.text
        answer = got.json()["choices"][0]["message"]
        self.history.append({"role": "assistant", "content": answer["content"]})
        return got

    def open_turns(self):
        with acting_as(self.person):
            return Turn.objects.for_user(self.person).filter(status=Turn.Status.STREAMING).count()

    def shape(self):
        """By conversation, each turn with its parent."""
        with acting_as(self.person):
            found = {}
            for turn in Turn.objects.for_user(self.person).order_by("pk"):
                found.setdefault(turn.conversation_id, []).append((turn.user_message, turn.parent_number))
            return list(found.values())


@pytest.fixture
def program(new_client, person):
    return Program(new_client(), person)


def test_a_window_and_wrapped_or_cut_messages_still_find_their_chat(program, language_model):
    language_model(Say((LONG,)), Say(("Second.",)), Say(("Third.",)), Say(("Fourth.",)))
    program.say("Question 1?")
    program.history[1]["content"] = f"<think>Hm.</think>{LONG[:300]}"
    program.say("<user_input>\nQuestion 2?\n</user_input><environment_details>12:30</environment_details>")
    program.history[:2] = [{"role": "system", "content": "It is Monday."}]
    program.say("### Task:\nRespond to the user query.\n<context>\nA page\n</context>\n\nQuestion 3?")
    program.history[1:1] = [{"role": "user", "content": "notes.md"}, {"role": "assistant", "content": "Ok."}]
    program.history += [{"role": "user", "content": "b.md"}, {"role": "assistant", "content": "Ok, thanks."}]
    program.say([{"type": "text", "text": "Question 4?", "cache_control": {"type": "ephemeral"}}])
    assert program.shape() == [[("Question 1?", None), *((f"Question {n}?", n - 1) for n in (2, 3, 4))]]


@pytest.mark.parametrize("name", ["", "7"])
def test_two_tokens_at_once_keep_a_chat_each_of_one_conversation(new_client, person, language_model, name):
    language_model(*[Say((LONG,))] * 5)
    programs = [Program(new_client(), person) for _ in range(2)]
    with ThreadPoolExecutor(2) as pool:
        for words in ("Roses?", "And tulips?"):
            got = [*pool.map(lambda each: each.say(words, headers={"X-Conversation-Id": name}), programs)]  # noqa: B023
    assert programs[0].shape() == [[("Roses?", None), ("And tulips?", 1)]] * 2
    ids = [each.json()["id"].replace("chatcmpl-", "resp_") for each in got]
    bodies = [{"model": "recollect", "input": "Why?", "previous_response_id": id_} for id_ in ids]
    answers = [programs[1].http.post("/v1/responses", json=body) for body in bodies]
    assert [each.status_code for each in answers] == [404, 200]
    conversation = "X-Recollect-Conversation"
    assert answers[1].headers[conversation] == got[1].headers[conversation] != got[0].headers[conversation]


def test_a_deleted_chat_does_not_come_back_and_begins_a_new_one(program, person, language_model):
    model = language_model(*(Say((f"Answer {n}.",)) for n in range(3)))
    program.say("My secret?")
    program.say("Two?")
    with acting_as(person):
        chat = Conversation.objects.for_user(person).get()
        deleting.delete_conversation(caller=Caller(user_id=person.pk), conversation_id=chat.pk)
    with as_a_worker():
        forget_gone(person.pk, now=NOW)
    with acting_as(person):
        assert set(KnownAnswer.objects.for_user(person).values_list("turn_id", "gone_at")) == {(None, NOW)}
    program.say("Three?")
    assert program.shape() == [[("Three?", None)]]
    with acting_as(person):
        (turn,) = Turn.objects.for_user(person)
    assert (turn.tool_calls, "secret" in str(model.requests[-1])) == ([], True)


def test_a_history_from_elsewhere_is_shown_with_the_first_turn_and_not_indexed(program, person, language_model):
    language_model(Refuse(401), Say(("Answer.",)))
    program.history = [{"role": "user", "content": "Zanzibar?"}, {"role": "assistant", "content": "An island."}]
    program.post([*program.history, {"role": "user", "content": "And its capital?"}])
    program.say("And its capital?", headers={"X-Stainless-Retry-Count": "1"})
    with acting_as(person):
        (turn,) = Turn.objects.for_user(person)
        assert "Zanzibar?" in turn.tool_calls[0]["found"]
        assert IndexedText.objects.for_user(person).count() == 1


def test_an_answer_that_its_program_stops_is_kept_as_far_as_it_got(program, person, language_model):
    model = language_model(Say(tuple(f"Word {n}. " for n in range(2_000)), seconds_apart=0.01), Say(("On.",)))
    asked = {"model": "recollect", "messages": [{"role": "user", "content": "Count."}], "stream": True}
    got = ""
    with program.http.stream("POST", "/v1/chat/completions", json=asked) as response:
        for line in response.iter_lines():
            if line.startswith("data: {"):
                got += json.loads(line[6:])["choices"][0]["delta"].get("content") or ""
            if "Word 20" in got:
                break
    wait_until(lambda: model.closed_at)

    def ended():
        with acting_as(person):
            return KnownAnswer.objects.for_user(person).count() > 1

    wait_until(ended)
    program.history = [{"role": "user", "content": "Count."}, {"role": "assistant", "content": got}]
    program.say("Go on.")
    assert program.shape() == [[("Count.", None), ("Go on.", 1)]]


def test_an_sdk_that_tries_again_makes_no_second_turn(program, person, language_model):
    model = language_model(Hang(), Say(("Here.",)))
    messages = [{"role": "user", "content": "Anybody?"}]
    with pytest.raises(httpx2.ReadTimeout):
        body = {"model": "recollect", "messages": messages}
        program.http.post("/v1/chat/completions", json=body, timeout=1.5)
    wait_until(lambda: model.closed_at)
    again = program.post(messages, {"X-Stainless-Retry-Count": "1"})
    assert again.json()["choices"][0]["message"]["content"] == "Here."
    third = program.post(messages, {"X-Stainless-Retry-Count": "2"})
    assert third.json()["choices"][0]["message"]["content"] == "Here."
    assert program.shape() == [[("Anybody?", None)]]


def test_a_retry_of_a_turn_that_waits_for_its_person_is_answered_without_them(program, person, language_model):
    language_model(Say(("Hm.",)), Say(("Here.",)))
    messages = [{"role": "user", "content": "Anybody?"}]
    program.post(messages)
    with acting_as(person):
        turn = Turn.objects.for_user(person).get()
        Turn.objects.for_user(person).update(status=Turn.Status.WAITING)
        PausedTurn.objects.create(user=person, turn_id=turn.pk, calls={}, state={}, until=NOW)
    again = program.post(messages, {"X-Stainless-Retry-Count": "1"})
    assert again.json()["choices"][0]["message"]["content"] == "Here."
    with acting_as(person):
        assert not PausedTurn.objects.for_user(person).exists()
    assert program.shape() == [[("Anybody?", None)]]


def test_the_rounds_of_a_programs_tools_are_one_turn_if_the_token_keeps_all(new_client, person, language_model):
    language_model(CallTool("weather", {"city": "Lagos"}), Say(("Rain.",)), Say(("Tomorrow too.",)))
    program = Program(new_client(), person, keeps=Keeps.EVERYTHING)
    tools = [{"type": "function", "function": {"name": "weather", "parameters": {"type": "object"}}}]
    program.history = [{"role": "user", "content": "Weather?"}]
    called = program.post(program.history, tools=tools).json()["choices"][0]["message"]
    result = {"role": "tool", "tool_call_id": called["tool_calls"][0]["id"], "content": "Rain all day."}
    program.history += [called, result]
    answer = program.post(program.history, tools=tools).json()["choices"][0]["message"]["content"]
    program.history.append({"role": "assistant", "content": answer})
    program.say("Tomorrow?", tools=tools)
    assert program.shape() == [[("Weather?", None), ("Tomorrow?", 1)]]
    with acting_as(person):
        turn = Turn.objects.for_user(person).earliest("pk")
    assert [(call["name"], call["found"]) for call in turn.tool_calls] == [("weather", "Rain all day.")]
    assert turn.assistant_message == "Rain."


def test_a_tools_result_that_names_its_response_goes_on_with_the_turn(new_client, person, language_model):
    model = language_model(CallTool("weather", {"city": "Lagos"}), Say(("Rain.",)))
    program = Program(new_client(), person, keeps=Keeps.EVERYTHING)
    asked = {"model": "recollect", "tools": [{"type": "function", "name": "weather"}]}
    ask = partial(program.http.post, "/v1/responses")
    called = ask(json=asked | {"input": "Weather?"}).json()
    result = {"type": "function_call_output", "call_id": called["output"][0]["call_id"], "output": "Rain all day."}
    answer = ask(json=asked | {"input": [result], "previous_response_id": called["id"]}).json()
    assert answer["output"][0]["content"][0]["text"] == "Rain."
    assert [each["role"] for each in model.requests[1]["messages"]] == ["user", "assistant", "tool"]
    assert program.shape() == [[("Weather?", None)]]


def test_machinery_private_names_and_a_token_that_keeps_nothing_leave_no_row(new_client, person, language_model):
    language_model(*[Say(("A title",))] * 4)
    chats, nothing = Program(new_client(), person), Program(new_client(), person, keeps=Keeps.NOTHING)
    title = [{"role": "user", "content": "### Task:\nGenerate a concise title"}]
    answers = [
        chats.post(title),
        chats.post([{"role": "user", "content": "Hi"}], model="recollect-private"),
        chats.post([{"role": "user", "content": "Hi"}], store=False),
        nothing.post([{"role": "user", "content": "Hi"}]),
    ]
    assert [got.headers["X-Recollect-Kept"] for got in answers] == ["no"] * 4
    with acting_as(person):
        for model in (Conversation, Turn, KnownAnswer, IndexedText):
            assert not model.objects.for_user(person).exists()


def test_a_text_beyond_a_message_is_attached_and_a_picture_needs_a_model_that_sees(
    program, person, settings, language_model
):
    model = language_model(Say(("Long.",)))
    dot = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
    picture = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{dot}"}}
    program.say("word " * 10_000)
    assert len(model.requests[0]["messages"][-1]["content"]) == 50_000
    with acting_as(person):
        kept = sorted(Attachment.objects.for_user(person).values_list("media_type", "size", "turn_number"))
    assert kept == [("text/plain", 49_999, 1)]
    settings.LLM_VISION = "off"
    refused = program.post([{"role": "user", "content": [picture]}])
    assert (refused.status_code, "does not see pictures" in refused.text) == (400, True)


def test_a_revoked_token_is_out_and_its_stream_ends(program, person, language_model):
    language_model(Say(tuple(f"Word {n}. " for n in range(4_000)), seconds_apart=0.01))
    asked = {"model": "recollect", "messages": [{"role": "user", "content": "Count."}], "stream": True}
    with program.http.stream("POST", "/v1/chat/completions", json=asked) as response:
        lines = response.iter_lines()
        next(lines)
        revoke_token(user=person, token_id=str(program.id))
        assert '"authentication_error"' in [line for line in lines if line][-1]
    assert program.post([{"role": "user", "content": "Hi"}]).status_code == 401


def test_a_page_of_any_site_may_ask_with_a_token_and_no_cookie_counts(program, log_in, person):
    asked = {
        "Origin": "app://obsidian.md",
        "Access-Control-Request-Method": "POST",
        "Access-Control-Request-Headers": "authorization, x-api-key, anthropic-beta, x-stainless-retry-count",
    }
    preflight = program.http.options("/v1/messages", headers=asked)
    assert preflight.status_code == 200
    assert preflight.headers["access-control-allow-origin"] == "*"
    assert "x-stainless-retry-count" in preflight.headers["access-control-allow-headers"]
    assert "access-control-allow-credentials" not in preflight.headers
    assert log_in(person).get("/v1/models").status_code == 401
    key = program.http.headers["Authorization"].removeprefix("Bearer ")
    by_key = httpx2.get(f"{program.http.base_url}/v1/models", headers={"x-api-key": key})
    assert by_key.status_code == 200


def test_models_that_keep_silent_hold_no_turn(program, language_model):
    """Each account has an eighth of the pool at once, and its pages need it."""
    count = 8
    language_model(*[Hang()] * count)
    with ThreadPoolExecutor(count) as pool:
        asked = {"model": "recollect-plain", "messages": [{"role": "user", "content": "Hi"}]}
        wait = partial(program.http.post, "/v1/chat/completions", json=asked, timeout=6)
        waiting = [pool.submit(wait) for _ in range(count)]
        wait_until(lambda: sum(map(len, program.shape())) == count)
        began = time.monotonic()
        assert program.http.get("/v1/models").status_code == 200
        assert time.monotonic() - began < 1
        assert not [each for each in waiting if each.done()]
        for each in waiting:
            with pytest.raises(httpx2.ReadTimeout):
                each.result()
    # Their turns end before the rows of the test are removed.
    wait_until(lambda: program.open_turns() == 0)
