"""Exports written here, read as the registry reads them; broken ones give a sentence or what is good in them."""

import io
import json
import random
import tempfile
import zipfile
from datetime import UTC, datetime
from io import StringIO

import pytest
from django.core.management import CommandError, call_command

from evals.expectations import as_expectation, differences, read_all
from imports.reading import exported
from imports.reading.activity_page import read_date
from imports.reading.files import open_files
from imports.reading.items import ImportedConversation, ImportedMessage, UnreadableExport
from imports.reading.limits import Limits
from imports.reading.products import read
from imports.reading.trees import branches, newest_leaf
from imports.reading.values import parse_time
from imports.tests.exports import chatgpt, write_chatgpt
from intake.llm.chat_options import HOTTEST, MAX_INSTRUCTIONS
from intake.models.conversations import MODEL_NAME_LENGTH
from memory.models.documents import MAX_PROPOSAL_LENGTH, MAX_QUOTE_LENGTH

AT = 1_735_750_800


def _node(node, parent, role, text, at=AT):
    message = {"author": {"role": role}, "create_time": at, "content": {"content_type": "text", "parts": [text]}}
    return {"id": node, "parent": parent, "message": message}


def _chatgpt():
    nodes = [
        {"id": "root", "parent": None, "message": None},
        _node("hidden", "root", "system", "be kind"),
        _node("question", "hidden", "user", "How warm?\x00 \ud800 \ue200cite\ue202x\ue201"),
        _node("first", "question", "assistant", "Warm.", AT + 1),
        _node("second", "question", "assistant", "About 25 degrees.", None),
    ]
    mapping = {node["id"]: node for node in nodes}
    return {"conversation_id": "one", "title": "Dough", "create_time": AT, "mapping": mapping, "current_node": "second"}


def _claude():
    messages = [
        {"uuid": "a", "sender": "human", "text": "Hello", "content": [], "created_at": "2025-01-01T10:00:00Z"},
        {"uuid": "b", "sender": "assistant", "text": "Hi", "created_at": "2025-01-01T10:00:05Z"},
    ]
    return {"uuid": "c", "name": "Greeting", "chat_messages": messages}


def _open_webui():
    messages = {
        "q": {"parentId": None, "role": "user", "content": "Why?", "timestamp": AT},
        "a": {
            "parentId": "q",
            "role": "assistant",
            "content": '<details type="reasoning"><summary>x</summary>hm</details>\nBecause.',
        },
    }
    return {"id": "w", "title": "Why", "chat": {"history": {"messages": messages, "currentId": "a"}}}


def _librechat(depth=2):
    below = []
    for number in range(depth, 0, -1):
        is_user = number % 2 == 1
        below = [{"messageId": str(number), "isCreatedByUser": is_user, "text": f"text {number}", "children": below}]
    return {"conversationId": "l", "title": "Deep", "exportAt": "13:18", "messages": below}


def _gemini():
    def entry(title, time):
        return {"header": "Gemini Apps", "title": title, "time": time, "safeHtmlItem": [{"html": "<p>A &amp; B</p>"}]}

    return [
        entry("Prompted third", "2025-01-01T12:00:00Z"),
        entry("Prompted second", "2025-01-01T10:20:00Z"),
        entry("Prompted first", "2025-01-01T10:00:00Z"),
    ]


def _page(*cards):
    """As Takeout writes it: a long style sheet, then a card for each entry."""
    return f"<html><head><style>{'a{}' * 50_000}</style></head><body>{''.join(cards)}</body></html>"


def _card(asked, date, answer="", header="Gemini Apps"):
    return (
        '<div class="outer-cell mdl-cell mdl-cell--12-col mdl-shadow--2dp"><div class="mdl-grid"><div class="header-cell">'
        f'<p class="mdl-typography--title">{header}<br></p></div><div class="content-cell mdl-cell mdl-cell--6-col">'
        f'{asked}<br>{date}<br>{answer}<br></div><div class="content-cell mdl-cell"><b>Products:</b><br>{header}</div></div></div>'
    )


EXAMPLES = {
    "chatgpt": [_chatgpt()],
    "claude": [_claude()],
    "open-webui": [_open_webui()],
    "librechat": _librechat(),
    "gemini": _gemini(),
}


@pytest.fixture
def written(tmp_path):
    def write(value, name="export.json"):
        path = tmp_path / name
        path.write_text(value if isinstance(value, str) else json.dumps(value))
        return path

    return write


@pytest.mark.parametrize("product", EXAMPLES)
def test_each_product_is_recognised_by_its_content(written, product):
    conversations = read_all(written(EXAMPLES[product], "misnamed.zip")).conversations
    assert {each.product for each in conversations} == {product}


def test_chatgpt_shows_the_current_branch_and_keeps_the_other(written):
    (found,) = read_all(written(EXAMPLES["chatgpt"])).conversations
    assert [message.text for message in found.messages] == ["How warm? \ufffd", "About 25 degrees."]
    assert found.messages[1].parent == "question"
    assert found.messages[1].at_inferred and found.messages[1].at == datetime.fromtimestamp(AT, UTC)
    assert [message.text for message in found.other_branches] == ["Warm."]


def test_chatgpt_folds_what_was_sent_to_tools_and_thought_into_the_answer(written):
    chat = _chatgpt()
    call = _node("call", "question", "assistant", "search('dough')")
    call["message"]["recipient"] = "web"
    thought = _node("thought", "call", "assistant", "")
    thought["message"]["content"] = {"content_type": "thoughts", "thoughts": [{"content": "Warm, I think."}, None]}
    chat["mapping"] |= {"call": call, "thought": thought, "result": _node("result", "thought", "tool", "A page.")}
    chat["mapping"]["second"]["parent"] = "result"
    (found,) = read_all(written([chat])).conversations
    assert found.messages[-1].text == "About 25 degrees."
    assert found.messages[-1].tool_calls == (
        {"name": "web", "input": "search('dough')"},
        {"name": "thinking", "summary": "Warm, I think."},
    )


def test_open_webui_leaves_reasoning_out_of_the_text(written):
    (found,) = read_all(written(EXAMPLES["open-webui"])).conversations
    assert found.messages[-1].text == "Because."


def test_gemini_begins_a_conversation_after_half_an_hour(written):
    found = read_all(written(EXAMPLES["gemini"])).conversations
    assert [[message.text for message in each.messages] for each in found] == [
        ["first", "A & B", "second", "A & B"],
        ["third", "A & B"],
    ]


def test_gemini_is_read_from_a_web_page_too(written):
    page = _page(
        _card(
            "Prompted&nbsp;Which loaf?<br>Attached 1 file.<br>-&nbsp;&nbsp;<a href='rye.png'>rye.png</a>",
            "Jan 2, 2025, 1:10:00\u202fPM CET",
            "<p>The <b>rye</b> &amp; the oat.</p>",
        ),
        _card("Used&nbsp;an app", "Jan 2, 2025, 1:05:00\u202fPM CET"),
        _card("Searched for&nbsp;bread", "Jan 2, 2025, 1:03:00\u202fPM CET", header="Search"),
        _card("Prompted&nbsp;Hello<br>there", "no day", "<p>Hi</p>"),
    )
    reading = read_all(written(page, "MyActivity.html"))
    (found,) = reading.conversations
    assert [(each.role, each.text, each.attachments) for each in found.messages] == [
        ("user", "Which loaf?", ("rye.png",)),
        ("assistant", "The **rye** & the oat.", ()),
    ]
    assert found.created_at == datetime(2025, 1, 2, 12, 10, tzinfo=UTC)
    assert [each.reason for each in reading.skipped] == [
        "not a prompt",
        "an entry of another product",
        "it has no usable time",
    ]


@pytest.mark.parametrize(
    "date",
    [
        "Oct 6, 2025, 10:15:30\u202fPM UTC",
        "6 de out. de 2025, 19:15:30 BRT",
        "07.10.2025, 00:15:30 MESZ",
        "7 oct. 2025, 00:15:30 CEST",
        "2025年10月7日 06:15:30 CST",
        "2025/10/07 7:15:30 JST",
        "7. okt. 2025 00.15.30 CEST",
        "2025-10-06T22:15:30Z",
        "6 Oct 2025, 23:15:30 GMT+01:00",
    ],
)
def test_dates_of_a_web_page_are_read_in_many_languages(date):
    assert read_date(date) == datetime(2025, 10, 6, 22, 15, 30, tzinfo=UTC)


def test_a_verb_of_another_language_is_no_part_of_the_question(written):
    page = _page(
        _card("Fez uma pergunta:&nbsp;Por quê?", "6 de out. de 2025, 10:15:30 BRT", "<p>Porque sim.</p>"),
        _card("Fez uma pergunta:&nbsp;E agora?", "6 de out. de 2025, 10:16:30 BRT"),
        _card("Usou&nbsp;um app", "6 de out. de 2025, 10:17:30 BRT"),
    )
    reading = read_all(written(page, "x.html"))
    assert [each.text for each in reading.conversations[0].messages] == ["Por quê?", "Porque sim.", "E agora?"]
    assert [each.reason for each in reading.skipped] == ["not a prompt"]


def test_what_the_export_of_recollect_may_hold_is_what_the_chat_takes():
    assert exported.LONGEST["model"] == MODEL_NAME_LENGTH
    assert exported.LONGEST["instructions"] == MAX_INSTRUCTIONS
    assert exported.LONGEST_PROPOSAL == MAX_PROPOSAL_LENGTH == MAX_QUOTE_LENGTH
    assert exported.HOTTEST == HOTTEST


def test_a_chat_deeper_than_the_recursion_limit_is_read(tmp_path):
    opened = "".join(
        f'[{{"messageId":"{number}","isCreatedByUser":true,"text":"text {number}","children":' for number in range(1500)
    )
    path = tmp_path / "deep.json"
    path.write_text(f'{{"conversationId":"l","exportAt":"1","messages":{opened}[]{"}]" * 1500}}}')
    (found,) = read_all(path).conversations
    assert len(found.messages) == 1500


def test_what_stands_before_the_end_of_a_cut_file_comes_in(written):
    text = json.dumps([_chatgpt(), {**_chatgpt(), "conversation_id": "two"}])
    reading = read_all(written(text[:-40]))
    assert [each.external_id for each in reading.conversations] == ["one"]
    assert reading.outcome == "partial"


@pytest.mark.parametrize(
    ("text", "says"),
    [("", "empty"), ("<html></html>", "web page"), ("[1]", "no conversations"), ("PK\x03\x04 cut", "incomplete")],
)
def test_what_cannot_be_read_is_refused_with_a_sentence(written, text, says):
    with pytest.raises(UnreadableExport, match=says):
        list(read(written(text)))


def test_an_unknown_product_is_named(written):
    with pytest.raises(UnreadableExport, match="no product 'other'"):
        list(read(written(EXAMPLES["claude"]), "other"))


def test_unsafe_names_and_links_are_listed_and_never_read(tmp_path):
    path = tmp_path / "export.zip"
    link = zipfile.ZipInfo("link.json")
    link.external_attr = 0o120777 << 16
    with zipfile.ZipFile(path, "w") as packed:
        for name in ("conversations.json", "../up.json", "/absolute.json", "C:/drive.json", "a\\..\\b.json"):
            packed.writestr(name, json.dumps(EXAMPLES["chatgpt"]))
        packed.writestr(link, "/etc/passwd")
    with open_files(path) as files:
        assert files.names() == ["conversations.json"]
        assert sorted({each.reason for each in files.refused()}) == ["symbolic link", "unsafe name"]
        assert len(list(files.refused())) == 5


def test_an_entry_with_an_endless_name_is_listed_by_its_beginning(tmp_path):
    path = tmp_path / "export.zip"
    with zipfile.ZipFile(path, "w") as packed:
        packed.writestr("conversations.json", json.dumps(EXAMPLES["chatgpt"]))
        packed.writestr("a" * 996 + ".txt", "read")
        packed.writestr("b" * 30_000 + ".txt", "refused")
    with open_files(path) as files:
        assert sorted(map(len, files.names())) == [18, 1_000]
        (refused,) = files.refused()
        assert (refused.where, refused.reason) == ("b" * 1_000, "a name of more than 1,000 characters")


def test_an_entry_without_a_name_is_listed(tmp_path):
    path = tmp_path / "export.zip"
    with zipfile.ZipFile(path, "w") as packed:
        packed.writestr("conversations.json", json.dumps(EXAMPLES["chatgpt"]))
        packed.writestr("~~~", "nameless")
    # A name that begins with NUL, of the same length, ends there.
    path.write_bytes(path.read_bytes().replace(b"~~~", b"\0~~"))
    reading = read_all(path)
    assert len(reading.conversations) == 1
    assert [each.reason for each in reading.skipped] == ["unsafe name"]


def test_a_zip_in_a_zip_is_read_and_counted_with_it(tmp_path):
    inner = tmp_path / "inner.zip"
    with zipfile.ZipFile(inner, "w") as packed:
        packed.writestr("conversations.json", json.dumps(EXAMPLES["claude"]))
    outer = tmp_path / "outer.zip"
    with zipfile.ZipFile(outer, "w") as packed:
        packed.write(inner, "inner.zip")
    assert len(read_all(outer).conversations) == 1
    size = inner.stat().st_size
    with (
        pytest.raises(UnreadableExport, match="more than can be read"),
        open_files(outer, Limits(unpacked_bytes=size + 10)),
    ):
        pass


def test_a_bomb_is_refused_before_it_unpacks(tmp_path):
    path = tmp_path / "bomb.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as packed:
        packed.writestr("conversations.json", b" " * 1_000_000)
    with pytest.raises(UnreadableExport, match="times its size"), open_files(path, Limits(ratio_from_bytes=100_000)):
        pass


def test_links_in_a_folder_are_not_followed(tmp_path):
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "passwd").symlink_to("/etc/passwd")
    with open_files(tmp_path / "notes") as files:
        assert files.names() == []
        assert [each.reason for each in files.refused()] == ["symbolic link"]


@pytest.mark.parametrize(
    "value", [AT, float(AT), AT * 1000, AT * 1_000_000, str(AT), "2025-01-01T17:00:00", "2025-01-01T18:00:00+01:00"]
)
def test_times_are_read_however_they_are_written(value):
    assert parse_time(value) == datetime(2025, 1, 1, 17, tzinfo=UTC)


@pytest.mark.parametrize("value", [None, True, -1, 0, "soon", [], 10**400, float("nan"), "9999-01-01", 253370764800])
def test_what_is_no_time_is_unknown(value):
    assert parse_time(value) is None


def test_a_circle_of_parents_ends():
    shown = {name: ImportedMessage(id=name, parent=None, role="user", text=name) for name in "abc"}
    parents = {"a": "b", "b": "a", "c": "c"}
    current, others = branches(parents, shown, newest_leaf(parents, {}))
    assert {message.id for message in (*current, *others)} <= {"a", "b", "c"}
    assert current


def test_check_import_says_what_differs(written):
    path = written(EXAMPLES["chatgpt"])
    expectation = as_expectation(read_all(path))
    expected = written(expectation, "expected.json")
    call_command("check_import", path, expected, stdout=StringIO())
    expectation["conversations"][0]["messages"][0]["text"] = "Another text"
    said = StringIO()
    with pytest.raises(CommandError, match="1 differences"):
        call_command("check_import", path, written(expectation, "expected.json"), stdout=said)
    assert "text begins" in said.getvalue()


def test_read_export_writes_whole_texts(written, tmp_path):
    target = tmp_path / "read.json"
    call_command("read_export", written(EXAMPLES["claude"]), json=target, stdout=StringIO())
    assert json.loads(target.read_text())["conversations"][0]["messages"][1]["text"] == "Hi"


def test_a_refusal_that_is_not_expected_is_a_difference():
    assert differences({"outcome": "refused", "why": "x"}, {"outcome": "imported"}) == ["refused: x"]
    assert differences({"outcome": "refused", "why": "x"}, {"outcome": "any"}) == []


def _mutated(value, chance):
    """One value somewhere inside replaced by one of another type."""
    odd = [None, True, -1, 10**30, "", "x", [], {}, [[]], {"a": None}]
    if isinstance(value, dict) and value and chance.random() < 0.85:
        key = chance.choice(list(value))
        return {**value, key: _mutated(value[key], chance)}
    if isinstance(value, list) and value and chance.random() < 0.85:
        place = chance.randrange(len(value))
        return [*value[:place], _mutated(value[place], chance), *value[place + 1 :]]
    return chance.choice(odd)


@pytest.mark.parametrize("product", EXAMPLES)
def test_no_wrong_type_raises_anything_but_a_sentence(written, product):
    chance = random.Random(7)
    for _ in range(100):
        value = EXAMPLES[product]
        for _ in range(chance.randint(1, 3)):
            value = _mutated(value, chance)
        reading = read_all(written(value), chance.choice([None, product]))
        assert reading.refusal or all(isinstance(each, ImportedConversation) for each in reading.conversations)


@pytest.mark.parametrize("product", EXAMPLES)
def test_no_damaged_byte_raises_anything_but_a_sentence(tmp_path, product):
    chance = random.Random(8)
    packed = tmp_path / "export.zip"
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as target:
        target.writestr("conversations.json", json.dumps(EXAMPLES[product]))
    for whole in (json.dumps(EXAMPLES[product]).encode(), packed.read_bytes()):
        for _ in range(50):
            data = bytearray(whole)
            data[chance.randrange(len(data))] = chance.randrange(256)
            path = tmp_path / "damaged"
            path.write_bytes(data[: chance.randint(1, len(data))] if chance.random() < 0.3 else data)
            assert read_all(path, chance.choice([None, product])).outcome in ("imported", "partial", "refused")


def test_no_damage_of_a_web_page_raises_anything_but_a_sentence(tmp_path):
    chance = random.Random(9)
    cards = [_card(f"Prompted&nbsp;{n}", f"Jan {n}, 2025, 1:10:00 PM CET", "<p>Yes.</p>") for n in range(1, 9)]
    whole = _page(*cards).replace("a{}" * 50_000, "")
    for _ in range(100):
        at, end = sorted(chance.randrange(len(whole)) for _ in range(2))
        path = tmp_path / "damaged.html"
        path.write_text(whole[:at] + whole[end:] if chance.random() < 0.5 else whole[:at] + whole[at:end] * 2)
        assert read_all(path, chance.choice([None, "gemini"])).outcome in ("imported", "partial", "refused")


def nested(tmp_path, *, inner_bytes, copies=1):
    """A zip of zips that are almost nothing but blanks."""
    path = tmp_path / "outer.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as outer:
        for number in range(copies):
            inner = io.BytesIO()
            with zipfile.ZipFile(inner, "w", zipfile.ZIP_STORED) as packed:
                packed.writestr("conversations.json", b" " * inner_bytes)
            outer.writestr(f"{number}.zip", inner.getvalue())
    return path


@pytest.mark.parametrize(("inner_bytes", "copies"), [(30_000_000, 1), (7_000_000, 4)])
def test_zips_in_a_zip_that_are_larger_than_it_are_not_copied(tmp_path, inner_bytes, copies):
    path = nested(tmp_path, inner_bytes=inner_bytes, copies=copies)
    written = []
    folder = tmp_path / "temporary"
    folder.mkdir()
    limits = Limits(temporary=folder, ratio=10**6)
    with pytest.raises(UnreadableExport, match="much larger than the file"), open_files(path, limits) as files:
        written.append(files.names())
    assert not written


def test_a_zip_in_a_zip_is_not_copied_onto_a_full_disk(tmp_path):
    path = nested(tmp_path, inner_bytes=1_000)
    limits = Limits(temporary=tmp_path, free_bytes=10**18)
    with pytest.raises(UnreadableExport, match="no room for this file"), open_files(path, limits):
        pass


def test_a_zip_in_a_zip_is_copied_to_the_folder_of_imports(tmp_path, monkeypatch):
    folders = []
    made = tempfile.SpooledTemporaryFile
    monkeypatch.setattr(tempfile, "SpooledTemporaryFile", lambda *a, dir=None: folders.append(dir) or made(*a, dir=dir))
    path = nested(tmp_path, inner_bytes=1_000)
    with open_files(path, Limits(temporary=tmp_path)) as files:
        assert files.names() == ["0.zip/conversations.json"]
    assert folders == [str(tmp_path)]


def test_the_projects_of_chatgpt_are_told_apart_by_their_ids(tmp_path):
    kept = chatgpt(conversations=6)
    ids = ["g-p-6a58945e7e908191b5b1cee3353cd6c4", "g-p-7a58945e7e908191b5b1cee3353cd6c4", "g-12345678", None]
    for conversation, id_ in zip(kept, ids, strict=False):
        conversation["conversation_template_id"] = id_
    kept[4]["gizmo_id"] = ids[0]
    found = read_all(write_chatgpt(tmp_path / "export.zip", kept)).conversations
    one, other = "ChatGPT project 6a58945e", "ChatGPT project 7a58945e"
    assert [each.project for each in found] == [one, other, None, None, one, None]


def test_what_claude_keeps_in_a_project_has_its_name(tmp_path):
    with zipfile.ZipFile(tmp_path / "claude.zip", "w") as export:
        said = [{"uuid": "m", "sender": "human", "text": "Hello", "created_at": "2026-01-01T10:00:00Z"}]
        chats = [
            {"uuid": "a", "name": "A", "chat_messages": said, "project": {"uuid": "p1"}},
            {"uuid": "b", "name": "B", "chat_messages": said, "project": {"uuid": "p2", "name": "House"}},
        ]
        docs = [{"uuid": "d", "filename": "plan.md", "content": "Two beds"}]
        projects = [{"uuid": "p1", "name": "Garden", "prompt_template": "In Latin", "docs": docs}]
        export.writestr("conversations.json", json.dumps(chats))
        export.writestr("memories.json", json.dumps([{"project_memories": {"p1": "Clay soil", "p9": "Lost"}}]))
        export.writestr("projects.json", json.dumps(projects))
    reading = read_all(tmp_path / "claude.zip")
    assert [each.project for each in reading.conversations] == ["Garden", "House"]
    assert {each.text: each.project for each in reading.documents} == {
        "In Latin": "Garden",
        "Two beds": "Garden",
        "Clay soil": "Garden",
        "Lost": "",
    }
