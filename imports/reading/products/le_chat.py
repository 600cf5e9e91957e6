"""Le Chat (Mistral): one file for each chat, a list of its messages with the chat's id in each."""

from collections.abc import Iterator

from core.text import gettext_noop as _
from imports.reading.attached import ExportFiles, written
from imports.reading.drafts import ConversationDraft, NotShown
from imports.reading.files import Files
from imports.reading.items import ImportedFile, Items
from imports.reading.json_streams import names_with, of_shapes, records
from imports.reading.products import ExportReader
from imports.reading.session_tree import role_of, texts_of, unknown_kinds
from imports.reading.values import Fields, id_of, joined, line_of, object_of, objects_of, parse_time, text_of

_SHAPE = {"chatId", "role", "content"}
_KNOWN_CHUNKS = {"reference", "tool_reference", "tool_call", "thinking"}


def _read(files: Files) -> Items:
    beside, not_shown = ExportFiles(files), NotShown()
    for name in names_with(files, _SHAPE):
        chats: dict[str, ConversationDraft] = {}
        for where, value in records(files, name):
            message = object_of(value)
            chat = id_of(message, "chatId")
            draft = chats.setdefault(chat, ConversationDraft(product="le-chat", where=where, external_id=chat))
            _say(draft, message, f"{where} {id_of(message, 'id')}", not_shown, beside)
        for draft in chats.values():
            yield draft.finished()
    yield from not_shown.listed()
    yield from beside.notice()


def _say(draft: ConversationDraft, message: Fields, where: str, not_shown: NotShown, beside: ExportFiles) -> None:
    node = id_of(message, "id") or f"message-{len(draft.parents)}"
    node = f"{node}#{len(draft.parents)}" if node in draft.parents else node
    before = next(reversed(draft.parents), None)
    # A further version of an answer follows the same question.
    if before and message.get("version") and getattr(draft.visible.get(before), "role", "") == message.get("role"):
        before = draft.parents[before]
    parent, at, role = id_of(message, "parentId") or before, parse_time(message, "createdAt"), role_of(message, "role")
    if role is None:
        not_shown.note(where, f"role {line_of(message, 'role')}")
        draft.add(node, parent, at)
        return
    chunks = message.get("contentChunks")
    not_shown.note(where, *(kind for kind in unknown_kinds(chunks) if kind not in _KNOWN_CHUNKS))
    # Chunks are cut anywhere, also in the middle of a word.
    text = text_of(message, "content").strip() or "".join(texts_of(chunks)).strip()
    names = [line_of(each, "name") or "file" for each in objects_of(message, "files")]
    canvases = (
        written(line_of(each, "title"), content, text_of(each, "type"))
        for each in objects_of(message, "canvas")
        if (content := text_of(each, "content")).strip()
    )
    files = (*_stored(message, beside), *canvases)
    quotes = joined(f"> {text_of(each, 'text') or text_of(each)}" for each in objects_of(message, "quotes"))
    if text or names or files:
        text = joined([quotes, text])
    draft.say(node, parent, at, role, text, model=line_of(message, "model"), names=names, files=files)


def _stored(message: Fields, beside: ExportFiles) -> Iterator[ImportedFile]:
    for each in objects_of(message, "files"):
        if found := beside.find(id_of(each, "id"), line_of(each, "name")):
            yield found


READER = ExportReader(
    product="le-chat",
    label="Le Chat",
    recognises=of_shapes(_SHAPE),
    read=_read,
    looks_for=_("chat-….json, a list of messages with a chatId"),
)
