"""DeepSeek: a tree of nodes under `mapping` as ChatGPT's, whose messages have `fragments`, or formerly one text."""

import re
from typing import Any

from core.text import gettext_noop as _
from imports.reading.drafts import ConversationDraft, NotShown, items_of
from imports.reading.files import Files, beginning_of
from imports.reading.items import Items
from imports.reading.json_streams import LOOKED_AT, names_with
from imports.reading.products import ExportReader
from imports.reading.session_tree import role_of, thinking
from imports.reading.values import first_of, id_of, joined, line_of, object_of, objects_of, parse_time, text_of

_WORDS = {"REQUEST", "RESPONSE", "TEMPLATE_RESPONSE"}
_FOLDED = {"THINK", "SEARCH", "READ_LINK", "TOOL_SEARCH", "TOOL_OPEN", "TIP"}


def _names(files: Files, at_most: int | None = None) -> list[str]:
    """A conversation says when it was `inserted_at`; where that stands far behind, its messages' fragments tell."""
    names = names_with(files, {"mapping"}, at_most=at_most)
    return [name for name in names if re.search('"(inserted_at|fragments)"', beginning_of(files, name, 65536))]


def _conversation(where: str, value: Any, not_shown: NotShown) -> Items:
    record = object_of(value)
    draft = ConversationDraft(
        product="deepseek",
        where=where,
        external_id=id_of(record, "id"),
        title=line_of(record, "title"),
        created_at=parse_time(record, "inserted_at"),
        last_at=parse_time(record, "updated_at"),
        leaf=id_of(record, "current_message_id"),
    )
    for key, each in object_of(record, "mapping").items():
        node, parent, message = id_of(key), id_of(each, "parent"), object_of(each, "message")
        _say(draft, node, parent, message)
        kinds = (line_of(fragment, "type") for fragment in objects_of(message, "fragments"))
        not_shown.note(f"{where} {node}", *(kind for kind in kinds if kind not in _WORDS | _FOLDED))
    yield draft.finished()


def _say(draft: ConversationDraft, node: str, parent: str, message: dict[str, Any]) -> None:
    fragments = objects_of(message, "fragments")
    kinds = {line_of(each, "type") for each in fragments}
    # A message that says no role, which is that of no fragment either, answers the one above it.
    above = draft.visible.get(parent)
    is_user = above is None or above.role == "assistant"
    if kinds or message.get("role"):
        is_user = "REQUEST" in kinds or role_of(message, "role") == "user"
    thoughts = [text_of(each, "content") for each in fragments if each.get("type") == "THINK"]
    # Any fragment that has a text says something, but for those of the program's work.
    texts = [text_of(each, "content") for each in fragments if each.get("type") not in _FOLDED]
    draft.say(
        node,
        parent,
        parse_time(message, "inserted_at"),
        "user" if is_user else "assistant",
        joined(texts) or text_of(message, "content").strip(),
        model=line_of(message, "model"),
        names=filter(None, (first_of(each, "file_name", "name") for each in objects_of(message, "files"))),
        calls=thinking(joined([*thoughts, text_of(message, "reasoning_content")])),
    )


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
