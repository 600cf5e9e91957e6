"""Codex: a copy of `~/.codex`, where each session is a rollout: the log of model input and events."""

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from core.text import gettext_noop as _
from imports.reading.attached import PromptsByMinute, embedded, prompts_in, with_pasted
from imports.reading.drafts import NotShown
from imports.reading.envelopes import title_without
from imports.reading.files import Files
from imports.reading.items import ImportedConversation, ImportedMessage, Items, Role, Skipped, SkippedMessage
from imports.reading.json_lines import first_lines, json_lines, titles_by_id
from imports.reading.products import ExportReader
from imports.reading.session_tree import message_of, unknown_kinds
from imports.reading.sessions import NO_PARENT, Children, has_logs, logs, stem
from imports.reading.times import parse_time
from imports.reading.trees import branches, newest_leaf, with_inferred_times
from imports.reading.values import compact, id_of, line_of, object_of, objects_of, text_of, value_at
from recollect_cli.replies import answers_in_output, asked, questions_in

PRODUCT = "codex"
_ROLLOUT = re.compile(
    r"(?:^|.*/)rollout-"
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
    # Of calls that ask the person: the questions, by the call's id.
    questions: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    # The messages that stand in calls and their results: they begin no turn of the program.
    in_calls: set[str] = field(default_factory=set)
    # After which line so many of the person's turns were taken back.
    rollbacks: list[tuple[int, int]] = field(default_factory=list)

    @property
    def parent(self) -> str | None:
        """The session for which a subagent worked; empty if that is not said, None if this is no subagent's."""
        source = self.header.get("source")
        child = value_at(source, "subagent") or value_at(source, "subAgent")
        if child is None and source != "subagent" and self.header.get("thread_source") not in ("subagent", "review"):
            return None
        about = object_of(next(iter(object_of(child).values()), None))
        named = about.get("parent_thread_id") or about.get("parentThreadId") or self.header.get("parent_thread_id")
        return id_of(named) or id_of(self.header, "forked_from_id")


def _recognises(files: Files) -> int:
    return 95 if has_logs(files, _is_of_codex, _ROLLOUT) else 0


def _is_of_codex(line: dict[str, Any]) -> bool:
    if "payload" in line:
        return line.get("type") in ("session_meta", "turn_context", "response_item", "event_msg")
    return {"id", "timestamp", "instructions"} <= line.keys() and "type" not in line


def _read(files: Files) -> Items:
    titles: dict[str, str] = {}
    prompts: PromptsByMinute = {}
    for name in files.names():
        match name.rpartition("/")[2]:
            case "session_index.jsonl":
                titles.update(titles_by_id(files, name))
            case "history.jsonl":
                prompts |= prompts_in(files, name, "text", "ts")
    titles = {session: title_without(title, PRODUCT) for session, title in titles.items()}
    chosen = _one_file_each(files)
    children = _children(files, chosen)
    not_shown = NotShown()
    for name in logs(files, _is_of_codex, _ROLLOUT):
        if chosen[session := _id_of(name)] != name:
            yield Skipped(where=name, reason=_("this session stands in another file too"), external_id=session)
        elif session not in children.names:
            rollout = _rollout(files, name, _Rollout(not_shown=not_shown, files=files, prompts=prompts))
            yield from _session(files, name, titles, chosen, rollout, children)
    for names in children.of_parent.values():
        yield from (Skipped(where=name, reason=NO_PARENT, external_id=_id_of(name)) for name in names)
    yield from not_shown.listed()


def _id_of(name: str) -> str:
    found = _ROLLOUT.match(name)
    return found["id"] if found else stem(name)


def _one_file_each(files: Files) -> dict[str, str]:
    """The longest file of each session: an archived session may still exist in its old place."""
    chosen: dict[str, str] = {}
    for name in logs(files, _is_of_codex, _ROLLOUT):
        other = chosen.get(_id_of(name))
        chosen[_id_of(name)] = name if other is None or files.size(name) > files.size(other) else other
    return chosen


@dataclass(kw_only=True)
class _Children:
    """The files of subagents' sessions by the session of a person for which they worked, however deep."""

    names: list[str]
    of_parent: dict[str, list[str]]


def _children(files: Files, chosen: dict[str, str]) -> _Children:
    heads = {}
    for session, name in chosen.items():
        heads[session] = _Rollout()
        for number, line in enumerate(first_lines(files, name), start=1):
            _take_header(line, number, heads[session])
    names = [session for session, head in heads.items() if head.parent is not None]
    found: dict[str, list[str]] = {}
    for session in names:
        parent, above = session, {session}
        while parent in names:
            parent = heads[parent].parent or _session_before(heads, names, heads[parent].header)
            if parent in above:
                break
            above.add(parent)
        found.setdefault(parent, []).append(chosen[session])
    return _Children(names=names, of_parent=found)


def _session_before(heads: dict[str, _Rollout], children: list[str], header: dict[str, Any]) -> str:
    """The session in the same folder that began last before: a review does not name its own."""
    began = text_of(header, "timestamp")
    found = [
        (text_of(head.header, "timestamp"), session)
        for session, head in heads.items()
        if session not in children and head.header.get("cwd") == header.get("cwd")
    ]
    return max((each for each in found if each[0] <= began), default=("", ""))[1]


def _session(
    files: Files,
    name: str,
    titles: dict[str, str],
    chosen: dict[str, str],
    rollout: _Rollout,
    children: _Children,
) -> Iterator[ImportedConversation | Skipped]:
    yield from rollout.broken
    session = id_of(rollout.header, "id") or _id_of(name)
    messages = _own_messages(files, chosen, rollout)
    if not messages:
        yield Skipped(where=name, reason=_("nothing was said in this session"), external_id=session)
        return
    found = _ROLLOUT.match(name)
    started = "{day}T{hour}:{minute}:{second}".format(**found.groupdict()) if found else None
    created_at = parse_time(rollout.header, "timestamp") or parse_time(started)
    parents, leaf = _linked(messages, rollout)
    visible = {message.id: message for message in messages}
    is_taken_back = leaf is None
    rollout.not_shown.set_aside += is_taken_back
    leaf = leaf or newest_leaf(parents, {message.id: message.at for message in messages})
    current, others = with_inferred_times(branches(parents, visible, leaf), created_at)
    below = Children()
    for each in children.of_parent.pop(_id_of(name), []):
        child = _rollout(files, each, _Rollout())
        source = object_of(child.header, "source")
        kind = "review" if "review" in (source.get("subagent"), child.header.get("thread_source")) else "subagent"
        about = object_of(next(iter(object_of(source, "subagent").values()), None))
        named = f"{kind} {line_of(about, 'agent_nickname') or line_of(about, 'agent_role')}"
        below.add("", each, _own_messages(files, chosen, child), name=named[:100].strip())
    yield ImportedConversation(
        product=PRODUCT,
        external_id=session,
        title=titles.get(session) or None,
        created_at=created_at,
        last_at=max((message.at for message in current if message.at), default=created_at),
        is_archived="archived_sessions" in name.split("/"),
        is_deleted=is_taken_back,
        project=_repository(rollout.header) or line_of(rollout.header, "cwd") or None,
        messages=below.folded(current, ""),
        other_branches=others,
        skipped=tuple(rollout.skipped),
    )


def _own_messages(files: Files, chosen: dict[str, str], rollout: _Rollout) -> list[ImportedMessage]:
    """Without those that a fork repeats."""
    messages = rollout.messages
    if parent := chosen.get(id_of(rollout.header, "forked_from_id")):
        messages = messages[_repeated(messages, _rollout(files, parent, _Rollout()).messages) :]
    return messages


def _linked(messages: list[ImportedMessage], rollout: _Rollout) -> tuple[dict[str, str | None], str | None]:
    """Each message follows the one before it, and after a rollback the last one that was not taken back."""
    parents: dict[str, str | None] = {}
    path: list[ImportedMessage] = []
    rollbacks = list(rollout.rollbacks)
    for message in [*messages, None]:
        while rollbacks and (message is None or rollbacks[0][0] < int(message.id)):
            _line, left = rollbacks.pop(0)
            while path and left:
                taken = path.pop()
                left -= taken.role == "user" and taken.id not in rollout.in_calls
        if message is not None:
            parents[message.id] = path[-1].id if path else None
            path.append(message)
    return parents, path[-1].id if path else None


def _repository(header: dict[str, Any]) -> str:
    return line_of(header, "git", "repository_url")


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
    only_events = all(message.id in rollout.in_calls for message in rollout.messages)
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
    kind, payload = line.get("type"), object_of(line, "payload")
    if _take_header(line, number, rollout):
        return
    if kind == "turn_context":
        rollout.model = line_of(payload, "model") or rollout.model
    elif kind == "response_item":
        _take_item(payload, number, line.get("timestamp"), rollout)
    elif kind == "event_msg":
        _take_event(payload, number, line.get("timestamp"), rollout)
    elif "payload" not in line:
        if "record_type" not in line:
            _take_item(line, number, line.get("timestamp"), rollout)
    elif kind not in _KNOWN_LINES:
        rollout.not_shown.note(line_of(kind) or "no kind", rollout.where)


def _take_header(line: dict[str, Any], number: int, rollout: _Rollout) -> bool:
    if line.get("type") != "session_meta" and not (number == 1 and line.get("type") is None):
        return False
    # A fork repeats the header of its parent after its own. Before summer 2025 lines had no envelope.
    rollout.header = rollout.header or object_of(line, "payload") or line
    return True


def _take_event(event: dict[str, Any], number: int, at: Any, rollout: _Rollout) -> None:
    role: Role
    match event:
        case {"type": "thread_rolled_back", "num_turns": int(turns)}:
            rollout.rollbacks.append((number, turns))
            return
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
    match item.get("type"):
        case "function_call" | "custom_tool_call":
            _take_call(item, number, at, rollout)
        case "function_call_output" | "custom_tool_call_output":
            questions = rollout.questions.get(id_of(item, "call_id"), [])
            _take_from_call(answers_in_output(questions, item.get("output")), "user", number, at, rollout)
        case "reasoning":
            summary = "\n\n".join(text_of(part, "text") for part in objects_of(item, "summary"))
            rollout.calls.extend([{"name": "thinking", "summary": summary}] if summary.strip() else [])
        case "agent_message" if rollout.parent is not None:
            _take_message({**item, "role": "user"}, number, at, rollout)
        case "message":
            _take_message(item, number, at, rollout)
        case kind if kind not in _KNOWN_ITEMS:
            rollout.not_shown.note(line_of(kind) or "no kind", rollout.where)


def _take_call(item: dict[str, Any], number: int, at: Any, rollout: _Rollout) -> None:
    arguments = item.get("arguments", item.get("input"))
    rollout.calls.append({"name": line_of(item, "name"), "input": _short(arguments)})
    questions = rollout.questions[id_of(item, "call_id")] = questions_in(item.get("name"), arguments)
    _take_from_call(asked(questions), "assistant", number, at, rollout)


def _take_from_call(text: str, role: Role, number: int, at: Any, rollout: _Rollout) -> None:
    if text:
        _take_message({"role": role, "content": text}, number, at, rollout)
        rollout.in_calls.add(str(number))
        if rollout.messages and rollout.messages[-1].id == str(number):
            rollout.messages[-1] = replace(rollout.messages[-1], only_asks=role == "assistant")


def _short(arguments: Any) -> str:
    return text_of(arguments)[:4000] if isinstance(arguments, str) else compact(arguments)


def _take_message(item: dict[str, Any], number: int, at: Any, rollout: _Rollout) -> None:
    role = line_of(item, "role")
    if role not in ("user", "assistant"):
        rollout.skipped.append(SkippedMessage(line=number, why=f"role {role}"))
        if role not in _KNOWN_ROLES:
            rollout.not_shown.note(f"role {role}", rollout.where)
        return
    is_user = role == "user"
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


READER = ExportReader(
    product=PRODUCT,
    label="Codex",
    recognises=_recognises,
    read=_read,
    looks_for=_("logs of sessions (rollout-….jsonl)"),
    wordless=r"(?:^|/)(?:session_index|history)\.jsonl\Z",
)
