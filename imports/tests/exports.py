"""Exports for tests: conversations as a reader yields them, and the same as ChatGPT's files."""

import json
import zipfile
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from imports.reading.items import ImportedConversation, ImportedMessage

SAID = datetime(2023, 5, 1, 9, 0, tzinfo=UTC)


def message(id_: str, role: str, text: str, *, parent: str | None = None, **fields: Any) -> ImportedMessage:
    return ImportedMessage(id=id_, parent=parent, role=role, text=text, **{"at": SAID, **fields})


def a_conversation(external_id: str = "c1", *, turns: int = 2, **fields: Any) -> ImportedConversation:
    messages = []
    for number in range(1, turns + 1):
        at = SAID + timedelta(minutes=number)
        messages += [
            message(f"{external_id}-q{number}", "user", f"Question {number} of {external_id}", at=at),
            message(
                f"{external_id}-a{number}", "assistant", f"Answer {number} of {external_id}", at=at, model="gpt-4o"
            ),
        ]
    given = {
        "title": f"About {external_id}",
        "created_at": SAID,
        "last_at": messages[-1].at,
        "messages": tuple(messages),
    }
    return ImportedConversation(product="chatgpt", external_id=external_id, **{**given, **fields})


def chatgpt(*, conversations: int = 3, turns: int = 2, word: str = "sourdough", start: int = 0) -> list[dict[str, Any]]:
    """What `conversations.json` holds, the same for the same numbers."""
    return [_chatgpt_conversation(number, turns, word) for number in range(start, start + conversations)]


def write_chatgpt(path: Path, conversations: list[dict[str, Any]]) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as export:
        export.writestr("conversations.json", json.dumps(conversations))
    return path


def _chatgpt_conversation(number: int, turns: int, word: str) -> dict[str, Any]:
    began = (SAID + timedelta(days=number)).timestamp()
    mapping: dict[str, Any] = {"root": {"id": "root", "parent": None, "message": None}}
    parent = "root"
    for turn in range(turns):
        for role, text in (
            ("user", f"What about {word} number {number}, part {turn}?"),
            ("assistant", f"The {word} of {number} is well, part {turn}."),
        ):
            node = f"{number}-{turn}-{role}"
            mapping[node] = {
                "id": node,
                "parent": parent,
                "message": {
                    "author": {"role": role},
                    "create_time": began + 60 * turn,
                    "content": {"content_type": "text", "parts": [text]},
                    "metadata": {"model_slug": "gpt-4o"},
                },
            }
            parent = node
    return {
        "conversation_id": f"conversation-{number}",
        "title": f"{word.capitalize()} {number}",
        "create_time": began,
        "update_time": began + 60 * turns,
        "mapping": mapping,
        "current_node": parent,
    }
