"""Codex: a copy of `~/.codex`, where each session is a rollout: the log of model input and events."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from imports.reading.files import Files
from imports.reading.items import ImportedConversation, ImportedMessage, Items, Skipped, SkippedMessage
from imports.reading.lines import json_lines, titles_by_id
from imports.reading.products import ExportReader
from imports.reading.session_tree import message_of
from imports.reading.times import parse_time
from imports.reading.trees import with_inferred_times
from imports.reading.values import compact, id_of, line_of, list_of, object_of, objects_of, text_of

PRODUCT = "codex"
_ROLLOUT = re.compile(
    r"(?:^|.*/)(?P<folder>sessions|archived_sessions)/(?:.*/)?rollout-"
    r"(?P<day>\d{4}-\d\d-\d\d)T(?P<hour>\d\d)-(?P<minute>\d\d)-(?P<second>\d\d)-(?P<id>[^/]+)\.jsonl\Z"
)
_SCAFFOLDING = re.compile(
    r"\s*(<environment_context>|<permissions instructions>|<user_instructions>|<turn_aborted>|<INSTRUCTIONS>"
    r"|# AGENTS\.md instructions for)"
)


@dataclass(kw_only=True)
class _Rollout:
    """One session while its lines are read."""

    header: dict[str, Any] = field(default_factory=dict)
    model: str = ""
    calls: list[dict[str, Any]] = field(default_factory=list)
    messages: list[ImportedMessage] = field(default_factory=list)
    skipped: list[SkippedMessage] = field(default_factory=list)
    broken: list[Skipped] = field(default_factory=list)


def _recognises(files: Files) -> int:
    return 95 if any(map(_ROLLOUT.match, files.names())) else 0


def _read(files: Files) -> Items:
    titles: dict[str, str] = {}
    for name in files.names():
        if name.rpartition("/")[2] == "session_index.jsonl":
            titles.update(titles_by_id(files, name, "id", "thread_name"))
    chosen = _one_file_each(files)
    for name in files.names():
        if (found := _ROLLOUT.match(name)) and chosen[found["id"]] != name:
            yield Skipped(where=name, reason="this session stands in another file too", external_id=found["id"])
        elif found:
            yield from _session(files, name, found, titles, chosen)


def _one_file_each(files: Files) -> dict[str, str]:
    """The longest file of each session: an archived session may still exist in its old place."""
    chosen: dict[str, str] = {}
    for name in files.names():
        if found := _ROLLOUT.match(name):
            other = chosen.get(found["id"])
            chosen[found["id"]] = name if other is None or files.size(name) > files.size(other) else other
    return chosen


def _session(
    files: Files, name: str, found: re.Match[str], titles: dict[str, str], chosen: dict[str, str]
) -> Iterator[ImportedConversation | Skipped]:
    rollout = _rollout(files, name)
    yield from rollout.broken
    session = id_of(rollout.header.get("id")) or found["id"]
    messages = rollout.messages
    if parent := chosen.get(id_of(rollout.header.get("forked_from_id"))):
        messages = messages[_repeated(messages, _rollout(files, parent).messages) :]
    if not messages:
        yield Skipped(where=name, reason="nothing was said in this session", external_id=session)
        return
    started = "{day}T{hour}:{minute}:{second}".format(**found.groupdict())
    created_at = parse_time(rollout.header.get("timestamp")) or parse_time(started)
    linked = [
        replace(message, parent=messages[place - 1].id if place else None) for place, message in enumerate(messages)
    ]
    current, _ = with_inferred_times((tuple(linked), ()), created_at)
    yield ImportedConversation(
        product=PRODUCT,
        external_id=session,
        title=titles.get(session) or None,
        created_at=created_at,
        last_at=max((message.at for message in current if message.at), default=created_at),
        is_archived=found["folder"] == "archived_sessions",
        project=line_of(rollout.header.get("cwd")) or None,
        messages=current,
        skipped=tuple(rollout.skipped),
    )


def _repeated(messages: list[ImportedMessage], parent: list[ImportedMessage]) -> int:
    """The number of messages at the beginning that belong to the session from which this one was forked."""
    same = 0
    for mine, theirs in zip(messages, parent, strict=False):
        if (mine.role, mine.text) != (theirs.role, theirs.text):
            break
        same += 1
    return same


def _rollout(files: Files, name: str) -> _Rollout:
    rollout = _Rollout()
    for number, line in json_lines(files, name):
        if isinstance(line, Skipped):
            rollout.broken.append(line)
        else:
            _take(line, number, rollout)
    return rollout


def _take(line: dict[str, Any], number: int, rollout: _Rollout) -> None:
    kind, payload = line.get("type"), object_of(line.get("payload"))
    if kind == "session_meta" or (number == 1 and kind is None):
        # A fork repeats the header of its parent after its own. Before summer 2025 lines had no envelope.
        rollout.header = rollout.header or payload or line
    elif kind == "turn_context":
        rollout.model = line_of(payload.get("model")) or rollout.model
    elif kind == "response_item":
        _take_item(payload, number, line.get("timestamp"), rollout)
    elif "payload" not in line:
        _take_item(line, number, line.get("timestamp"), rollout)


def _take_item(item: dict[str, Any], number: int, at: Any, rollout: _Rollout) -> None:
    kind, role = item.get("type"), item.get("role")
    if kind in ("function_call", "custom_tool_call"):
        arguments = item.get("arguments", item.get("input"))
        rollout.calls.append({"name": line_of(item.get("name")), "input": _short(arguments)})
    elif kind == "reasoning":
        summary = "\n\n".join(text_of(part.get("text")) for part in objects_of(item.get("summary")))
        rollout.calls.extend([{"name": "thinking", "summary": summary}] if summary.strip() else [])
    elif kind == "message" and role in ("user", "assistant"):
        _take_message(item, number, at, rollout)
    elif kind == "message":
        rollout.skipped.append(SkippedMessage(line=number, why=f"role {line_of(role)}"))


def _short(arguments: Any) -> str:
    return text_of(arguments)[:4000] if isinstance(arguments, str) else compact(arguments)


def _take_message(item: dict[str, Any], number: int, at: Any, rollout: _Rollout) -> None:
    is_user = item["role"] == "user"
    content = item.get("content")
    if is_user and isinstance(content, str):
        content = [{"type": "input_text", "text": content}]
    if is_user:
        content = [part for part in list_of(content) if not _SCAFFOLDING.match(str(object_of(part).get("text", "")))]
    message = message_of(str(number), "user" if is_user else "assistant", content, at, rollout.model)
    if not message.text and not message.attachments:
        rollout.skipped.append(SkippedMessage(line=number, why="scaffolding" if is_user else "empty"))
        return
    if not is_user:
        message = replace(message, tool_calls=tuple(rollout.calls))
    rollout.calls.clear()
    rollout.messages.append(message)


READER = ExportReader(product=PRODUCT, label="Codex", recognises=_recognises, read=_read)
