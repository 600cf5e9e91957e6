"""Gemini CLI: a copy of `~/.gemini`, where each session is a log of records, in older versions one object.

A record is written again whenever it grows, so the last writing of an id counts. Turns that were rewound are versions.
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace

from core.text import gettext_noop as _
from imports.reading.drafts import ConversationDraft, NotShown
from imports.reading.files import Files, beginning_of
from imports.reading.items import ImportedConversation, ImportedMessage, Items, Skipped
from imports.reading.json_lines import JsonLine, first_lines, json_lines
from imports.reading.json_streams import LOOKED_AT, names_with, records
from imports.reading.products import ExportReader
from imports.reading.session_tree import message_of, role_of, unknown_kinds
from imports.reading.sessions import Children, has_logs, logs
from imports.reading.values import Fields, compact, id_of, joined, line_of, object_of, objects_of, parse_time, text_of
from recollect_cli.replies import asked, questions_in, reply_to_call

PRODUCT = "gemini-cli"
_CHAT = re.compile(r"(?=(?:.*/)?session-[^/]+\.jsonl\Z)(?:.*/)?chats/")
_SHAPE = {"sessionId", "startTime", "messages"}
# What the program says itself.
_KNOWN_TYPES = {"info", "error", "warning"}


def _recognises(files: Files) -> int:
    return 95 if has_logs(files, _is_head, _CHAT) or names_with(files, _SHAPE, at_most=LOOKED_AT) else 0


def _is_head(line: Fields) -> bool:
    return (
        isinstance(line.get("sessionId"), str)
        and "type" not in line
        and bool(line.keys() & {"projectHash", "startTime"})
    )


@dataclass(kw_only=True)
class _Session:
    head: Fields = field(default_factory=dict)
    records: dict[str, Fields] = field(default_factory=dict)
    parents: dict[str, str | None] = field(default_factory=dict)
    path: list[str] = field(default_factory=list)

    def take(self, record: Fields, number: int) -> None:
        """A record, or what changes of the head: `$set` may bring messages of the model's context."""
        if "$rewindTo" in record:
            target = id_of(record["$rewindTo"])
            del self.path[self.path.index(target) if target in self.path else 0 :]
        elif "type" in record:
            node = id_of(record, "id") or f"line-{number}"
            if node not in self.records:
                self.parents[node] = self.path[-1] if self.path else None
                self.path.append(node)
            self.records[node] = record
        else:
            changed = object_of(record, "$set") or record
            self.head |= {name: value for name, value in changed.items() if name != "messages"}
            for place, each in enumerate(objects_of(changed, "messages")):
                self.take({"type": "", **each}, place)


def _read(files: Files) -> Items:
    not_shown = NotShown()
    children = Children()
    names = dict.fromkeys([*logs(files, _is_head, _CHAT), *names_with(files, _SHAPE)])
    for name in sorted(
        names, key=lambda each: object_of([*first_lines(files, each, 1), 0][0]).get("kind") != "subagent"
    ):
        session = _Session()
        for number, line in _lines(files, name):
            if isinstance(line, Skipped):
                yield line
            else:
                session.take(line, number)
        item, parent = _draft(files, name, session, not_shown).finished(), None
        if session.head.get("kind") == "subagent":
            parent = id_of(session.head, "parentSessionId") or name.rpartition("/")[0].rpartition("/")[2]
        elif isinstance(item, ImportedConversation):
            is_taken_back = {message.id for message in item.messages}.isdisjoint(session.path)
            not_shown.set_aside += is_taken_back
            item = replace(item, is_deleted=is_taken_back)
        yield from children.placed(item, name, parent)
    yield from children.without_parent()
    yield from not_shown.listed()


def _lines(files: Files, name: str) -> Iterable[JsonLine]:
    if name.lower().endswith(".jsonl") or any(map(_is_head, first_lines(files, name, 1))):
        return json_lines(files, name)
    return ((number, object_of(record)) for number, (_where, record) in enumerate(records(files, name)))


def _draft(files: Files, name: str, session: _Session, not_shown: NotShown) -> ConversationDraft:
    head = session.head
    draft = ConversationDraft(
        product=PRODUCT,
        where=name,
        external_id=id_of(head, "sessionId"),
        title=line_of(head, "summary"),
        created_at=parse_time(head, "startTime"),
        last_at=parse_time(head, "lastUpdated"),
        project=_project(files, name),
        parents=dict(session.parents),
        leaf=session.path[-1] if session.path else None,
    )
    ends: dict[str | None, str | None] = {None: None}
    for node, record in session.records.items():
        ends[node] = node
        above = ends.get(session.parents[node])
        for message in _messages(node, record, name, not_shown):
            draft.add(message.id, above, message.at, message)
            above = ends[node] = message.id
        if node not in draft.times:
            draft.add(node, above, parse_time(record, "timestamp"))
    draft.leaf = ends.get(draft.leaf)
    return draft


def _messages(node: str, record: Fields, name: str, not_shown: NotShown) -> Iterator[ImportedMessage]:
    """The message of a record; of an answer that asks the person, their reply too."""
    kind, role, where = line_of(record, "type"), role_of(record, "type"), f"{name}: {node}"
    if role is None:
        not_shown.note(where, *({kind} - _KNOWN_TYPES))
        return
    # What the person typed, where the content also has the files that they named.
    content = (role == "user" and record.get("displayContent")) or record.get("content")
    content = [content] if isinstance(content, dict) else content
    not_shown.note(where, *unknown_kinds([{"type": "text", **part} for part in objects_of(content)]))
    calls = objects_of(record, "toolCalls")
    questions = [each for call in calls for each in questions_in(call.get("name"), call.get("args"))]
    if questions:
        parts = [content] if isinstance(content, str) else list(content or [])
        content = [*parts, {"text": asked(questions)}]
    message, words = message_of(node, role, content, record.get("timestamp"), record.get("model"), product=PRODUCT)
    not_shown.prompts += words.is_prompt
    yield replace(message, tool_calls=tuple(_calls(record, calls)))
    if answers := joined(map(reply_to_call, calls)):
        yield message_of(f"{node}:reply", "user", answers, record.get("timestamp"), product=PRODUCT)[0]


def _calls(record: Fields, calls: list[Fields]) -> Iterator[Fields]:
    for thought in objects_of(record, "thoughts"):
        texts = (text_of(thought, "subject"), text_of(thought, "description"))
        yield {"name": "thinking", "summary": "\n\n".join(filter(None, texts))}
    for call in calls:
        yield {"name": line_of(call, "name"), "input": compact(call.get("args"))}


def _project(files: Files, name: str) -> str:
    root = f"{name.partition('chats/')[0]}.project_root"
    is_here = "chats/" in name and root in files.names()
    return line_of(beginning_of(files, root, 4096)) if is_here else ""


READER = ExportReader(
    product=PRODUCT,
    label="Gemini CLI",
    recognises=_recognises,
    read=_read,
    looks_for=_("logs of sessions (chats/session-….jsonl or .json)"),
    wordless=r"(?:^|/)(?:\.project_root|settings\.json|oauth_creds\.json|google_accounts\.json|installation_id)\Z",
)
