"""A small history of each product, as files: for tests of what holds for every reader."""

import json
from typing import Any

from imports.tests.exports import chatgpt
from imports.tests.test_envelopes import as_claude_code, as_codex, as_openclaw

SAID_AT = "2026-09-11T10:01:00Z"


def claude() -> dict[str, Any]:
    messages = [
        {"uuid": "q", "sender": "human", "text": "How loud is the mill?", "created_at": SAID_AT},
        {"uuid": "a", "sender": "assistant", "text": "Forty decibels.", "created_at": SAID_AT},
    ]
    return {"uuid": "c", "name": "Noise", "created_at": SAID_AT, "chat_messages": messages}


def gemini(title: str = "Prompted Which loaf?", **fields: Any) -> dict[str, Any]:
    answer = [{"html": "<p>The rye.</p>"}]
    return {"header": "Gemini Apps", "title": title, "time": SAID_AT, "safeHtmlItem": answer, **fields}


def open_webui(**answer: Any) -> dict[str, Any]:
    messages = {
        "q": {"parentId": None, "role": "user", "content": "A rhyme?", "timestamp": 1757800000},
        "a": {"parentId": "q", "role": "assistant", "content": "", "timestamp": 1757800005, **answer},
    }
    return {"id": "w", "title": "Rhyme", "chat": {"history": {"messages": messages, "currentId": "a"}}}


def grok(**response: Any) -> dict[str, Any]:
    responses = [
        {
            "_id": "q",
            "message": "Which rye?",
            "sender": "human",
            "create_time": {"$date": {"$numberLong": "1757400000000"}},
        },
        {
            "_id": "a",
            "message": "Winter rye.",
            "sender": "ASSISTANT",
            "parent_response_id": "q",
            "model": "grok-4",
            **response,
        },
    ]
    about = {"id": "g", "title": "Rye", "create_time": SAID_AT, "leaf_response_id": "a"}
    return {"conversations": [{"conversation": about, "responses": [{"response": each} for each in responses]}]}


def deepseek() -> dict[str, Any]:
    def node(id_: str, parent: str | None, *fragments: tuple[str, str]) -> dict[str, Any]:
        texts = [{"type": kind, "content": text} for kind, text in fragments]
        return {"id": id_, "parent": parent, "message": {"fragments": texts, "inserted_at": SAID_AT} if texts else None}

    nodes = [
        node("root", None),
        node("1", "root", ("REQUEST", "How do I seal it?")),
        node("2", "1", ("THINK", "They mean clay."), ("RESPONSE", "With clay.")),
    ]
    return {"id": "d", "title": "Dam", "inserted_at": SAID_AT, "mapping": {each["id"]: each for each in nodes}}


def le_chat() -> list[dict[str, Any]]:
    chunks = [{"type": "text", "text": "The T110, mil"}, {"type": "text", "text": "led."}, {"type": "reference"}]
    return [
        {"id": "q", "chatId": "l", "role": "user", "content": "Which flour?", "createdAt": SAID_AT},
        {"id": "a", "chatId": "l", "role": "assistant", "content": "", "contentChunks": chunks, "createdAt": SAID_AT},
    ]


def perplexity() -> dict[str, Any]:
    sources = [{"title": "Archive", "url": "https://example.org/dam"}]
    asked = {"uuid": "q", "query": "When?", "answer": "In 1782 [1].", "timestamp": SAID_AT, "sources": sources}
    return {"metadata": {"thread_title": "The dam", "thread_id": "t"}, "conversations": [asked]}


def plain() -> dict[str, Any]:
    messages = [{"role": "user", "content": "How deep?"}, {"role": "assistant", "content": "Two metres."}]
    return {"title": "Pit", "messages": messages}


def recollect() -> dict[str, Any]:
    document = {"kind": "memory", "content": "The mill.", "created_at": SAID_AT, "updated_at": SAID_AT}
    return {"format": "recollect-export-1", "exported_at": SAID_AT, "documents": [document]}


HISTORIES: dict[str, dict[str, str]] = {
    "chatgpt": {"conversations.json": json.dumps(chatgpt(conversations=1))},
    "claude": {"conversations.json": json.dumps([claude()])},
    "gemini": {"Takeout/My Activity/Gemini Apps/MyActivity.json": json.dumps([gemini()])},
    "open-webui": {"chats.json": json.dumps([open_webui(content="The river winds.")])},
    "librechat": {
        "chat.json": json.dumps(
            {"conversationId": "l", "messages": [{"messageId": "q", "isCreatedByUser": True, "text": "Why?"}]}
        )
    },
    "grok": {"prod-grok-backend.json": json.dumps(grok())},
    "le-chat": {"chat-l.json": json.dumps(le_chat())},
    "perplexity": {"dam.json": json.dumps(perplexity())},
    "deepseek": {"conversations.json": json.dumps([deepseek()])},
    "claude-code": as_claude_code(["Why?"]),
    "codex": as_codex(["Why?"]),
    "openclaw": as_openclaw(["Why?"]),
    "gemini-cli": {
        "tmp/mill/chats/session-1.json": json.dumps(
            {
                "sessionId": "s",
                "startTime": SAID_AT,
                "messages": [{"id": "a", "type": "user", "content": "Why?", "timestamp": SAID_AT}],
            }
        )
    },
    "cursor": {
        "agent-transcripts/c/c.jsonl": json.dumps(
            {"role": "user", "message": {"content": [{"type": "text", "text": "<user_query>\nWhy?\n</user_query>"}]}}
        )
    },
    "vscode": {
        "chat.json": json.dumps(
            {
                "version": 3,
                "sessionId": "v",
                "requests": [{"requestId": "r", "message": {"text": "Why?"}, "response": []}],
            }
        )
    },
    "markdown": {"note.md": "# Mill\n\nIt turns."},
    "plain": {"chats.jsonl": json.dumps(plain()) + "\n"},
    "recollect": {"recollect.json": json.dumps(recollect())},
}
