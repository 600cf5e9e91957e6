"""ChatGPT: `conversations.json`, whole or in shards, each conversation a tree of nodes under `mapping`."""

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from core.text import gettext_noop as _
from imports.reading.attached import ExportFiles, written
from imports.reading.drafts import NO_MESSAGES, ConversationDraft, NotShown, items_of
from imports.reading.files import Files
from imports.reading.items import ImportedFile, ImportedMessage, Item, Items, Role, Skipped, UnreadableExport
from imports.reading.json_streams import LOOKED_AT, BrokenJSON, members, names_with, records
from imports.reading.products import ExportReader
from imports.reading.session_tree import said
from imports.reading.times import parse_time
from imports.reading.trees import nearest_visible
from imports.reading.values import first_of, id_of, joined, line_of, list_of, object_of, objects_of, text_of, value_at

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
_ROLES: dict[str, Role] = {"user": "user", "assistant": "assistant"}


def _recognises(files: Files) -> int:
    return 95 if _names(files, LOOKED_AT) else 0


def _names(files: Files, at_most: int | None = None) -> list[str]:
    return names_with(files, {"mapping"}, at_most=at_most)


def _read(files: Files) -> Items:
    names = _names(files)
    latest = _latest(files, names)
    beside = ExportFiles(files, names=_asset_names(files))
    yield from items_of(
        files, names, lambda where, record, not_shown: _conversation(where, record, latest, not_shown, beside)
    )
    yield from beside.notice()


def _asset_names(files: Files) -> dict[str, str]:
    """The names of files as their sender had them, by those in the export."""
    found: dict[str, str] = {}
    for name in files.names():
        if name.rpartition("/")[2] == "conversation_asset_file_names.json":
            try:
                with files.open(name) as stream:
                    found |= {entry.rpartition("/")[2]: line_of(shown) for entry, shown in members(stream)}
            except (BrokenJSON, UnreadableExport):
                continue  # They have the names that their entries have.
    return found


def _latest(files: Files, names: list[str]) -> dict[str, str]:
    """The position of the newest of several entries of one conversation; the others are left out."""
    newest: dict[str, tuple[float, str]] = {}
    repeated = set()
    for name in names:
        try:
            for where, record in records(files, name):
                if not isinstance(record, dict) or not (external_id := _external_id(record)):
                    continue
                at = parse_time(record, "update_time")
                rank = (at.timestamp() if at else 0.0, where)
                repeated |= {external_id} & newest.keys()
                newest[external_id] = max(newest.get(external_id, rank), rank, key=lambda each: each[0])
        except BrokenJSON:
            continue
    return {external_id: newest[external_id][1] for external_id in repeated}


def _external_id(record: dict[str, Any]) -> str:
    return id_of(record, "conversation_id") or id_of(record, "id")


def _conversation(
    where: str, record: Any, latest: dict[str, str], not_shown: NotShown, beside: ExportFiles
) -> Iterator[Item]:
    if not isinstance(record, dict) or not isinstance(record.get("mapping"), dict):
        yield Skipped(where=where, reason=NO_MESSAGES)
        return
    external_id = _external_id(record)
    if latest.get(external_id, where) == where:
        yield _draft(where, record, external_id, not_shown, beside).finished()


def _draft(
    where: str, record: dict[str, Any], external_id: str, not_shown: NotShown, beside: ExportFiles
) -> ConversationDraft:
    draft = ConversationDraft(
        product="chatgpt",
        where=where,
        external_id=external_id,
        title=line_of(record, "title"),
        created_at=parse_time(record, "create_time"),
        last_at=parse_time(record, "update_time"),
        is_archived=record.get("is_archived") is True,
        project=_project(record),
        leaf=id_of(record, "current_node") or None,
        has_one_root=True,
        mends_broken=False,
    )
    model = text_of(record, "default_model_slug")
    above = _parents(record["mapping"])
    pictures: dict[str, ImportedMessage] = {}
    texts: dict[str, ImportedFile] = {}
    for key, value in record["mapping"].items():
        node, message = id_of(key), object_of(value, "message")
        draft.parents[node] = above[node]
        if message:
            at = parse_time(message, "create_time")
            draft.add(node, draft.parents[node], at, _message(node, message, model, beside))
            draft.calls[node] = tuple(_calls(message))
            if picture := _picture(node, message, beside):
                pictures[node] = picture
            if text := _text_of_a_file(message):
                texts[node] = text
            for kind in _unknown_kinds(message):
                not_shown.note(kind, f"{where} {node}")
    _show_pictures(draft, pictures)
    _attach_texts(draft, texts)
    return draft


def _project(record: dict[str, Any]) -> str | None:
    """A label by the id of the project, since an export has no names of projects. Custom GPTs have other ids."""
    for name in ("conversation_template_id", "gizmo_id"):
        if found := _PROJECT.match(id_of(record, name)):
            return f"ChatGPT project {found['id'][:8]}"
    return None


def _parents(mapping: dict[str, Any]) -> dict[str, str | None]:
    """Each node's parent: some exports name only the children."""
    of_child = {id_of(child): id_of(key) for key, value in mapping.items() for child in list_of(value, "children")}
    found: dict[str, str | None] = {}
    for key, value in mapping.items():
        node = id_of(key)
        above = id_of(value, "parent") or of_child.get(node)
        found[node] = above if above != node else None
    return found


def _picture(node: str, message: dict[str, Any], beside: ExportFiles) -> ImportedMessage | None:
    """The pictures that a tool made."""
    if value_at(message, "author", "role") != "tool":
        return None
    named = _attachments({}, object_of(message, "content"))
    names, at = _names_of(named), parse_time(message, "create_time")
    if not names:
        return None
    files = _files_of(named, {}, beside)
    return ImportedMessage(
        id=node, parent=None, role="assistant", text="[image]", at=at, attachments=names, files=files
    )


def _text_of_a_file(message: dict[str, Any]) -> ImportedFile | None:
    """The text that was read from an attached file: a tool quotes it, by the file's id instead of an address."""
    content = object_of(message, "content")
    is_file = line_of(content, "url").startswith(("file-", "file_"))
    name = first_of(content, "title", "domain")
    text = text_of(content, "text").strip()
    if content.get("content_type") != "tether_quote" or not (is_file and name and text):
        return None
    return ImportedFile(name=name, text=text)


def _attach_texts(draft: ConversationDraft, texts: dict[str, ImportedFile]) -> None:
    """Read texts belong to the message above them, unless the export has the file itself."""
    above = nearest_visible(draft.parents, draft.visible) if texts else {}
    for node, text in texts.items():
        asked = draft.visible.get(above[node] or "")
        if asked and text.name not in {each.name for each in asked.files if each.entry}:
            draft.visible[asked.id] = replace(asked, files=(*asked.files, text))


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
            draft.skipped.pop(node, None)
            draft.visible[node] = picture


def _calls(message: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Input for tools, and reasoning: folded into the answer that follows."""
    content, recipient = object_of(message, "content"), line_of(message, "recipient")
    if value_at(message, "author", "role") != "assistant":
        return
    if recipient not in ("", "all") and not _is_canvas(recipient):
        yield {"name": recipient, "input": _text(content)[:LONGEST_INPUT]}
    elif _is_for_pictures(text := _text(content)):
        yield {"name": "image", "input": text[:LONGEST_INPUT]}
    thoughts = joined(text_of(thought, "content") for thought in objects_of(content, "thoughts"))
    if thoughts:
        yield {"name": "thinking", "summary": thoughts}


def _message(node: str, message: dict[str, Any], model: str, beside: ExportFiles) -> ImportedMessage | str:
    """The visible message, or the reason why it is hidden."""
    metadata = object_of(message, "metadata")
    content = object_of(message, "content")
    recipient = line_of(message, "recipient")
    report = _report(message, metadata, content)
    if not report and (why := _hidden(message, metadata, content)):
        return why
    text = report or (_canvas(_text(content)) if _is_canvas(recipient) else _text(content))
    named = _attachments(metadata, content)
    files = _files_of(named, metadata, beside)
    if _is_canvas(recipient) and not report:
        files += _document(_text(content))
    role, at = _ROLES.get(message["author"]["role"], "assistant"), parse_time(message, "create_time")
    model = text_of(metadata, "model_slug") or model
    return said(node, role, text, at, model=model, names=_names_of(named), files=files)


def _is_canvas(recipient: str) -> bool:
    return recipient.startswith("canmore.")


def _canvas(text: str) -> str:
    """A document beside the chat: its name and its text, or what was changed or commented in it."""
    try:
        fields = object_of(json.loads(text))
    except (ValueError, RecursionError):
        return text
    changes = [
        joined([text_of(each, "replacement"), text_of(each, "comment")])
        for name in ("updates", "comments")
        for each in objects_of(fields, name)
    ]
    name = line_of(fields, "name")
    return joined([f"**{name}**" if name else "", text_of(fields, "content"), *changes]) or text


def _document(text: str) -> tuple[ImportedFile, ...]:
    """The document that was written in a canvas; a change of one stays a message."""
    try:
        fields = object_of(json.loads(text))
    except (ValueError, RecursionError):
        return ()
    content = text_of(fields, "content")
    return (written(text_of(fields, "name"), content, text_of(fields, "type")),) if content.strip() else ()


def _report(message: dict[str, Any], metadata: dict[str, Any], content: dict[str, Any]) -> str:
    """The report of a deep research, which stands in the message of a tool."""
    author = object_of(message, "author")
    if author.get("role") != "tool":
        return ""
    try:
        state = object_of(json.loads(text_of(metadata, "chatgpt_sdk", "widget_state")))
    except (ValueError, RecursionError):
        state = {}
    if report := _text(object_of(state, "report_message", "content")):
        return report
    is_research = "research" in line_of(author, "name") or any("async_task" in str(key) for key in metadata)
    return _text(content) if is_research else ""


def _hidden(message: dict[str, Any], metadata: dict[str, Any], content: dict[str, Any]) -> str | None:
    role = text_of(message, "author", "role")
    kind = text_of(content, "content_type")
    recipient = message.get("recipient")
    weight = message.get("weight")
    reasons = {
        f"role {role}": role not in _ROLES,
        f"hidden ({kind})": metadata.get("is_visually_hidden_from_conversation") is True,
        kind: kind in _HIDDEN_TYPES,
        "weight 0": weight == 0 and weight is not None and weight is not False,
        f"to {text_of(recipient)}": isinstance(recipient, str)
        and recipient not in ("all", "")
        and not _is_canvas(recipient),
        "to a tool": role == "assistant" and _is_for_pictures(_text(content)),
    }
    return next((reason for reason, holds in reasons.items() if holds), None)


def _unknown_kinds(message: dict[str, Any]) -> Iterator[str]:
    content = object_of(message, "content")
    role = line_of(message, "author", "role")
    if role not in (*_ROLES, "system", "tool"):
        yield f"role {role}"
    kind = line_of(content, "content_type")
    if kind and kind not in _KNOWN_TYPES and not _text(content):
        yield kind
    for part in objects_of(content, "parts"):
        kind = line_of(part, "content_type")
        if kind not in _KNOWN_PARTS and not text_of(part, "text"):
            yield kind or "no kind"


def _text(content: dict[str, Any]) -> str:
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
    if not text.startswith("{") or '"prompt"' not in text:
        return False
    try:
        fields = json.loads(text)
    except (ValueError, RecursionError):
        return False
    return isinstance(fields, dict) and "prompt" in fields and fields.keys() <= _OF_A_PICTURE


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


def _recording(part: dict[str, Any]) -> dict[str, Any] | None:
    if part.get("content_type") == "audio_asset_pointer":
        return part
    inner = object_of(part, "audio_asset_pointer")
    return (inner or part) if part.get("content_type") == "real_time_user_audio_video_asset_pointer" else None


def _attachments(metadata: dict[str, Any], content: dict[str, Any]) -> dict[str, str]:
    """Names of attached files by their ids; a picture that is among them already is not named twice."""
    listed = {
        id_of(each, "id"): line_of(each, "name") or id_of(each, "id") for each in objects_of(metadata, "attachments")
    }
    parts = objects_of(content, "parts")
    is_transcribed = _has_words(parts)
    for part in parts:
        recording = None if is_transcribed else _recording(part)
        if recording is not None or part.get("content_type") == "image_asset_pointer":
            pointer = text_of(recording or part, "asset_pointer").rpartition("://")[2]
            listed.setdefault(pointer, pointer or "image")
    return listed


def _names_of(attached: dict[str, str]) -> tuple[str, ...]:
    return tuple(name for name in attached.values() if name)


def _files_of(attached: dict[str, str], metadata: dict[str, Any], beside: ExportFiles) -> tuple[ImportedFile, ...]:
    """Those that lie in the export."""
    types = {id_of(each, "id"): line_of(each, "mime_type") for each in objects_of(metadata, "attachments")}
    found = (
        (beside.find(id_, "" if name == id_ else name, types.get(id_, "")), name) for id_, name in attached.items()
    )
    return tuple(replace(file, named_as=name) for file, name in found if file)


def _has_words(parts: list[Any]) -> bool:
    return any(text_of(part) or text_of(part, "text") for part in parts)


READER = ExportReader(
    product="chatgpt",
    label="ChatGPT",
    recognises=_recognises,
    read=_read,
    looks_for=_("conversations.json, whole or in parts (conversations-000.json)"),
    # `chat.html` and the shared conversations repeat what the others have.
    wordless=r"(?:^|/)(?:chat\.html|(?:user|user_settings|message_feedback|model_comparisons|shared_conversations"
    r"|export_manifest|library_files|conversation_asset_file_names)\.json)\Z",
)
