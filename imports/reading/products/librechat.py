"""LibreChat: one conversation per file, its messages flat, or nested in `children` as deep as the chat is long."""

from collections.abc import Iterator
from typing import Any

from core.text import gettext_noop as _
from imports.reading.drafts import NO_MESSAGES, ConversationDraft, NotShown, items_of
from imports.reading.envelopes import opened
from imports.reading.files import Files
from imports.reading.items import ImportedFile, Items, Skipped
from imports.reading.json_streams import names_with, of_shapes
from imports.reading.products import ExportReader
from imports.reading.session_tree import texts_of, unknown_kinds
from imports.reading.values import Fields, compact, id_of, line_of, object_of, objects_of, parse_time, text_of

_SHAPES = (
    {"conversationId", "messages.messageId"},
    {"conversationId", "messagesTree"},
    {"conversationId", "exportAt"},
)
_KNOWN_PARTS = {"tool_call", "image_url", "image_file", "error", "agent_update"}


def _read(files: Files) -> Items:
    return items_of(files, names_with(files, *_SHAPES), _conversation)


def _conversation(where: str, record: Any, not_shown: NotShown) -> Items:
    fields = object_of(record)
    messages = fields.get("messages") or fields.get("messagesTree")
    if not isinstance(messages, list):
        yield Skipped(where=where, reason=NO_MESSAGES, external_id=id_of(fields, "conversationId") or None)
        return
    draft = ConversationDraft(
        product="librechat",
        where=where,
        external_id=id_of(fields, "conversationId"),
        title=line_of(fields, "title"),
        created_at=parse_time(fields, "createdAt"),
        last_at=parse_time(fields, "updatedAt"),
        is_archived=fields.get("isArchived") is True,
    )
    nested = any("children" in each for each in objects_of(messages))
    model = line_of(fields, "options", "model")
    last_children: dict[str | None, str] = {}
    for known, parent, message in _walk(messages):
        node = known if known and known not in draft.parents else f"{known}#{len(draft.parents)}"
        _say(draft, node, parent, message, model)
        last_children[draft.parents[node]] = node
        kinds = unknown_kinds(message.get("content"))
        not_shown.note(f"{where} {node}", *(kind for kind in kinds if kind not in _KNOWN_PARTS))
    if nested:
        draft.leaf = _last_leaf(last_children)
    yield draft.finished()


def _walk(messages: list[Any]) -> Iterator[tuple[str, str | None, Fields]]:
    """Every message with its id and its parent's, parents first, without recursion."""
    waiting: list[tuple[Fields, str | None]] = [(each, None) for each in reversed(objects_of(messages))]
    while waiting:
        message, above = waiting.pop()
        node = id_of(message, "messageId")
        yield node, above or id_of(message, "parentMessageId"), message
        children = objects_of(message, "children")
        waiting.extend((child, node or above) for child in reversed(children))


def _last_leaf(last_children: dict[str | None, str]) -> str | None:
    """The last of the siblings at each level: the export does not name the current branch."""
    roots = [node for parent, node in last_children.items() if parent not in last_children.values()]
    node = roots[-1] if roots else None
    seen = set()
    while node in last_children and node not in seen:
        seen.add(node)
        node = last_children[node]
    return node


def _say(draft: ConversationDraft, node: str, parent: str | None, message: Fields, model: str) -> None:
    is_user = message.get("isCreatedByUser") is True or message.get("sender") == "User"
    parts, files = objects_of(message, "content"), objects_of(message, "files")
    text = text_of(message, "text")
    named = [(line_of(each, "filename") or "file", text_of(each, "text")) for each in files]
    draft.say(
        node,
        parent,
        parse_time(message, "createdAt"),
        None if message.get("error") is True else "user" if is_user else "assistant",
        opened([text] if text.strip() else texts_of(parts), "librechat", is_answer=not is_user).text,
        model=line_of(message, "model") or model,
        names=[name for name, _text in named],
        files=[ImportedFile(name=name, text=attached) for name, attached in named if attached.strip()],
        calls=_calls(parts),
    )


def _calls(parts: list[Fields]) -> Iterator[Fields]:
    for part in parts:
        if part.get("type") == "tool_call":
            call = object_of(part, "tool_call")
            yield {"name": line_of(call, "name") or "tool", "input": compact(call.get("args"))}


READER = ExportReader(
    product="librechat",
    label="LibreChat",
    recognises=of_shapes(*_SHAPES, is_sure=False),
    read=_read,
    looks_for=_("JSON of a conversation with a conversationId and messages"),
)
