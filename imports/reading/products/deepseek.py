"""DeepSeek: a tree of nodes under `mapping` as ChatGPT's, whose messages have `fragments`, or formerly one text."""

from collections.abc import Iterator
from typing import Any

from core.text import gettext_noop as _
from imports.reading.drafts import ConversationDraft, NotShown, items_of
from imports.reading.files import Files
from imports.reading.items import ImportedMessage, Item, Items, Role
from imports.reading.json_streams import LOOKED_AT, names_with
from imports.reading.products import ExportReader
from imports.reading.session_tree import said
from imports.reading.times import parse_time
from imports.reading.values import first_of, id_of, joined, line_of, object_of, objects_of, text_of

_WORDS = {"REQUEST", "RESPONSE", "TEMPLATE_RESPONSE"}
_FOLDED = {"THINK", "SEARCH", "READ_LINK", "TOOL_SEARCH", "TOOL_OPEN", "TIP"}


def _names(files: Files, at_most: int | None = None) -> list[str]:
    """A conversation says when it was `inserted_at`; where that stands far behind, its messages' fragments tell."""
    found = []
    for name in names_with(files, {"mapping"}, at_most=at_most):
        with files.look(name) as stream:
            beginning = stream.read(65536)
        if b'"inserted_at"' in beginning or b'"fragments"' in beginning:
            found.append(name)
    return found


def _conversation(where: str, value: Any, not_shown: NotShown) -> Iterator[Item]:
    record = object_of(value)
    draft = ConversationDraft(
        product="deepseek",
        where=where,
        external_id=id_of(record, "id"),
        title=line_of(record, "title"),
        created_at=parse_time(record, "inserted_at"),
        last_at=parse_time(record, "updated_at"),
        leaf=id_of(record, "current_message_id") or None,
    )
    for key, each in object_of(record, "mapping").items():
        node, fields = id_of(key), object_of(each)
        parent, message = id_of(fields, "parent") or None, object_of(fields, "message")
        above = draft.visible.get(parent or "")
        role: Role = "user" if above is None or above.role == "assistant" else "assistant"
        shown = _message(node, message, role) if message else "empty"
        draft.add(node, parent, parse_time(message, "inserted_at"), shown)
        for fragment in objects_of(message, "fragments"):
            if (kind := line_of(fragment, "type")) not in _WORDS | _FOLDED:
                not_shown.note(kind, f"{where} {node}")
    yield draft.finished()


def _message(node: str, message: dict[str, Any], role: Role) -> ImportedMessage | str:
    """`role`: of a message that says none, which is that of no fragment either."""
    fragments = objects_of(message, "fragments")
    kinds = {line_of(each, "type") for each in fragments}
    if kinds or message.get("role"):
        role = "user" if "REQUEST" in kinds or line_of(message, "role").lower() == "user" else "assistant"
    thoughts = [text_of(each, "content") for each in fragments if each.get("type") == "THINK"]
    thoughts.append(text_of(message, "reasoning_content"))
    # Any fragment that has a text says something, but for those of the program's work.
    texts = [text_of(each, "content") for each in fragments if each.get("type") not in _FOLDED]
    text = joined(texts) or text_of(message, "content").strip()
    files = [first_of(each, "file_name", "name") for each in objects_of(message, "files")]
    calls = [{"name": "thinking", "summary": thought}] if (thought := joined(thoughts)) else []
    at = parse_time(message, "inserted_at")
    return said(node, role, text, at, model=message.get("model"), names=filter(None, files), calls=calls)


def _recognises(files: Files) -> int:
    return 97 if _names(files, LOOKED_AT) else 0


def _read(files: Files) -> Items:
    return items_of(files, _names(files), _conversation)


READER = ExportReader(
    product="deepseek",
    label="DeepSeek",
    recognises=_recognises,
    read=_read,
    looks_for=_("conversations.json with messages in fragments"),
    wordless=r"(?:^|/)user\.json\Z",
)
