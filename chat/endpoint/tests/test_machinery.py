"""What a program's machinery asks is told from what a person asks: each line of the signs, and what has none."""

import pytest

from chat.endpoint.conversations import own_words
from chat.endpoint.inner import Asked, read
from chat.endpoint.machinery import is_chat, is_machinery, signs

HISTORY = [
    {"role": "user", "content": "What is a good soup?"},
    {"role": "assistant", "content": "Miso."},
]
MADE = [(place, sign) for place, each in signs().items() for sign in each if place not in ("agent", "after", "tool")]


def asked(*messages, **fields):
    return Asked.model_validate(read({"model": "recollect", "messages": [*messages], **fields}))


def said(text, role="user"):
    return {"role": role, "content": text}


@pytest.mark.parametrize(("place", "sign"), MADE)
def test_each_sign_is_recognised_also_after_a_history(place, sign):
    message = {
        "user": [said(f"\n{sign.replace(': ', ':' + chr(10), 1)} and more of the prompt.")],
        "whole": [said(sign)],
        "system": [said(f"Hello. {sign}, and nothing else.", "system"), said("Hi")],
        "last": [said("Hi"), said(sign, "assistant")],
    }[place]
    assert is_machinery(asked(*HISTORY, *message), {})


@pytest.mark.parametrize(
    ("fields", "headers"),
    [
        ({"max_tokens": 1}, {}),
        ({"max_completion_tokens": 32}, {}),
        ({"response_format": {"type": "json_object"}}, {}),
        ({}, {"X-OpenWebUI-Task": "title_generation"}),
    ],
)
def test_a_bound_or_a_header_tells_machinery_without_words(fields, headers):
    assert is_machinery(asked(said("Hi"), **fields), headers)


@pytest.mark.parametrize(
    "text",
    [
        "Warmup exercises for running?",
        "### Task:\nRespond to the user query using the provided context.\n<context>x</context>\nWhat is in it?",
        "How does Open WebUI write a title? It sends: ### Task: Generate a concise title",
        "Suggest a title for my book",
        "ping",
        "{",
    ],
)
def test_a_persons_question_is_none(text):
    assert not is_machinery(asked(*HISTORY, said(text)), {})
    format_ = {"type": "json_schema", "json_schema": {"name": "a", "schema": {"type": "object"}}}
    assert not is_machinery(asked(*HISTORY, said(text), max_tokens=33, response_format=format_), {})


def test_a_coding_agent_is_known_by_its_header():
    assert [each for each in signs()["agent"] if is_chat(asked(said("Hi")), {"User-Agent": f"{each}1.0"})] == []
    assert is_chat(asked(said("Hi")), {"User-Agent": "OpenAI/Python 3.54.0"})


def test_claude_codes_session_is_the_name_of_its_chat():
    body = {"model": "claude-sonnet-5", "messages": HISTORY}
    for user_id, name in (('{"session_id": "s-1"}', "s-1"), ("somebody", "")):
        assert read({**body, "metadata": {"user_id": user_id}})["chat"] == name


@pytest.mark.parametrize("sign", signs()["after"])
def test_what_a_program_puts_after_a_question_is_not_the_persons(sign):
    assert (
        own_words(f"Shorten it.\n\nMore of it.\n\n{sign}\nEvery line.\n\nReply in English.")
        == "Shorten it.\n\nMore of it."
    )
    assert own_words(f"What does {sign} mean?") == f"What does {sign} mean?"
    assert own_words(f"\n\n{sign}") == sign


def test_a_chat_apps_tools_tell_a_chat_and_others_an_agent():
    def brings(name, **fields):
        tool = {"type": "function", "function": {"name": name}}
        return asked(said("Hi"), tools=[tool, {"type": "function", "function": {"name": "web"}}], **fields)

    assert [sign for sign in signs()["tool"] if not is_chat(brings(f"{sign}On"), {})] == []
    assert not is_chat(brings("Bash"), {})
    assert not is_chat(brings("search_chats"), {"User-Agent": "opencode/1.0"})
    assert not is_chat(brings("search_chats", store=False), {})
    assert is_chat(asked(said("Hi")), {})
