"""Files of messages in other products' exports: what is read of them, and that they come in, once, as files."""

import base64
import json
import zipfile
from datetime import UTC, datetime

import pytest
from django.test import Client

from core.isolation.acting import acting_as
from imports.reading.attached import LONG, pasted_blocks
from imports.reading.files import open_files
from imports.reading.items import ImportedConversation, ImportedFile, Notice
from imports.reading.products import read_files
from imports.storing.files import refusals_of
from imports.storing.turns import planned_turns
from imports.tests.over_rest import Importer
from intake.attachments import services as attachments
from intake.chats.deleting import delete_attachment
from intake.models import Attachment, AttachmentPiece, AttachmentText, Turn
from intake.tests.attached import PDF, a_picture
from intake.tests.factories import a_person, caller_for
from memory.models import Corpus, IndexedText
from memory.tests.attached import read_all

AT = datetime(2024, 3, 1, 9, 0, tzinfo=UTC)
PICTURE = a_picture()
IN_BASE64 = base64.b64encode(PICTURE).decode()
BLOCK = "\n".join(f"Line {number} of the log of the kiln" for number in range(200))


def exported(path, **entries):
    """A zip of these entries; what is no bytes as JSON."""
    with zipfile.ZipFile(path, "w") as export:
        for name, value in entries.items():
            export.writestr(name, value if isinstance(value, bytes | str) else json.dumps(value))
    return path


def read(path, product=None):
    """The conversations with the bytes of their files by name, and the notices."""
    with open_files(path) as files:
        items = list(read_files(files, product))
        conversations = [item for item in items if isinstance(item, ImportedConversation)]
        found = {
            file.name: file.text or files.open(file.entry).read()
            for conversation in conversations
            for message in (*conversation.messages, *conversation.other_branches)
            for file in message.files
        }
    return conversations, found, [item.text for item in items if isinstance(item, Notice)]


# --- What readers find ---


def node(id_, role, parent, *parts, **fields):
    content = {"content_type": "multimodal_text" if len(parts) > 1 else "text", "parts": list(parts)}
    message = {"author": {"role": role}, "create_time": AT.timestamp(), "content": content, **fields}
    return {id_: {"id": id_, "parent": parent, "message": message}}


def chatgpt(*nodes):
    mapping = {key: value for each in nodes for key, value in each.items()}
    return [{"conversation_id": "c", "title": "Kiln", "mapping": mapping, "current_node": [*mapping][-1]}]


def pointer(id_):
    return {"content_type": "image_asset_pointer", "asset_pointer": f"file-service://{id_}"}


def a_chatgpt_export(path, **more):
    attached = [{"id": "file-AAAAAAAAAA", "name": "lease.pdf"}, {"id": "file-GONEGONEGO", "name": "gone.txt"}]
    answer = {"content_type": "multimodal_text", "parts": [pointer("file-CCCCCCCCCC")]}
    nodes = [
        node("q", "user", None, pointer("file-BBBBBBBBBB"), "Read these", metadata={"attachments": attached}),
        node("t", "tool", "q", "", content=answer),
        node("a", "assistant", "t", "Here it is."),
    ]
    entries = {
        "conversations.json": chatgpt(*nodes),
        "file-AAAAAAAAAA.dat": PDF,
        "file-BBBBBBBBBB-kiln.png": PICTURE,
        "dalle-generations/file-CCCCCCCCCC-1f0b.webp": b"drawn",
        "conversation_asset_file_names.json": {"file-AAAAAAAAAA.dat": "lease.pdf"},
    }
    return exported(path, **entries | more)


def test_chatgpts_files_lie_beside_its_conversations(tmp_path):
    (conversation,), found, notices = read(a_chatgpt_export(tmp_path / "x.zip"))
    assert found == {"lease.pdf": PDF, "kiln.png": PICTURE, "1f0b.webp": b"drawn"}
    asked, answered = conversation.messages
    assert asked.attachments == ("lease.pdf", "gone.txt", "file-BBBBBBBBBB")
    assert [file.name for file in asked.files] == ["lease.pdf", "kiln.png"]
    assert [file.name for file in answered.files] == ["1f0b.webp"]
    assert notices[0] == "An attached file is missing from the export; its name is kept."


def test_a_json_and_a_zip_that_were_attached_are_files_and_no_part_of_the_export(tmp_path):
    attached = [{"id": "file-AAAAAAAAAA", "name": "chats.json"}, {"id": "file-ZZZZZZZZZZ", "name": "all.zip"}]
    inner = exported(tmp_path / "inner.zip", **{"conversations.json": chatgpt(node("x", "user", None, "Inside"))})
    path = exported(
        tmp_path / "x.zip",
        **{
            "conversations.json": chatgpt(node("q", "user", None, "Keep", metadata={"attachments": attached})),
            "file-AAAAAAAAAA-chats.json": json.dumps(chatgpt(node("y", "user", None, "Attached"))),
            "file-ZZZZZZZZZZ-all.zip": inner.read_bytes(),
        },
    )
    conversations, found, _ = read(path)
    assert [message.text for each in conversations for message in each.messages] == ["Keep"]
    assert found["all.zip"] == inner.read_bytes()


def test_chatgpts_text_of_a_file_is_attached_where_the_file_is_missing(tmp_path):
    quote = {"content_type": "tether_quote", "url": "file-AAAAAAAAAA", "title": "lease.pdf", "text": "Six weeks."}
    page = {"content_type": "tether_quote", "url": "https://example.org", "title": "A page", "text": "Of the web."}
    nodes = [
        node(
            "q", "user", None, "Read this", metadata={"attachments": [{"id": "file-AAAAAAAAAA", "name": "lease.pdf"}]}
        ),
        node("t", "tool", "q", "", content=quote),
        node("w", "tool", "t", "", content=page),
        node("a", "assistant", "w", "Six weeks, it says."),
    ]
    (conversation,), found, _ = read(exported(tmp_path / "x.zip", **{"conversations.json": chatgpt(*nodes)}))
    assert found == {"lease.pdf": "Six weeks."}
    assert [len(message.files) for message in conversation.messages] == [1, 0]


def test_a_canvas_becomes_a_file_and_its_message_keeps_its_name(tmp_path):
    canvas = json.dumps({"name": "Plan", "type": "document", "content": "Fire at cone six."})
    nodes = [
        node("q", "user", None, "A plan?"),
        node("a", "assistant", "q", canvas, recipient="canmore.create_textdoc"),
        node("b", "assistant", "a", "I wrote it."),
    ]
    (conversation,), found, _ = read(exported(tmp_path / "x.zip", **{"conversations.json": chatgpt(*nodes)}))
    assert found == {"Plan.md": "Fire at cone six."}
    (turn,) = planned_turns(conversation, otherwise=AT)
    assert turn.assistant_message == "**Plan**\n\nI wrote it."


def claude_message(id_, sender, **fields):
    return {"uuid": id_, "sender": sender, "created_at": AT.isoformat(), "text": "", **fields}


def test_claudes_artifacts_and_files_become_files(tmp_path):
    uuid = "760ee005-6d33-49cb-be71-1a23da9ca649"

    def wrote(**fields):
        return {"type": "tool_use", "name": "artifacts", "input": {"id": "n", **fields}}

    blocks = [
        wrote(title="App", type="application/vnd.ant.code", language="python", content="print(1)"),
        wrote(title="App", type="application/vnd.ant.code", language="python", content="print(2)"),
        {"type": "text", "text": "It prints two."},
    ]
    asked = claude_message(
        "q",
        "human",
        text="Write it",
        files=[{"file_uuid": uuid, "file_name": "photo 2.jpg"}, {"file_uuid": "x", "file_name": "gone.jpg"}],
        attachments=[{"file_name": "", "extracted_content": "Pasted words"}],
    )
    chats = [{"uuid": "c", "name": "App", "chat_messages": [asked, claude_message("a", "assistant", content=blocks)]}]
    path = exported(tmp_path / "x.zip", **{"conversations.json": chats, f"files/{uuid}/photo 2.jpg": PICTURE})
    (conversation,), found, notices = read(path)
    assert found == {"Pasted text.txt": "Pasted words", "photo 2.jpg": PICTURE, "App.py": "print(2)"}
    assert conversation.messages[1].text == "It prints two."
    assert notices[0] == "An attached file is missing from the export; its name is kept."


def test_a_picture_in_base64_is_a_file_and_an_address_is_not_fetched(tmp_path):
    files = [
        {"type": "image", "url": f"data:image/png;base64,{IN_BASE64}"},
        {"type": "image", "url": "https://example.org/x.png"},
        {"type": "image", "url": "data:image/png;base64,====="},
    ]
    messages = {"q": {"role": "user", "content": "See", "timestamp": AT.timestamp(), "files": files}}
    chats = [{"id": "w", "title": "See", "chat": {"history": {"messages": messages, "currentId": "q"}}}]
    _, found, _ = read(exported(tmp_path / "x.zip", **{"chats.json": chats}))
    assert found == {"image.png": PICTURE}


def lines(*values):
    return "\n".join(map(json.dumps, values)) + "\n"


def claude_code(**fields):
    return {"sessionId": "s", "timestamp": AT.isoformat(), "uuid": "q", "parentUuid": None, **fields}


def test_claude_codes_pasted_blocks_pictures_and_mentioned_files_become_files(tmp_path):
    image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": IN_BASE64}}
    text = {"type": "text", "text": f"Why does it crack?\n{BLOCK}\nTell me."}
    file = {"filePath": "/home/x/glaze.py", "content": "cone = 6"}
    mentioned = {"type": "file", "filename": "glaze.py", "content": {"type": "text", "file": file}}
    session = lines(
        claude_code(type="user", message={"role": "user", "content": [text, image]}),
        claude_code(type="attachment", attachment=mentioned, uuid="m", parentUuid="q"),
        claude_code(
            type="assistant", uuid="a", parentUuid="m", message={"content": [{"type": "text", "text": "Heat."}]}
        ),
    )
    typed = "Why does it crack?\n[Pasted text #1 +199 lines]\nTell me."
    history = lines({"display": typed, "timestamp": AT.timestamp() * 1000, "project": "/home/x"})
    path = exported(tmp_path / "x.zip", **{"projects/-home-x/s.jsonl": session, "history.jsonl": history})
    (conversation,), found, _ = read(path)
    assert found == {"Pasted text.txt": BLOCK, "image.png": PICTURE, "glaze.py": "cone = 6"}
    # A reader yields what was said; the words of the block are taken out where they become a file.
    assert BLOCK in conversation.messages[0].text
    (turn,) = planned_turns(conversation, otherwise=AT)
    assert turn.user_message == "Why does it crack?\n\nTell me."


def test_codexs_pasted_blocks_and_pictures_become_files(tmp_path):
    at = AT.isoformat()
    content = [
        {"type": "input_text", "text": f"{BLOCK} is what it says"},
        {"type": "input_image", "image_url": f"data:image/png;base64,{IN_BASE64}"},
    ]
    item = {"type": "message", "role": "user", "content": content}
    rollout = lines(
        {"timestamp": at, "type": "session_meta", "payload": {"id": "r"}},
        {"timestamp": at, "type": "response_item", "payload": item},
    )
    typed = f"[Pasted Content {len(BLOCK)} chars] is what it says"
    history = lines({"session_id": "r", "ts": int(AT.timestamp()), "text": typed})
    name = "sessions/2024/03/01/rollout-2024-03-01T09-00-00-r.jsonl"
    _, found, _ = read(exported(tmp_path / "x.zip", **{name: rollout, "history.jsonl": history}))
    assert found == {"Pasted text.txt": BLOCK, "image.png": PICTURE}


@pytest.mark.parametrize(
    ("typed", "text", "blocks"),
    [
        (f"[Pasted Content {len(BLOCK)} chars]", BLOCK, [BLOCK]),
        (
            f"See [Pasted Content {len(BLOCK)} chars] and [Pasted Content {len(BLOCK)} chars]",
            f"See {BLOCK} and {BLOCK}",
            2,
        ),
        ("[Pasted text #1 +199 lines] end", f"{BLOCK} end", [BLOCK]),
        ("[Pasted text #1 +20 lines] end", f"{BLOCK} end", []),
        (f"[Pasted Content {len(BLOCK) + 9} chars] end", f"{BLOCK} end", []),
        ("Another [Pasted text #1 +199 lines]", BLOCK, []),
        ("[Pasted text #1 +1 lines]", "short\ntext", []),
        ("No block", BLOCK, []),
    ],
)
def test_a_pasted_block_is_what_the_history_leaves_out(typed, text, blocks):
    assert len(BLOCK) > LONG
    assert pasted_blocks(typed, text) == (blocks if isinstance(blocks, list) else [BLOCK] * blocks)


# --- What is stored ---


@pytest.fixture
def alice():
    return a_person()


@pytest.fixture
def importer(alice):
    client = Client()
    client.force_login(alice)
    return Importer(client)


@pytest.mark.medium
@pytest.mark.django_db(transaction=True)
def test_files_of_an_export_come_in_once_and_undoing_removes_them(alice, importer, tmp_path):
    data = a_chatgpt_export(tmp_path / "x.zip").read_bytes()
    done = importer.bring(data)
    assert (done["state"], done["found"]["skipped"], len(done["notices"])) == ("done", 0, 1)
    turn = Turn.objects.get()
    kept = attachments.attachments_of([turn])[turn.pk]
    assert [(each.name, each.media_type, each.kind) for each in kept] == [
        ("lease.pdf", "application/pdf", "imported"),
        ("kiln.png", "image/png", "imported"),
        ("1f0b.webp", "application/octet-stream", "imported"),
    ]
    assert [attachments.bytes_of(each) for each in kept] == [PDF, PICTURE, b"drawn"]
    assert (turn.attachment_count, {each.created_at for each in kept}) == (3, {turn.said_at})
    # What is shown as a file is not named below the answer too.
    assert [call["input"] for call in turn.tool_calls] == [{"name": "gone.txt"}]
    again = importer.bring(data)
    assert (again["stored"]["turns"], Attachment.objects.count()) == (0, 3)
    assert importer.undo(done["id"]).status_code == 202
    assert not (Attachment.objects.exists() or AttachmentPiece.objects.exists() or Turn.objects.exists())


@pytest.mark.django_db(transaction=True)
def test_a_file_of_an_export_is_read_and_found(alice, importer, tmp_path):
    attached = {"attachments": [{"id": "file-AAAAAAAAAA", "name": "lease.txt"}]}
    chats = chatgpt(node("q", "user", None, "Read this", metadata=attached))
    importer.bring(
        exported(
            tmp_path / "x.zip", **{"conversations.json": chats, "file-AAAAAAAAAA.dat": b"The deposit is paid back."}
        ).read_bytes()
    )
    read_all()
    (text,) = AttachmentText.objects.all()
    assert text.text == "The deposit is paid back."
    (indexed,) = IndexedText.objects.in_corpus(Corpus.ATTACHMENT)
    assert abs((indexed.said_at - AT).total_seconds()) < 1


@pytest.mark.django_db(transaction=True)
def test_what_cannot_come_in_is_listed_in_the_preview_and_in_the_report(alice, importer, tmp_path, settings):
    settings.ATTACHMENT_BYTES, settings.QUOTA_FILE_BYTES = 2_000, 100
    data = a_chatgpt_export(tmp_path / "x.zip", **{"file-AAAAAAAAAA.dat": PDF + b" " * 2_000}).read_bytes()
    id_ = importer.upload(data)
    preview = importer.get(f"{id_}/").json()
    (listed,) = preview["skipped"]
    assert listed["where"].endswith(": lease.pdf") and listed["external_id"] == "c"
    assert listed["reason"] == "the file is larger than 2.0 KB"
    done = importer.bring(data)
    assert (done["state"], done["skipped"]) == ("done", [listed])
    assert sorted(Attachment.objects.values_list("name", flat=True)) == ["1f0b.webp", "kiln.png"]


@pytest.mark.django_db(transaction=True)
def test_the_preview_says_that_files_have_no_room_and_the_report_which(alice, importer, tmp_path, settings):
    settings.QUOTA_FILE_BYTES = len(PICTURE) + len(PDF)
    data = a_chatgpt_export(tmp_path / "x.zip").read_bytes()
    id_ = importer.upload(data)
    assert any("The last ones stay out" in each for each in importer.get(f"{id_}/").json()["notices"])
    done = importer.bring(data)
    (listed,) = done["skipped"]
    assert listed["where"].endswith(": 1f0b.webp")
    assert listed["reason"].startswith("You may keep")
    assert (done["found"]["skipped"], Attachment.objects.count()) == (1, 2)


@pytest.mark.django_db(transaction=True)
def test_a_damaged_file_is_listed_and_everything_else_comes_in(alice, importer, tmp_path):
    data = a_chatgpt_export(tmp_path / "x.zip").read_bytes()
    assert data.count(PICTURE) == 1
    done = importer.bring(data.replace(PICTURE, PICTURE[:-1] + b"x"))
    (listed,) = done["skipped"]
    assert listed["where"].endswith(": kiln.png") and "damaged or incomplete" in listed["reason"]
    assert sorted(Attachment.objects.values_list("name", flat=True)) == ["1f0b.webp", "lease.pdf"]


@pytest.mark.medium
@pytest.mark.django_db(transaction=True)
def test_the_new_files_of_a_longer_export_go_with_the_import_of_their_turn(alice, importer, tmp_path):
    first = chatgpt(
        node("q", "user", None, "Read", metadata={"attachments": [{"id": "file-AAAAAAAAAA", "name": "a.pdf"}]})
    )
    answer = node("a", "assistant", "q", "Look:", pointer("file-BBBBBBBBBB"))
    entries = {"file-AAAAAAAAAA.dat": PDF, "file-BBBBBBBBBB-b.png": PICTURE}
    earlier = importer.bring(exported(tmp_path / "1.zip", **{"conversations.json": first} | entries).read_bytes())
    first[0]["mapping"] |= answer
    first[0]["current_node"] = "a"
    later = importer.bring(exported(tmp_path / "2.zip", **{"conversations.json": first} | entries).read_bytes())
    turn = Turn.objects.get()
    kept = attachments.attachments_of([turn])[turn.pk]
    assert [(each.name, each.position) for each in kept] == [("a.pdf", 0), ("b.png", 1)]
    assert turn.attachment_count == 2
    importer.undo(later["id"])
    turn = Turn.objects.get()
    assert (turn.assistant_message, turn.attachment_count) == ("Look:", 2)
    importer.undo(earlier["id"])
    assert not AttachmentPiece.objects.exists()


@pytest.mark.django_db(transaction=True)
def test_a_file_that_was_deleted_here_does_not_come_back(alice, importer, tmp_path):
    data = a_chatgpt_export(tmp_path / "x.zip").read_bytes()
    importer.bring(data)
    with acting_as(alice):
        delete_attachment(caller=caller_for(alice), attachment_id=str(Attachment.objects.get(name="lease.pdf").pk))
    importer.bring(data)
    assert sorted(Attachment.objects.values_list("name", flat=True)) == ["1f0b.webp", "kiln.png"]


def test_the_eleventh_file_of_a_message_and_one_that_is_too_large_are_refused_before(settings):
    settings.ATTACHMENT_BYTES = 1_000
    sizes = [1_001, *[1] * 11]
    files = [ImportedFile(name=f"{number}.txt", entry="x", size=size) for number, size in enumerate(sizes)]
    assert [(file.name, str(why)) for file, why in refusals_of(files)] == [
        ("0.txt", "the file is larger than 1000 bytes"),
        ("11.txt", "a message has at most 10 files here"),
    ]
