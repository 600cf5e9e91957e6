"""Claude Code: a copy of `~/.claude`, where each session is a log, and a resumed session repeats earlier logs."""

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from imports.reading.files import Files
from imports.reading.items import ImportedConversation, ImportedDocument, ImportedMessage, Item, Items, Skipped
from imports.reading.lines import json_lines
from imports.reading.notes import note_text
from imports.reading.products import ExportReader
from imports.reading.session_tree import SessionTree, calls_in, message_of
from imports.reading.times import parse_time
from imports.reading.values import id_of, line_of, list_of, object_of, objects_of

PRODUCT = "claude-code"
_SESSION = re.compile(r"(?:^|.*/)projects/[^/]+/(?P<id>[^/]+)\.jsonl\Z")
_MEMORY = re.compile(r"(?:^|.*/)(?P<path>projects/[^/]+/memory/.+\.md)\Z")
_COMMAND = re.compile(r"\s*<(command-|local-command-|bash-(input|stdout|stderr)|user-memory-input|task-notification)")
_ADDED_BY_PROGRAM = re.compile(r"\s*<(system-reminder|ide_[a-z_]+)>")
_LONG_AGO = datetime.min.replace(tzinfo=UTC)


@dataclass(kw_only=True)
class _Sessions:
    """The lines of all sessions, because sessions repeat each other's."""

    tree: SessionTree = field(default_factory=SessionTree)
    of_node: dict[str, list[str]] = field(default_factory=dict)
    spoken: set[str] = field(default_factory=set)
    files: dict[str, str] = field(default_factory=dict)
    folders: dict[str, str] = field(default_factory=dict)
    titles: dict[str, dict[str, str]] = field(default_factory=dict)
    summaries: dict[str, str] = field(default_factory=dict)


def _recognises(files: Files) -> int:
    return 95 if any(_SESSION.match(name) or _MEMORY.match(name) for name in files.names()) else 0


def _read(files: Files) -> Items:
    sessions = _Sessions()
    for name in files.names():
        if memory := _MEMORY.match(name):
            yield from _memory(files, name, memory["path"])
        elif (found := _SESSION.match(name)) and not found["id"].startswith("agent-"):
            yield from _read_session(files, name, found["id"], sessions)
    for nodes in _trees(sessions.tree.parents):
        yield _conversation(sessions, nodes)


def _memory(files: Files, name: str, path: str) -> Iterator[Item]:
    text = note_text(files, name)
    if isinstance(text, Skipped):
        yield text
    else:
        title = path.rpartition("/")[2].removesuffix(".md")
        yield ImportedDocument(product=PRODUCT, external_id=path, title=title, text=text)


def _read_session(files: Files, name: str, file_id: str, sessions: _Sessions) -> Iterator[Skipped]:
    has_nodes = False
    for _, line in json_lines(files, name):
        if isinstance(line, Skipped):
            yield line
        elif not line.get("isSidechain"):
            has_nodes |= _take(line, sessions, name, file_id)
    if not has_nodes:
        yield Skipped(where=name, reason="nothing was said in this session", external_id=file_id)


def _take(line: dict[str, Any], sessions: _Sessions, name: str, file_id: str) -> bool:
    """Whether the line is a node of the tree."""
    session = id_of(line.get("sessionId")) or file_id
    kind = line.get("type")
    if kind in ("custom-title", "ai-title"):
        title = line_of(line.get("customTitle" if kind == "custom-title" else "aiTitle"))
        sessions.titles.setdefault(session, {})[kind] = title
    elif kind == "summary":
        sessions.summaries[id_of(line.get("leafUuid"))] = line_of(line.get("summary"))
    node = id_of(line.get("uuid"))
    if not node:
        return False
    known = sessions.of_node.setdefault(node, [])
    if session not in known:
        known.append(session)
    sessions.files.setdefault(session, name)
    sessions.folders.setdefault(session, line_of(line.get("cwd")))
    if len(known) == 1 and node not in sessions.tree.parents:
        _add_node(line, node, sessions)
    return True


def _add_node(line: dict[str, Any], node: str, sessions: _Sessions) -> None:
    parent = id_of(line.get("parentUuid")) or id_of(line.get("logicalParentUuid")) or None
    at = parse_time(line.get("timestamp"))
    sessions.tree.add(node, parent, at, _shown(line, node))
    if line.get("type") in ("user", "assistant"):
        sessions.spoken.add(node)
        if calls := calls_in(object_of(line.get("message")).get("content")):
            sessions.tree.calls[node] = calls


def _shown(line: dict[str, Any], node: str) -> ImportedMessage | str:
    """The message of a line, or the reason why it is hidden."""
    role, message = line.get("type"), object_of(line.get("message"))
    if role not in ("user", "assistant"):
        return line_of(role) or "unknown"
    for mark in ("isMeta", "isCompactSummary", "isApiErrorMessage"):
        if line.get(mark):
            return mark
    if message.get("model") == "<synthetic>":
        return "synthetic"
    content = message.get("content")
    if isinstance(content, list):
        content = [block for block in objects_of(content) if not _ADDED_BY_PROGRAM.match(str(block.get("text", "")))]
    shown = message_of(
        node, "user" if role == "user" else "assistant", content, line.get("timestamp"), message.get("model")
    )
    if shown.role == "user" and _COMMAND.match(shown.text):
        return "command"
    if shown.role == "user" and shown.text.startswith("[Request interrupted by user"):
        return "interruption"
    return shown if shown.text or shown.attachments else _what_instead(content)


def _what_instead(content: Any) -> str:
    kinds = [line_of(object_of(block).get("type")) for block in list_of(content)]
    return next(filter(None, kinds), "empty").replace("_", " ")


def _trees(parents: dict[str, str | None]) -> list[list[str]]:
    """The nodes of each tree, in the order of the logs."""
    root_of: dict[str, str] = {}
    for start in parents:
        walked, node = [], start
        while node not in root_of:
            root_of[node] = start
            walked.append(node)
            above = parents[node]
            if above is None or above not in parents:
                break
            node = above
        root = root_of[node] if root_of[node] != start else node
        root_of.update(dict.fromkeys(walked, root))
    trees: dict[str, list[str]] = {}
    for node in parents:
        trees.setdefault(root_of[node], []).append(node)
    return list(trees.values())


def _conversation(sessions: _Sessions, nodes: list[str]) -> Item:
    tree = sessions.tree.part(nodes)
    ids = _first_session_first(sessions, nodes)
    if not tree.visible:
        return Skipped(where=sessions.files[ids[0]], reason="nothing was said in this session", external_id=ids[0])
    created_at, last_at = tree.span()
    spoken = [node for node in nodes if node in sessions.spoken]
    leaf = max(enumerate(spoken), key=lambda each: (tree.times[each[1]] or _LONG_AGO, each[0]))[1]
    current, others = tree.branches(leaf, created_at)
    return ImportedConversation(
        product=PRODUCT,
        external_id=ids[0],
        also_ids=tuple(ids[1:]),
        title=_title(sessions, ids, nodes),
        created_at=created_at,
        last_at=last_at,
        project=sessions.folders[ids[0]] or None,
        messages=current,
        other_branches=others,
        skipped=tuple(tree.skipped.values()),
    )


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


def _title(sessions: _Sessions, ids: list[str], nodes: list[str]) -> str | None:
    for kind in ("custom-title", "ai-title"):
        for session in reversed(ids):
            if title := sessions.titles.get(session, {}).get(kind):
                return title
    return next((title for node in reversed(nodes) if (title := sessions.summaries.get(node))), None)


READER = ExportReader(product=PRODUCT, label="Claude Code", recognises=_recognises, read=_read)
