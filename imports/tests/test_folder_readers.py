"""Folders of agents and notes: each session once, in its order, with what was said and nothing else."""

import json
import random
import shutil
import time
from datetime import date
from operator import attrgetter
from pathlib import Path

import pytest

from evals.expectations import read_all
from imports.reading.files import Limits, open_files
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
