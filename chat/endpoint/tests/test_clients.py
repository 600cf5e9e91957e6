"""The official clients of both vendors, against the real server with a scripted model."""

import json
from importlib import import_module

import openai
import pytest

from agent_tools.authentication import create_token, revoke_token
from agent_tools.models import TokenScope
from core.isolation.acting import acting_as
from intake.models import Turn
from testing.model_server import BreakOff, CallTool, Refuse, Say

pytestmark = [pytest.mark.extended, pytest.mark.medium]

# It comes with an extra of pydantic-ai.
anthropic = import_module("anthropic")
WEATHER = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}


@pytest.fixture
def secret(person):
    return create_token(user=person, name="My phone", scopes=[TokenScope.CHAT]).secret


@pytest.fixture
def client(server, secret):
    return openai.OpenAI(base_url=f"{server}/v1", api_key=secret)


@pytest.fixture
def claude(server, secret):
    return anthropic.Anthropic(base_url=server, api_key=secret)


def turns_of(person):
    with acting_as(person):
        return list(Turn.objects.for_user(person).order_by("pk"))


def asks(*texts):
    """A history: what the user and the assistant said in turn."""
    return [{"role": "assistant" if n % 2 else "user", "content": text} for n, text in enumerate(texts)]


def test_openais_client_streams_an_answer_that_is_kept_as_a_turn(client, person, language_model):
    model = language_model(Say(("It is ", "blue.")))
    asked = {"model": "recollect", "messages": asks("What colour is the sky?"), "stream": True}
    with client.chat.completions.with_streaming_response.create(
        **asked, stream_options={"include_usage": True}, temperature=0.3
    ) as response:
        chunks = [json.loads(line[6:]) for line in response.iter_lines() if line.startswith("data: {")]
    assert "".join(c["choices"][0]["delta"].get("content") or "" for c in chunks[:-1]) == "It is blue."
    assert chunks[-1]["usage"]["total_tokens"] == 120
    (turn,) = turns_of(person)
    assert (turn.user_message, turn.assistant_message) == ("What colour is the sky?", "It is blue.")
    assert response.headers["X-Recollect-Conversation"] == str(turn.conversation_id)
    assert model.requests[0]["temperature"] == 0.3


def test_anthropics_client_streams_an_answer_that_is_kept_as_a_turn(claude, person, language_model):
    language_model(Say(("It is ", "blue.")))
    with claude.messages.stream(
        model="claude-sonnet-5", max_tokens=500, system="Be short.", messages=asks("What colour is the sky?")
    ) as stream:
        assert "".join(stream.text_stream) == "It is blue."
        message = stream.get_final_message()
    assert (message.stop_reason, message.usage.output_tokens) == ("end_turn", 20)
    assert [turn.assistant_message for turn in turns_of(person)] == ["It is blue."]


def test_anthropics_client_counts_tokens(claude):
    counted = claude.messages.count_tokens(model="claude-sonnet-5", messages=asks("What colour is the sky?"))
    assert 5 < counted.input_tokens < 50


def with_openai(server, key, messages, **more):
    client = openai.OpenAI(base_url=f"{server}/v1", api_key=key)
    return client.chat.completions.create(model="recollect", messages=messages, **more).choices[0].message.content


def with_responses(server, key, messages, **more):
    client = openai.OpenAI(base_url=f"{server}/v1", api_key=key)
    return client.responses.create(model="recollect", input=messages, **more).output_text


def with_anthropic(server, key, messages, **more):
    client = anthropic.Anthropic(base_url=server, api_key=key)
    return client.messages.create(model="recollect", messages=messages, max_tokens=900, **more).content[0].text


@pytest.mark.parametrize("ask", [with_openai, with_responses, with_anthropic])
def test_each_way_to_go_on_finds_its_chat_with_each_client(ask, server, person, language_model):
    language_model(*(Say((f"Answer {n}.",)) for n in range(9)))
    token = create_token(user=person, name="My phone", scopes=[TokenScope.CHAT])
    named = {"extra_headers": {"X-Session-Id": "s-1"}}
    one = ["One?", ask(server, token.secret, asks("One?"), **named)]
    # Each is a client of its own, as on a second device.
    two = ["Two?", ask(server, token.secret, asks(*one, "Two?"))]
    for said in ("Edited?", "Edited?"):
        ask(server, token.secret, asks(*one, said))
    ask(server, token.secret, asks(*two, "Trimmed?"))
    ask(server, token.secret, asks("We spoke.", "Fine.", "Summed up?"), **named)
    ask(server, token.secret, asks(*one, "### Task:\nGenerate a concise title"))
    ask(server, token.secret, asks("word " * 10_000))
    kept = [(each.user_message[:10], each.parent_number) for each in turns_of(person)]
    versions = [("One?", None), ("Two?", 1), ("Edited?", 1), ("Edited?", 1)]
    assert kept == [*versions, ("Trimmed?", 2), ("Summed up?", 5), ("", None)]
    revoke_token(user=person, token_id=str(token.id))
    with pytest.raises((openai.AuthenticationError, anthropic.AuthenticationError)):
        ask(server, token.secret, asks("Still there?"))


def test_a_haiku_of_a_client_of_anthropics_keeps_nothing(claude, person, language_model):
    language_model(Say(("A title",)))
    raw = claude.messages.with_raw_response.create(model="claude-haiku-5", max_tokens=500, messages=asks("Name it"))
    assert raw.headers["X-Recollect-Kept"] == "no"
    assert turns_of(person) == []


def test_a_clients_own_tools_are_called_and_none_of_ours_is_offered(client, claude, person, language_model):
    model = language_model(*[CallTool("weather", {"city": "Lagos"})] * 3, Say(("Rain.",)))
    tools = [{"type": "function", "function": {"name": "weather", "parameters": WEATHER}}]
    question = asks("What is the weather in Lagos?")
    answer = client.chat.completions.create(model="recollect", messages=question, tools=tools).choices[0]
    call = answer.message.tool_calls[0]
    assert (answer.finish_reason, call.function.name) == ("tool_calls", "weather")
    assert json.loads(call.function.arguments) == {"city": "Lagos"}
    assert [tool["function"]["name"] for tool in model.requests[0]["tools"]] == ["weather"]
    streamed = client.chat.completions.create(model="recollect", messages=question, tools=tools, stream=True)
    assert [c.choices[0].delta.tool_calls[0].function.name for c in streamed if c.choices[0].delta.tool_calls]
    claudes = [{"name": "weather", "input_schema": WEATHER}]
    asked = {"model": "claude-sonnet-5", "max_tokens": 900, "tools": claudes}
    with claude.messages.stream(messages=question, **asked) as stream:
        message = stream.get_final_message()
    used = message.content[-1]
    assert (message.stop_reason, used.name, used.input) == ("tool_use", "weather", {"city": "Lagos"})
    result = {"type": "tool_result", "tool_use_id": used.id, "content": "Rain all day."}
    history = [*question, {"role": "assistant", "content": message.content}, {"role": "user", "content": [result]}]
    assert claude.messages.create(messages=history, **asked).content[0].text == "Rain."
    assert model.requests[-1]["messages"][-1]["content"] == "Rain all day."
    # Agents are not kept, unless their token says so.
    assert turns_of(person) == []


def test_structured_output_is_passed_on(client, person, language_model):
    model = language_model(Say(('{"city": "Lagos"}',)))
    format_ = {"type": "json_schema", "json_schema": {"name": "city", "schema": WEATHER, "strict": True}}
    answer = client.chat.completions.create(
        model="recollect-plain", messages=asks("Which city?"), response_format=format_
    )
    assert json.loads(answer.choices[0].message.content) == {"city": "Lagos"}
    assert model.requests[0]["response_format"] == format_


def test_a_failure_has_the_vendors_form_and_class(client, claude, server, language_model):
    language_model(Refuse(400, message="maximum context length is 10 tokens", code="context_length_exceeded"))
    with pytest.raises(openai.BadRequestError) as full:
        client.chat.completions.create(model="recollect", messages=asks("Hi"))
    assert full.value.code == "context_length_exceeded"
    # Nothing that a client could shorten.
    language_model(Refuse(401), Refuse(401))
    for plain in ("recollect", "recollect-plain"):
        with pytest.raises(openai.InternalServerError) as away:
            client.with_options(max_retries=0).chat.completions.create(model=plain, messages=asks("Hi"))
        assert (away.value.status_code, away.value.code) == (503, "unavailable")
    with pytest.raises(openai.NotFoundError) as unknown:
        client.chat.completions.create(model="gpt-99", messages=asks("Hi"))
    assert unknown.value.code == "model_not_found"
    assert "recollect-private" in unknown.value.message
    with pytest.raises(anthropic.NotFoundError) as unknown:
        claude.messages.create(model="gpt-99", max_tokens=900, messages=asks("Hi"))
    assert unknown.value.body["error"]["type"] == "not_found_error"
    with pytest.raises(openai.AuthenticationError):
        openai.OpenAI(base_url=f"{server}/v1", api_key="wrong").models.list()
    with pytest.raises(openai.BadRequestError):
        client.chat.completions.create(model="recollect", messages=[{"content": "no role"}])


def test_an_answer_that_breaks_off_is_a_failure_in_each_protocol(client, claude, person, language_model):
    language_model(*[BreakOff(("It is ",))] * 4)
    with pytest.raises(openai.InternalServerError, match="stopped responding"):
        client.with_options(max_retries=0).chat.completions.create(model="recollect-private", messages=asks("Hi"))
    asked = {"model": "recollect", "stream": True}
    for error, answers in (
        (openai.APIError, lambda: client.chat.completions.create(messages=asks("Hi"), **asked)),
        (anthropic.APIStatusError, lambda: claude.messages.create(messages=asks("Hello"), max_tokens=900, **asked)),
    ):
        with pytest.raises(error, match="stopped responding"):
            list(answers())
    *_, last = client.responses.create(input="Good day", **asked)
    assert (last.type, last.response.error.code) == ("response.failed", "unavailable")
    assert [(turn.status, turn.assistant_message) for turn in turns_of(person)] == [("failed", "It is ")] * 3


def test_a_picture_is_sent_on_and_kept_in_each_protocol(client, claude, person, settings, language_model):
    model = language_model(*[Say(("A dot.",))] * 3)
    settings.LLM_VISION = "on"
    dot = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
    parts = [
        {"type": "text", "text": "What is it?"},
        {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": dot}},
    ]
    claude.messages.create(model="recollect", max_tokens=900, messages=[{"role": "user", "content": parts}])
    parts = [
        {"type": "input_text", "text": "What is this?"},
        {"type": "input_image", "image_url": f"data:image/png;base64,{dot}"},
    ]
    client.responses.create(model="recollect", input=[{"role": "user", "content": parts}])
    result = {"type": "function_call_output", "call_id": "a", "output": parts}
    client.responses.create(model="recollect-private", input=[*asks("What is it?"), result])
    sent = [request["messages"][-1]["content"] for request in model.requests]
    assert ["image_url" in [part["type"] for part in content] for content in sent] == [True] * 3
    assert [turn.attachment_count for turn in turns_of(person)] == [1, 1]


def test_both_clients_list_the_models(client, claude, language_model):
    language_model()
    names = ["recollect", "recollect-plain", "recollect-private", "scripted"]
    assert [model.id for model in client.models.list()] == names
    assert [model.id for model in claude.models.list()] == names
    assert client.models.retrieve("scripted").id == "scripted"


def test_embeddings_are_the_same_as_numbers_and_as_base64(client, person):
    texts = ["A cat", "A dog"]
    packed = client.embeddings.create(model="recollect", input=texts).data
    plain = client.embeddings.create(model="recollect", input=texts, encoding_format="float").data
    assert [each.embedding for each in packed] == [each.embedding for each in plain]
    assert len(plain) == 2
    with pytest.raises(openai.BadRequestError, match="token ids"):
        client.embeddings.create(model="recollect", input=[1, 2, 3])


def test_openais_responses_stream_whole_and_go_on_by_their_id(client, person, language_model):
    model = language_model(Say(("It is ", "blue.")), Say(("At night black.",)))
    with client.responses.stream(model="recollect", input="What colour is the sky?", instructions="Be short.") as got:
        first = got.get_final_response()
    assert (first.output_text, first.status, first.usage.total_tokens) == ("It is blue.", "completed", 120)
    second = client.responses.create(model="recollect", input="At night?", previous_response_id=first.id)
    assert second.output_text == "At night black."
    sent = model.requests[1]["messages"]
    assert [each["content"] for each in sent] == ["What colour is the sky?", "It is blue.", "At night?"]
    assert [turn.parent_number for turn in turns_of(person)] == [None, 1]


def test_openais_responses_call_the_clients_tools(client, person, language_model):
    model = language_model(CallTool("weather", {"city": "Lagos"}), Say(("Rain.",)))
    tools = [{"type": "function", "name": "weather", "parameters": WEATHER, "strict": True}, {"type": "web_search"}]
    items = asks("What is the weather in Lagos?")
    with client.responses.stream(model="recollect", input=items, tools=tools) as got:
        (call,) = got.get_final_response().output
    assert (call.type, call.name, json.loads(call.arguments)) == ("function_call", "weather", {"city": "Lagos"})
    items += [call.model_dump(), {"type": "function_call_output", "call_id": call.call_id, "output": "Rain all day."}]
    assert client.responses.create(model="recollect", input=items, tools=tools).output_text == "Rain."
    assert model.requests[1]["messages"][-1]["content"] == "Rain all day."


def test_an_answer_that_is_sent_as_its_id_stands_in_the_history(client, person, language_model):
    model = language_model(Say(("It is blue.",)), Say(("Black.",)), Say(("Fine.",)))
    first = client.responses.create(model="recollect", input="What colour is the sky?")
    reference = {"type": "item_reference", "id": first.output[0].id}
    items = [*asks("What colour is the sky?"), reference, *asks("At night?")]
    client.responses.create(model="recollect", input=items)
    sent = [each["content"] for each in model.requests[1]["messages"]]
    assert sent == ["What colour is the sky?", "It is blue.", "At night?"]
    assert [turn.parent_number for turn in turns_of(person)] == [None, 1]
    private = client.responses.create(model="recollect-private", input="Hi").output[0].id
    with pytest.raises(openai.NotFoundError, match="`store: false`"):
        client.responses.create(model="recollect", input=[{"type": "item_reference", "id": private}, *asks("Hi")])
