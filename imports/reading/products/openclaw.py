"""OpenClaw: a copy of `~/.openclaw`, with the agents' sessions as logs and the workspace's memory as documents."""

import json
import re
from collections.abc import Iterator
from typing import Any

from imports.reading.files import Files
from imports.reading.items import (
    ImportedConversation,
    ImportedDocument,
    ImportedMessage,
    Item,
    Items,
    Skipped,
    UnreadableExport,
)
from imports.reading.lines import json_lines
from imports.reading.notes import day_in, note_text
from imports.reading.products import ExportReader
from imports.reading.session_tree import SessionTree, calls_in, message_of
from imports.reading.times import parse_time
from imports.reading.trees import nearest_visible
from imports.reading.values import id_of, line_of, object_of

PRODUCT = "openclaw"
_SESSION = re.compile(r"(?:^|.*/)agents/[^/]+/sessions/(?P<id>[^/]+)\.jsonl\Z")
_INDEX = re.compile(r"(?:^|.*/)agents/[^/]+/sessions/sessions\.json\Z")
_DOCUMENT = re.compile(r"(?:^|.*/)(?P<path>workspace/(?:MEMORY|USER|memory/[^/]+)\.md)\Z")
_ABOUT_AGENT = re.compile(r"(?:^|.*/)workspace/(?:AGENTS|SOUL|TOOLS|IDENTITY|HEARTBEAT)\.md\Z")
_SILENT = ("NO_REPLY", "HEARTBEAT_OK")
_LONGEST_INDEX = 16 * 1024 * 1024


def _recognises(files: Files) -> int:
    return 90 if any(_SESSION.match(name) or _DOCUMENT.match(name) for name in files.names()) else 0


def _read(files: Files) -> Items:
    titles = _titles(files)
    for name in files.names():
        if found := _SESSION.match(name):
            yield from _session(files, name, found["id"], titles)
        elif found := _DOCUMENT.match(name):
            yield _document(files, name, found["path"])
        elif _ABOUT_AGENT.match(name):
            yield Skipped(where=name, reason="this is about the agent")


def _titles(files: Files) -> dict[str, str]:
    titles = {}
    for name in filter(_INDEX.match, files.names()):
        try:
            with files.open(name) as stream:
                index = json.loads(stream.read(_LONGEST_INDEX).decode(errors="replace"))
        except (ValueError, RecursionError, UnreadableExport):
            continue  # Titles are made from the first words instead.
        for entry in map(object_of, object_of(index).values()):
            titles[id_of(entry.get("sessionId"))] = line_of(entry.get("displayName"))
    return titles


def _document(files: Files, name: str, path: str) -> Item:
    text = note_text(files, name)
    if isinstance(text, Skipped):
        return text
    day = day_in(path)
    title = path.rpartition("/")[2].removesuffix(".md")
    if path == "workspace/MEMORY.md":
        return ImportedDocument(product=PRODUCT, external_id=path, title=title, text=text, kind="memory")
    if path == "workspace/USER.md":
        return ImportedDocument(product=PRODUCT, external_id=path, title=title, text=text, kind="about")
    kind: Any = "daily_log" if day else "note"
    return ImportedDocument(product=PRODUCT, external_id=path, title=title, text=text, at=day, kind=kind)


def _session(files: Files, name: str, file_id: str, titles: dict[str, str]) -> Iterator[Item]:
    tree, leaf = SessionTree(), None
    header: dict[str, Any] = {}
    for number, line in json_lines(files, name):
        if isinstance(line, Skipped):
            yield line
        elif line.get("type") == "session":
            header = header or line
        else:
            leaf = _take(line, tree, id_of(line.get("id")) or f"line-{number}")
    _hide_silent_turns(tree)
    session = id_of(header.get("id")) or file_id
    if not tree.visible:
        yield Skipped(where=name, reason="nothing was said in this session", external_id=session)
        return
    first, last = tree.span()
    created_at = parse_time(header.get("timestamp")) or first
    current, others = tree.branches(leaf, created_at)
    yield ImportedConversation(
        product=PRODUCT,
        external_id=session,
        title=titles.get(session) or None,
        created_at=created_at,
        last_at=last or created_at,
        project=line_of(header.get("cwd")) or None,
        messages=current,
        other_branches=others,
        skipped=tuple(tree.skipped.values()),
    )


def _take(line: dict[str, Any], tree: SessionTree, node: str) -> str:
    at = parse_time(line.get("timestamp"))
    tree.hide(node, "repeated")
    tree.add(node, id_of(line.get("parentId")) or None, at, _shown(line, node))
    if calls := calls_in(object_of(line.get("message")).get("content")):
        tree.calls[node] = calls
    return node


def _shown(line: dict[str, Any], node: str) -> ImportedMessage | str:
    message = object_of(line.get("message"))
    role = message.get("role")
    if line.get("type") != "message":
        return line_of(line.get("type")) or "unknown"
    if role not in ("user", "assistant"):
        return line_of(role) or "unknown"
    at = line.get("timestamp") or message.get("timestamp")
    shown = message_of(
        node, "user" if role == "user" else "assistant", message.get("content"), at, message.get("model")
    )
    return shown if shown.text or shown.attachments else "no text"


def _hide_silent_turns(tree: SessionTree) -> None:
    """Hide an answer that says that there is none, and its prompt: the user never saw them."""
    above = nearest_visible(tree.parents, tree.visible)
    for node, message in list(tree.visible.items()):
        if message.role == "assistant" and message.text in _SILENT:
            tree.hide(node, "silent turn")
            prompt = above[node]
            if prompt in tree.visible and tree.visible[prompt].role == "user":
                tree.hide(prompt, "silent turn")


READER = ExportReader(product=PRODUCT, label="OpenClaw", recognises=_recognises, read=_read)
