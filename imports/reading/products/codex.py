"""Codex: a copy of `~/.codex`, where each session is a rollout: the log of model input and events."""

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from core.text import gettext_noop as _
from imports.reading.attached import PromptsByMinute, embedded, prompts_in, with_pasted
from imports.reading.envelopes import title_without
from imports.reading.files import Files
from imports.reading.items import ImportedConversation, ImportedMessage, Items, Role, Skipped, SkippedMessage
from imports.reading.json_streams import (
    compact,
    id_of,
    json_lines,
    line_of,
    object_of,
    objects_of,
    parse_time,
    text_of,
    titles_by_id,
)
from imports.reading.products import ExportReader
from imports.reading.trees import NotShown, message_of, unknown_kinds, with_inferred_times

PRODUCT = "codex"
_ROLLOUT = re.compile(
    r"(?:^|.*/)(?P<folder>sessions|archived_sessions)/(?:.*/)?rollout-"
    r"(?P<day>\d{4}-\d\d-\d\d)T(?P<hour>\d\d)-(?P<minute>\d\d)-(?P<second>\d\d)-(?P<id>[^/]+)\.jsonl(?:\.zst)?\Z"
)
# Kinds of lines and of events that hold nothing that was said.
_KNOWN_LINES = {
    "session_meta",
    "turn_context",
    "response_item",
    "event_msg",
    "compacted",
    "world_state",
    "ghost_snapshot",
}
_KNOWN_ITEMS = {
    "message", "reasoning", "function_call", "function_call_output", "custom_tool_call", "custom_tool_call_output",
    "local_shell_call", "local_shell_call_output", "web_search_call", "image_generation_call", "ghost_snapshot",
    "compaction", "compaction_summary", "context_compaction", "tool_search_call", "tool_search_output", "other",
    "agent_message", "agent_reasoning", "mcp_tool_call", "mcp_tool_call_output", "state",
}  # fmt: skip
_KNOWN_ROLES = {"developer", "system", "tool"}


@dataclass(kw_only=True)
class _Rollout:
    """One session while its lines are read."""

    header: dict[str, Any] = field(default_factory=dict)
    model: str = ""
    calls: list[dict[str, Any]] = field(default_factory=list)
    messages: list[ImportedMessage] = field(default_factory=list)
    skipped: list[SkippedMessage] = field(default_factory=list)
    broken: list[Skipped] = field(default_factory=list)
    # The second log of the same words, for sessions that lack them in the first.
    logged: list[ImportedMessage] = field(default_factory=list)
    not_shown: NotShown = field(default_factory=NotShown)
    where: str = ""
    # Where pictures are taken from; None while only texts are compared.
    files: Files | None = None
    prompts: PromptsByMinute = field(default_factory=dict)
    # A program's own prompt came last.
    is_prompted: bool = False


def _recognises(files: Files) -> int:
    return 95 if any(map(_ROLLOUT.match, files.names())) else 0


def _read(files: Files) -> Items:
    titles: dict[str, str] = {}
    for name in files.names():
        if name.rpartition("/")[2] == "session_index.jsonl":
            titles.update(titles_by_id(files, name, "id", "thread_name"))
    titles = {session: title_without(title, PRODUCT) for session, title in titles.items()}
    chosen = _one_file_each(files)
    not_shown = NotShown()
    prompts: PromptsByMinute = {}
    for name in files.names():
        if name.rpartition("/")[2] == "history.jsonl":
            prompts |= prompts_in(files, name, "text", "ts")
    for name in files.names():
        if (found := _ROLLOUT.match(name)) and chosen[found["id"]] != name:
            yield Skipped(where=name, reason=_("this session stands in another file too"), external_id=found["id"])
        elif found:
            rollout = _rollout(files, name, _Rollout(not_shown=not_shown, files=files, prompts=prompts))
            yield from _session(files, name, found, titles, chosen, rollout)
    yield from not_shown.listed()


def _one_file_each(files: Files) -> dict[str, str]:
    """The longest file of each session: an archived session may still exist in its old place."""
    chosen: dict[str, str] = {}
    for name in files.names():
        if found := _ROLLOUT.match(name):
            other = chosen.get(found["id"])
            chosen[found["id"]] = name if other is None or files.size(name) > files.size(other) else other
    return chosen


def _session(
    files: Files,
    name: str,
    found: re.Match[str],
    titles: dict[str, str],
    chosen: dict[str, str],
    rollout: _Rollout,
) -> Iterator[ImportedConversation | Skipped]:
    yield from rollout.broken
    session = id_of(rollout.header.get("id")) or found["id"]
    messages = rollout.messages
    if parent := chosen.get(id_of(rollout.header.get("forked_from_id"))):
        messages = messages[_repeated(messages, _rollout(files, parent, _Rollout()).messages) :]
    if not messages:
        yield Skipped(where=name, reason=_("nothing was said in this session"), external_id=session)
        return
    started = "{day}T{hour}:{minute}:{second}".format(**found.groupdict())
    created_at = parse_time(rollout.header.get("timestamp")) or parse_time(started)
    linked = [
        replace(message, parent=messages[place - 1].id if place else None) for place, message in enumerate(messages)
    ]
    current, _others = with_inferred_times((tuple(linked), ()), created_at)
    yield ImportedConversation(
        product=PRODUCT,
        external_id=session,
        title=titles.get(session) or None,
        created_at=created_at,
        last_at=max((message.at for message in current if message.at), default=created_at),
        is_archived=found["folder"] == "archived_sessions",
        project=_repository(rollout.header) or line_of(rollout.header.get("cwd")) or None,
        messages=current,
        skipped=tuple(rollout.skipped),
    )


def _repository(header: dict[str, Any]) -> str:
    return line_of(object_of(header.get("git")).get("repository_url"))


def _repeated(messages: list[ImportedMessage], parent: list[ImportedMessage]) -> int:
    """The number of messages at the beginning that belong to the session from which this one was forked."""
    same = 0
    for mine, theirs in zip(messages, parent, strict=False):
        if (mine.role, mine.text) != (theirs.role, theirs.text):
            break
        same += 1
    return same


def _rollout(files: Files, name: str, rollout: _Rollout) -> _Rollout:
    for number, line in json_lines(files, name):
        if isinstance(line, Skipped):
            rollout.broken.append(line)
        else:
            rollout.where = f"{name}:{number}"
            _take(line, number, rollout)
    _add_what_only_events_tell(rollout)
    return rollout


def _add_what_only_events_tell(rollout: _Rollout) -> None:
    """Messages of the second log, where the first has none, and the user's where it lacks them."""
    only_events = not rollout.messages
    left = Counter((message.role, _letters(message.text)) for message in rollout.messages)
    added = []
    for message in rollout.logged:
        words = (message.role, _letters(message.text))
        if left[words]:
            left[words] -= 1
        elif only_events or message.role == "user":
            added.append(message)
    if added:
        rollout.messages = sorted([*rollout.messages, *added], key=lambda message: int(message.id))


def _letters(text: str) -> str:
    return "".join(filter(str.isalnum, text))


def _take(line: dict[str, Any], number: int, rollout: _Rollout) -> None:
    kind, payload = line.get("type"), object_of(line.get("payload"))
    if kind == "session_meta" or (number == 1 and kind is None):
        # A fork repeats the header of its parent after its own. Before summer 2025 lines had no envelope.
        rollout.header = rollout.header or payload or line
    elif kind == "turn_context":
        rollout.model = line_of(payload.get("model")) or rollout.model
    elif kind == "response_item":
        _take_item(payload, number, line.get("timestamp"), rollout)
    elif kind == "event_msg":
        _take_event(payload, number, line.get("timestamp"), rollout)
    elif "payload" not in line:
        if "record_type" not in line:
            _take_item(line, number, line.get("timestamp"), rollout)
    elif kind not in _KNOWN_LINES:
        rollout.not_shown.note(line_of(kind) or "no kind", rollout.where)


def _take_event(event: dict[str, Any], number: int, at: Any, rollout: _Rollout) -> None:
    role: Role
    match event:
        case {"type": "user_message", "message": str(content)}:
            role = "user"
        case {"type": "agent_message", "message": str(content)}:
            role = "assistant"
        case {"type": "item_completed", "item": {"type": "UserMessage" | "user_message", "content": content}}:
            role = "user"
        case {"type": "item_completed", "item": {"type": "AgentMessage" | "agent_message", "content": content}}:
            role = "assistant"
        case _:
            return
    message, _ = message_of(str(number), role, content, at, rollout.model, product=PRODUCT)
    same = rollout.logged and (rollout.logged[-1].role, rollout.logged[-1].text) == (role, message.text)
    # Newer programs write both events for one message.
    if message.text and not (same and event["type"] == "item_completed"):
        rollout.logged.append(message)


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
        if role not in _KNOWN_ROLES:
            rollout.not_shown.note(f"role {line_of(role)}", rollout.where)
    elif kind not in _KNOWN_ITEMS:
        rollout.not_shown.note(line_of(kind) or "no kind", rollout.where)


def _short(arguments: Any) -> str:
    return text_of(arguments)[:4000] if isinstance(arguments, str) else compact(arguments)


def _take_message(item: dict[str, Any], number: int, at: Any, rollout: _Rollout) -> None:
    is_user = item["role"] == "user"
    content = item.get("content")
    for kind in unknown_kinds(content):
        rollout.not_shown.note(kind, rollout.where)
    message, words = message_of(
        str(number), "user" if is_user else "assistant", content, at, rollout.model, product=PRODUCT
    )
    if not message.text and not message.attachments:
        rollout.skipped.append(SkippedMessage(line=number, why="scaffolding" if is_user else "empty"))
        if is_user and words.is_prompt:
            rollout.not_shown.prompts += 1
            rollout.is_prompted = True
        return
    if not is_user:
        message = replace(message, tool_calls=tuple(rollout.calls), is_unasked=rollout.is_prompted)
    if rollout.files is not None:
        message = replace(message, files=embedded(rollout.files, content))
    rollout.calls.clear()
    rollout.is_prompted = False
    rollout.messages.append(with_pasted(message, rollout.prompts))


READER = ExportReader(product=PRODUCT, label="Codex", recognises=_recognises, read=_read)
