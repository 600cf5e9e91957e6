"""VS Code's Copilot: an exported chat (`chat.json`), or the files of its chats, as objects or as logs of changes."""

import re
from collections.abc import Iterator
from itertools import chain
from typing import Any

from core.text import gettext_noop as _
from imports.reading.drafts import NO_MESSAGES, ConversationDraft, NotShown, items_of
from imports.reading.files import Files
from imports.reading.items import Items, Skipped
from imports.reading.json_lines import json_lines
from imports.reading.json_streams import LOOKED_AT, names_with
from imports.reading.products import ExportReader
from imports.reading.session_tree import message_of
from imports.reading.sessions import has_logs, logs
from imports.reading.values import Fields, first_of, id_of, line_of, list_of, object_of, objects_of, parse_time, text_of

PRODUCT = "vscode"
_SHAPES = ({"requests", "responderUsername"}, {"requests", "sessionId"}, {"requests.message", "requests.response"})
_NO_NAME = re.compile(r"(?!)")
# Parts of an answer without a text of their own.
_KNOWN = {
    "toolInvocation", "toolInvocationSerialized", "thinking", "prepareToolInvocation", "textEditGroup", "codeblockUri",
    "undoStop", "inlineReference", "progressMessage", "progressTaskSerialized", "mcpServersStarting", "confirmation",
    "elicitation", "notebookEditGroup", "command", "extensions", "warning", "markdownContent", "treeData",
}  # fmt: skip


def _recognises(files: Files) -> int:
    return 92 if names_with(files, *_SHAPES, at_most=LOOKED_AT) or has_logs(files, _is_head, _NO_NAME) else 0


def _is_head(line: Fields) -> bool:
    return line.get("kind") == 0 and "requests" in object_of(line, "v")


def _read(files: Files) -> Items:
    of_changes = list(logs(files, _is_head, _NO_NAME))
    not_shown = NotShown()
    for name in of_changes:
        chat: Fields = {}
        for _number, line in json_lines(files, name):
            if isinstance(line, Skipped):
                yield line
            else:
                chat = _changed(chat, line)
        yield from _conversation(name, chat, not_shown)
    yield from not_shown.listed()
    yield from items_of(files, [name for name in names_with(files, *_SHAPES) if name not in of_changes], _conversation)


def _changed(chat: Fields, line: Fields) -> Fields:
    """Applies a line of the log: `k` is the path of keys and places, `i` how many elements stay."""
    if line.get("kind") == 0:
        return object_of(line, "v")
    target: Any = chat
    *above, last = list_of(line, "k") or [""]
    try:
        for key in above:
            target = target[key]
        match line.get("kind"):
            case 1:
                target[last] = line.get("v")
            case 2:
                target[last] = [*list_of(target[last])[: line.get("i")], *list_of(line, "v")]
            case 3:
                del target[last]
    except (KeyError, IndexError, TypeError):
        pass  # It changes what an earlier line, now cut off, would have made.
    return chat


def _conversation(where: str, record: Any, not_shown: NotShown) -> Items:
    chat = object_of(record)
    if not isinstance(chat.get("requests"), list):
        yield Skipped(where=where, reason=NO_MESSAGES)
        return
    draft = ConversationDraft(
        product=PRODUCT,
        where=where,
        external_id=id_of(chat, "sessionId"),
        title=first_of(chat, "customTitle", "computedTitle"),
        created_at=parse_time(chat, "creationDate"),
        last_at=parse_time(chat, "lastMessageDate"),
    )
    above = None
    for place, request in enumerate(objects_of(chat["requests"])):
        node, at = id_of(request, "requestId") or f"request-{place}", request.get("timestamp")
        fields = object_of(request, "message")
        text = text_of(fields, "text") or text_of(request, "message")
        text = text or "".join(text_of(part, "text") for part in objects_of(fields, "parts"))
        files = objects_of(request, "variableData", "variables")
        named = [{"type": "file", "title": each.get("name")} for each in files if each.get("kind") in ("file", "image")]
        question, _words = message_of(node, "user", [{"text": text}, *named], at, product=PRODUCT)
        answer, _words = message_of(
            f"{node}:answer", "assistant", _answer(request, where, not_shown), at, request.get("modelId")
        )
        draft.add(question.id, above, question.at, question)
        draft.add(above := answer.id, question.id, answer.at, answer)
        draft.calls[answer.id] = tuple(_calls(request))
    yield draft.finished()


def _answer(request: Fields, where: str, not_shown: NotShown) -> str:
    """The pieces of the stream, and the names of what it refers to, which stand within its sentences."""
    pieces = []
    response = request.get("response")
    for part in [response] if isinstance(response, str) else list_of(response):
        fields = {"value": part} if isinstance(part, str) else object_of(part)
        kind = line_of(fields, "kind")
        if kind == "inlineReference":
            target = object_of(fields, "inlineReference")
            path = text_of(target, "path") or text_of(target, "uri", "path")
            pieces.append(f"`{line_of(fields, 'name') or line_of(target, 'name') or path.rpartition('/')[2]}`")
        elif kind in ("", "markdownContent", "markdownVuln", "warning"):
            value = fields.get("value") or fields.get("content")
            pieces.append(text_of(value) or text_of(value, "value"))
        elif kind not in _KNOWN:
            not_shown.note(where, kind)
    return "".join(pieces)


def _calls(request: Fields) -> Iterator[Fields]:
    for part in objects_of(request, "response"):
        if part.get("kind") == "thinking":
            thought = "\n".join(map(text_of, chain(list_of(part, "value"), [part.get("value")])))
            yield {"name": "thinking", "summary": thought.strip()}
        elif part.get("kind") in ("toolInvocation", "toolInvocationSerialized"):
            said = part.get("pastTenseMessage") or part.get("invocationMessage")
            summary = text_of(said) or text_of(said, "value")
            yield {"name": line_of(part, "toolId") or "tool", **({"summary": summary} if summary else {})}


READER = ExportReader(
    product=PRODUCT,
    label="GitHub Copilot in VS Code",
    recognises=_recognises,
    read=_read,
    looks_for=_("chats exported from VS Code (chat.json), or its folder chatSessions"),
)
