"""ChatGPT: `conversations.json`, whole or in shards, each conversation a tree of nodes under `mapping`."""

import re
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from itertools import chain
from typing import Any

from core.text import gettext_noop as _
from imports.reading.attached import ExportFiles, written
from imports.reading.drafts import NO_MESSAGES, ConversationDraft, NotShown, items_of
from imports.reading.files import Files
from imports.reading.items import ImportedFile, ImportedMessage, Items, Skipped
from imports.reading.json_streams import members, names_with, of_shapes, records, streamed
from imports.reading.products import ExportReader
from imports.reading.session_tree import role_of, thinking, unknown_roles
from imports.reading.trees import nearest_visible
from imports.reading.values import (
    Fields,
    base_name,
    first_of,
    id_of,
    joined,
    line_of,
    list_of,
    object_of,
    objects_of,
    parse_time,
    parsed,
    text_of,
    value_at,
)

_HIDDEN_TYPES = {"user_editable_context", "model_editable_context", "thoughts", "reasoning_recap"}
# U+E200 to U+E201 enclose a citation, older ones stand in 【】 with a dagger; a copy may have lost the two characters.
_CITATIONS = re.compile(
    "\ue200(?P<mark>[^\ue200\ue201]*)\ue201|【[^【】\n]{0,80}†[^【】\n]{0,200}】|[\ue200-\ue206]"
    r"|\b(?:file)?cite(?:\ue202?turn\d{1,4}[a-z]{1,12}\d{1,4}){1,20}"
    r"|!\[[^\]\n]{0,200}\]\((?:sediment|file-service)://[^)\s]{0,300}\)"
)
# One of these is in each of them. To look for the pattern itself in every text takes half of the reading.
_SIGNS = ("cite", "![", *"【\ue200\ue201\ue202\ue203\ue204\ue205\ue206")
# Marks with words that the page shows: `entity`, `["person", "Marie Curie", …]`, and `url`, its text, its address.
_NAMED = re.compile('(?:entity\ue202\\["[^"]{0,80}", ?"|url\ue202)(?P<words>[^"\ue202]{1,500})')
# The fields of what was sent to a tool that makes pictures.
_OF_A_PICTURE = {"prompt", "size", "n", "style", "quality", "transparent_background", "referenced_image_ids", "seed"}
LONGEST_INPUT = 4000
_PROJECT = re.compile(r"g-p-(?P<id>[0-9a-z]{4,64})", re.IGNORECASE)
_KNOWN_TYPES = _HIDDEN_TYPES | {
    "text", "multimodal_text", "code", "execution_output", "tether_quote", "tether_browsing_display", "system_error",
    "computer_output", "sonic_webpage",
}  # fmt: skip
_KNOWN_PARTS = {
    "image_asset_pointer", "audio_asset_pointer", "audio_transcription", "real_time_user_audio_video_asset_pointer",
    "video_container_asset_pointer", "text",
}  # fmt: skip


def _read(files: Files) -> Items:
    names = names_with(files, {"mapping"})
    latest = _latest(files, names)
    beside = ExportFiles(files, names=_asset_names(files))
    yield from items_of(files, names, partial(_conversation, latest, beside))
    yield from beside.notice()


def _asset_names(files: Files) -> dict[str, str]:
    """The names of files as their sender had them, by those in the export."""
    found: dict[str, str] = {}
    for name in files.names():
        if base_name(name) == "conversation_asset_file_names.json":
            for entry, shown in streamed(files, name, members):
                found[base_name(entry)] = line_of(shown)
    return found


def _latest(files: Files, names: list[str]) -> dict[str, str]:
    """The position of the newest of several entries of one conversation; the others are left out."""
    newest: dict[str, tuple[float, str]] = {}
    repeated = set()
    for where, record in chain.from_iterable(records(files, name) for name in names):
        if external_id := _external_id(record):
            at = parse_time(record, "update_time")
            rank = (at.timestamp() if at else 0.0, where)
            repeated |= {external_id} & newest.keys()
            newest[external_id] = max(newest.get(external_id, rank), rank, key=lambda each: each[0])
    return {external_id: newest[external_id][1] for external_id in repeated}


def _external_id(record: Any) -> str:
    return id_of(record, "conversation_id") or id_of(record, "id")


def _conversation(latest: dict[str, str], beside: ExportFiles, where: str, record: Any, not_shown: NotShown) -> Items:
    mapping, external_id = value_at(record, "mapping"), _external_id(record)
    if not isinstance(mapping, dict):
        yield Skipped(where=where, reason=NO_MESSAGES)
        return
    if latest.get(external_id, where) != where:
        return
    draft = ConversationDraft(
        product="chatgpt",
        where=where,
        external_id=external_id,
        title=line_of(record, "title"),
        created_at=parse_time(record, "create_time"),
        last_at=parse_time(record, "update_time"),
        is_archived=record.get("is_archived") is True,
        project=_project(record),
        leaf=id_of(record, "current_node"),
        has_one_root=True,
        mends_broken=False,
    )
    above = _parents(mapping)
    pictures: dict[str, ImportedMessage] = {}
    texts: dict[str, tuple[ImportedFile, ...]] = {}
    for key, value in mapping.items():
        node, fields = id_of(key), object_of(value, "message")
        draft.add(node, above[node], parse_time(fields, "create_time"))
        if fields:
            message = _Message(fields)
            _say(draft, node, message, line_of(record, "default_model_slug"), beside)
            draft.calls[node] = tuple(message.calls())
            names, files = _attached({}, message.content, beside) if message.author == "tool" else ((), ())
            if names:
                # The pictures that a tool made.
                pictures[node] = ImportedMessage(
                    id=node, role="assistant", text="[image]", at=message.at, attachments=names, files=files
                )
            if text := tuple(_text_of_a_file(message)):
                texts[node] = text
            not_shown.note(f"{where} {node}", *message.unknown_kinds())
    _show_pictures(draft, pictures)
    draft.attach(texts)
    yield draft.finished()


def _project(record: Fields) -> str | None:
    """A label by the id of the project, since an export has no names of projects. Custom GPTs have other ids."""
    for name in ("conversation_template_id", "gizmo_id"):
        if found := _PROJECT.match(id_of(record, name)):
            return f"ChatGPT project {found['id'][:8]}"
    return None


def _parents(mapping: Fields) -> dict[str, str | None]:
    """Each node's parent: some exports name only the children."""
    of_child = {id_of(child): id_of(key) for key, value in mapping.items() for child in list_of(value, "children")}
    found: dict[str, str | None] = {}
    for key, value in mapping.items():
        node = id_of(key)
        above = id_of(value, "parent") or of_child.get(node)
        found[node] = above if above != node else None
    return found


class _Message:
    """A node's message, whose fields are read once."""

    def __init__(self, fields: Fields) -> None:
        self.fields = fields
        self.at = parse_time(fields, "create_time")
        self.author = line_of(fields, "author", "role")
        self.role = role_of(self.author)
        self.recipient = line_of(fields, "recipient")
        self.metadata, self.content = object_of(fields, "metadata"), object_of(fields, "content")
        self.kind = line_of(self.content, "content_type")
        self.text = _text(self.content)
        # A document beside the chat, or a change of it.
        self.is_canvas = self.recipient.startswith("canmore.")
        self.is_to_a_tool = self.recipient not in ("", "all") and not self.is_canvas

    def is_hidden(self) -> bool:
        weight = self.fields.get("weight")
        return (
            self.role is None
            or self.metadata.get("is_visually_hidden_from_conversation") is True
            or self.kind in _HIDDEN_TYPES
            or (weight == 0 and weight is not False)
            or self.is_to_a_tool
            or (self.role == "assistant" and _is_for_pictures(self.text))
        )

    def report(self) -> str:
        """The report of a deep research, which stands in the message of a tool."""
        if self.author != "tool":
            return ""
        state = parsed(text_of(self.metadata, "chatgpt_sdk", "widget_state"))
        name = line_of(self.fields, "author", "name")
        is_research = "research" in name or any("async_task" in str(key) for key in self.metadata)
        return _text(object_of(state, "report_message", "content")) or (self.text if is_research else "")

    def calls(self) -> Iterator[Fields]:
        """Input for tools, and reasoning: folded into the answer that follows."""
        if self.role != "assistant":
            return
        if self.is_to_a_tool:
            yield {"name": self.recipient, "input": self.text[:LONGEST_INPUT]}
        elif _is_for_pictures(self.text):
            yield {"name": "image", "input": self.text[:LONGEST_INPUT]}
        yield from thinking(joined(text_of(thought, "content") for thought in objects_of(self.content, "thoughts")))

    def unknown_kinds(self) -> Iterator[str]:
        yield from unknown_roles(self.author)
        if self.kind and self.kind not in _KNOWN_TYPES and not self.text:
            yield self.kind
        for part in objects_of(self.content, "parts"):
            kind = line_of(part, "content_type")
            if kind not in _KNOWN_PARTS and not text_of(part, "text"):
                yield kind


def _say(draft: ConversationDraft, node: str, message: _Message, model: str, beside: ExportFiles) -> None:
    report = message.report()
    if not report and message.is_hidden():
        return
    text, metadata = report or message.text, message.metadata
    names, files = _attached(metadata, message.content, beside)
    if message.is_canvas and not report:
        text, files = _canvas(text), (*files, *_document(text))
    role, model = message.role or "assistant", line_of(metadata, "model_slug") or model
    draft.say(node, draft.parents[node], message.at, role, text, model=model, names=names, files=files)


def _canvas(text: str) -> str:
    """A document beside the chat: its name and its text, or what was changed or commented in it."""
    fields = parsed(text)
    changes = [
        joined([text_of(each, "replacement"), text_of(each, "comment")])
        for name in ("updates", "comments")
        for each in objects_of(fields, name)
    ]
    name = line_of(fields, "name")
    return joined([f"**{name}**" if name else "", text_of(fields, "content"), *changes]) or text


def _document(text: str) -> Iterator[ImportedFile]:
    """The document that was written in a canvas; a change of one stays a message."""
    fields = parsed(text)
    if (content := text_of(fields, "content")).strip():
        yield written(text_of(fields, "name"), content, text_of(fields, "type"))


def _text_of_a_file(message: _Message) -> Iterator[ImportedFile]:
    """The text that was read from an attached file: a tool quotes it, by the file's id instead of an address."""
    content = message.content
    is_file = line_of(content, "url").startswith(("file-", "file_"))
    name = first_of(content, "title", "domain")
    text = text_of(content, "text").strip()
    if message.kind == "tether_quote" and is_file and name and text:
        yield ImportedFile(name=name, text=text)


def _show_pictures(draft: ConversationDraft, pictures: dict[str, ImportedMessage]) -> None:
    """A tool's picture is kept with the answer after it; without one, with the message that asked for it."""
    if not pictures:
        return
    above = nearest_visible(draft.parents, [*draft.visible, *pictures])
    asked = nearest_visible(draft.parents, draft.visible)
    with_answer = {above[node]: node for node, message in draft.visible.items() if message.role == "assistant"}
    for node, picture in pictures.items():
        kept = tuple({"name": "attachment", "input": {"name": name}} for name in picture.attachments)
        # A report that stands in a tool's message is shown with its pictures.
        if node in draft.visible:
            continue
        if answer := draft.visible.get(with_answer.get(node, "")):
            draft.calls[node] = kept
            draft.visible[answer.id] = replace(answer, files=(*picture.files, *answer.files))
        elif shown := draft.visible.get(asked[node] or ""):
            calls, files = (*shown.tool_calls, *kept), (*shown.files, *picture.files)
            draft.visible[shown.id] = replace(shown, tool_calls=calls, files=files)
        else:
            draft.visible[node] = picture


def _text(content: Fields) -> str:
    parts = content.get("parts")
    parts = parts if isinstance(parts, list) else [parts]
    # A recording beside its transcript says nothing more.
    has_words = _has_words(parts)
    texts = [_part(part) for part in parts if not has_words or _recording(object_of(part)) is None]
    if not any(texts):
        texts = [text_of(content, "text")]
    text = joined(texts).strip()
    if not any(sign in text for sign in _SIGNS):
        return text
    return _CITATIONS.sub(
        lambda found: named["words"] if (named := _NAMED.match(found["mark"] or "")) else "", text
    ).strip()


def _is_for_pictures(text: str) -> bool:
    """Whether a message is the input of a tool, which older exports have as an answer."""
    fields = object_of(parsed(text)) if text.startswith("{") and '"prompt"' in text else {}
    return "prompt" in fields and fields.keys() <= _OF_A_PICTURE


def _part(part: Any) -> str:
    """Any part that has a text, and a voice message without a transcript, whose neighbours are not its own."""
    if not isinstance(part, dict):
        return text_of(part)
    if text := text_of(part, "text"):
        return text
    if (recording := _recording(part)) is None:
        return ""
    heard = text_of(recording, "metadata", "transcript").strip()
    return f"[voice message] {heard}".strip()


def _recording(part: Fields) -> Fields | None:
    if part.get("content_type") == "audio_asset_pointer":
        return part
    inner = object_of(part, "audio_asset_pointer")
    return (inner or part) if part.get("content_type") == "real_time_user_audio_video_asset_pointer" else None


def _attached(
    metadata: Fields, content: Fields, beside: ExportFiles
) -> tuple[tuple[str, ...], tuple[ImportedFile, ...]]:
    """The names of attached files, and those that the export has; a picture among them is not named twice."""
    listed = {id_of(each, "id"): each for each in objects_of(metadata, "attachments")}
    names = {id_: line_of(each, "name") or id_ for id_, each in listed.items()}
    parts = objects_of(content, "parts")
    is_transcribed = _has_words(parts)
    for part in parts:
        recording = None if is_transcribed else _recording(part)
        if recording is not None or part.get("content_type") == "image_asset_pointer":
            pointer = text_of(recording or part, "asset_pointer").rpartition("://")[2]
            names.setdefault(pointer, pointer or "image")
    found = (
        (beside.find(id_, "" if name == id_ else name, line_of(listed.get(id_), "mime_type")), name)
        for id_, name in names.items()
    )
    return tuple(filter(None, names.values())), tuple(replace(file, named_as=name) for file, name in found if file)


def _has_words(parts: list[Any]) -> bool:
    return any(text_of(part) or text_of(part, "text") for part in parts)


READER = ExportReader(
    product="chatgpt",
    label="ChatGPT",
    recognises=of_shapes({"mapping"}),
    read=_read,
    looks_for=_("conversations.json, whole or in parts (conversations-000.json)"),
    # `chat.html` and the shared conversations repeat what the others have.
    wordless=r"(?:^|/)(?:chat\.html|(?:user|user_settings|message_feedback|model_comparisons|shared_conversations"
    r"|export_manifest|library_files|conversation_asset_file_names)\.json)\Z",
)
