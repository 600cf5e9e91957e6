"""Cursor: transcripts of its agent (`~/.cursor/projects/…/agent-transcripts`), one log for each chat, without ids."""

import re
from contextlib import suppress
from datetime import datetime

from core.text import gettext_noop as _
from imports.reading.drafts import ConversationDraft, NotShown
from imports.reading.files import Files
from imports.reading.items import Items, Skipped
from imports.reading.json_lines import json_lines
from imports.reading.products import ExportReader
from imports.reading.session_tree import calls_in, message_of, role_of, texts_of, unknown_kinds
from imports.reading.sessions import Children, has_logs, logs, stem
from imports.reading.values import Fields, object_of, value_at

PRODUCT = "cursor"
_TRANSCRIPT = re.compile(r"(?=.*\.jsonl\Z)(?:.*/)?agent-transcripts/")
_OF_SUBAGENT = re.compile(r"(?:^|.*/)(?P<parent>[^/]+)/subagents/[^/]+\.jsonl\Z")
# Only a message of the person has one: `Friday, Sep 11, 2026, 9:05 AM (UTC+2)`.
_TIME = re.compile(
    r"<timestamp>\s*\w+, (\w{3} \d{1,2}, \d{4}),? (\d{1,2}:\d\d [AP]M) \(UTC([+-]\d{1,2})?(?::(\d\d))?\)"
)


def _recognises(files: Files) -> int:
    return 90 if has_logs(files, _is_of_cursor, _TRANSCRIPT) else 0


def _is_of_cursor(line: Fields) -> bool:
    is_message = line.get("role") in ("user", "assistant") and "content" in object_of(line, "message")
    return is_message and not line.keys() & {"type", "uuid", "sessionId"}


def _read(files: Files) -> Items:
    not_shown = NotShown()
    children = Children()
    for name in sorted(logs(files, _is_of_cursor, _TRANSCRIPT), key=lambda each: not _OF_SUBAGENT.match(each)):
        draft = ConversationDraft(product=PRODUCT, where=name, external_id=stem(name))
        for number, line in json_lines(files, name):
            if isinstance(line, Skipped):
                yield line
            else:
                _take(line, number, draft, not_shown)
        found = _OF_SUBAGENT.match(name)
        yield from children.placed(draft.finished(), name, found["parent"] if found else None)
    yield from children.without_parent()
    yield from not_shown.listed()


def _take(line: Fields, number: int, draft: ConversationDraft, not_shown: NotShown) -> None:
    content, role = value_at(line, "message", "content"), role_of(line, "role")
    node, above = str(number), next(reversed(draft.parents), None)
    if role is None:
        draft.add(node, above, None)
        return
    not_shown.note(f"{draft.where}:{number}", *unknown_kinds(content))
    at = _time(" ".join(texts_of(content))) if role == "user" else None
    message, words = message_of(node, role, content, at, product=PRODUCT)
    not_shown.prompts += role == "user" and words.is_changed and not message.text
    draft.add(node, above, message.at, message)
    draft.calls[node] = calls_in(content)


def _time(text: str) -> str | None:
    if found := _TIME.search(text):
        day, clock, hours, minutes = found.groups()
        with suppress(ValueError):
            zone = f"{int(hours or 0):+03d}{minutes or '00'}"
            return datetime.strptime(f"{day} {clock} {zone}", "%b %d, %Y %I:%M %p %z").isoformat()
    return None


READER = ExportReader(
    product=PRODUCT,
    label="Cursor",
    recognises=_recognises,
    read=_read,
    looks_for=_("transcripts of its agent (agent-transcripts/….jsonl)"),
)
