"""The chat over HTTP: what leaves as events, what is kept, and what happens when the model or the reader fails."""

from uuid import uuid4

import pytest

from intake.models import Conversation, Turn
from testing.model_server import BreakOff, CallTool, Hang, Refuse, Say
from testing.serving import wait_until

pytestmark = pytest.mark.django_db(transaction=True)


def the_turn() -> Turn:
    return Turn.objects.get()


def test_an_answer_streams_from_turn_to_done_and_is_saved(visitor, language_model):
    language_model(Say(("Hello ", "**there**.")))
    events = visitor.events("Good morning")
    assert [event.name for event in events] == ["turn", "delta", "delta", "done"]
    assert events[0].data["turnNumber"] == 1
    assert "".join(event.data["text"] for event in events if event.name == "delta") == "Hello **there**."
    assert events[-1].data["conversationId"] == events[0].data["conversationId"]
    assert "<strong>there</strong>" in events[-1].data["html"]
    turn = the_turn()
    assert (turn.user_message, turn.assistant_message, turn.status) == ("Good morning", "Hello **there**.", "complete")


def test_the_first_message_gives_the_conversation_its_title(visitor, language_model):
    language_model(Say(("Sure.",)))
    visitor.events("Plan a weekend in Lisbon\nwith children")
    assert Conversation.objects.get().title == "Plan a weekend in Lisbon"


def test_a_second_message_goes_on_with_the_conversation_and_the_model_hears_the_first(visitor, language_model):
    model = language_model(Say(("Noted.",)), Say(("Miso.",)))
    first = visitor.events("My cat is called Miso")
    visitor.events("What is my cat called?", conversation_id=first[0].data["conversationId"])
    told = [(message["role"], message["content"]) for message in model.requests[1]["messages"]]
    assert told[1:] == [
        ("user", "My cat is called Miso"),
        ("assistant", "Noted."),
        ("user", "What is my cat called?"),
    ]
    assert list(Turn.objects.in_order().values_list("turn_number", flat=True)) == [1, 2]


def test_a_tool_call_and_its_result_are_told_and_kept(person, log_in, language_model):
    model = language_model(CallTool("search_chat_history", {"query": "cat"}), Say(("No cat yet.",)))
    events = log_in(person).events("Do I have a cat?")
    assert [event.name for event in events] == ["turn", "tool_call", "tool_result", "delta", "done"]
    (call,) = the_turn().tool_calls
    data = [{name: value for name, value in event.data.items() if name != "html"} for event in events[1:3]]
    assert data[0] == {"id": call["id"], "name": "search_chat_history", "input": {"query": "cat"}}
    assert data[1] == {"id": call["id"], "summary": "Nothing found"}
    assert "search_chat_history" in [tool["function"]["name"] for tool in model.requests[0]["tools"]]
    assert call["summary"] == "Nothing found"


def test_a_wrong_tool_call_is_mended_by_the_model(person, log_in, language_model):
    model = language_model(
        CallTool("search_chat_history", {"query": ""}),
        CallTool("search_chat_history", {"query": "cat"}),
        Say(("Nothing.",)),
    )
    events = log_in(person).events("Do I have a cat?")
    assert [event.name for event in events][-2:] == ["delta", "done"]
    assert "validation_error" in model.requests[1]["messages"][-1]["content"]


def test_an_answer_that_breaks_off_is_kept_as_far_as_it_came(visitor, language_model):
    language_model(BreakOff(("The first half",)))
    events = visitor.events("Tell me everything")
    assert events[-1].name == "error"
    assert events[-1].data["code"] == "unavailable"
    assert events[-1].data["retryable"] is True
    turn = the_turn()
    assert (turn.assistant_message, turn.status) == ("The first half", "failed")


@pytest.mark.parametrize(
    ("refusal", "code", "retryable"),
    [(Refuse(401), "unavailable", False), (Refuse(429), "rate_limited", True), (Refuse(500), "unavailable", True)],
)
def test_a_refusal_by_the_model_is_told_without_its_words(visitor, language_model, refusal, code, retryable):
    language_model(refusal, refusal)
    error = visitor.events("Hello")[-1]
    assert (error.name, error.data["code"], error.data["retryable"]) == ("error", code, retryable)
    assert "sk-secret" not in error.data["detail"]
    assert the_turn().status == "failed"


def test_a_busy_model_says_at_once_in_how_many_seconds_it_may_be_asked(visitor, language_model):
    model = language_model(Refuse(429, {"retry-after": "7"}), Say(("never asked",)))
    error = visitor.events("Hello")[-1].data
    assert (error["code"], error["retryAfter"], len(model.requests)) == ("rate_limited", 7, 1)


def test_a_message_that_is_too_long_is_told_apart_from_a_chat_that_is(visitor, language_model):
    too_long = Refuse(400, code="context_length_exceeded")
    language_model(too_long, Say(("Much to say. " * 20,)), too_long)
    error = visitor.events("Hello " * 50)[-1]
    assert (error.name, error.data["code"]) == ("error", "too_large")
    assert error.data["detail"] == "This message is longer than the model's window."
    begun = visitor.events("Go on at length")
    error = visitor.events("And?", conversation_id=begun[0].data["conversationId"])[-1]
    assert error.data["detail"] == (
        "This conversation is longer than the model's window. Start a new one, or choose another model."
    )


def test_a_model_that_hangs_is_given_up(visitor, language_model, settings):
    settings.LLM_TIMEOUT_SECONDS = 0.5
    language_model(Hang(), Hang())
    error = visitor.events("Hello")[-1]
    assert (error.name, error.data["code"], error.data["retryable"]) == ("error", "unavailable", True)


def test_a_retry_takes_up_the_failed_turn(visitor, language_model):
    language_model(Refuse(500), Refuse(500), Say(("Now it works.",)))
    failed = visitor.events("Hello")
    again = visitor.events("Hello", conversation_id=failed[0].data["conversationId"])
    assert again[0].data["turnNumber"] == 1
    assert (the_turn().assistant_message, the_turn().status) == ("Now it works.", "complete")


def test_a_reader_who_leaves_ends_nothing(visitor, language_model):
    words = tuple(f"word{n} " for n in range(20))
    model = language_model(Say(words, seconds_apart=0.05))
    with visitor.stream("POST", "/api/v1/intake/chat", json={"message": "Talk"}, headers=visitor._csrf()) as response:
        for line in response.iter_lines():
            if "word3" in line:
                break
    wait_until(lambda: the_turn().status != "streaming")
    assert (the_turn().status, the_turn().assistant_message) == ("complete", "".join(words))
    assert model.closed_at is None


def test_what_is_written_is_saved_while_it_is_written(visitor, language_model):
    language_model(Say(("one ", "two ", "three ", "four "), seconds_apart=0.8))
    with visitor.stream("POST", "/api/v1/intake/chat", json={"message": "Count"}, headers=visitor._csrf()) as response:
        for line in response.iter_lines():
            if "three" in line:
                assert wait_until(lambda: the_turn().assistant_message).startswith("one")
                assert the_turn().status == "streaming"
                break


@pytest.mark.parametrize("message", ["", "   \n ", "x" * 32_001, "\x00", 5, None, ["hello"]])
def test_a_message_that_is_none_is_refused_and_nothing_is_kept(visitor, message):
    response = visitor.chat(message)
    assert response.status_code == 400
    assert response.headers["content-type"] == "application/problem+json"
    problem = response.json()
    assert problem["code"] == "validation_error"
    assert list(problem["errors"]) == ["message"]
    assert not Conversation.objects.exists()


def test_a_message_of_32000_characters_is_taken(visitor, language_model):
    language_model(Say(("Long.",)))
    assert visitor.events("x" * 32_000)[-1].name == "done"


def test_an_unknown_field_is_refused(visitor):
    response = visitor.chat("Hello", user_id=1)
    assert response.status_code == 400
    assert list(response.json()["errors"]) == ["user_id"]


@pytest.mark.parametrize("body", [b"", b"hello", b"[1]", b'{"message": NaN}', b"[" * 100_000, b"\xff\xfe"])
def test_a_body_that_is_no_json_object_is_refused(visitor, body):
    headers = visitor._csrf() | {"Content-Type": "application/json"}
    response = visitor.post("/api/v1/intake/chat", content=body, headers=headers)
    assert response.status_code == 400
    assert response.json()["code"] == "validation_error"


def test_a_form_of_several_parts_is_refused_as_no_json(visitor):
    files = {"message": (None, "Hello")}
    response = visitor.post("/api/v1/intake/chat", files=files, headers=visitor._csrf())
    assert (response.status_code, response.json()["detail"]) == (400, "The body is not valid JSON.")


def test_a_strangers_conversation_nobodys_and_a_malformed_one_get_the_same_answer(
    person, stranger, log_in, language_model
):
    language_model(Say(("Noted.",)))
    theirs = log_in(person).events("My secret")[0].data["conversationId"]
    client = log_in(stranger)
    answers = [client.chat("Hello", conversation_id=given) for given in (theirs, str(uuid4()), "no-uuid", "")]
    assert {answer.status_code for answer in answers} == {404}
    assert len({answer.content for answer in answers}) == 1
    assert answers[0].json()["code"] == "not_found"


def test_one_visitor_cannot_go_on_with_another_visitors_conversation(new_client, language_model):
    language_model(Say(("Noted.",)))
    theirs = new_client().events("My secret")[0].data["conversationId"]
    assert new_client().chat("Hello", conversation_id=theirs).status_code == 404


def test_without_the_csrf_token_nothing_is_said(visitor):
    visitor.get("/")
    response = visitor.post("/api/v1/intake/chat", json={"message": "Hello"})
    assert response.status_code == 401
    assert not Turn.objects.exists()


def test_a_token_chats_without_a_session(server, person, new_client, language_model):
    from django.apps import apps

    _, token = apps.get_model("agent_tools.AccessToken").objects.issue(user=person)
    language_model(Say(("Hello.",)))
    with new_client().stream(
        "POST", "/api/v1/intake/chat", json={"message": "Hi"}, headers={"Authorization": f"Token {token}"}
    ) as response:
        assert response.status_code == 200
        response.read()
    assert the_turn().user_id == person.pk


def test_a_wrong_token_is_refused(new_client):
    headers = {"Authorization": "Token nonsense"}
    response = new_client().post("/api/v1/intake/chat", json={"message": "Hi"}, headers=headers)
    assert (response.status_code, response.json()["code"]) == (401, "authentication_required")


def test_a_visitors_words_become_theirs_when_they_register(visitor, language_model):
    language_model(Say(("Noted.",)))
    visitor.events("My cat is called Miso")
    visitor_id = the_turn().user_id
    form = {"email": "New@Example.com", "password": "a long enough password"}
    assert visitor.submit("/register/", **form).status_code == 200
    assert (the_turn().user.email, the_turn().user_id) == ("new@example.com", visitor_id)
    assert Conversation.objects.get().user_id == the_turn().user_id


@pytest.mark.parametrize("method", ["get", "put", "delete"])
def test_another_method_is_refused_as_other_endpoints_refuse_it(client, method):
    response = getattr(client, method)("/api/v1/intake/chat")
    assert (response.status_code, response["Content-Type"]) == (405, "application/problem+json")
    assert response["Allow"] == "POST, OPTIONS"
    assert response.json()["detail"] == f'Method "{method.upper()}" not allowed.'
