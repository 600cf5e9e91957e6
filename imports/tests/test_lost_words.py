"""What readers passed over without a word: blocks, links, logs and files as programs really write them."""

import json
import zipfile
from datetime import UTC, date, datetime

import pytest
from backports import zstd

from evals.expectations import read_all
from imports.reading.items import Notice
from imports.reading.products import read
from imports.tests.test_envelopes import as_claude_code, as_codex, as_openclaw, claude_code_line

AT = 1_772_000_000


def node(name, role, content, *, at=AT, **fields):
    content = {"content_type": "text", "parts": [content]} if isinstance(content, str) else content
    message = {"author": {"role": role}, "create_time": at, "content": content, **fields}
    return {"id": name, "message": message}


def chat(*nodes, **fields):
    mapping = {each["id"]: each for each in nodes}
    return {"conversation_id": "c", "title": "Kiln", "create_time": AT, "mapping": mapping, **fields}


def chain(*nodes):
    above = None
    for each in nodes:
        each["parent"], above = above, each["id"]
    return nodes


@pytest.fixture
def texts(tmp_path):
    def of(value, name="export.json", product=None):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(value if isinstance(value, str) else json.dumps(value))
        found = read_all(tmp_path if "/" in name else tmp_path / name, product)
        assert found.refusal is None, found.refusal
        return [message.text for each in found.conversations for message in each.messages]

    return of


@pytest.fixture
def folder(tmp_path):
    def of(files):
        for name, text in files.items():
            path = tmp_path / "export" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return tmp_path / "export"

    return of


# ChatGPT


@pytest.mark.parametrize("links", ["parent", "children", "null parent", "none"])
def test_chatgpt_orders_messages_by_links_of_either_direction_or_by_time(texts, links):
    nodes = [
        node(f"n{number}", "user" if number % 2 else "assistant", f"text {number}", at=AT + number)
        for number in range(1, 5)
    ]
    for place, each in enumerate(nodes):
        if links == "parent":
            each["parent"] = nodes[place - 1]["id"] if place else None
        if links in ("children", "null parent"):
            each["children"] = [nodes[place + 1]["id"]] if place < 3 else []
        if links == "null parent":
            each["parent"] = None
    assert texts([chat(*reversed(nodes) if links == "none" else nodes, current_node="n4")]) == [
        f"text {n}" for n in range(1, 5)
    ]


def test_chatgpt_shows_a_canvas_as_an_answer(texts):
    made = node(
        "a",
        "assistant",
        json.dumps({"name": "plan", "content": "Fire at cone six."}),
        recipient="canmore.create_textdoc",
    )
    changed = node(
        "b",
        "assistant",
        json.dumps({"updates": [{"pattern": ".*", "replacement": "Fire at cone five."}]}),
        recipient="canmore.update_textdoc",
    )
    assert texts([chat(*chain(node("q", "user", "A plan?"), made, changed), current_node="b")]) == [
        "A plan?",
        "**plan**\n\nFire at cone six.",
        "Fire at cone five.",
    ]


def test_chatgpt_keeps_a_picture_that_a_tool_made_with_its_turn(tmp_path):
    picture = {
        "content_type": "multimodal_text",
        "parts": [{"content_type": "image_asset_pointer", "asset_pointer": "sediment://kiln"}],
    }
    path = tmp_path / "x.json"
    path.write_text(
        json.dumps([chat(*chain(node("q", "user", "Draw a kiln"), node("t", "tool", picture)), current_node="t")])
    )
    (found,) = read_all(path).conversations
    assert found.messages[0].tool_calls == ({"name": "attachment", "input": {"name": "kiln"}},)


def test_chatgpt_shows_the_report_of_a_deep_research(texts):
    report = node("t", "tool", "The report: kilns cool slowly.", metadata={"async_task_type": "research"})
    report["message"]["author"]["name"] = "research_kickoff_tool"
    assert (
        texts([chat(*chain(node("q", "user", "Research kilns"), report), current_node="t")])[-1]
        == "The report: kilns cool slowly."
    )


def test_chatgpt_keeps_a_voice_message_without_a_transcript_between_answers(tmp_path):
    voice = {
        "content_type": "multimodal_text",
        "parts": [
            {
                "content_type": "real_time_user_audio_video_asset_pointer",
                "audio_asset_pointer": {"asset_pointer": "sediment://voice1"},
            }
        ],
    }
    path = tmp_path / "x.json"
    nodes = chain(
        node("q", "user", "Hello"),
        node("a", "assistant", "Hi"),
        node("v", "user", voice),
        node("b", "assistant", "Yes"),
    )
    path.write_text(json.dumps([chat(*nodes, current_node="b")]))
    (found,) = read_all(path).conversations
    assert [(each.text, each.attachments) for each in found.messages[2:]] == [
        ("[voice message]", ("voice1",)),
        ("Yes", ()),
    ]


# Claude, Open WebUI, LibreChat


def claude(*messages):
    return [{"uuid": "c", "name": "", "chat_messages": list(messages)}]


def test_claude_takes_any_block_with_a_text_and_lists_unknown_kinds(tmp_path):
    blocks = [
        {"type": "knowledge", "text": "Known words"},
        {"type": "flag", "flag": "x"},
        {"type": "thinking", "thinking": "hm", "text": None},
    ]
    path = tmp_path / "x.json"
    path.write_text(json.dumps(claude({"uuid": "m", "sender": "human", "text": "", "content": blocks})))
    reading = read_all(path)
    assert [message.text for message in reading.conversations[0].messages] == ["Known words"]
    assert [(each.where, "flag" in each.reason) for each in reading.skipped] == [("x.json[0] m", True)]


@pytest.mark.parametrize(
    ("blocks", "text"),
    [
        (
            [{"type": "tool_use", "name": "artifacts", "input": {"title": "Plan", "content": "# Weir"}}],
            "**Plan**\n\n# Weir",
        ),
        ([{"type": "tool_result", "content": [{"type": "text", "text": "Ferry at 7:40"}]}], "Ferry at 7:40"),
    ],
)
def test_claude_shows_an_answer_of_only_an_artifact_or_a_result(texts, blocks, text):
    asked = {"uuid": "q", "sender": "human", "text": "Search"}
    assert texts(claude(asked, {"uuid": "a", "sender": "assistant", "text": "", "content": blocks}))[-1] == text


def open_webui(answer, **more):
    messages = {"q": {"role": "user", "content": "Why?"}, "a": {"role": "assistant", "parentId": "q", **answer}, **more}
    return [{"id": "w", "title": "Why", "chat": {"history": {"messages": messages, "currentId": [*messages][-1]}}}]


def test_open_webui_reads_the_blocks_of_an_answer(texts):
    blocks = [
        {"type": "reasoning", "content": [{"text": "hm"}]},
        {"type": "message", "content": [{"type": "output_text", "text": "Because."}]},
    ]
    assert texts(open_webui({"content": "", "output": blocks})) == ["Why?", "Because."]


def test_open_webui_reads_a_chat_without_a_history(texts):
    messages = [{"role": "user", "content": "Why?"}, {"role": "assistant", "content": "Because."}]
    assert texts([{"id": "w", "chat": {"title": "Why", "messages": messages}}]) == ["Why?", "Because."]


def test_open_webui_keeps_a_merged_answer_before_what_follows(texts):
    following = {"role": "user", "content": "And?", "parentId": "a"}
    found = texts(open_webui({"content": "One.", "merged": {"status": True, "content": "Both."}}, b=following))
    assert found == ["Why?", "One.", "Both.", "And?"]


def test_followers_of_a_deleted_message_are_no_versions(texts):
    messages = {
        "q": {"role": "user", "content": "Why?", "timestamp": AT},
        "a": {"role": "assistant", "content": "Because.", "parentId": "q", "timestamp": AT + 1},
        "r": {"role": "user", "content": "And then?", "parentId": "deleted", "timestamp": AT + 9},
    }
    assert texts([{"id": "w", "chat": {"history": {"messages": messages, "currentId": "r"}}}]) == [
        "Why?",
        "Because.",
        "And then?",
    ]


@pytest.mark.medium
def test_librechat_reads_more_files_than_five_hundred(folder):
    def one(number):
        message = {"messageId": "m", "isCreatedByUser": True, "text": f"text {number}"}
        return json.dumps({"conversationId": f"c{number}", "exportAt": "1", "messages": [message]})

    assert len(read_all(folder({f"{number}.json": one(number) for number in range(520)})).conversations) == 520


# Gemini


def gemini(**fields):
    return [{"header": "Gemini Apps", "time": "2026-03-02T09:15:00Z", "title": "Prompted hello", **fields}]


def test_gemini_keeps_an_entry_of_only_files(tmp_path):
    path = tmp_path / "MyActivity.json"
    path.write_text(
        json.dumps(gemini(title="Attached 1 file.", subtitles=[{"name": "Attached 1 file."}, {"name": "-  dam.png"}]))
    )
    (found,) = read_all(path).conversations
    assert [(each.text, each.attachments) for each in found.messages] == [("", ("dam.png",))]


def test_gemini_turns_html_into_markdown(texts):
    html = "<table><tr><th>plant</th><td>3</td></tr></table><pre><code>if a:\n    b()</code></pre><ol><li>one</li></ol><a href='https://example.org/'>x</a>"
    answer = texts(gemini(safeHtmlItem=[{"html": html}]), "MyActivity.json")[-1]
    for part in ("| plant | 3 |", "if a:\n    b()", "1. one", "[x](https://example.org/)"):
        assert part in answer


def test_a_zone_that_is_not_known_is_said(tmp_path):
    card = '<div class="outer-cell"><p>Gemini Apps</p><div class="content-cell">Prompted&nbsp;Hi<br>Jan 2, 2025, 1:10:00 PM XYZT<br>Hello<br></div></div>'
    path = tmp_path / "MyActivity.html"
    path.write_text(f"<html>{card}</html>")
    notices = [item.text for item in read(path) if isinstance(item, Notice)]
    assert any("XYZT" in notice for notice in notices)


# Claude Code, Codex, OpenClaw


def test_claude_code_follows_a_missing_parent_by_time(folder):
    lines = [claude_code_line("q", None, "user", "Why?", 1), claude_code_line("a", "q", "assistant", "So.", 2)]
    lines += [
        claude_code_line("r", "in no line", "user", "And?", 3),
        claude_code_line("b", "r", "assistant", "Yes.", 4),
    ]
    (found,) = read_all(folder({"projects/-a/s.jsonl": "\n".join(lines) + "\n"})).conversations
    assert [message.text for message in found.messages] == ["Why?", "So.", "And?", "Yes."]
    assert found.other_branches == ()


def test_claude_code_shows_history_repeated_under_new_ids_once(folder):
    lines = [claude_code_line("q", None, "user", "Why?", 1), claude_code_line("a", "q", "assistant", "So.", 2)]
    lines += [claude_code_line("q2", None, "user", "Why?", 1), claude_code_line("a2", "q2", "assistant", "So.", 2)]
    lines += [claude_code_line("r", "a2", "user", "And?", 3)]
    (found,) = read_all(folder({"projects/-a/s.jsonl": "\n".join(lines) + "\n"})).conversations
    assert [message.text for message in found.messages] == ["Why?", "So.", "And?"]
    assert found.other_branches == ()


def test_claude_code_reads_a_branch_before_its_session(folder):
    own = [claude_code_line("q", None, "user", "Why?", 1), claude_code_line("a", "q", "assistant", "So.", 2)]
    own += [claude_code_line("r", "a", "user", "And?", 3)]
    branch = [claude_code_line("a", None, "assistant", "So.", 2), claude_code_line("x", "a", "user", "But?", 5)]
    files = {
        "projects/-a/a-branch.jsonl": "\n".join(branch).replace('"s"', '"a-branch"') + "\n",
        "projects/-a/s.jsonl": "\n".join(own) + "\n",
    }
    (found,) = read_all(folder(files)).conversations
    assert [message.text for message in found.messages] == ["Why?", "So.", "But?"]
    assert [message.text for message in found.other_branches] == ["And?"]


def test_claude_code_keeps_prompts_from_the_queue(folder):
    lines = as_claude_code(["Why?"])["projects/-a/s.jsonl"]
    for operation, content, minute in (
        ("enqueue", "Use larch", 5),
        ("dequeue", None, 6),
        ("enqueue", "Wrong", 7),
        ("popAll", None, 8),
    ):
        lines += (
            json.dumps(
                {
                    "type": "queue-operation",
                    "operation": operation,
                    "content": content,
                    "sessionId": "s",
                    "timestamp": f"2026-09-03T10:{minute:02}:00Z",
                }
            )
            + "\n"
        )
    attached = {"type": "queued_command", "prompt": "And oil it"}
    lines += (
        json.dumps(
            {
                "type": "attachment",
                "uuid": "x",
                "parentUuid": "gone",
                "sessionId": "s",
                "timestamp": "2026-09-03T10:09:00Z",
                "attachment": attached,
            }
        )
        + "\n"
    )
    reading = read_all(folder({"projects/-a/s.jsonl": lines}))
    (found,) = reading.conversations
    assert [message.text for message in found.messages] == ["Why?", "answer 0", "Use larch", "And oil it"]
    assert ["taken back" in each.reason for each in reading.skipped] == [True]


def test_unknown_kinds_of_lines_are_listed_with_their_place(folder):
    lines = as_claude_code(["Why?"])["projects/-a/s.jsonl"] + json.dumps({"type": "brand-new", "uuid": "n"}) + "\n"
    (skipped,) = read_all(folder({"projects/-a/s.jsonl": lines})).skipped
    assert (skipped.where, "brand-new" in skipped.reason) == ("projects/-a/s.jsonl:3", True)


def test_codex_reads_packed_logs_and_refuses_a_bomb(folder):
    ((name, text),) = as_codex(["Why?"]).items()
    (found,) = read_all(folder({f"{name}.zst": zstd.compress(text.encode())})).conversations
    assert [message.text for message in found.messages] == ["Why?", "answer 0"]
    reading = read_all(folder({f"{name}.zst": zstd.compress(text.encode() + b" " * 2**26)}))
    assert any("unpacks to far more" in each.reason for each in reading.skipped)


def test_codex_reads_a_session_of_only_events_once(folder):
    events = [("user_message", "Why?"), ("agent_message", "So."), ("user_message", "Why?")]
    lines = [json.dumps({"type": "session_meta", "payload": {"id": "s"}})]
    lines += [json.dumps({"type": "event_msg", "payload": {"type": kind, "message": text}}) for kind, text in events]
    ((name, _),) = as_codex([]).items()
    (found,) = read_all(folder({name: "\n".join(lines) + "\n"})).conversations
    assert [message.text for message in found.messages] == ["Why?", "So.", "Why?"]


def test_openclaw_brings_memory_of_older_names_and_of_folders(folder):
    files = {
        "workspace/memory.md": "Mine",
        "workspace/memory/people/anna.md": "Anna",
        "workspace/memory/2026-01-02.md": "Day",
    }
    reading = read_all(folder(files))
    assert {each.external_id: each.kind for each in reading.documents} == {
        "workspace/memory.md": "memory",
        "workspace/memory/people/anna.md": "note",
        "workspace/memory/2026-01-02.md": "daily_log",
    }


def test_openclaw_reads_a_branch_after_its_session(folder):
    own = as_openclaw(["Why?"])["agents/main/sessions/s.jsonl"]
    branch = own.replace('{"type": "session", "id": "s"}', '{"type": "session", "id": "a", "parentSession": "s.jsonl"}')
    message = {"role": "user", "content": "But?"}
    branch += json.dumps({"type": "message", "id": "n", "parentId": "assistant0", "message": message}) + "\n"
    reading = read_all(folder({"agents/main/sessions/a.jsonl": branch, "agents/main/sessions/s.jsonl": own}))
    assert {each.external_id: [message.text for message in each.messages] for each in reading.conversations} == {
        "s": ["Why?", "answer 0"],
        "a": ["But?"],
    }


# Notes, names and encodings


@pytest.mark.parametrize(
    ("head", "title", "at"),
    [
        ("title: @home\ndate: 2023-01-02", "@home", date(2023, 1, 2)),
        ("Title: Fwd: hints: many\nCreated: 05.02.2023", "Fwd: hints: many", date(2023, 2, 5)),
        ("prev: [[a]],[[b]]\ntitle: Month\ndate created: 2023/02/04", "Month", date(2023, 2, 4)),
        ("title: Zoned\ncreated_at: 2023-02-03 04:05:06 +0200", "Zoned", datetime(2023, 2, 3, 2, 5, 6, tzinfo=UTC)),
        ("title: Named\nlast modified: March 5, 2023", "Named", date(2023, 3, 5)),
        ("title: Listed\ndate:\n  - 2023-02-04", "Listed", date(2023, 2, 4)),
        ("title: Day\ncreated: 4. Februar 2023", "Day", date(2023, 2, 4)),
    ],
)
def test_front_matter_is_read_as_people_write_it(folder, head, title, at):
    (found,) = read_all(folder({"note.md": f"---\n{head}\n---\nThe body.\n"})).documents
    assert (found.title, found.at, found.text) == (title, at, "The body.")


def test_front_matter_in_toml_is_read(folder):
    (found,) = read_all(
        folder({"note.md": '+++\ntitle = "Weir"\ndate = 2023-02-04T10:00:00Z\n+++\nThe body.\n'})
    ).documents
    assert (found.title, found.at, found.text) == ("Weir", datetime(2023, 2, 4, 10, tzinfo=UTC), "The body.")


def test_front_matter_without_an_end_stays_and_is_read(folder):
    (found,) = read_all(folder({"note.md": "---\ntitle: Open\ndate: 2023-02-10\n\nBody.\n"})).documents
    assert (found.title, found.at, found.text.endswith("Body.")) == ("Open", date(2023, 2, 10), True)
    assert "title: Open" in found.text


def test_names_of_windows_in_a_zip_are_read(tmp_path):
    path = tmp_path / "x.zip"
    with zipfile.ZipFile(path, "w") as packed:
        for name in ("sub\\one.md", "two.md"):
            packed.writestr(name, "A note.")
    assert [each.external_id for each in read_all(path).documents] == ["sub/one.md", "two.md"]


JSONS = {
    "chatgpt": [chat(*chain(node("q", "user", "Grüße")), current_node="q")],
    "claude": claude({"uuid": "m", "sender": "human", "text": "Grüße"}),
    "open-webui": open_webui({"content": "x"}),
    "librechat": {"conversationId": "l", "exportAt": "1", "messages": [{"messageId": "m", "isCreatedByUser": True, "text": "Grüße"}]},
    "gemini": gemini(),
}  # fmt: skip


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "utf-16-le", "utf-16-be"])
def test_every_reader_takes_marks_and_utf_16(folder, tmp_path, encoding):
    for product, value in JSONS.items():
        path = tmp_path / f"{product}.json"
        path.write_bytes(json.dumps(value, ensure_ascii=False).encode(encoding))
        assert [each.product for each in read_all(path).conversations] == [product]
    for make in (as_claude_code, as_codex, as_openclaw):
        files = {name: text.encode(encoding) for name, text in make(["Grüße"]).items()}
        (found,) = read_all(
            folder(files), {as_claude_code: "claude-code", as_codex: "codex"}.get(make, "openclaw")
        ).conversations
        assert found.messages[0].text == "Grüße"


def test_positions_name_the_uploaded_file(tmp_path):
    path = tmp_path / "0199-internal"
    path.write_text(json.dumps([{"mapping": 5}]))
    assert [item.where for item in read(path, "chatgpt", name="My Export.json")] == ["My Export.json[0]"]


def test_empty_files_and_passwords_are_said(tmp_path):
    path = tmp_path / "x.zip"
    with zipfile.ZipFile(path, "w") as packed:
        packed.writestr("conversations.json", "")
    assert "empty" in read_all(path).refusal
    locked = bytearray(path.read_bytes())
    locked[locked.index(b"PK\x01\x02") + 8] |= 1
    path.write_bytes(locked)
    assert "password" in read_all(path).refusal
