"""OpenClaw: a copy of `~/.openclaw`, with the agents' sessions as logs and the workspace's memory as documents."""

import re
import sqlite3
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from core.text import gettext_noop as _
from imports.reading.databases import all_of, has_table, opened_database, tables
from imports.reading.drafts import NO_WORDS, ConversationDraft, NotShown
from imports.reading.envelopes import silent_rest, title_without
from imports.reading.files import Files, as_utf8
from imports.reading.items import (
    ImportedConversation,
    ImportedDocument,
    ImportedMessage,
    Items,
    Skipped,
    UnreadableExport,
)
from imports.reading.json_lines import JsonLine, first_lines, json_lines
from imports.reading.notes import day_in, note_text
from imports.reading.products import ExportReader
from imports.reading.session_tree import calls_in, message_of, role_of, unknown_kinds
from imports.reading.sessions import Children, has_logs, logs, stem
from imports.reading.trees import nearest_visible
from imports.reading.values import (
    Fields,
    base_name,
    first_of,
    id_of,
    line_of,
    object_of,
    parse_time,
    parsed,
    text_of,
    value_at,
)

PRODUCT = "openclaw"
_SESSION = re.compile(r"(?:^|.*/)agents/[^/]+/sessions/[^/]+\.jsonl(?:\.(?:reset|deleted)\..*)?\Z")
_INDEX = re.compile(r"(?:^|.*/)sessions\.json\Z")
_DATABASE = re.compile(r"(?:^|.*/)openclaw[^/]*\.sqlite\Z")
_DELETED = re.compile(r"\.jsonl\.deleted\.[^/]*\Z")
_SUBAGENT = ":subagent:"
# The workspace's memory, below folders too, and `memory.md` as older versions call it.
_DOCUMENT = re.compile(r"(?:^|.*/)(?P<path>workspace/(?:MEMORY|USER|memory|memory/.+)\.md)\Z")
_ABOUT_AGENT = re.compile(r"(?:^|.*/)workspace/(?:AGENTS|SOUL|TOOLS|IDENTITY|HEARTBEAT|BOOTSTRAP|BOOT)\.md\Z")
_KNOWN_KINDS = {
    "message", "session", "compaction", "custom", "custom_message", "model_change", "thinking_level_change", "label",
    "branch_summary", "session_info", "leaf",
}  # fmt: skip
_KNOWN_ROLES = {"user", "assistant", "tool", "toolResult", "system", "custom", "bashExecution"}


def _recognises(files: Files) -> int:
    is_here = any(map(_DOCUMENT.match, files.names())) or any(_databases(files))
    return 90 if is_here or has_logs(files, _is_of_openclaw, _SESSION) else 0


def _is_of_openclaw(line: Fields) -> bool:
    if line.get("type") == "message":
        return "parentId" in line and "role" in object_of(line, "message")
    return line.get("type") == "session" and "id" in line and "sessionId" not in line


def _databases(files: Files) -> Iterator[str]:
    names = files.names()
    for name in names:
        if _DATABASE.match(name) or ((len(names) == 1 or name.endswith((".sqlite", ".db"))) and has_table(files, name)):
            yield name


@dataclass(frozen=True, slots=True, kw_only=True)
class _Source:
    """Where the lines of a session stand: a log, or the rows of a database."""

    name: str
    id: str
    lines: Iterable[JsonLine]
    # Its lines may repeat those of another one, which is read first.
    is_branch: bool = False
    is_rotated: bool = False


def _read(files: Files) -> Items:
    reading = _Reading()
    _read_index(files, reading)
    for name in files.names():
        if found := _DOCUMENT.match(name):
            yield from _document(files, name, found["path"])
        elif _ABOUT_AGENT.match(name):
            yield Skipped(where=name, reason=_("this is about the agent"))
    for name in _databases(files):
        yield from _of_database(files, name, reading)
    yield from _of_logs(files, reading)
    yield from reading.children.without_parent()
    yield from reading.not_shown.listed()


def _of_logs(files: Files, reading: "_Reading") -> Items:
    """Subagents' sessions before their parents', and what may repeat others after them."""
    names = (name for name in logs(files, _is_of_openclaw, _SESSION) if not name.endswith(".trajectory.jsonl"))
    waiting = [_source(files, name) for name in names]
    reading.rotated = {source.name: list(source.lines) for source in waiting if source.is_rotated}
    for source in sorted(waiting, key=lambda each: (not reading.is_child(each.id), each.is_branch, each.is_rotated)):
        if not source.is_rotated:
            yield from _session(source, reading)
        elif lines := reading.rotated.pop(source.name, None):
            yield from _session(replace(source, lines=lines), reading)


def _source(files: Files, name: str) -> _Source:
    is_branch = any(line.get("parentSession") for line in first_lines(files, name, 1))
    lines = json_lines(files, name)
    return _Source(name=name, id=stem(name), lines=lines, is_branch=is_branch, is_rotated=_ends_with_leaf(files, name))


def _ends_with_leaf(files: Files, name: str) -> bool:
    """As the copy of a session does that OpenClaw leaves when it begins a new log for the same chat."""
    last = b""
    with files.look(name) as stream:
        for line in stream:
            last = line if line.strip() else last
    return b'"leaf"' in last[:1000]


def _of_database(files: Files, name: str, reading: "_Reading") -> Items:
    """The same lines, in the rows of a table."""
    rows = "SELECT seq, event_json FROM transcript_events WHERE session_id = ? ORDER BY seq"
    try:
        with opened_database(files, name) as database:
            known = tables(database)
            if "session_nodes" in known:
                for row in all_of(database, "SELECT * FROM session_nodes"):
                    entry = {"displayName": row.get("display_name"), **object_of(parsed(row.get("entry_json")))}
                    reading.know(text_of(row, "session_key"), id_of(row, "current_session_id"), entry)
            if "session_windows" in known:
                for row in all_of(database, "SELECT * FROM session_windows"):
                    reading.keys.setdefault(id_of(row, "session_id"), text_of(row, "session_key"))
            if "transcript_events" not in known:
                yield Skipped(where=name, reason=NO_WORDS)
                return
            found = [row[0] for row in database.execute("SELECT DISTINCT session_id FROM transcript_events")]
            for session in sorted(found, key=lambda each: not reading.is_child(id_of(each))):
                events = ((seq, object_of(parsed(event))) for seq, event in database.execute(rows, (session,)))
                yield from _session(_Source(name=f"{name}/{session}", id=id_of(session), lines=events), reading)
    except (sqlite3.Error, UnreadableExport):
        yield Skipped(where=name, reason=_("this database is damaged or incomplete"))


def _read_index(files: Files, reading: "_Reading") -> None:
    for name in filter(_INDEX.match, files.names()):
        try:
            with files.open(name) as stream:
                index = parsed(as_utf8(stream).read(16 * 1024 * 1024).decode(errors="replace"))
        except UnreadableExport:
            continue  # Titles are made from the first words instead.
        for key, entry in object_of(index).items():
            reading.know(key, id_of(entry, "sessionId"), object_of(entry))


@dataclass(kw_only=True)
class _Reading:
    """What is known of all sessions: their keys, titles and parents, and the messages that others may repeat."""

    not_shown: NotShown = field(default_factory=NotShown)
    seen: dict[str, ImportedMessage] = field(default_factory=dict)
    keys: dict[str, str] = field(default_factory=dict)
    sessions: dict[str, str] = field(default_factory=dict)
    titles: dict[str, str] = field(default_factory=dict)
    spawned_by: dict[str, str] = field(default_factory=dict)
    children: Children = field(default_factory=Children)
    rotated: dict[str, list[JsonLine]] = field(default_factory=dict)

    def know(self, key: str, session: str, entry: Fields) -> None:
        self.keys[session], self.sessions[key] = key, session
        if title := title_without(first_of(entry, "displayName", "label"), PRODUCT):
            self.titles[key] = title
        if parent := text_of(entry, "spawnedBy"):
            self.spawned_by[key] = parent

    def is_child(self, session: str) -> bool:
        key = self.keys.get(session, "")
        return _SUBAGENT in key or key in self.spawned_by

    def parent_of(self, session: str) -> str:
        """The chat for which a subagent worked, however deep."""
        for _step in range(10):
            if not self.is_child(session):
                break
            key = self.keys[session]
            agent = key.partition(_SUBAGENT)[0]
            session = self.sessions.get(self.spawned_by.get(key) or f"{agent}:main", "")
        return session


def _document(files: Files, name: str, path: str) -> Items:
    day, title = day_in(path), base_name(path).removesuffix(".md")
    kinds = {"MEMORY": "memory", "memory": "memory", "USER": "about"} if path.count("/") == 1 else {}
    kind: Any = kinds.get(title) or ("daily_log" if day else "note")
    if text := note_text(files, name):
        yield ImportedDocument(product=PRODUCT, external_id=path, title=title, text=text, at=day, kind=kind)


@dataclass(kw_only=True)
class _Session(ConversationDraft):
    """One session while its lines are read."""

    not_shown: NotShown
    # Messages that the user wrote for sure: a channel's envelope stood around them.
    written: set[str] = field(default_factory=set)


def _session(source: _Source, reading: _Reading) -> Items:
    found = _Session(product=PRODUCT, where=source.name, external_id=source.id, not_shown=reading.not_shown)
    header: Fields = {}
    for number, line in source.lines:
        if isinstance(line, Skipped):
            yield line
        elif line.get("type") == "session":
            header = header or line
        else:
            found.leaf = _take(line, found, id_of(line, "id") or f"line-{number}", f"{source.name}:{number}")
    also = _add_rotated(found, source, reading)
    _hide_silent_turns(found)
    session = found.external_id = id_of(header, "id") or source.id
    found.title = reading.titles.get(reading.keys.get(session, ""), "")
    found.created_at, found.project = parse_time(header, "timestamp"), line_of(header, "cwd")
    for node, message in list(found.visible.items()):
        if reading.seen.get(node) == message:
            del found.visible[node]
    is_repeated = not found.visible and any(node in reading.seen for node in found.parents)
    reading.seen.update(found.visible)
    item, parent = found.finished(), reading.parent_of(session) if reading.is_child(session) else None
    if is_repeated:
        item = Skipped(where=source.name, reason=_("this session stands in another file too"), external_id=session)
    elif isinstance(item, ImportedConversation) and parent is None:
        item = replace(item, also_ids=tuple(also), is_deleted=_DELETED.search(source.name) is not None)
        reading.not_shown.set_aside += item.is_deleted
    yield from reading.children.placed(item, source.name, parent)


def _add_rotated(found: _Session, source: _Source, reading: _Reading) -> list[str]:
    """Adds the lines of copies of this session that it lacks; returns the copies' ids."""
    also = []
    for name, lines in list(reading.rotated.items()):
        rows = [(id_of(line, "id"), number, line) for number, line in lines if isinstance(line, dict)]
        if found.parents.keys().isdisjoint(node for node, _number, _line in rows if node):
            continue
        del reading.rotated[name]
        also.append(stem(name))
        for node, number, line in rows:
            if node and node not in found.parents and line.get("type") != "session":
                _take(line, found, node, f"{source.name}:{number}")
    return also


def _take(line: Fields, found: _Session, node: str, where: str) -> str:
    at = parse_time(line, "timestamp")
    found.visible.pop(node, None)
    found.add(node, id_of(line, "parentId"), at, _shown(line, node, where, found))
    if line.get("type") == "leaf" and (target := id_of(line, "targetId") or id_of(line, "leafId")):
        return target
    if calls := calls_in(value_at(line, "message", "content")):
        found.calls[node] = calls
    return node


def _shown(line: Fields, node: str, where: str, found: _Session) -> ImportedMessage | None:
    kind, message = line_of(line, "type"), object_of(line, "message")
    name, role, content = line_of(message, "role"), role_of(message, "role"), message.get("content")
    if kind not in _KNOWN_KINDS or (kind == "message" and name not in _KNOWN_ROLES):
        found.not_shown.note(where, name if kind == "message" else kind)
    if kind != "message" or role is None:
        return None
    found.not_shown.note(where, *unknown_kinds(content))
    at = line.get("timestamp") or message.get("timestamp")
    shown, words = message_of(node, role, content, at, message.get("model"), product=PRODUCT)
    if words.is_changed and (shown.text or shown.attachments):
        found.written.add(node)
    elif words.is_prompt and role == "user":
        found.prompts.add(node)
        found.not_shown.prompts += 1
    return shown


def _hide_silent_turns(found: _Session) -> None:
    """Hide an answer that says that there is none: the user never saw it.

    The prompt that it answers is hidden too if it is the scheduler's, which may be worded by the user: one that was
    answered so more than once, or that names the mark.
    """
    above = nearest_visible(found.parents, found.visible)
    marked = [
        (node, rest, found.visible.get(above[node] or ""))
        for node, message in found.visible.items()
        if message.role == "assistant" and (rest := silent_rest(message.text)) is not None
    ]
    own = Counter(
        prompt.text
        for node, _, prompt in marked
        if prompt and _may_be_scheduled(prompt, found) and "HEARTBEAT_OK" in found.visible[node].text
    )
    own = Counter({text: times for text, times in own.items() if times >= 2 or "HEARTBEAT" in text})
    # A program's own prompt is the last one above these.
    to_a_prompt = {node for node, _, _ in marked if not found.prompts.isdisjoint(found.hidden_above(node))}
    for node, rest, prompt in marked:
        is_scheduled = node not in to_a_prompt and prompt is not None and prompt.text in own
        # OpenClaw drops an answer with the mark and a few words more: the user never saw it.
        if rest and not ((is_scheduled or node in to_a_prompt) and len(rest) <= 300):
            found.visible[node] = replace(found.visible[node], text=rest)
            continue
        del found.visible[node]
        if is_scheduled and prompt is not None and prompt.id in found.visible and _may_be_scheduled(prompt, found):
            del found.visible[prompt.id]
            found.prompts.add(prompt.id)
            found.not_shown.prompts += 1


def _may_be_scheduled(prompt: ImportedMessage, found: _Session) -> bool:
    """Not what came by a channel, which its envelope says."""
    return prompt.role == "user" and prompt.id not in found.written


READER = ExportReader(
    product=PRODUCT,
    label="OpenClaw",
    recognises=_recognises,
    read=_read,
    looks_for=_("logs of sessions (….jsonl), openclaw-agent.sqlite and the workspace's memory"),
    wordless=r"(?:^|/)[^/]+\.(?:trajectory\.jsonl|trajectory-path\.json|sqlite-shm|lock)\Z",
)
