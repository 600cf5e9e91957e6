"""What local servers really send, each kind as a chat as a whole: the recordings are written by us."""

import json

import pytest

from intake.models import Turn
from testing.model_server import Recorded, Say

pytestmark = pytest.mark.django_db(transaction=True)

SEARCH = "search_chat_history"


def event(delta=None, *, finish=None, line_end="\n", **others):
    """One event of a stream; `delta` None has no choices at all."""
    choices = [] if delta is None else [{"index": 0, "delta": delta, "finish_reason": finish}]
    body = {"id": "chatcmpl-7", "object": "chat.completion.chunk", "created": 1, "model": "local", "choices": choices}
    return f"data: {json.dumps({**body, **others})}{line_end}{line_end}"


def call(name=SEARCH, arguments='{"query": "cat"}', **fields):
    return {"type": "function", "function": {"name": name, "arguments": arguments}, **fields}


USAGE = {"prompt_tokens": 50, "completion_tokens": 7, "total_tokens": 57}
DONE = "data: [DONE]\n\n"
END = event({}, finish="stop") + DONE

CALLS = {
    "Ollama: two calls with index 0 and ids of their own": event(
        {"role": "assistant", "content": "", "tool_calls": [call(id="call_a", index=0)]}
    )
    + event(
        {"role": "assistant", "content": "", "tool_calls": [call(id="call_b", index=0, arguments='{"query": "dog"}')]}
    )
    + event({"role": "assistant", "content": ""}, finish="tool_calls")
    + DONE,
    "both calls in one piece": event(
        {"tool_calls": [call(id="a", index=0), call(id="b", index=0, arguments='{"query": "dog"}')]},
        finish="tool_calls",
    )
    + DONE,
    "calls without ids": event({"tool_calls": [call(index=0)]})
    + event({"tool_calls": [call(index=1, arguments='{"query": "dog"}')]}, finish="tool_calls")
    + DONE,
    "calls with empty ids and without an index": event({"tool_calls": [call(id="")]})
    + event({"tool_calls": [call(id="", arguments='{"query": "dog"}')]}, finish="tool_calls")
    + DONE,
    "arguments as an object": event(
        {"content": None, "tool_calls": [call(id="a", index=0, arguments={"query": "cat"})]}
    )
    + event({"content": None, "tool_calls": [call(id="b", index=1, arguments={"query": "dog"})]}, finish="tool_calls")
    + DONE,
    "numbers as ids, and no finish reason": event({"tool_calls": [call(id=1, index=0)]})
    + event({"tool_calls": [call(id=2, index=1, arguments='{"query": "dog"}')]})
    + DONE,
    "finished with stop": event({"tool_calls": [call(id="a", index=0)]})
    + event({"tool_calls": [call(id="b", index=1, arguments='{"query": "dog"}')]}, finish="stop")
    + DONE,
}


@pytest.mark.parametrize("recorded", CALLS.values(), ids=CALLS)
def test_tool_calls_are_understood_as_local_servers_send_them(person, log_in, language_model, recorded):
    model = language_model(Recorded(recorded), Say(("Neither.",)))
    events = log_in(person).events("Do I have a cat or a dog?")
    assert events[-1].name == "done", events[-1]
    turn = Turn.objects.get()
    assert [(each["name"], each["input"], each["is_error"]) for each in turn.tool_calls] == [
        (SEARCH, {"query": "cat"}, False),
        (SEARCH, {"query": "dog"}, False),
    ]
    *_, asked, first, second = model.requests[1]["messages"]
    ids = [each["id"] for each in asked["tool_calls"]]
    assert len(set(ids)) == 2 and all(isinstance(each, str) and each for each in ids)
    assert [first["tool_call_id"], second["tool_call_id"]] == ids


HELLO = event({"role": "assistant", "content": "Hello "}) + event({"content": "there."})
TEXTS = {
    "comments and blank events": ": keep-alive\n\n:\n\n" + HELLO + ": OPENROUTER PROCESSING\n\n" + END,
    "CRLF": (HELLO + END).replace("\n", "\r\n"),
    "no space behind data": (HELLO + END).replace("data: ", "data:"),
    "no finish reason": HELLO + DONE,
    "no end at all": HELLO,
    "content null": event({"role": "assistant", "content": None}) + HELLO + event({"content": None}, finish="stop") + DONE,
    "empty choices first": event() + HELLO + END,
    "usage in a chunk of its own": HELLO + event({}, finish="stop") + event(usage=USAGE) + DONE,
    "usage in the last piece": HELLO + event({}, finish="stop", usage=USAGE) + DONE,
    "usage in every piece": HELLO.replace('"choices"', f'"usage": {json.dumps(USAGE)}, "choices"') + END,
    "fields of the server's own": HELLO.replace('"choices"', '"timings": {"n": 1}, "x_groq": null, "choices"') + END,
    "null choices": HELLO + event({}, finish="stop").replace('"choices": [', '"choices": [', 1)
    + 'data: {"id": "1", "object": "chat.completion.chunk", "created": 1, "model": "local", "choices": null}\n\n' + DONE,
    "a null delta": HELLO + 'data: {"id": "1", "object": "chat.completion.chunk", "created": 1, "model": "local", '
    '"choices": [{"index": 0, "delta": null, "finish_reason": "stop"}]}\n\n' + DONE,
    "an unknown finish reason": HELLO + event({}, finish="eos_token") + DONE,
    "not a stream": json.dumps({"id": "1", "object": "chat.completion", "created": 1, "model": "local", "usage": USAGE,
                                "choices": [{"index": 0, "finish_reason": "stop",
                                             "message": {"role": "assistant", "content": "Hello there."}}]}),
}  # fmt: skip


# What gateways send so that nobody closes a connection on which nothing is said.
KEEP_ALIVES = {
    "a comment": ": ping\n\n",
    "an id and a comment": "id: 7\n: ping\n\n",
    "an empty data line": "data:\n\n",
    "a blank data line": "data: \n\n",
    "a time to retry": "retry: 3000\n\n",
    "an event without data": "event: ping\n\n",
    "an event with empty data": "event: ping\ndata:\n\n",
    "an id alone": "id: 7\n\n",
    "blank lines": "\n\n\n",
    "CRLF": "id: 7\r\n: ping\r\n\r\n",
}


@pytest.mark.parametrize(
    ("kinds", "count"),
    [
        *(pytest.param([each], 100, id=name) for name, each in KEEP_ALIVES.items()),
        pytest.param([*KEEP_ALIVES.values()], 20_000, id="each kind in turn", marks=pytest.mark.extended),
    ],
)
def test_what_keeps_a_connection_open_ends_no_answer(visitor, language_model, kinds, count):
    pieces = (kinds[number % len(kinds)] + event({"content": f"{number} "}) for number in range(count))
    language_model(Recorded("".join(pieces) + kinds[0] + END))
    events = visitor.events("Count.")
    assert events[-1].name == "done", events[-1]
    assert Turn.objects.get().assistant_message.split() == [str(number) for number in range(count)]


@pytest.mark.parametrize("recorded", TEXTS.values(), ids=TEXTS)
def test_text_is_understood_as_local_servers_send_it(visitor, language_model, recorded):
    kind = "application/json" if recorded.startswith("{") else "text/event-stream"
    language_model(Recorded(recorded, content_type=kind))
    events = visitor.events("Hello")
    assert events[-1].name == "done", events[-1]
    turn = Turn.objects.get()
    assert (turn.assistant_message, turn.status) == ("Hello there.", "complete")
    if "prompt_tokens" in recorded:
        assert turn.usage["input_tokens"] == 50 and turn.usage["token_ratio"] > 0


THOUGHTS = {
    "reasoning_content": event({"reasoning_content": "Let me "}) + event({"reasoning_content": "see."}) + HELLO + END,
    "reasoning": event({"reasoning": "Let me "}) + event({"reasoning": "see."}) + HELLO + END,
    "reasoning beside null content": event({"content": None, "reasoning": "Let me see."})
    + event({"content": "Hello there.", "reasoning": None})
    + END,
    "think": event({"content": "<think>"}) + event({"content": "Let me see."}) + event({"content": "</think>"}) + HELLO + END,
    "think in pieces of a tag": event({"content": "<th"}) + event({"content": "ink>Let me see.</th"})
    + event({"content": "ink>"}) + HELLO + END,
}  # fmt: skip


@pytest.mark.parametrize("recorded", THOUGHTS.values(), ids=THOUGHTS)
def test_thoughts_are_no_part_of_the_answer_in_any_of_their_forms(visitor, language_model, recorded):
    language_model(Recorded(recorded))
    events = visitor.events("Hello")
    assert events[-1].name == "done", events[-1]
    turn = Turn.objects.get()
    thought = turn.reasoning or turn.assistant_message
    assert "Let me see." in thought
    # What a template writes with the answer is folded where it is shown.
    assert turn.assistant_message.rsplit("</think>", 1)[-1].strip() == "Hello there."
    assert "Let me see" not in events[-1].data["html"].rsplit("</details>", 1)[-1]


TOO_LONG = "This model's maximum context length is 4096 tokens. However, you requested 5000 tokens."
WINDOW = {
    "an error object in a body with status 200": (json.dumps({"error": {"message": TOO_LONG, "code": 400}}), "json"),
    "an error that is a text": (json.dumps({"error": TOO_LONG}), "json"),
    "vLLM's error object": (json.dumps({"object": "error", "message": TOO_LONG, "code": 400}), "json"),
    "an error object in the stream": (f'data: {json.dumps({"error": {"message": TOO_LONG}})}\n\n', "stream"),
    "an error text in the stream": (f'data: {json.dumps({"error": TOO_LONG})}\n\n{DONE}', "stream"),
    "an error event": (f'event: error\ndata: {json.dumps({"error": {"message": TOO_LONG}})}\n\n', "stream"),
    "an error event with a message": (f'event: error\ndata: {json.dumps({"message": TOO_LONG})}\n\n', "stream"),
    "vLLM's error in the stream": (f'data: {json.dumps({"object": "error", "message": TOO_LONG})}\n\n{DONE}', "stream"),
    "an error after the first piece": (event({"role": "assistant", "content": ""})
                                       + f'data: {json.dumps({"error": {"message": TOO_LONG}})}\n\n', "stream"),
    "a stream that ends with usage and no delta": (event(usage=USAGE) + DONE, "stream"),
    "usage and an empty delta without a reason": (event({"role": "assistant"}) + event(usage=USAGE) + DONE, "stream"),
    "cut at once": (event({"role": "assistant", "content": ""}, finish="length") + event(usage=USAGE) + DONE, "stream"),
}  # fmt: skip


@pytest.mark.parametrize(("recorded", "kind"), WINDOW.values(), ids=WINDOW)
def test_a_full_window_is_told_as_that_in_any_form(visitor, language_model, recorded, kind):
    content_type = "application/json" if kind == "json" else "text/event-stream"
    model = language_model(Say(("Much to say.",)), *[Recorded(recorded, content_type=content_type)] * 3)
    begun = visitor.events("Go on at length")[0].data["conversationId"]
    error = visitor.events("And?", conversation_id=begun)[-1]
    assert (error.name, error.data["code"], error.data["about"]) == ("error", "too_large", "window"), error
    assert error.data["detail"].startswith("This conversation is longer than the model's window.")
    assert len(model.requests) == 2


def test_another_error_with_status_200_is_told_as_that(visitor, language_model):
    language_model(
        *[Recorded(json.dumps({"error": {"message": "model runner stopped"}}), content_type="application/json")] * 2
    )
    error = visitor.events("Hello")[-1].data
    assert (error["code"], error["about"]) == ("unavailable", "model")
