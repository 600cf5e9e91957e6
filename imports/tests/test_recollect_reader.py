"""Recollect's own export is read back whole, and the Markdown of version 1.0 too."""

import io
import json
import zipfile
from datetime import UTC
from functools import partial
from uuid import uuid4

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from chat import exporting
from core.ids import uuid7
from evals.expectations import as_expectation, differences, read_all
from imports.reading.exported import project_of, record_of
from imports.reading.items import (
    ImportedConversation,
    ImportedDocument,
    ImportedRecord,
    Notice,
    Skipped,
    UnreadableExport,
)
from imports.reading.products import read
from imports.reading.products.recollect import read_head, read_sections
from imports.tests.test_kept_exports import MARKDOWN
from intake.chats.exporting import chats_as_json
from intake.models import Conversation, Turn, User
from intake.tests.factories import NOW, a_person, a_turn
from memory import documents, records
from memory.models import MemoryDocument, MemoryRecord

pytestmark = pytest.mark.django_db

FORMS = {
    "export.json": exporting.account_as_json,
    "json.zip": exporting.json_zip,
}
UNHURRIED = settings(
    deadline=None,
    max_examples=15,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
TEXTS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=40)
SAID = TEXTS | st.sampled_from(
    [
        "---\ntitle: x\n---\n",
        '<!-- turn {"turn_number": 9} -->\n## You\n',
        "\\<!-- end {} -->",
        "\r\n",
        "\n\n",
        "```\nopen",
    ]
)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.floats(-1e9, 1e9) | TEXTS,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(TEXTS, inner, max_size=2),
    max_leaves=4,
)
MOMENTS = (NOW.replace(year=year, tzinfo=None) for year in (1980, 2026))
TIMES = st.datetimes(*MOMENTS, timezones=st.just(UTC))
TURNS = st.fixed_dictionaries(
    {
        "user_message": SAID,
        "assistant_message": SAID,
        "status": st.sampled_from(["complete", "interrupted", "failed"]),
        "is_recall": st.booleans(),
        "tool_calls": st.lists(
            st.fixed_dictionaries(
                {
                    "id": st.from_regex(r"\A[a-z0-9-]{1,9}\Z"),
                    "name": st.text("a_", min_size=1, max_size=9),
                    "input": st.dictionaries(TEXTS, JSON, max_size=2),
                }
            ),
            max_size=2,
            unique_by=lambda call: call["id"],
        ),
        "error": st.none() | st.fixed_dictionaries({"code": TEXTS, "detail": TEXTS}),
        "said_at": TIMES,
    }
)
CONVERSATIONS = st.lists(
    st.tuples(
        st.fixed_dictionaries(
            {
                "title": TEXTS,
                "source": st.sampled_from(["chat", "chatgpt"]),
                "started_at": TIMES,
                "last_active_at": TIMES,
            }
        ),
        st.lists(TURNS, min_size=1, max_size=3),
    ),
    max_size=3,
)


@pytest.fixture
def alice():
    return a_person()


def read_back(tmp_path, user: User, name: str):
    path = tmp_path / name
    path.write_bytes(b"".join(FORMS[name](user=user, now=NOW)))
    return items_in(path)


def items_in(path):
    return [item for item in read(path) if not isinstance(item, Notice)]


@pytest.mark.parametrize("name", FORMS)
def test_everything_comes_back_from_each_form_of_the_export(tmp_path, alice, name):
    turn = a_turn(alice, "How warm?\n\n  - two", "About 25 degrees.")
    records.create(user=alice, content="We use PostgreSQL", now=NOW, project_id="p", tags=["db", "x"])
    documents.append(user=alice, day=NOW.date(), text="Planted beans", now=NOW)
    documents.append(user=alice, day=None, text="Tea, not coffee", now=NOW)
    conversation, log, memory, record = read_back(tmp_path, alice, name)
    assert (conversation.external_id, conversation.title) == (str(turn.conversation_id), "How warm?")
    assert [(message.role, message.text) for message in conversation.messages] == [
        ("user", "How warm?\n\n  - two"),
        ("assistant", "About 25 degrees."),
    ]
    [kept] = conversation.exported.turns
    assert (kept.turn_number, kept.status, kept.said_at) == (1, "complete", NOW)
    assert (log.kind, log.at, log.text, log.created_at) == ("daily_log", NOW.date(), "Planted beans\n", NOW)
    assert (memory.kind, memory.at, memory.text, memory.updated_at) == ("memory", None, "Tea, not coffee\n", NOW)
    assert (record.content, record.type, record.project_id, record.tags) == (
        "We use PostgreSQL",
        "note",
        "p",
        ("db", "x"),
    )
    assert record.id == MemoryRecord.objects.get().pk


@pytest.mark.medium
@UNHURRIED
@given(CONVERSATIONS, st.lists(SAID.filter(str.strip), max_size=2), SAID)
def test_json_and_its_zip_give_the_same_items_whatever_is_in_them(tmp_path_factory, kept, contents, memory):
    alice = User.objects.create_user(f"{uuid7()}@example.com", "password")
    for fields, turns in kept:
        conversation = Conversation.objects.create(user=alice, external_id=str(uuid7()), **fields)
        Turn.objects.bulk_create(
            Turn(conversation=conversation, user=alice, turn_number=2 * number, **turn)
            for number, turn in enumerate(turns, 1)
        )
    for content in contents:
        MemoryRecord.objects.create(
            user=alice, content=content, type="note", tags=[content[:9].strip()], created_at=NOW
        )
    MemoryDocument.objects.create(user=alice, kind="memory", content=memory)
    folder = tmp_path_factory.mktemp("exports")
    from_json, from_zip = (read_back(folder, alice, name) for name in FORMS)
    assert from_json == from_zip
    found = [item for item in from_json if isinstance(item, ImportedConversation)]
    assert [len(item.exported.turns) for item in found] == [len(turns) for _, turns in kept]
    for item, (fields, turns) in zip(found, kept, strict=True):
        assert (item.title or "", item.exported.source) == (fields["title"], fields["source"])
        assert [turn.parent_number for turn in item.exported.turns] == [None] * len(turns)
        for turn, written in zip(item.exported.turns, turns, strict=True):
            assert {name: getattr(turn, name) for name in ("user_message", "assistant_message", "status", "error")} == {
                name: written[name] for name in ("user_message", "assistant_message", "status", "error")
            }
            assert list(turn.tool_calls) == written["tool_calls"]
    assert [item.content for item in from_json if isinstance(item, ImportedRecord)] == contents
    assert [item.text for item in from_json if isinstance(item, ImportedDocument)] == [memory]


def test_one_conversation_is_read_by_itself(tmp_path, alice):
    turn = a_turn(alice, "How warm?", "Warm.")
    path = tmp_path / "anything.json"
    path.write_bytes(b"".join(chats_as_json(user=alice, chosen=[turn.conversation_id], now=NOW)))
    [item] = read(path)
    assert item.product == "recollect"
    assert [message.text for message in item.messages] == ["How warm?", "Warm."]


def test_names_of_files_are_safe_and_no_two_are_equal(alice):
    titles = [
        "../../etc/passwd",
        "con",
        "",
        "x" * 80,
        "a/b\\c:d*e?f",
        "Prüfung 試験 🙂",
        "same",
        "same",
        ".hidden",
        "\u202egnp",
    ]
    for title in titles:
        Conversation.objects.create(user=alice, title=title, started_at=NOW)
    archive = zipfile.ZipFile(io.BytesIO(b"".join(exporting.markdown_zip(user=alice, now=NOW))))
    names = [name for name in archive.namelist() if name.startswith("conversations/")]
    assert len(set(names)) == len(titles)
    assert all(name.count("/") == 1 and len(name.encode()) < 255 and "\\" not in name for name in names)
    assert all(name.startswith("conversations/2026-03-01 ") and name.endswith(".md") for name in names)
    assert not any(character in "".join(names) for character in '\u202e:*?"<>|')
    assert [name[25:-16] for name in names][5:8] == ["Prüfung 試験", "same", "same"]


def test_a_folder_around_it_and_an_unpacked_copy_are_read_alike(tmp_path):
    with zipfile.ZipFile(MARKDOWN) as archive:
        archive.extractall(tmp_path / "unpacked" / "recollect")
    packed = as_expectation(read_all(MARKDOWN))
    assert len(packed["conversations"]) == 4
    for path in (tmp_path / "unpacked", tmp_path / "unpacked" / "recollect"):
        assert differences(as_expectation(read_all(path)), packed) == []


def test_markdown_for_reading_names_the_export_to_import(tmp_path, alice):
    a_turn(alice, "How warm?", "Warm.")
    documents.append(user=alice, day=None, text="Tea", now=NOW)
    path = tmp_path / "markdown.zip"
    path.write_bytes(b"".join(exporting.markdown_zip(user=alice, now=NOW)))
    with zipfile.ZipFile(path) as archive:
        assert archive.namelist()[0] == "README.md" and "import the JSON export" in archive.read("README.md").decode()
        archive.extractall(tmp_path / "unpacked" / "recollect")
    for each in (path, tmp_path / "unpacked"):
        with pytest.raises(UnreadableExport, match="import the JSON export"):
            list(read(each))


@pytest.mark.parametrize(
    "text", ["", "Nothing of this", "---\n", "---\ntitle: x\n", "<!-- turn -->\nx", "# <!-- end {} -->"]
)
def test_what_is_no_section_gives_none(text):
    assert (list(read_sections(text)), read_head(text)) == ([], {})


def test_what_people_change_by_hand_is_still_read():
    text = '---\r\ntitle: By hand: yes\r\n---\r\n<!-- turn {"a": 1, -->\n<!-- turn {"a": } -->\r\n## You\n\nHello'
    assert read_head(text) == {"title": "By hand: yes"}
    assert list(read_sections(text)) == [("turn", {}, "Hello")]


def test_the_commands_know_it(tmp_path, alice):
    a_turn(alice, "How warm?", "Warm.")
    records.create(user=alice, content="We use PostgreSQL", now=NOW)
    read_back(tmp_path, alice, "export.json")
    found = as_expectation(read_all(tmp_path / "export.json"))
    assert differences(found, found) == []
    other = json.loads(json.dumps(found))
    other["records"][0]["content"] = "We use another"
    assert differences(found, other) == [f"record {found['records'][0]['id']} differs in content"]


def changed(tmp_path, **parts):
    path = tmp_path / "changed.json"
    path.write_text(json.dumps({"format": "recollect-export-1", "exported_at": "2026-03-01T12:00:00Z", **parts}))
    return list(read(path))


GOOD = {
    "id": "019b0000-0000-7000-8000-000000000001",
    "title": "Dough",
    "started_at": "2026-03-01T12:00:00Z",
    "last_active_at": "2026-03-01T12:00:00Z",
}
TURN = {"turn_number": 1, "status": "complete", "said_at": "2026-03-01T12:00:00Z", "user_message": "Hello"}
GOOD["turns"] = [TURN]


@pytest.mark.parametrize(
    ("wrong", "reason"),
    [
        ({"id": "../../etc"}, "its id is none of Recollect's"),
        ({"id": 7}, "its id is none of Recollect's"),
        ({"title": "x" * 81}, "its title has more than 80 characters"),
        ({"title": ["x"]}, "its title is no text"),
        ({"source": "x" * 33}, "its source has more than 32 characters"),
        ({"started_at": "yesterday"}, "its started_at is no time"),
        ({"started_at": "9999-12-31T23:59:59-10:00"}, "its started_at is no time"),
        ({"last_active_at": "2026-03-01T12:00:00"}, "its last_active_at is no time"),
    ],
)
def test_a_conversation_that_cannot_be_is_listed_with_its_place(tmp_path, wrong, reason):
    bad, good = changed(tmp_path, conversations=[{**GOOD, **wrong}, GOOD])
    assert (bad.where, bad.reason) == ("changed.json:conversations[0]", reason)
    assert good.title == "Dough"


@pytest.mark.parametrize(
    ("wrong", "reason"),
    [
        ({"turn_number": 0}, "its number is none that a turn can have"),
        ({"turn_number": True}, "its number is none that a turn can have"),
        ({"turn_number": 2**31}, "its number is none that a turn can have"),
        ({"turn_number": 2}, "a second turn of the same number"),
        ({"status": "done"}, "its status is unknown"),
        ({"status": []}, "its status is unknown"),
        ({"user_message": None}, "its user_message is no text"),
        ({"parent_number": 3}, "it follows no earlier turn"),
        ({"parent_number": "1"}, "it follows no earlier turn"),
    ],
)
def test_a_turn_that_cannot_be_is_listed_and_the_others_come_in(tmp_path, wrong, reason):
    turns = [{**TURN, "turn_number": 2}, {**TURN, "turn_number": 3, **wrong}, TURN]
    found, skipped = changed(tmp_path, conversations=[{**GOOD, "turns": turns}])
    assert [turn.turn_number for turn in found.exported.turns] == [1, 2]
    assert skipped.reason == reason


def test_a_conversation_in_which_nothing_was_said_is_listed(tmp_path):
    [empty] = changed(tmp_path, conversations=[{**GOOD, "turns": []}])
    assert empty.reason == "nothing was said in this conversation"
    unreadable, _ = changed(tmp_path, conversations=[{**GOOD, "turns": [{**TURN, "status": "done"}]}])
    assert unreadable.reason == "none of its turns can be read: its status is unknown"


def test_versions_stand_beside_the_chosen_path(tmp_path):
    turns = [
        {**TURN, "turn_number": number, "parent_number": parent, "user_message": f"Question {number}"}
        for number, parent in ((1, None), (2, 1), (3, 1), (4, 3))
    ]
    [found] = changed(tmp_path, conversations=[{**GOOD, "current_number": 2, "turns": turns}])
    assert [message.id for message in found.messages] == ["1-user", "2-user"]
    assert [(message.id, message.parent) for message in found.other_branches] == [
        ("3-user", "1-user"),
        ("4-user", "3-user"),
    ]


def test_an_answer_that_was_being_written_is_interrupted(tmp_path):
    [found] = changed(tmp_path, conversations=[{**GOOD, "turns": [{**TURN, "status": "streaming"}]}])
    assert found.exported.turns[0].status == "interrupted"


@pytest.mark.parametrize(
    ("part", "wrong"),
    [
        ("documents", {"kind": "diary", "content": "x"}),
        ("documents", {"kind": "daily_log", "date": "2026-02-30", "content": "x"}),
        ("documents", {"kind": "memory", "date": "2026-02-03", "content": "x"}),
        ("documents", {"kind": "memory", "content": "x" * 500_001}),
        ("records", {"content": "x"}),
        ("records", {"id": GOOD["id"], "created_at": "2026-03-01T12:00:00Z", "content": " "}),
        ("records", {"id": GOOD["id"], "created_at": "2026-03-01T12:00:00Z", "content": "x" * 32_001}),
        ("records", 7),
    ],
)
def test_what_else_cannot_be_is_listed(tmp_path, part, wrong):
    [found] = changed(tmp_path, **{part: [wrong]})
    assert found.where == f"changed.json:{part}[0]"


def test_a_cut_off_export_gives_what_stands_before_the_cut(tmp_path, alice):
    for number in range(3):
        a_turn(alice, f"Question {number}")
    read_back(tmp_path, alice, "export.json")
    whole = (tmp_path / "export.json").read_text()
    (tmp_path / "cut.json").write_text(whole[: whole.index("Question 2")])
    *found, end = read(tmp_path / "cut.json")
    assert [item.title for item in found] == ["Question 0", "Question 1"]
    assert "ends early" in end.reason


@pytest.mark.medium
def test_values_nested_beyond_measure_are_left_out(tmp_path):
    deep = "[" * 100_000 + "]" * 100_000
    text = json.dumps(
        {"format": "recollect-export-1", "exported_at": "x", "conversations": [{**GOOD, "turns": [TURN]}]}
    )
    path = tmp_path / "deep.json"
    path.write_text(text.replace('"user_message"', f'"tool_calls": {deep}, "user_message"'))
    found, left_out = read(path)
    assert found.exported.turns[0].tool_calls == ()
    assert "tool calls" in left_out.reason


def test_somebody_elses_json_is_not_taken_for_it(tmp_path):
    path = tmp_path / "other.json"
    path.write_text(json.dumps({"exported_at": "x", "conversations": []}))
    with pytest.raises(UnreadableExport):
        list(read(path))


@pytest.mark.parametrize(
    ("of", "fields", "reason"),
    [
        (record_of, {"tags": ["x"] * 51}, "it has more than 50 tags"),
        (record_of, {"tags": ["x" * 101]}, "its tags has more than 100 characters"),
        (partial(record_of, is_proposed=True), {"quote": "x" * 1_001}, "its quote has more than 1000 characters"),
        (project_of, {"labels": ["x"] * 101}, "it has more than 100 labels"),
        (project_of, {"labels": ["x" * 201]}, "its labels has more than 200 characters"),
    ],
)
def test_labels_and_quotes_beyond_a_limit_are_refused_and_not_cut(of, fields, reason):
    whole = {"id": str(uuid4()), "content": "Oak", "name": "House", "created_at": NOW.isoformat()}
    assert not isinstance(of(whole, "here"), Skipped)
    refused = of({**whole, **fields}, "here")
    assert isinstance(refused, Skipped) and str(refused.reason).replace(",", "") == reason
