"""OpenClaw: a copy of `~/.openclaw`, with the agents' sessions as logs and the workspace's memory as documents."""

import json
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from core.text import gettext_noop as _
from imports.reading.envelopes import silent_rest, title_without
from imports.reading.files import Files, as_utf8
from imports.reading.items import (
    ImportedConversation,
    ImportedDocument,
    ImportedMessage,
    Item,
    Items,
    Skipped,
    UnreadableExport,
)
from imports.reading.json_streams import id_of, json_lines, line_of, object_of, parse_time
from imports.reading.notes import day_in, note_text
from imports.reading.products import ExportReader
from imports.reading.trees import (
    NotShown,
    SessionTree,
    calls_in,
    message_of,
    nearest_visible,
    unknown_kinds,
    with_missing_links,
)

PRODUCT = "openclaw"
_SESSION = re.compile(r"(?:^|.*/)agents/[^/]+/sessions/(?P<id>[^/]+)\.jsonl\Z")
_INDEX = re.compile(r"(?:^|.*/)agents/[^/]+/sessions/sessions\.json\Z")
# The workspace's memory, below folders too, and `memory.md` as older versions call it.
_DOCUMENT = re.compile(r"(?:^|.*/)(?P<path>workspace/(?:MEMORY|USER|memory|memory/.+)\.md)\Z")
_ABOUT_AGENT = re.compile(r"(?:^|.*/)workspace/(?:AGENTS|SOUL|TOOLS|IDENTITY|HEARTBEAT|BOOTSTRAP|BOOT)\.md\Z")
# OpenClaw drops an answer with the mark and a few words more: the user never saw it.
_LONGEST_ACKNOWLEDGEMENT = 300
_OFTEN = 2
_KNOWN_KINDS = {
    "message", "session", "compaction", "custom", "custom_message", "model_change", "thinking_level_change", "label",
    "branch_summary", "session_info",
}  # fmt: skip
_KNOWN_ROLES = {"user", "assistant", "tool", "toolResult", "system", "custom", "bashExecution"}
_LONGEST_INDEX = 16 * 1024 * 1024


def _recognises(files: Files) -> int:
    return 90 if any(_SESSION.match(name) or _DOCUMENT.match(name) for name in files.names()) else 0


def _read(files: Files) -> Items:
    titles = _titles(files)
    not_shown = NotShown()
    seen: dict[str, ImportedMessage] = {}
    branches: list[tuple[str, str]] = []
    for name in files.names():
        if found := _SESSION.match(name):
            if _is_branch(files, name):
                branches.append((name, found["id"]))
            else:
                yield from _session(files, name, found["id"], titles, _Session(not_shown=not_shown), seen)
        elif found := _DOCUMENT.match(name):
            yield _document(files, name, found["path"])
        elif _ABOUT_AGENT.match(name):
            yield Skipped(where=name, reason=_("this is about the agent"))
    # A branch repeats the messages of its session, which is read first.
    for name, file_id in branches:
        yield from _session(files, name, file_id, titles, _Session(not_shown=not_shown), seen)
    yield from not_shown.listed()


def _is_branch(files: Files, name: str) -> bool:
    first = next((line for _, line in json_lines(files, name)), None)
    return isinstance(first, dict) and bool(first.get("parentSession"))


def _titles(files: Files) -> dict[str, str]:
    titles = {}
    for name in filter(_INDEX.match, files.names()):
        try:
            with files.open(name) as stream:
                index = json.loads(as_utf8(stream).read(_LONGEST_INDEX).decode(errors="replace"))
        except (ValueError, RecursionError, UnreadableExport):
            continue  # Titles are made from the first words instead.
        for entry in map(object_of, object_of(index).values()):
            titles[id_of(entry.get("sessionId"))] = title_without(line_of(entry.get("displayName")), PRODUCT)
    return titles


def _document(files: Files, name: str, path: str) -> Item:
    text = note_text(files, name)
    if isinstance(text, Skipped):
        return text
    day = day_in(path)
    title = path.rpartition("/")[2].removesuffix(".md")
    if path in ("workspace/MEMORY.md", "workspace/memory.md"):
        return ImportedDocument(product=PRODUCT, external_id=path, title=title, text=text, kind="memory")
    if path == "workspace/USER.md":
        return ImportedDocument(product=PRODUCT, external_id=path, title=title, text=text, kind="about")
    kind: Any = "daily_log" if day else "note"
    return ImportedDocument(product=PRODUCT, external_id=path, title=title, text=text, at=day, kind=kind)


@dataclass(kw_only=True)
class _Session:
    """One session while its lines are read."""

    not_shown: NotShown
    tree: SessionTree = field(default_factory=SessionTree)
    # Messages that the user wrote for sure: a channel's envelope stood around them.
    written: set[str] = field(default_factory=set)


def _session(
    files: Files,
    name: str,
    file_id: str,
    titles: dict[str, str],
    found: _Session,
    seen: dict[str, ImportedMessage],
) -> Iterator[Item]:
    tree, leaf = found.tree, None
    header: dict[str, Any] = {}
    for number, line in json_lines(files, name):
        if isinstance(line, Skipped):
            yield line
        elif line.get("type") == "session":
            header = header or line
        else:
            leaf = _take(line, found, id_of(line.get("id")) or f"line-{number}", f"{name}:{number}")
    _hide_silent_turns(found)
    session = id_of(header.get("id")) or file_id
    for node, message in list(tree.visible.items()):
        if header.get("parentSession") and seen.get(node) == message:
            tree.hide(node, "repeated from the session that this one branches from")
    seen.update(tree.visible)
    if not tree.visible:
        yield Skipped(where=name, reason=_("nothing was said in this session"), external_id=session)
        return
    tree.parents = with_missing_links(tree.parents, tree.times)
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


def _take(line: dict[str, Any], found: _Session, node: str, where: str) -> str:
    tree, at = found.tree, parse_time(line.get("timestamp"))
    tree.hide(node, "repeated")
    tree.add(node, id_of(line.get("parentId")) or None, at, _shown(line, node, where, found))
    if calls := calls_in(object_of(line.get("message")).get("content")):
        tree.calls[node] = calls
    return node


def _shown(line: dict[str, Any], node: str, where: str, found: _Session) -> ImportedMessage | str:
    kind, message = line_of(line.get("type")), object_of(line.get("message"))
    role = line_of(message.get("role"))
    if kind not in _KNOWN_KINDS or (kind == "message" and role not in _KNOWN_ROLES):
        found.not_shown.note(role if kind == "message" else kind or "no kind", where)
    if kind != "message":
        return kind or "unknown"
    if role not in ("user", "assistant"):
        return role or "unknown"
    at = line.get("timestamp") or message.get("timestamp")
    content = message.get("content")
    for kind in unknown_kinds(content):
        found.not_shown.note(kind, where)
    shown, words = message_of(
        node, "user" if role == "user" else "assistant", content, at, message.get("model"), product=PRODUCT
    )
    if shown.text or shown.attachments:
        if words.is_changed:
            found.written.add(node)
        return shown
    if words.is_prompt and role == "user":
        found.tree.prompts.add(node)
        found.not_shown.prompts += 1
    return "the program's own words" if words.is_changed else "no text"


def _hide_silent_turns(found: _Session) -> None:
    """Hide an answer that says that there is none: the user never saw it.

    The prompt that it answers is hidden too if it is the scheduler's, which may be worded by the user: one that was
    answered so more than once, or that names the mark.
    """
    tree = found.tree
    above = nearest_visible(tree.parents, tree.visible)
    marked = [
        (node, rest, tree.visible.get(above[node] or ""))
        for node, message in tree.visible.items()
        if message.role == "assistant" and (rest := silent_rest(message.text)) is not None
    ]
    own = Counter(
        prompt.text
        for node, _, prompt in marked
        if prompt and _may_be_scheduled(prompt, found) and "HEARTBEAT_OK" in tree.visible[node].text
    )
    own = Counter({text: times for text, times in own.items() if times >= _OFTEN or "HEARTBEAT" in text})
    to_a_prompt = {node for node, _, _ in marked if _answers_a_prompt(tree, node)}
    for node, rest, prompt in marked:
        is_scheduled = node not in to_a_prompt and prompt is not None and prompt.text in own
        if rest and not ((is_scheduled or node in to_a_prompt) and len(rest) <= _LONGEST_ACKNOWLEDGEMENT):
            tree.visible[node] = replace(tree.visible[node], text=rest)
            continue
        tree.hide(node, "silent turn")
        if is_scheduled and prompt is not None and prompt.id in tree.visible and _may_be_scheduled(prompt, found):
            tree.hide(prompt.id, "silent turn")
            tree.prompts.add(prompt.id)
            found.not_shown.prompts += 1


def _may_be_scheduled(prompt: ImportedMessage, found: _Session) -> bool:
    """Not what came by a channel, which its envelope says."""
    return prompt.role == "user" and prompt.id not in found.written


def _answers_a_prompt(tree: SessionTree, node: str) -> bool:
    """Whether a program's own prompt is the last one above the node."""
    return not tree.prompts.isdisjoint(tree.hidden_above(node))


READER = ExportReader(product=PRODUCT, label="OpenClaw", recognises=_recognises, read=_read)
