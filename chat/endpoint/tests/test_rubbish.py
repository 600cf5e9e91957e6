"""Any rubbish is refused in the vendors' form or answered, and nothing else happens."""

import json
import logging
import time

import pytest

from chat.endpoint.conversations import own_words, pairs_of
from chat.endpoint.inner import Asked
from chat.endpoint.machinery import is_machinery
from chat.endpoint.tests.test_conversations import Program
from testing.model_server import Say

pytestmark = pytest.mark.extended

HI = [{"role": "user", "content": "Hi"}]
DEEP = "[" * 90_000 + "]" * 90_000
NESTED = "[" * 1_000 + "]" * 1_000
TOOL = {"type": "function", "function": {"name": "a", "parameters": {"type": "object"}}}


def odd_values():
    return [None, True, -1, 0.5, 10**30, "", "x", "\0", "\ud800", [], [None], [[]], {}, {"type": 5}, {"role": "user"}]


FIELDS = {
    "chat/completions": (
        "model messages tools functions tool_choice function_call temperature top_p top_k seed stop max_tokens "
        "max_completion_tokens n stream stream_options response_format reasoning_effort parallel_tool_calls store "
        "prompt_cache_key"
    ),
    "responses": (
        "model input instructions tools tool_choice temperature max_output_tokens reasoning text stream "
        "previous_response_id prompt_cache_key"
    ),
    "messages": (
        "model messages system tools tool_choice temperature stop_sequences max_tokens thinking output_config metadata"
    ),
    "embeddings": "model input encoding_format",
}
MESSAGES = [
    {"role": "robot", "content": "Hi"},
    {"role": ["user"], "content": "Hi"},
    {"role": "user", "content": [{"type": "text"}]},
    {"role": "user", "content": [{"type": "text", "text": 5}]},
    {"role": "user", "content": [{"type": "image_url", "image_url": "https://example.com/a.png"}]},
    {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:image/png;base64,!"}}]},
    {"role": "user", "content": [{"type": "image_url", "image_url": {"url": f"data:{'x' * 999};base64,aaaa"}}]},
    {
        "role": "user",
        "content": [{"type": "file", "file": {"file_data": "data:text/plain;base64,aaaa", "filename": 5}}],
    },
    {
        "role": "user",
        "content": [{"type": "file", "file": {"file_data": "data:text/plain;base64,aaaa", "filename": "\0"}}],
    },
    {"role": "user", "content": [{"type": "document", "source": {"type": "base64", "media_type": 5, "data": "aaaa"}}]},
    {"role": "user", "content": [{"type": "tool_result", "tool_use_id": 5, "content": "x"}]},
    {"role": "assistant", "content": [{"type": "tool_use", "id": "a", "name": 5, "input": "x"}]},
    {"role": "assistant", "content": None, "tool_calls": [{"id": "a", "function": {"name": "a", "arguments": "{"}}]},
    {"role": "assistant", "content": None, "tool_calls": [{"id": None, "function": {"name": "\0", "arguments": 5}}]},
    {"role": "tool", "tool_call_id": "unknown", "content": "x"},
    {"role": "user", "content": "\0"},
    {"role": "assistant", "content": "\0"},
    {"role": "user", "content": ""},
]
TOOLS = [
    {"type": "function"},
    {"type": "function", "function": {"name": "a", "parameters": []}},
    {
        "type": "function",
        "function": {"name": "a b/c", "parameters": {"type": 5, "properties": {"x": {"$ref": "#/y"}}}},
    },
    {"type": "function", "function": {"name": "a", "parameters": {"$ref": "#"}}, "strict": "x"},
]


def requests():
    for path, fields in FIELDS.items():
        usual = {
            "model": "recollect",
            "max_tokens": 900,
            "input" if path in ("responses", "embeddings") else "messages": HI,
        }
        usual |= {"input": "Hi"} if path == "embeddings" else {}
        for field in fields.split():
            for value in odd_values():
                yield path, json.dumps({**usual, field: value})
        yield path, json.dumps({**usual, "temperature": 5}).replace("5", "1e999")
        for raw in (
            "",
            "NaN",
            "[]",
            '"x"',
            "5",
            "null",
            DEEP,
            NESTED,
            f'{{"model": "recollect", "messages": {NESTED}}}',
        ):
            yield path, raw
    for message in MESSAGES:
        for path in ("chat/completions", "messages", "messages/count_tokens"):
            yield path, json.dumps({"model": "recollect", "messages": [*HI, message, *HI], "max_tokens": 900})
            yield path, json.dumps({"model": "recollect", "messages": [message], "max_tokens": 900})
        yield "responses", json.dumps({"model": "recollect", "input": [message]})
    for tool in TOOLS:
        for choice in ("required", {"type": "function", "function": {"name": "b"}}):
            body = {"model": "recollect", "messages": HI, "tools": [tool], "tool_choice": choice}
            yield "chat/completions", json.dumps(body)
    yield "chat/completions", json.dumps({"model": "recollect", "messages": HI, "tool_choice": {"name": "b"}})
    yield "chat/completions", json.dumps({"model": "recollect", "messages": HI * 5_000})
    yield "messages", json.dumps({"model": "recollect", "messages": [{"role": "user", "content": "word " * 4_000_000}]})
    yield "chat/completions", json.dumps({"model": "recollect", "messages": [{"role": "assistant", "content": "x"}]})


def test_rubbish_is_answered_or_refused_in_the_vendors_form(new_client, person, language_model, caplog):
    language_model(*[Say(("Fine.",))] * 2_000)
    program = Program(new_client(), person)
    wrong = []
    with caplog.at_level(logging.ERROR):
        for path, body in requests():
            got = program.http.post(
                f"/v1/{path}",
                content=body.encode(errors="replace"),
                headers={"Content-Type": "application/json"},
                timeout=60,
            )
            if (
                got.status_code >= 500
                or (got.status_code != 200 and not got.json()["error"]["message"])
                or "Something went wrong" in got.text
                or '"unavailable"' in got.text
            ):
                wrong.append((path, body[:200], got.status_code, got.text[:200]))
    assert wrong == []
    assert [record.message for record in caplog.records] == []


@pytest.mark.parametrize("path", ["files", "completions", "chat/completions/", "models/"])
def test_an_unknown_address_is_refused_in_the_vendors_form(new_client, person, path):
    got = Program(new_client(), person).http.post(f"/v1/{path}", json={})
    assert (got.status_code, got.json()["error"]["type"]) == (404, "not_found_error")


@pytest.mark.parametrize("content", ["", [], None, [{"type": "text", "text": ""}], ["Hear this", {"type": "audio"}]])
def test_what_cannot_be_read_is_refused_and_leaves_no_row(new_client, person, content, language_model):
    language_model()
    program = Program(new_client(), person)
    got = program.post([{"role": "user", "content": content}])
    assert (got.status_code, got.json()["error"]["type"]) == (400, "invalid_request_error")
    assert program.post([], model="recollect-private").status_code == 400
    assert program.shape() == []


@pytest.mark.parametrize(
    "tag", ["<think>", "<user_query>", '<details type="reasoning">', "<context", "<task ", "### Task:"]
)
def test_many_tags_without_an_end_take_no_longer_than_other_words(tag):
    began = time.process_time()
    own_words(tag * 100_000)
    assert time.process_time() - began < 1


@pytest.mark.parametrize("role", ["system", "assistant", "user"])
def test_many_messages_of_one_role_take_no_longer_than_as_many_others(role):
    messages = [*HI, *[{"role": role, "text": "x" * 500}] * 40_000, *HI]
    asked = Asked.model_validate({"model": "recollect", "settings": {}, "messages": messages})
    began = time.process_time()
    assert not is_machinery(asked, {})
    assert len(pairs_of(asked)) == (role == "assistant")
    assert time.process_time() - began < 1
