"""Model servers as they are: slow, compatible but for the tool calls, silent, full, away; and models that repeat."""

import socket

import pytest

from intake.models import Turn
from testing.model_server import CallTool, CallTools, Hang, Refuse, Say

pytestmark = pytest.mark.django_db(transaction=True)


def the_turn():
    return Turn.objects.get()


def error_of(client, message="Hello"):
    event = client.events(message)[-1]
    assert event.name == "error", event
    return event.data


@pytest.fixture
def staff(person, log_in):
    person.is_staff = True
    person.save()
    return log_in(person)


# -- Time ----------------------------------------------------------------------------------------------------------------


def test_a_first_word_may_take_five_minutes_unless_the_operator_says_otherwise(settings):
    from intake.llm.language_models import LanguageModel
    from intake.llm.models import model_settings

    assert settings.LLM_TIMEOUT_SECONDS == 300
    asked = model_settings(LanguageModel("home", "qwen3", base_url="http://localhost:11434/v1"))
    assert asked["first_event_timeout"] == 300
    assert asked["timeout"].read > 300
    assert asked["timeout"].connect == 10


def test_a_model_that_is_loaded_first_answers_after_its_time(visitor, language_model, settings):
    settings.LLM_TIMEOUT_SECONDS = 5
    model = language_model(Say(("At last.",), seconds_before=2))
    assert visitor.events("Hello")[-1].name == "done"
    assert len(model.requests) == 1


def test_a_model_that_is_too_slow_is_asked_once(visitor, language_model, settings, logged):
    settings.LLM_TIMEOUT_SECONDS = 0.5
    model = language_model(Hang(), Hang())
    error = error_of(visitor)
    assert (error["code"], error["retryable"]) == ("unavailable", True)
    assert error["detail"] == "The model did not answer within 0.5 seconds. Try again."
    assert len(model.requests) == 1
    assert "scripted at 127.0.0.1:" in "\n".join(logged.lines) and "ModelRequestTimeout" in "\n".join(logged.lines)


# -- Addresses -----------------------------------------------------------------------------------------------------------


def test_a_wrong_address_is_told_and_logged_without_its_password(visitor, settings, logged):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
    settings.LLM_MODEL = "scripted"
    settings.LLM_BASE_URL = f"http://user:hunter2@127.0.0.1:{port}/v1/secret-path"
    error = error_of(visitor)
    assert (error["code"], error["retryable"]) == ("unavailable", True)
    assert "check its address" in error["detail"] and error["about"] == "model"
    assert f"The model scripted at 127.0.0.1:{port} failed after " in "\n".join(logged.lines)
    assert "hunter2" not in "\n".join(logged.lines) and "secret-path" not in "\n".join(logged.lines)


# -- Tool calls ----------------------------------------------------------------------------------------------------------

TWO = (
    CallTool("search_chat_history", {"query": "cat"}),
    CallTool("search_chat_history", {"query": "dog", "limit": 3}),
)


@pytest.mark.parametrize(
    "given",
    [
        {"has_one_index": True},
        {"has_one_id": True},
        {"has_one_index": True, "has_one_id": True},
        {"repeats_names": True},
    ],
)
def test_two_calls_with_one_index_or_one_id_are_two_calls(person, log_in, language_model, given):
    model = language_model(CallTools(TWO, **given), Say(("Neither.",)))
    events = log_in(person).events("Do I have a cat or a dog?")
    assert [event.name for event in events][1:-2] == ["tool_call", "tool_call", "tool_result", "tool_result"]
    called = [(call["name"], call["input"]) for call in the_turn().tool_calls]
    assert called == [(call.name, call.arguments) for call in TWO]
    assert all("summary" in call for call in the_turn().tool_calls)
    *_, asked, first, second = model.requests[1]["messages"]
    ids = [call["id"] for call in asked["tool_calls"]]
    assert len(set(ids)) == 2
    assert [first["tool_call_id"], second["tool_call_id"]] == ids


def test_a_model_that_repeats_a_successful_call_is_stopped_at_the_third(person, log_in, language_model):
    same = CallTool("search_chat_history", {"query": "cat", "limit": 5})
    turned = CallTool("search_chat_history", {"limit": 5, "query": "cat"})
    model = language_model(same, turned, same, Say(("never asked",)))
    events = log_in(person).events("Do I have a cat?")
    assert events[-1].name == "done"
    assert len(model.requests) == 3
    turn = the_turn()
    assert turn.status == "complete"
    assert turn.assistant_message.startswith("The model asked for the same thing again and again")
    assert turn.assistant_message.endswith("Nothing found")


def test_calls_that_differ_or_fail_do_not_count_as_repeated(person, log_in, language_model):
    def differing(query):
        return CallTool("search_chat_history", {"query": query})

    language_model(differing("cat"), differing("dog"), differing("cat"), differing("cow"), Say(("None.",)))
    assert log_in(person).events("Do I have a cat?")[-1].name == "done"
    assert the_turn().assistant_message == "None."


# -- Nothing, and too much -----------------------------------------------------------------------------------------------


def test_an_empty_stream_is_told_as_that_and_not_asked_for_again(visitor, language_model):
    model = language_model(Say(()), Say(("never asked",)))
    error = error_of(visitor)
    assert error["detail"] == "The model returned an empty answer. Rephrase your question, or choose another model."
    assert len(model.requests) == 1


def test_a_window_that_is_full_before_the_first_word_is_told_as_that(visitor, language_model):
    model = language_model(Say((), finish_reason="length"), Say(("never asked",)))
    error = error_of(visitor)
    assert (error["code"], error["retryable"]) == ("too_large", False)
    assert error["detail"].startswith("This conversation is longer than the model's window.")
    assert len(model.requests) == 1


def test_a_model_that_is_silent_after_its_tools_is_asked_once_more(person, log_in, language_model):
    call = CallTool("search_chat_history", {"query": "cat"})
    model = language_model(call, Say(()), Say(("No cat.",)))
    assert log_in(person).events("Do I have a cat?")[-1].name == "done"
    assert (the_turn().assistant_message, len(model.requests)) == ("No cat.", 3)


@pytest.mark.parametrize("in_stream", [False, True])
@pytest.mark.parametrize(
    "message",
    [
        "the request exceeds the available context size, try increasing it",
        "This model's maximum context length is 4096 tokens. However, you requested 5000 tokens",
        "The number of tokens to keep from the initial prompt is greater than the context length.",
        "`inputs` tokens + `max_new_tokens` must be <= 4096. Given: input length is too long",
        "requested tokens (5000) exceed context window of 4096",
        "prompt is too long: 210000 tokens > 200000 maximum",
    ],
)
def test_a_conversation_beyond_the_window_is_told_as_that_in_the_words_of_any_server(
    visitor, language_model, message, in_stream
):
    model = language_model(Say(("Much to say.",)), *[Refuse(400, message=message, in_stream=in_stream)] * 2)
    begun = visitor.events("Go on at length")[0].data["conversationId"]
    error = visitor.events("And?", conversation_id=begun)[-1].data
    assert error["detail"] == (
        "This conversation is longer than the model's window. Start a new one, or choose another model."
    )
    assert "reason" not in error
    assert len(model.requests) == 2


@pytest.mark.parametrize("in_stream", [False, True])
def test_staff_read_the_servers_own_reason_without_a_key(staff, language_model, settings, in_stream):
    settings.LLM_API_KEY = "house-key"
    words = "model runner stopped: key sk-abcdef123 house-key, insufficient memory"
    language_model(*[Refuse(400, message=words, in_stream=in_stream)] * 2)
    error = error_of(staff)
    assert "insufficient memory" in error["reason"]
    assert "sk-abcdef123" not in str(error) and "house-key" not in str(error)
    assert the_turn().error["reason"] == error["reason"]
    page = staff.get(f"/c/{the_turn().conversation_id}/").text
    assert "insufficient memory" in page.split('data-part="trouble"')[1]


def test_a_model_that_only_embeds_says_that_it_cannot_chat(person, log_in, language_model):
    language_model(*[Refuse(400, message='"all-minilm" does not support chat')] * 2)
    error = error_of(log_in(person))
    assert (error["detail"], error["about"]) == ("scripted cannot chat. Choose another one.", "model")


def test_others_read_no_word_of_the_server(person, log_in, language_model, logged):
    language_model(*[Refuse(400, message="insufficient memory of alice")] * 2)
    error = error_of(log_in(person))
    # The page offers another model.
    assert (error["detail"], error["about"]) == ("This model cannot answer this. Choose another one.", "model")
    assert "memory" not in str(error) and "memory" not in str(the_turn().error)
    assert "insufficient memory" not in "\n".join(logged.lines)
    assert "The model scripted at 127.0.0.1:" in "\n".join(logged.lines) and " 400" in "\n".join(logged.lines)
