"""Folders of agents and notes: each session once, in its order, with what was said and nothing else."""

import json
import random
import shutil
import sqlite3
import time
from datetime import date
from operator import attrgetter
from pathlib import Path

import pytest

from evals.expectations import read_all
from imports.reading.files import open_files
from imports.reading.limits import Limits
from imports.reading.products import recognise

AT = "2025-11-20T06:0{}:00.000Z"


def line(**fields):
    return json.dumps(fields)


def claude_code(uuid, parent, kind, content, minute, **more):
    message = {"role": kind, "content": content}
    return line(
        type=kind, uuid=uuid, parentUuid=parent, sessionId="s1", timestamp=AT.format(minute), message=message, **more
    )


CLAUDE_CODE = [
    claude_code("u1", None, "user", "How do I run the tests?", 1),
    claude_code("a1", "u1", "assistant", [{"type": "thinking", "thinking": "hm"}], 2),
    claude_code("a2", "a1", "assistant", [{"type": "text", "text": "With make test."}], 3),
    claude_code("m1", "a2", "user", "a caveat for the model alone", 4, isMeta=True),
    claude_code("u2", "m1", "user", "And the linter?", 5),
    line(type="ai-title", sessionId="s1", aiTitle="Running the tests"),
]
CODEX = [
    line(timestamp=AT.format(1), type="session_meta", payload={"id": "c1", "timestamp": AT.format(1), "cwd": "/src"}),
    line(
        timestamp=AT.format(2),
        type="response_item",
        payload={"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Rename it."}]},
    ),
    line(timestamp=AT.format(2), type="event_msg", payload={"type": "user_message", "message": "Rename it."}),
    line(
        timestamp=AT.format(3),
        type="response_item",
        payload={"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Renamed."}]},
    ),
    line(timestamp=AT.format(3), type="event_msg", payload={"type": "agent_message", "message": "Renamed."}),
]
OPENCLAW = [
    line(type="session", id="o1", timestamp=AT.format(1)),
    line(
        type="message",
        id="e1",
        parentId=None,
        timestamp=AT.format(2),
        message={"role": "user", "content": [{"type": "text", "text": "Good morning"}]},
    ),
    line(
        type="message",
        id="e2",
        parentId="e1",
        timestamp=AT.format(3),
        message={"role": "assistant", "content": [{"type": "text", "text": "Good morning to you."}]},
    ),
]
FOLDERS = {
    "claude-code": {"projects/-src/s1.jsonl": "\n".join(CLAUDE_CODE), "projects/-src/memory/MEMORY.md": "# Mine\n"},
    "codex": {"sessions/2025/11/20/rollout-2025-11-20T06-01-00-c1.jsonl": "\n".join(CODEX)},
    "openclaw": {
        "agents/main/sessions/o1.jsonl": "\n".join(OPENCLAW),
        "workspace/MEMORY.md": "# Remember\n",
        "workspace/USER.md": "I am Alice.\n",
        "workspace/memory/2025-11-20.md": "A day.\n",
        "workspace/AGENTS.md": "Be kind.\n",
    },
    "markdown": {
        "Bread.md": "---\ntitle: Sourdough\ncreated: 2024-01-31\n---\nSee [[Flour]].\n",
        "2024-02-01 Walk.md": "A walk.\n",
        "empty.md": "",
        ".obsidian/app.json": "{}",
        "photo.png": "not text",
    },
}


@pytest.fixture
def folder(tmp_path):
    def write(files):
        root = tmp_path / "export"
        shutil.rmtree(root, ignore_errors=True)
        for name, content in files.items():
            path = root / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return root

    return write


def texts(conversation):
    return [(message.role, message.text) for message in conversation.messages]


@pytest.mark.parametrize("product", FOLDERS)
def test_each_folder_is_recognised_by_its_content_and_so_is_a_zip_of_it(folder, tmp_path, product):
    root = folder(FOLDERS[product])
    packed = Path(shutil.make_archive(str(tmp_path / "packed"), "zip", root))

    reading, packed_reading = read_all(root), read_all(packed)

    with open_files(root, Limits()) as files:
        assert recognise(files).product == product
    assert packed_reading.conversations == reading.conversations
    by_id = attrgetter("external_id")
    assert sorted(packed_reading.documents, key=by_id) == sorted(reading.documents, key=by_id)


def test_claude_code_shows_what_was_said_and_joins_the_lines_of_an_answer(folder):
    (conversation,) = read_all(folder(FOLDERS["claude-code"])).conversations

    assert texts(conversation) == [
        ("user", "How do I run the tests?"),
        ("assistant", "With make test."),
        ("user", "And the linter?"),
    ]
    assert conversation.title == "Running the tests"
    assert conversation.created_at.isoformat() == "2025-11-20T06:01:00+00:00"


def test_claude_code_stores_a_resumed_session_once(folder):
    resumed = [text.replace('"s1"', '"s2"') for text in CLAUDE_CODE[:5]]
    resumed.append(claude_code("u3", "u2", "user", "Thanks", 6).replace('"s1"', '"s2"'))

    reading = read_all(folder({**FOLDERS["claude-code"], "projects/-src/s2.jsonl": "\n".join(resumed)}))

    (conversation,) = reading.conversations
    assert len(conversation.messages) == 4
    assert conversation.also_ids == ("s2",)


def test_codex_shows_each_message_once_although_it_stands_in_two_logs(folder):
    (conversation,) = read_all(folder(FOLDERS["codex"])).conversations

    assert texts(conversation) == [("user", "Rename it."), ("assistant", "Renamed.")]
    assert conversation.project == "/src"


def test_codex_keeps_two_equal_messages_that_were_both_said(folder):
    again = [*CODEX, CODEX[1], CODEX[2]]

    (conversation,) = read_all(folder({next(iter(FOLDERS["codex"])): "\n".join(again)})).conversations

    assert [text for _, text in texts(conversation)].count("Rename it.") == 2


@pytest.mark.parametrize("product", ["claude-code", "codex", "openclaw"])
def test_a_last_line_that_is_cut_off_is_listed_and_the_rest_comes_in(folder, product):
    files = dict(FOLDERS[product])
    name = next(name for name in files if name.endswith(".jsonl"))
    files[name] += '\n{"type": "user", "mess'

    reading = read_all(folder(files))

    assert len(reading.conversations) == 1
    assert any(skipped.where.startswith(name) for skipped in reading.skipped)


def test_openclaw_brings_the_memory_of_the_person_and_leaves_the_agents_own_files(folder):
    reading = read_all(folder(FOLDERS["openclaw"]))

    assert [document.external_id for document in reading.documents] == [
        "workspace/MEMORY.md",
        "workspace/USER.md",
        "workspace/memory/2025-11-20.md",
    ]
    assert [document.kind for document in reading.documents] == ["memory", "about", "daily_log"]
    assert texts(reading.conversations[0]) == [("user", "Good morning"), ("assistant", "Good morning to you.")]


def test_codex_leaves_what_a_fork_repeats_to_the_session_it_was_forked_from(folder):
    header = line(timestamp=AT.format(4), type="session_meta", payload={"id": "c2", "forked_from_id": "c1"})
    question = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "And the tests?"}]}
    fork = [header, *CODEX, line(timestamp=AT.format(5), type="response_item", payload=question)]
    files = FOLDERS["codex"] | {"sessions/2025/11/20/rollout-2025-11-20T06-04-00-c2.jsonl": "\n".join(fork)}

    conversations = {each.external_id: texts(each) for each in read_all(folder(files)).conversations}

    assert conversations == {
        "c1": [("user", "Rename it."), ("assistant", "Renamed.")],
        "c2": [("user", "And the tests?")],
    }


def test_half_of_a_surrogate_pair_in_a_title_becomes_a_mark(folder):
    index = '{"id": "c1", "thread_name": "Renaming \\ud800"}\n'

    (conversation,) = read_all(folder(FOLDERS["codex"] | {"session_index.jsonl": index})).conversations

    assert conversation.title == "Renaming \ufffd"


def openclaw_entry(entry, parent, role, text):
    return line(
        type="message", id=entry, parentId=parent, timestamp=AT.format(4), message={"role": role, "content": text}
    )


def test_openclaw_leaves_out_an_unseen_answer_with_its_prompt(folder):
    silent = [
        openclaw_entry("p1", "e2", "user", "Read HEARTBEAT.md if it exists."),
        openclaw_entry("t1", "p1", "toolResult", "no"),
        openclaw_entry("n1", "t1", "assistant", "HEARTBEAT_OK"),
        # A prompt in words of the user's own, which comes again and again.
        openclaw_entry("p2", "n1", "user", "Anything to do?"),
        openclaw_entry("n2", "p2", "assistant", "**HEARTBEAT_OK**"),
        openclaw_entry("p3", "n2", "user", "Anything to do?"),
        openclaw_entry("n3", "p3", "assistant", "All quiet. HEARTBEAT_OK"),
    ]

    log = "\n".join([*OPENCLAW, *silent])
    (conversation,) = read_all(folder({"agents/main/sessions/o1.jsonl": log})).conversations

    assert texts(conversation) == [("user", "Good morning"), ("assistant", "Good morning to you.")]


@pytest.mark.extended
def test_thousands_of_silent_answers_far_below_a_prompt_are_read_at_once(folder):
    chain = [openclaw_entry(f"t{place}", f"t{place - 1}", "toolResult", "no") for place in range(20_000)]
    silent = [openclaw_entry(f"n{place}", "t19999", "assistant", "NO_REPLY") for place in range(20_000)]
    root = folder({"agents/main/sessions/o1.jsonl": "\n".join([*OPENCLAW, *chain, *silent])})

    began = time.process_time()
    (conversation,) = read_all(root).conversations

    assert len(conversation.messages) == 2
    assert time.process_time() - began < 20


def test_notes_take_title_and_date_from_their_front_matter_or_their_name(folder):
    documents = {document.external_id: document for document in read_all(folder(FOLDERS["markdown"])).documents}

    bread, walk = documents.pop("Bread.md"), documents.pop("2024-02-01 Walk.md")
    assert documents == {}
    assert (bread.title, bread.at, bread.text.strip()) == ("Sourdough", date(2024, 1, 31), "See [[Flour]].")
    assert walk.at == date(2024, 2, 1)


@pytest.mark.parametrize(
    "raw",
    ["Grüße".encode("utf-16"), b"\xef\xbb\xbf" + "Grüße".encode(), "Grüße\r\n".encode(), "Grüße".encode("cp1252")],
)
def test_notes_are_read_in_other_encodings(folder, raw):
    (document,) = read_all(folder({"Note.md": raw, "Other.md": ""})).documents

    assert document.text.startswith("Gr")
    assert "\r" not in document.text


@pytest.mark.parametrize("product", FOLDERS)
def test_no_damage_raises_anything_but_a_sentence(folder, product):
    chance = random.Random(9)
    for _ in range(50):
        files = {}
        for name, content in FOLDERS[product].items():
            data = bytearray(content.encode())
            for _ in range(chance.randint(0, 3)):
                if data:
                    data[chance.randrange(len(data))] = chance.randrange(256)
            files[name] = bytes(data[: chance.randint(0, len(data))]) if chance.random() < 0.2 else bytes(data)
        assert read_all(folder(files), chance.choice([None, product])).outcome in ("imported", "partial", "refused")


# --- The same sessions in other shapes, and the words that stand elsewhere in them ---

DELETED, RESET = ".jsonl.deleted.2026-09-06T12-10-11.000Z", ".jsonl.reset.2026-09-08T04-00-00.000Z"
GEMINI = [
    line(sessionId="g-1", projectHash="ab", startTime=AT.format(0), kind="main"),
    line(
        id="u0",
        type="user",
        timestamp=AT.format(0),
        content=[{"text": "<session_context>\nSunday\n</session_context>"}],
    ),
    line(id="u1", type="user", timestamp=AT.format(1), content=[{"text": "Why does it hang?"}]),
    line(id="a1", type="gemini", timestamp=AT.format(2), content="It waits"),
    line(id="a1", type="gemini", timestamp=AT.format(2), content="It waits for a lock.", model="gemini-3-pro"),
    line(id="u2", type="user", timestamp=AT.format(3), content=[{"text": "Kill it."}]),
    line(**{"$rewindTo": "u2"}),
    line(id="u3", type="user", timestamp=AT.format(4), content=[{"text": "Free it."}]),
    line(**{"$set": {"summary": "A lock"}}),
]
CURSOR = [
    line(role="user", message={"content": [{"type": "text", "text": "<user_query>\nFix the gate\n</user_query>"}]}),
    line(role="assistant", message={"content": [{"type": "text", "text": "Fixed."}]}),
]
COPILOT = [
    line(kind=0, v={"version": 3, "sessionId": "v-1", "requests": []}),
    line(kind=2, k=["requests"], v=[{"requestId": "r1", "message": {"text": "How many?"}, "response": []}]),
    line(kind=2, k=["requests", 0, "response"], v=[{"value": "See "}, {"kind": "inlineReference", "name": "a.py"}]),
    line(kind=1, k=["customTitle"], v="Paddles"),
]
LOGS = {
    "claude-code": CLAUDE_CODE,
    "codex": CODEX,
    "openclaw": OPENCLAW,
    "gemini-cli": GEMINI,
    "cursor": CURSOR,
    "vscode": COPILOT,
}


@pytest.mark.parametrize("product", LOGS)
@pytest.mark.parametrize("name", ["any name", "s.jsonl", "2026/09/s.jsonl", "a/.hidden/sessions/s.jsonl"])
def test_a_session_is_recognised_by_its_lines_wherever_it_lies(folder, tmp_path, product, name):
    root = folder({name: "\n".join(LOGS[product])})
    packed = Path(shutil.make_archive(str(tmp_path / "packed"), "zip", root))
    alone = root / name

    for path in (root, packed, alone):
        reading = read_all(path)
        assert [each.product for each in reading.conversations] == [product], reading.refusal
        assert reading.conversations[0].messages[0].role == "user"


def test_gemini_cli_reads_the_last_writing_and_keeps_what_was_rewound_as_a_version(folder):
    (conversation,) = read_all(folder({"chats/session-1.jsonl": "\n".join(GEMINI)})).conversations

    assert texts(conversation) == [
        ("user", "Why does it hang?"),
        ("assistant", "It waits for a lock."),
        ("user", "Free it."),
    ]
    assert [message.text for message in conversation.other_branches] == ["Kill it."]
    assert conversation.title == "A lock"


def test_gemini_cli_reads_the_object_of_an_older_version(folder):
    messages = [{"id": "a", "type": "user", "content": "Rename it."}, {"id": "b", "type": "gemini", "content": "Done."}]
    old = {"sessionId": "g-0", "projectHash": "ab", "startTime": AT.format(0), "messages": messages}

    (conversation,) = read_all(folder({"tmp/x/chats/session-0.json": json.dumps(old)})).conversations

    assert texts(conversation) == [("user", "Rename it."), ("assistant", "Done.")]


def test_copilot_and_cursor_show_what_was_said_alone(folder):
    (copilot,) = read_all(folder({"chatSessions/v.jsonl": "\n".join(COPILOT)})).conversations
    (cursor,) = read_all(folder({"agent-transcripts/c/c.jsonl": "\n".join(CURSOR)})).conversations

    assert (copilot.title, texts(copilot)) == ("Paddles", [("user", "How many?"), ("assistant", "See `a.py`")])
    assert (cursor.external_id, texts(cursor)) == ("c", [("user", "Fix the gate"), ("assistant", "Fixed.")])


def test_openclaw_reads_reset_sessions_and_lists_deleted_ones_without_choosing_them(folder):
    def of(session):
        text = "\n".join(OPENCLAW).replace('"o1"', f'"{session}"')
        return text.replace('"e1"', f'"{session}1"').replace('"e2"', f'"{session}2"')

    sessions = "agents/main/sessions"
    files = {f"{sessions}/o1.jsonl": of("o1"), f"{sessions}/o2{RESET}": of("o2"), f"{sessions}/o3{DELETED}": of("o3")}
    reading = read_all(folder({**files, f"{sessions}/o1.trajectory.jsonl": of("o4")}))

    assert {each.external_id: each.is_deleted for each in reading.conversations} == {
        "o1": False,
        "o2": False,
        "o3": True,
    }


@pytest.mark.parametrize("times", [1, 5])
def test_a_chat_that_was_taken_back_as_a_whole_is_listed_without_being_chosen(folder, times):
    back = line(timestamp=AT.format(9), type="event_msg", payload={"type": "thread_rolled_back", "num_turns": times})
    name = "sessions/2025/11/20/rollout-2025-11-20T06-0{}-00-c{}.jsonl"
    other = "\n".join(CODEX).replace('"id": "c1"', '"id": "c2"')
    codex = read_all(folder({name.format(1, 1): "\n".join([*CODEX, back]), name.format(2, 2): other}))
    rewound = "\n".join([*GEMINI, line(**{"$rewindTo": "u1"})])
    gemini = read_all(folder({"tmp/app/chats/session-2026-03-01T12-00-g-1.jsonl": rewound}))
    for reading, one in ((codex, "c1"), (gemini, "g-1")):
        assert [each.external_id for each in reading.conversations if each.is_deleted] == [one]
        assert "Chats that were deleted or taken back are listed and not chosen by themselves: 1." in reading.notices
        assert all(each.messages for each in reading.conversations)


def test_openclaw_joins_a_rotated_copy_that_ends_with_a_leaf_to_its_session(folder):
    rotated = "\n".join([*OPENCLAW, line(type="leaf", id="l1", parentId="e2", targetId="e2")])
    more = {"role": "user", "content": [{"type": "text", "text": "And now?"}]}
    live = [
        line(type="session", version=3, id="o9", timestamp=AT.format(4)),
        OPENCLAW[2],
        line(type="message", id="e3", parentId="e2", timestamp=AT.format(5), message=more),
    ]

    (conversation,) = read_all(
        folder({"sessions/o1.jsonl": rotated, "sessions/o9.jsonl": "\n".join(live)})
    ).conversations

    assert (conversation.external_id, conversation.also_ids) == ("o9", ("o1",))
    assert [text for _role, text in texts(conversation)] == ["Good morning", "Good morning to you.", "And now?"]


def openclaw_database(path, *, with_log=False):
    database = sqlite3.connect(path)
    if with_log:
        database.execute("PRAGMA journal_mode = WAL")
        database.execute("PRAGMA wal_autocheckpoint = 0")
    database.executescript(
        "CREATE TABLE session_nodes (session_key, current_session_id, entry_json, display_name);"
        "CREATE TABLE transcript_events (session_id, seq, event_json, created_at);"
    )
    nodes = [
        ("agent:main:main", "o1", "{}", "Mill talk"),
        ("agent:main:subagent:x", "o2", '{"spawnedBy": "agent:main:main"}', None),
    ]
    database.executemany("INSERT INTO session_nodes VALUES (?, ?, ?, ?)", nodes)
    for session in ("o1", "o2"):
        lines = [each.replace('"o1"', f'"{session}"').replace('"e', f'"{session}e') for each in OPENCLAW]
        rows = [(session, place, each, 0) for place, each in enumerate(lines)]
        database.executemany("INSERT INTO transcript_events VALUES (?, ?, ?, ?)", rows)
    database.commit()
    return database


@pytest.mark.parametrize("with_log", [False, True])
def test_openclaw_reads_its_database_with_the_log_beside_it(folder, tmp_path, with_log):
    database = openclaw_database(tmp_path / "live.sqlite", with_log=with_log)
    files = {"agents/main/agent/openclaw-agent.sqlite": (tmp_path / "live.sqlite").read_bytes()}
    if with_log:
        files["agents/main/agent/openclaw-agent.sqlite-wal"] = (tmp_path / "live.sqlite-wal").read_bytes()
    database.close()

    reading = read_all(folder(files))

    (conversation,) = reading.conversations
    assert conversation.title == "Mill talk"
    assert texts(conversation) == [("user", "Good morning"), ("assistant", "Good morning to you.")]
    # A subagent's chat in the same store is folded.
    (child,) = [call for call in conversation.messages[-1].tool_calls if call["name"] == "subagent"]
    assert child["summary"] == "> Good morning\n\nGood morning to you."


def test_a_damaged_database_is_reported(folder):
    reading = read_all(folder({"openclaw-agent.sqlite": b"SQLite format 3\0 transcript_events" + b"x" * 200}))

    assert [each.reason for each in reading.skipped] == ["this database is damaged or incomplete"]


def test_claude_desktop_names_its_sessions_and_a_broken_file_of_it_is_reported(folder):
    about = json.dumps({"sessionId": "local_1", "cliSessionId": "s1", "title": "Sort the invoices"})
    session = "\n".join(CLAUDE_CODE[:-1])

    files = {"local_1.json": about, "local_2.json": about[:9], "local_1/.claude/projects/-x/s1.jsonl": session}
    reading = read_all(folder(files))

    (conversation,), (broken,) = reading.conversations, reading.skipped
    assert (conversation.title, broken.where) == ("Sort the invoices", "local_2.json")


def test_a_subagent_of_claude_code_is_folded_below_the_answer(folder):
    def child(uuid, parent, kind, text):
        content = [{"type": "text", "text": text}]
        return claude_code(uuid, parent, kind, content, 2, isSidechain=True, agentId="scout")

    lines = [child("x1", None, "user", "Scan it"), child("x2", "x1", "assistant", "Scanned.")]
    files = {
        "projects/-src/s1.jsonl": "\n".join(CLAUDE_CODE),
        "projects/-src/s1/subagents/agent-scout.jsonl": "\n".join(lines),
    }

    (conversation,) = read_all(folder(files)).conversations

    assert [text for _role, text in texts(conversation)][:2] == ["How do I run the tests?", "With make test."]
    assert conversation.messages[1].tool_calls[-1] == {"name": "subagent", "summary": "> Scan it\n\nScanned."}
    (skipped,) = read_all(folder({"agent-scout.jsonl": "\n".join(lines)})).skipped
    assert skipped.reason == "the work of a subagent, whose session is not in this export"


@pytest.mark.parametrize(
    "source",
    [
        {"source": {"subagent": {"thread_spawn": {"parent_thread_id": "c1", "agent_nickname": "Scout"}}}},
        {"source": {"subagent": "review"}, "cwd": "/src"},
        {"thread_source": "subagent", "parent_thread_id": "c1"},
    ],
)
def test_subagents_and_reviews_of_codex_are_folded_below_their_parent(folder, source):
    head = {"id": "c2", "timestamp": AT.format(2), **source}
    child = [line(type="session_meta", payload=head), *CODEX[1:]]
    name = "sessions/2025/11/20/rollout-2025-11-20T06-0{}-00-c{}.jsonl"
    files = {name.format(1, 1): "\n".join(CODEX), name.format(2, 2): "\n".join(child)}

    (conversation,) = read_all(folder(files)).conversations

    assert texts(conversation) == [("user", "Rename it."), ("assistant", "Renamed.")]
    assert conversation.messages[1].tool_calls[-1]["summary"] == "> Rename it.\n\nRenamed."
