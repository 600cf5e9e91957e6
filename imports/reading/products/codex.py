"""Codex: a copy of `~/.codex`, where each session is a rollout: the log of model input and events."""

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import takewhile
from typing import Any

from core.text import gettext_noop as _
from imports.reading.attached import PromptsByMinute, embedded, prompts_in, with_pasted
from imports.reading.drafts import ConversationDraft, NotShown
from imports.reading.envelopes import title_without
from imports.reading.files import Files
from imports.reading.items import ImportedConversation, ImportedMessage, Items, Role, Skipped
from imports.reading.json_lines import first_lines, json_lines, titles_by_id
from imports.reading.products import ExportReader
from imports.reading.session_tree import message_of, role_of, thinking, unknown_kinds, unknown_roles
from imports.reading.sessions import Children, has_logs, logs, stem
from imports.reading.values import (
    Fields,
    base_name,
    compact,
    first_of,
    id_of,
    line_of,
    object_of,
    objects_of,
    parse_time,
    text_of,
    value_at,
)
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


def _recognises(files: Files) -> int:
    return 95 if has_logs(files, _is_of_codex, _ROLLOUT) else 0


def _is_of_codex(line: Fields) -> bool:
    if "payload" in line:
        return line.get("type") in ("session_meta", "turn_context", "response_item", "event_msg")
    return {"id", "timestamp", "instructions"} <= line.keys() and "type" not in line


def _read(files: Files) -> Items:
    titles: dict[str, str] = {}
    prompts: PromptsByMinute = {}
    for name in files.names():
        match base_name(name):
            case "session_index.jsonl":
                titles.update(titles_by_id(files, name))
            case "history.jsonl":
                prompts |= prompts_in(files, name, "text", "ts")
    chosen = _one_file_each(files)
    parents = _parents(files, chosen)
    children, not_shown = Children(), NotShown()
    # Subagents' sessions come first: they belong below those for which they worked.
    for name in sorted(logs(files, _is_of_codex, _ROLLOUT), key=lambda each: _id_of(each) not in parents):
        session = _id_of(name)
        if chosen[session] != name:
            yield Skipped(where=name, reason=_("this session stands in another file too"), external_id=session)
        elif session in parents:
            child = _Rollout(files=files, name=name)
            yield from child.read()
            children.add(parents[session], name, _own_messages(chosen, child), name=_name_of_child(child.header))
        else:
            rollout = _Rollout(files=files, name=name, takes_files=True, prompts=prompts, not_shown=not_shown)
            yield from rollout.read()
            yield from _session(rollout, titles, chosen, children)
    yield from children.without_parent()
    yield from not_shown.listed()


def _id_of(name: str) -> str:
    found = _ROLLOUT.match(name)
    return found["id"] if found else stem(name)


def _one_file_each(files: Files) -> dict[str, str]:
    """The longest file of each session: an archived session may still exist in its old place."""
    chosen: dict[str, str] = {}
    for name in logs(files, _is_of_codex, _ROLLOUT):
        chosen[_id_of(name)] = max(chosen.get(_id_of(name), name), name, key=files.size)
    return chosen


def _header(files: Files, name: str) -> Fields:
    """A fork repeats that of its parent after its own. Before summer 2025 lines had no envelope."""
    heads = (line for number, line in enumerate(first_lines(files, name), start=1) if _is_header(line, number))
    return next((object_of(line, "payload") or line for line in heads), {})


def _is_header(line: Fields, number: int) -> bool:
    return line.get("type") == "session_meta" or (number == 1 and line.get("type") is None)


def _parents(files: Files, chosen: dict[str, str]) -> dict[str, str]:
    """By the sessions of subagents: the session of a person for which each worked, however deep."""
    heads = {session: _header(files, name) for session, name in chosen.items()}
    children = [session for session, header in heads.items() if _parent(header) is not None]
    found: dict[str, str] = {}
    for session in children:
        parent, above = session, {session}
        while parent in children:
            parent = _parent(heads[parent]) or _session_before(heads, children, heads[parent])
            if parent in above:
                break
            above.add(parent)
        found[session] = parent
    return found


def _parent(header: Fields) -> str | None:
    """The session for which a subagent worked; empty if that is not said, None if this is no subagent's."""
    source = header.get("source")
    child = value_at(source, "subagent") or value_at(source, "subAgent")
    if child is None and source != "subagent" and header.get("thread_source") not in ("subagent", "review"):
        return None
    about = next(iter(object_of(child).values()), None)
    named = first_of(about, "parent_thread_id", "parentThreadId")
    return named or first_of(header, "parent_thread_id", "forked_from_id")


def _session_before(heads: dict[str, Fields], children: list[str], header: Fields) -> str:
    """The session in the same folder that began last before: a review does not name its own."""
    began = text_of(header, "timestamp")
    found = [
        (text_of(head, "timestamp"), session)
        for session, head in heads.items()
        if session not in children and head.get("cwd") == header.get("cwd")
    ]
    return max((each for each in found if each[0] <= began), default=("", ""))[1]


def _name_of_child(header: Fields) -> str:
    child = value_at(header, "source", "subagent")
    kind = "review" if "review" in (child, header.get("thread_source")) else "subagent"
    about = next(iter(object_of(child).values()), None)
    return f"{kind} {first_of(about, 'agent_nickname', 'agent_role')}"[:100].strip()


def _session(rollout: "_Rollout", titles: dict[str, str], chosen: dict[str, str], children: Children) -> Items:
    """Each message follows the one before it, and after a rollback the last one that was not taken back."""
    name, header = rollout.name, rollout.header
    found = _ROLLOUT.match(name)
    started = "{day}T{hour}:{minute}:{second}".format(**found.groupdict()) if found else None
    session = id_of(header, "id") or _id_of(name)
    draft = ConversationDraft(
        product=PRODUCT,
        where=name,
        external_id=session,
        title=title_without(titles.get(session, ""), PRODUCT),
        created_at=parse_time(header, "timestamp") or parse_time(started),
        is_archived="archived_sessions" in name.split("/"),
        project=line_of(header, "git", "repository_url") or line_of(header, "cwd"),
    )
    path: list[ImportedMessage] = []
    rollbacks = list(rollout.rollbacks)
    for message in [*_own_messages(chosen, rollout), None]:
        while rollbacks and (message is None or rollbacks[0][0] < int(message.id)):
            _line, left = rollbacks.pop(0)
            while path and left:
                taken = path.pop()
                left -= taken.role == "user" and taken.id not in rollout.in_calls
        if message is not None:
            draft.add(message.id, path[-1].id if path else None, message.at, message)
            path.append(message)
    draft.leaf = path[-1].id if path else None
    item = draft.finished()
    if isinstance(item, ImportedConversation):
        rollout.not_shown.set_aside += not path
        messages = children.folded(item.messages, _id_of(name))
        item = replace(item, messages=messages, is_deleted=not path)
    yield item


def _own_messages(chosen: dict[str, str], rollout: "_Rollout") -> list[ImportedMessage]:
    """Without those at the beginning that belong to the session from which this one was forked."""
    parent = chosen.get(id_of(rollout.header, "forked_from_id"))
    if parent is None:
        return rollout.messages
    origin = _Rollout(files=rollout.files, name=parent)
    list(origin.read())
    pairs = zip(rollout.messages, origin.messages, strict=False)
    same = takewhile(lambda pair: (pair[0].role, pair[0].text) == (pair[1].role, pair[1].text), pairs)
    return rollout.messages[len(list(same)) :]


@dataclass(kw_only=True)
class _Rollout:
    """One session while its lines are read."""

    files: Files
    name: str
    # Pictures are left where they are while only texts are compared.
    takes_files: bool = False
    prompts: PromptsByMinute = field(default_factory=dict)
    not_shown: NotShown = field(default_factory=NotShown)
    # Of the line that is read: the id of its message, and its time.
    node: str = ""
    at: Any = None
    model: str = ""
    calls: list[Fields] = field(default_factory=list)
    messages: list[ImportedMessage] = field(default_factory=list)
    # The second log of the same words, for sessions that lack them in the first.
    logged: list[ImportedMessage] = field(default_factory=list)
    # A program's own prompt came last.
    is_prompted: bool = False
    # Of calls that ask the person: the questions, by the call's id.
    questions: dict[str, list[Fields]] = field(default_factory=dict)
    # The messages that stand in calls and their results: they begin no turn of the program.
    in_calls: set[str] = field(default_factory=set)
    # After which line so many of the person's turns were taken back.
    rollbacks: list[tuple[int, int]] = field(default_factory=list)

    @cached_property
    def header(self) -> Fields:
        return _header(self.files, self.name)

    def read(self) -> Iterator[Skipped]:
        """Reads all lines; those that are broken are for the report."""
        for number, line in json_lines(self.files, self.name):
            if isinstance(line, Skipped):
                yield line
            elif not _is_header(line, number):
                self.node, self.at = str(number), line.get("timestamp")
                self._take(line)
        self._add_what_only_events_tell()

    def _note(self, *kinds: str) -> None:
        self.not_shown.note(f"{self.name}:{self.node}", *kinds)

    def _add_what_only_events_tell(self) -> None:
        """Messages of the second log, where the first has none, and the user's where it lacks them."""
        only_events = all(message.id in self.in_calls for message in self.messages)
        left = Counter((message.role, _letters(message.text)) for message in self.messages)
        added = []
        for message in self.logged:
            words = (message.role, _letters(message.text))
            if left[words]:
                left[words] -= 1
            elif only_events or message.role == "user":
                added.append(message)
        if added:
            self.messages = sorted([*self.messages, *added], key=lambda message: int(message.id))

    def _take(self, line: Fields) -> None:
        kind, payload = line.get("type"), object_of(line, "payload")
        if kind == "turn_context":
            self.model = line_of(payload, "model") or self.model
        elif kind == "response_item":
            self._take_item(payload)
        elif kind == "event_msg":
            self._take_event(payload)
        elif "payload" not in line:
            if "record_type" not in line:
                self._take_item(line)
        elif kind not in _KNOWN_LINES:
            self._note(line_of(kind))

    def _take_event(self, event: Fields) -> None:
        role: Role
        match event:
            case {"type": "thread_rolled_back", "num_turns": int(turns)}:
                self.rollbacks.append((int(self.node), turns))
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
        message, _ = message_of(self.node, role, content, self.at, self.model, product=PRODUCT)
        same = self.logged and (self.logged[-1].role, self.logged[-1].text) == (role, message.text)
        # Newer programs write both events for one message.
        if message.text and not (same and event["type"] == "item_completed"):
            self.logged.append(message)

    def _take_item(self, item: Fields) -> None:
        match item.get("type"):
            case "function_call" | "custom_tool_call":
                arguments = item.get("arguments", item.get("input"))
                short = text_of(arguments)[:4000] if isinstance(arguments, str) else compact(arguments)
                self.calls.append({"name": line_of(item, "name"), "input": short})
                questions = self.questions[id_of(item, "call_id")] = questions_in(item.get("name"), arguments)
                self._take_from_call("assistant", asked(questions))
            case "function_call_output" | "custom_tool_call_output":
                questions = self.questions.get(id_of(item, "call_id"), [])
                self._take_from_call("user", answers_in_output(questions, item.get("output")))
            case "reasoning":
                self.calls += thinking("\n\n".join(text_of(part, "text") for part in objects_of(item, "summary")))
            case "agent_message" if _parent(self.header) is not None:
                self._take_message("user", item.get("content"))
            case "message":
                self._note(*unknown_roles(item, "role"))
                self._take_message(role_of(item, "role"), item.get("content"))
            case kind if kind not in _KNOWN_ITEMS:
                self._note(line_of(kind))

    def _take_from_call(self, role: Role, text: str) -> None:
        if text:
            self._take_message(role, text)
            self.in_calls.add(self.node)
            if self.messages and self.messages[-1].id == self.node:
                self.messages[-1] = replace(self.messages[-1], only_asks=role == "assistant")

    def _take_message(self, role: Role | None, content: Any) -> None:
        if role is None:
            return
        self._note(*unknown_kinds(content))
        message, words = message_of(self.node, role, content, self.at, self.model, product=PRODUCT)
        if not message.text and not message.attachments:
            if role == "user" and words.is_prompt:
                self.not_shown.prompts += 1
                self.is_prompted = True
            return
        if role == "assistant":
            message = replace(message, tool_calls=tuple(self.calls), is_unasked=self.is_prompted)
        if self.takes_files:
            message = replace(message, files=embedded(self.files, content))
        self.calls.clear()
        self.is_prompted = False
        self.messages.append(with_pasted(message, self.prompts))


def _letters(text: str) -> str:
    return "".join(filter(str.isalnum, text))


READER = ExportReader(
    product=PRODUCT,
    label="Codex",
    recognises=_recognises,
    read=_read,
    looks_for=_("logs of sessions (rollout-….jsonl)"),
    wordless=r"(?:^|/)(?:session_index|history)\.jsonl\Z",
)
