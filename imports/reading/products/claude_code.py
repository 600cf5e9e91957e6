"""Claude Code: a copy of `~/.claude`, where each session is a log, and a resumed session repeats earlier logs."""

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

from core.text import gettext_noop as _
from imports.reading.attached import PromptsByMinute, embedded, from_base64, prompts_in, with_pasted
from imports.reading.drafts import NO_WORDS, ConversationDraft, NotShown
from imports.reading.envelopes import opened, title_without
from imports.reading.files import Files
from imports.reading.items import (
    ImportedConversation,
    ImportedDocument,
    ImportedFile,
    ImportedMessage,
    Items,
    Skipped,
)
from imports.reading.json_lines import json_lines
from imports.reading.json_streams import records
from imports.reading.notes import note_text
from imports.reading.products import ExportReader
from imports.reading.session_tree import SessionTree, calls_in, message_of, role_of, texts_of, unknown_kinds
from imports.reading.sessions import Children, has_logs, logs, stem
from imports.reading.trees import hanging_together, nearest_visible, with_missing_links
from imports.reading.values import (
    Fields,
    base_name,
    id_of,
    line_of,
    list_of,
    object_of,
    objects_of,
    parse_time,
    text_of,
    value_at,
)
from recollect_cli.replies import asked_in, replies_in_results

PRODUCT = "claude-code"
_SESSION = re.compile(r"(?:^|.*/)projects/[^/]+/[^/]+\.jsonl\Z")
_MEMORY = re.compile(r"(?:^|.*/)projects/[^/]+/memory/.+\.md\Z")
_MEMORY_OF_FOLDER = re.compile(r"(?=.*\.md\Z)(?:(?:^|.*/)(?P<folder>[^/]+)/)?(?P<path>memory/.+)")
# Of Claude's desktop program, which keeps the title of each session in a file beside its folder.
_DESKTOP = re.compile(r"(?:^|.*/)local_[^/]+\.json\Z")
# Kinds of lines that hold nothing that was said.
_KNOWN_KINDS = {
    "summary", "custom-title", "ai-title", "file-history-snapshot", "system", "progress", "last-prompt", "tag", "mode",
    "permission-mode", "agent-name", "agent-color", "agent-setting", "pr-link", "worktree-state", "content-replacement",
    "saved_hook_context", "result", "attribution-snapshot", "queue-operation", "attachment",
    "started", "speculation-accept",
}  # fmt: skip
_LONG_AGO = datetime.min.replace(tzinfo=UTC)


@dataclass(kw_only=True)
class _Queued:
    """A prompt that the user wrote while an answer was running."""

    text: str
    at: datetime | None
    where: str
    is_waiting: bool = True
    is_taken_back: bool = False


@dataclass(kw_only=True)
class _Sessions:
    """The lines of all sessions, because sessions repeat each other's."""

    # Of the export, where pictures are taken from.
    export: Files
    prompts: PromptsByMinute = field(default_factory=dict)
    # Files that the user named in a message, each by the node of its own line.
    mentioned: dict[str, tuple[ImportedFile, ...]] = field(default_factory=dict)
    tree: SessionTree = field(default_factory=SessionTree)
    # A message that is repeated under another id: the node that it is.
    same: dict[str, str] = field(default_factory=dict)
    seen: dict[tuple[str, str, datetime], str] = field(default_factory=dict)
    # Commands without words: the user's messages, if they were answered.
    commands: dict[str, ImportedMessage] = field(default_factory=dict)
    queued: dict[str, list[_Queued]] = field(default_factory=dict)
    not_shown: NotShown = field(default_factory=NotShown)
    of_node: dict[str, list[str]] = field(default_factory=dict)
    spoken: set[str] = field(default_factory=set)
    files: dict[str, str] = field(default_factory=dict)
    folders: dict[str, str] = field(default_factory=dict)
    # What subagents said, by their session and their own id or first line; and that of each of their lines.
    children: Children = field(default_factory=Children)
    child_of: dict[str, str] = field(default_factory=dict)
    titles: dict[str, dict[str, str]] = field(default_factory=dict)
    summaries: dict[str, str] = field(default_factory=dict)


def _recognises(files: Files) -> int:
    return 95 if any(map(_MEMORY.match, files.names())) or has_logs(files, _is_of_claude, _SESSION) else 0


def _is_of_claude(line: Fields) -> bool:
    kind = line.get("type")
    if kind == "summary":
        return "leafUuid" in line
    return isinstance(line.get("sessionId"), str) and (kind in _KNOWN_KINDS or ("uuid" in line and bool(kind)))


def _read(files: Files) -> Items:
    sessions = _Sessions(export=files)
    for name in files.names():
        if base_name(name) == "history.jsonl":
            sessions.prompts |= prompts_in(files, name, "display", "timestamp")
        elif _DESKTOP.match(name):
            _take_title_of_desktop(files, name, sessions)
    for name in logs(files, _is_of_claude, _SESSION):
        yield from _read_session(files, name, stem(name), sessions)
    yield from _memories(files, sessions)
    yield from _add_queued(sessions)
    _link(sessions)
    _show_commands_with_answers(sessions)
    sessions.tree.attach(sessions.mentioned)
    for nodes in hanging_together(sessions.tree.parents, _of_one_session(sessions)):
        yield from _conversation(sessions, nodes)
    yield from sessions.children.without_parent()
    yield from sessions.not_shown.listed()


def _memories(files: Files, sessions: _Sessions) -> Items:
    folders = {_folder(sessions.files[session]): folder for session, folder in sessions.folders.items() if folder}
    for name in files.names():
        if memory := _MEMORY_OF_FOLDER.match(name):
            folder = memory["folder"] or ""
            project = folders.get(folder, "")
            # As Claude Code names the folder, which stands in no path if it was given alone.
            folder = re.sub(r"[^A-Za-z0-9]", "-", project) or folder
            path = f"projects/{folder}/{memory['path']}"
            title = base_name(path).removesuffix(".md")
            if text := note_text(files, name):
                yield ImportedDocument(product=PRODUCT, external_id=path, title=title, project=project, text=text)


def _folder(name: str) -> str:
    """By which Claude Code names the folder of its sessions and their memory."""
    return name.rpartition("/")[0].rpartition("/")[2]


def _read_session(files: Files, name: str, file_id: str, sessions: _Sessions) -> Iterator[Skipped]:
    has_nodes = False
    for number, line in json_lines(files, name):
        if isinstance(line, Skipped):
            yield line
        elif line.get("isSidechain"):
            has_nodes = True
            _take_of_child(line, sessions, file_id)
        else:
            has_nodes |= _take(line, sessions, name, number, file_id)
    if not has_nodes:
        yield Skipped(where=name, reason=NO_WORDS, external_id=file_id)


def _take_of_child(line: Fields, sessions: _Sessions, file_id: str) -> None:
    """What a subagent was asked and said: never the person's words."""
    role, node = role_of(line, "type"), id_of(line, "uuid")
    child = id_of(line, "agentId") or sessions.child_of.get(id_of(line, "parentUuid"), node)
    sessions.child_of[node] = child
    if role is None:
        return
    shown, _words = message_of(node, role, value_at(line, "message", "content"), line.get("timestamp"), product=PRODUCT)
    if shown.text:
        session = id_of(line, "sessionId") or file_id
        sessions.children.add(session, f"{session}: {child}", [shown])


def _take(line: Fields, sessions: _Sessions, name: str, number: int, file_id: str) -> bool:
    """Whether the line is a node of the tree."""
    session = id_of(line, "sessionId") or file_id
    kind, where = line_of(line, "type"), f"{name}:{number}"
    sessions.files.setdefault(session, name)
    if kind == "queue-operation":
        _take_queue(line, sessions.queued.setdefault(session, []), where)
        return bool(sessions.queued[session])
    if kind not in (*_KNOWN_KINDS, "user", "assistant"):
        sessions.not_shown.note(where, kind)
    _take_title(line, kind, sessions, session)
    node = id_of(line, "uuid")
    if not node and kind in ("user", "assistant"):
        node = f"{file_id}:{number}"
    if not node:
        return False
    known = sessions.of_node.setdefault(node, [])
    if session not in known:
        known.append(session)
    sessions.folders[session] = sessions.folders.get(session) or line_of(line, "cwd")
    if node not in sessions.tree.parents:
        _add_node(line, node, where, sessions)
    elif sessions.tree.parents[node] is None:
        # The file of a branch may be read before that of its session.
        sessions.tree.parents[node] = _parent_of(line)
    return True


def _take_title_of_desktop(files: Files, name: str, sessions: _Sessions) -> None:
    for _number, record in records(files, name):
        fields = object_of(record)
        if (session := id_of(fields, "cliSessionId")) and (title := line_of(fields, "title")):
            sessions.titles.setdefault(session, {})["custom-title"] = title


def _take_title(line: Fields, kind: str, sessions: _Sessions, session: str) -> None:
    if kind in ("custom-title", "ai-title"):
        title = line_of(line, "customTitle" if kind == "custom-title" else "aiTitle")
        sessions.titles.setdefault(session, {})[kind] = title_without(title, PRODUCT)
    elif kind == "summary":
        sessions.summaries[id_of(line, "leafUuid")] = title_without(line_of(line, "summary"), PRODUCT)


def _take_queue(line: Fields, queued: list[_Queued], where: str) -> None:
    match line.get("operation"):
        case "enqueue":
            content = line.get("content")
            words = opened(texts_of(content), PRODUCT)
            if words.text:
                queued.append(_Queued(text=words.text, at=parse_time(line, "timestamp"), where=where))
        case "dequeue" | "remove":
            # Sent: it stands in a message, or else here alone.
            for each in queued:
                if each.is_waiting:
                    each.is_waiting = False
                    break
        case "popAll":
            for each in queued:
                each.is_taken_back, each.is_waiting = each.is_taken_back or each.is_waiting, False


def _parent_of(line: Fields) -> str | None:
    return id_of(line, "parentUuid") or id_of(line, "logicalParentUuid") or None


def _add_node(line: Fields, node: str, where: str, sessions: _Sessions) -> None:
    tree, at = sessions.tree, parse_time(line, "timestamp")
    shown = _shown(line, node, where, sessions)
    if shown and at and shown.text:
        first = sessions.seen.setdefault((shown.role, shown.text, at), node)
        if first != node:
            # The same message under a new id: a session that was resumed.
            sessions.same[node] = first
            sessions.of_node[first] += [each for each in sessions.of_node[node] if each not in sessions.of_node[first]]
            shown = None
    tree.add(node, _parent_of(line), at, shown)
    if line.get("type") in ("user", "assistant"):
        sessions.spoken.add(sessions.same.get(node, node))
        if calls := calls_in(value_at(line, "message", "content")):
            tree.calls[node] = calls
    elif shown:
        sessions.spoken.add(node)


def _shown(line: Fields, node: str, where: str, sessions: _Sessions) -> ImportedMessage | None:
    """The message of a line, if it has one; notes what may be answered, and the files that the user named."""
    kind, message, attachment = line_of(line, "type"), object_of(line, "message"), object_of(line, "attachment")
    if kind == "attachment" and attachment.get("type") == "queued_command":
        kind, message = "user", {"content": attachment.get("prompt")}
    elif kind == "attachment" and (mentioned := _mentioned(attachment, sessions.export)):
        sessions.mentioned[node] = mentioned
    role, is_marked = role_of(kind), any(map(line.get, ("isMeta", "isCompactSummary", "isApiErrorMessage")))
    if role is None or is_marked or message.get("model") == "<synthetic>":
        return None
    content = message.get("content")
    sessions.not_shown.note(where, *unknown_kinds(content))
    had_words = any(texts_of(content))
    is_user, calls = role == "user", objects_of(content)
    if said := replies_in_results({**line, "message": message}) if is_user else asked_in(calls, "input"):
        content = [*list_of(content), {"type": "text", "text": said}]
        sessions.tree.replies.add(node)
    shown, words = message_of(node, role, content, line.get("timestamp"), message.get("model"), product=PRODUCT)
    if shown.text or shown.attachments:
        only_asks = not is_user and bool(said) and not had_words
        shown = replace(shown, files=embedded(sessions.export, content), only_asks=only_asks)
        return with_pasted(shown, sessions.prompts)
    if words.command:
        sessions.commands[node] = replace(shown, text=words.command)
    elif words.is_prompt:
        sessions.tree.prompts.add(node)
        sessions.not_shown.prompts += 1
    return None


def _mentioned(attachment: Fields, export: Files) -> tuple[ImportedFile, ...]:
    """The text of a file that the user named in a message, or its picture."""
    content = object_of(attachment, "content")
    file = object_of(content, "file")
    name = (line_of(file, "filePath") or line_of(attachment, "filename")).replace("\\", "/").rpartition("/")[2]
    if attachment.get("type") != "file" or not name:
        return ()
    if (text := text_of(file, "content")).strip():
        return (ImportedFile(name=name, text=text),)
    found = from_base64(export, text_of(file, "base64"), line_of(file, "type"), name)
    return (found,) if found else ()


def _add_queued(sessions: _Sessions) -> Iterator[Skipped]:
    """Prompts from the queue that stand in no message: the user said them all the same."""
    seen: dict[str, set[str]] = {}
    for node, message in sessions.tree.visible.items():
        if message.role == "user":
            for session in sessions.of_node[node]:
                # Prompts that waited together are sent as one message.
                seen.setdefault(session, set()).update({_plain(message.text), *map(_plain, message.text.splitlines())})
    for session, queued in sessions.queued.items():
        for place, each in enumerate(queued):
            known = seen.setdefault(session, set())
            if _plain(each.text) in known or known.issuperset(map(_plain, each.text.splitlines())):
                continue
            if each.is_taken_back:
                yield Skipped(where=each.where, reason=_("a prompt that was taken back before it was sent"))
                continue
            known.add(_plain(each.text))
            node = f"{session}:queued-{place}"
            # It has no link: it follows what was said before it.
            sessions.tree.say(node, f"{session}:queue", each.at, "user", each.text)
            sessions.of_node[node] = [session]
            sessions.spoken.add(node)


def _plain(text: str) -> str:
    return " ".join(text.split())


def _link(sessions: _Sessions) -> None:
    """Replaces links to repeated messages, and adds missing ones by the times within each session."""
    tree, same = sessions.tree, sessions.same
    tree.parents = {node: same.get(parent, parent) if parent else None for node, parent in tree.parents.items()}
    for node in same:
        tree.parents[node] = None if tree.parents[node] == same[node] else tree.parents[node]
    lost = {node for node, parent in tree.parents.items() if parent is not None and parent not in tree.parents}
    by_session: dict[str, list[str]] = {}
    for node in tree.parents:
        by_session.setdefault(sessions.of_node[node][0], []).append(node)
    for nodes in by_session.values():
        if lost.isdisjoint(nodes):
            continue
        of_session = {node: tree.parents[node] for node in nodes if node not in same}
        outside = {node for node, parent in of_session.items() if parent in tree.parents and parent not in of_session}
        linked = with_missing_links({**of_session, **dict.fromkeys(outside)}, tree.times)
        tree.parents.update({node: parent for node, parent in linked.items() if node in lost})


def _show_commands_with_answers(sessions: _Sessions) -> None:
    """A command without words is a message if an answer follows it, as of a skill."""
    tree = sessions.tree
    if not sessions.commands:
        return
    above = nearest_visible(tree.parents, [*tree.visible, *sessions.commands])
    with_answer = {above[node] for node, message in tree.visible.items() if message.role == "assistant"}
    for node, message in sessions.commands.items():
        if node in with_answer:
            tree.visible[node] = message


def _of_one_session(sessions: _Sessions) -> Iterator[tuple[str, str]]:
    """Pairs of nodes of one session, and of nodes with the message that they repeat."""
    yield from sessions.same.items()
    last: dict[str, str] = {}
    for node, known in sessions.of_node.items():
        for session in known:
            if session in last:
                yield node, last[session]
            last[session] = node


def _conversation(sessions: _Sessions, nodes: list[str]) -> Items:
    ids, times = _first_session_first(sessions, nodes), sessions.tree.times
    spoken = [node for node in nodes if node in sessions.spoken]
    draft = ConversationDraft(
        **sessions.tree.part(nodes),
        product=PRODUCT,
        where=sessions.files[ids[0]],
        external_id=ids[0],
        title=_title(sessions, ids, nodes),
        project=sessions.folders.get(ids[0]),
        leaf=max(reversed(spoken), key=lambda node: times[node] or _LONG_AGO, default=None),
        mends_broken=False,
    )
    item = draft.finished()
    if isinstance(item, ImportedConversation):
        item = replace(item, also_ids=tuple(ids[1:]))
    yield from sessions.children.placed(item, draft.where, None)


def _first_session_first(sessions: _Sessions, nodes: list[str]) -> list[str]:
    """A session that others resumed has few lines of its own, and these are early."""
    own: dict[str, datetime] = {}
    last: dict[str, datetime] = {}
    count: Counter[str] = Counter()
    for node in nodes:
        at = sessions.tree.times[node] or _LONG_AGO
        known = sessions.of_node[node]
        for session in known:
            count[session] += 1
            last[session] = max(last.get(session, at), at)
        if len(known) == 1:
            own[known[0]] = min(own.get(known[0], at), at)
    return sorted(count, key=lambda session: (own.get(session, _LONG_AGO), last[session], count[session]))


def _title(sessions: _Sessions, ids: list[str], nodes: list[str]) -> str:
    for kind in ("custom-title", "ai-title"):
        for session in reversed(ids):
            if title := sessions.titles.get(session, {}).get(kind):
                return title
    return next((title for node in reversed(nodes) if (title := sessions.summaries.get(node))), "")


READER = ExportReader(
    product=PRODUCT,
    label="Claude Code",
    recognises=_recognises,
    read=_read,
    looks_for=_("logs of sessions (….jsonl) and memory files"),
    wordless=r"(?:^|/)(?:audit\.jsonl|(?:todos|shell-snapshots|file-history|statsig|plugins|cache)/.*)\Z",
)
