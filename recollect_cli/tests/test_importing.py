"""`recollect import` and `recollect sync` against the running application and an importing worker."""

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import venv
import zipfile
from contextlib import suppress

import pytest
from django.conf import settings

from agent_tools.authentication import create_token
from agent_tools.models import TokenScope
from imports import services
from imports.models import Import
from imports.tests.exports import chatgpt
from intake.models import Conversation, Turn
from intake.tests.factories import a_turn
from recollect_cli import client, hooks, importing, packing, state, syncing
from recollect_cli.client import Failure
from recollect_cli.tests.test_transcripts import LOGS, imported

pytestmark = [pytest.mark.extended, pytest.mark.usefixtures("importing_worker")]


@pytest.fixture
def export(tmp_path):
    path = tmp_path / "export.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("conversations.json", json.dumps(chatgpt(conversations=3, turns=2)))
    return path


def claude_code(folder, session="0000-1", text="How do I rebase?", project="-home-alice-shop"):
    path = folder / "projects" / project / f"{session}.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = [
        {"type": "user", "uuid": f"{session}-q", "parentUuid": None, "message": {"role": "user", "content": text}},
        {
            "type": "assistant",
            "uuid": f"{session}-a",
            "parentUuid": f"{session}-q",
            "message": {"role": "assistant", "content": [{"type": "text", "text": "Like this."}]},
        },
    ]
    # Two sessions that say the same at the same moment would be one that repeats the other.
    shared = {"sessionId": session, "timestamp": f"2026-03-01T12:00:0{session[-1]}Z"}
    path.write_text("".join(json.dumps({**line, **shared}) + "\n" for line in lines))
    return path


def said(user):
    return sorted(Turn.objects.for_user(user).values_list("user_message", flat=True))


@pytest.mark.parametrize("product", LOGS)
def test_a_session_that_hooks_sent_line_by_line_and_an_import_whole_is_here_once(
    recollect, alice, tmp_path, monkeypatch, product
):
    name, lines = LOGS[product]
    session = "session-0001"
    place, variable, moved = {
        "claude-code": (tmp_path / ".claude", "CLAUDE_CONFIG_DIR", tmp_path / ".claude"),
        "codex": (tmp_path / ".codex", "CODEX_HOME", tmp_path / ".codex"),
        "gemini-cli": (tmp_path / ".gemini", "GEMINI_CLI_HOME", tmp_path),
    }[product]
    monkeypatch.setenv(variable, str(moved))
    config = tmp_path / "config" / "recollect" / "config.json"
    config.parent.mkdir(parents=True)
    config.write_text(json.dumps({"capture": "all"}))
    log = place / name.replace("s-1", session)
    log.parent.mkdir(parents=True)
    # A session in a work tree names a log that is not there; Gemini CLI's is found by its name alone.
    named = log if product == "gemini-cli" else tmp_path / "worktree" / log.name
    event = {"session_id": session, "cwd": str(tmp_path), "transcript_path": str(named)}
    for line in lines:
        with log.open("a") as file:
            file.write(json.dumps(line).replace("s-1", session) + "\n")
        hooks.answer("gemini" if product == "gemini-cli" else product, hooks.TURNS, event)
    appended = turns_with_parents(alice)

    assert recollect("sync", product)[0] == 0

    whole = imported(place)
    expected = sorted((user, answer, whole[above][0] if above else "") for user, answer, above in whole.values())
    stored = sorted(turns_with_parents(alice))
    assert [turn[:2] for turn in stored] == [turn[:2] for turn in expected]
    # A turn that names no parent follows the one before.
    assert {turn for turn in expected if turn[2]} <= set(stored)
    assert sorted(appended) == stored, "the hook missed nothing, and nothing of it moved"
    calls = json.dumps(list(Turn.objects.for_user(alice).values_list("tool_calls", flat=True)))
    assert ("Scanned." in calls) == (product == "claude-code"), "the work of a subagent is folded"
    assert Conversation.objects.for_user(alice).count() == 1
    assert recollect("import", place)[1].endswith("nothing.\n")
    assert sorted(turns_with_parents(alice)) == stored


def turns_with_parents(user):
    turns = {turn.turn_number: turn for turn in Turn.objects.for_user(user)}
    return [
        (
            turn.user_message,
            turn.assistant_message,
            turns[turn.parent_number].user_message if turn.parent_number else "",
        )
        for turn in turns.values()
    ]


def test_a_zip_is_brought_in_and_a_second_time_adds_nothing(recollect, alice, export):
    status, out, err = recollect("import", export)
    assert (status, Conversation.objects.for_user(alice).count()) == (0, 3), err
    assert out.startswith("Imported from ChatGPT: 3 conversations, 6 turns.\n")
    assert f"/import/{Import.objects.get().pk}/" in out
    status, out, _ = recollect("import", export)
    assert (status, out) == (0, "Imported from ChatGPT: nothing.\n")
    assert Conversation.objects.for_user(alice).count() == 3


def test_a_dry_run_says_what_would_come_in_and_leaves_nothing(recollect, alice, export):
    status, out, err = recollect("import", export, "--dry-run")
    assert status == 0, err
    assert out.startswith("ChatGPT: 3 conversations, 6 turns\nFrom 2023-05-01 to ")
    assert "3 new\n" in out
    assert "The newest:\n  Sourdough 2\n" in out
    assert said(alice) == []
    assert not Import.objects.exists()


def test_the_answer_is_had_as_json_without_a_bar(recollect, export):
    status, out, err = recollect("import", export, "--json", "--dry-run")
    assert (status, err) == (0, "")
    assert json.loads(out)["import"]["found"]["conversations"] == 3
    assert "text" not in json.loads(out)
    assert json.loads(recollect("import", export, "--json")[1])["stored"]["turns"] == 6


def test_only_what_went_on_since_a_day_comes_in(recollect, alice, export):
    assert recollect("import", export, "--since", "2030-01-01")[0] == 0
    assert said(alice) == []
    with pytest.raises(SystemExit) as refused:
        recollect("import", export, "--since", "yesterday")
    assert refused.value.code == 2


def test_a_large_file_goes_in_chunks_and_a_broken_off_upload_goes_on(recollect, alice, export, monkeypatch):
    monkeypatch.setattr(services, "MAX_CHUNK", 150)
    monkeypatch.setattr("imports.shapes.CHUNK", 150)
    monkeypatch.setattr(importing.time, "sleep", lambda seconds: None)
    ask, asked = importing.Server.ask, []

    def ask_and_break_off(self, method, path, body=None, **headers):
        if method == "PUT":
            asked.append(headers["Content-Range"])
            if len(asked) >= 3:
                raise Failure("The line is gone.")
        return ask(self, method, path, body, **headers)

    monkeypatch.setattr(importing.Server, "ask", ask_and_break_off)
    status, _, err = recollect("import", export)
    assert (status, err.splitlines()[-1]) == (1, "recollect: The line is gone.")
    assert Import.objects.get().bytes_received == 300
    monkeypatch.setattr(importing.Server, "ask", ask)
    assert recollect("import", export)[0] == 0
    assert Import.objects.count() == 1
    assert len(said(alice)) == 6
    assert state.read("uploads") == {}


def test_a_folder_is_packed_with_nothing_but_what_is_wanted(recollect, alice, tmp_path):
    folder = tmp_path / ".claude"
    path = claude_code(folder)
    (folder / "settings.json").write_text('{"secret": "s3cret"}')
    (path.parent / "notes.txt").write_text("s3cret")
    (path.parent / "linked.jsonl").symlink_to(folder / "settings.json")
    (folder / "history.jsonl").write_text("{}")
    session = "projects/-home-alice-shop/0000-1.jsonl"
    assert [each.name for each in packing.requested_files(folder, None)] == ["history.jsonl", session]
    assert [each.name for each in packing.requested_files(folder / "projects", None)] == [session]
    for inside in (folder, folder / "projects"):
        status, _, err = recollect("import", inside)
        assert status == 0, err
    assert said(alice) == ["How do I rebase?"]


def test_a_session_comes_in_once_whatever_folder_or_file_is_named(recollect, alice, tmp_path):
    path = claude_code(tmp_path / "home" / ".claude")
    packed = shutil.make_archive(str(tmp_path / "packed"), "zip", path.parent)
    for named in (path, path.parent, path.parents[1], path.parents[2], tmp_path / "home", packed):
        status, _, err = recollect("import", named)
        assert status == 0, err
        assert said(alice) == ["How do I rebase?"]
    assert Conversation.objects.for_user(alice).count() == 1


def test_sessions_are_packed_from_any_folder_that_holds_them(tmp_path):
    names = [
        "agents/main/agent/openclaw-agent.sqlite",
        "agents/main/agent/openclaw-agent.sqlite-wal",
        "agents/main/sessions/b.jsonl.reset.2026-09-08T04-00-00.000Z",
        "agents/main/sessions/a.jsonl",
    ]
    hidden = "desk/w/local_1/.claude/projects/-x/s.jsonl"
    others = ("agents/main/sessions/a.trajectory.jsonl", "openclaw.json", "credentials/oauth.json")
    for name in (*names, *others):
        path = tmp_path / "openclaw" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("{}")
    for name in (hidden, "desk/w/local_1.json", "desk/.cache/x.json", "desk/w/local_1/.claude/settings.json"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("{}")

    assert [each.name for each in packing.requested_files(tmp_path / "openclaw", None)] == sorted(names)
    inside = packing.requested_files(tmp_path / "openclaw" / "agents" / "main" / "sessions", "openclaw")
    assert {each.name for each in inside} == {"a.jsonl", "a.trajectory.jsonl", names[2].rpartition("/")[2]}
    desk = packing.requested_files(tmp_path / "desk", None)
    assert [each.name for each in desk] == ["w/local_1.json", hidden.removeprefix("desk/")]
    with pytest.raises(client.Failure, match=r"Looked for what codex has\. Found: .*empty"):
        (tmp_path / "none" / "empty").mkdir(parents=True)
        packing.requested_files(tmp_path / "none", "codex")


def test_a_folder_of_notes_is_packed_without_pictures_and_hidden_files(tmp_path):
    for name in ("a.md", "b/c.markdown", "b/picture.png", ".obsidian/app.json", "conversations.json"):
        path = tmp_path / "vault" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("x")
    found = packing.requested_files(tmp_path / "vault", None)
    assert [each.name for each in found] == ["a.md", "b/c.markdown", "conversations.json"]


def test_an_unpacked_export_is_packed_with_the_files_of_its_messages(tmp_path):
    attached = [
        "attachments/0123456789ab lease.pdf",
        "file-AAAAAAAAAA-kiln.png",
        "file_0000abcdef.dat",
        "recollect.json",
    ]
    for name in (*attached, "attachments/holiday.png", "picture.png"):
        path = tmp_path / "export" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("x")
    assert [each.name for each in packing.requested_files(tmp_path / "export", None)] == attached


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda path: None, "cannot be read: No such file"),
        (lambda path: path.write_bytes(b""), "This file is empty."),
        (lambda path: path.mkdir(), "There is nothing in"),
        (lambda path: path.write_text("<html>"), "This is a web page"),
        (lambda path: path.write_bytes(b"PK\x03\x04 and no more"), "damaged or incomplete"),
    ],
)
def test_what_cannot_be_imported_gets_a_sentence(recollect, tmp_path, make, sentence):
    path = tmp_path / "export"
    make(path)
    status, out, err = recollect("import", path)
    assert (status, out) == (1, "")
    assert sentence in err
    assert "Traceback" not in err


def test_a_product_that_is_unknown_and_a_token_that_may_not_are_refused(recollect, alice, export):
    status, _, err = recollect("import", export, "--as", "wordpress")
    assert (status, "There is no such product" in err) == (1, True)
    reader = create_token(user=alice, scopes=[TokenScope.SEARCH]).secret
    status, _, err = recollect("import", export, "--token", reader)
    assert (status, "lacks the scope `import`" in err) == (1, True)


def test_ctrl_c_cancels_and_leaves_no_upload(recollect, alice, export, monkeypatch):
    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(importing, "_followed", interrupted)
    status, out, err = recollect("import", export)
    assert (status, out, err.splitlines()[-1]) == (130, "", "recollect: stopped")
    assert not Import.objects.exists()
    assert said(alice) == []


def test_sync_brings_what_changed_and_nothing_else(recollect, alice, tmp_path, monkeypatch):
    folder = tmp_path / "claude"
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(folder))
    monkeypatch.setenv("CODEX_HOME", str(tmp_path / "nowhere"))
    monkeypatch.setenv("OPENCLAW_STATE_DIR", str(tmp_path / "nowhere"))
    claude_code(folder)
    assert recollect("sync")[1] == "claude-code: 1 conversation, 1 turn\n"
    # Prompts alone are nothing that was said.
    (folder / "history.jsonl").write_text("{}\n")
    assert recollect("sync", "claude-code")[1] == "claude-code: nothing new\n"
    assert Import.objects.count() == 1
    # Another version may read what an earlier one left out.
    monkeypatch.setattr("recollect_cli.commands.version", lambda: "99")
    assert recollect("sync", "claude-code")[1] == "claude-code: nothing\n"
    claude_code(folder, session="0000-2", text="And squash?", project="-home-alice-other")
    sent = []
    monkeypatch.setattr(syncing, "import_files", lambda server, files, *_, **__: sent.extend(files) or {"stored": {}})
    recollect("sync")
    assert [each.name for each in sent] == ["projects/-home-alice-other/0000-2.jsonl", "history.jsonl"]


@pytest.mark.parametrize("product", ["gemini-cli", "cursor"])
def test_sync_brings_sessions_from_the_folder_of_a_product(recollect, alice, tmp_path, monkeypatch, product):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("GEMINI_CLI_HOME", raising=False)
    folder = tmp_path / (".cursor" if product == "cursor" else ".gemini")
    place = "projects/shop/agent-transcripts/s-1/s-1.jsonl" if product == "cursor" else "tmp/shop/chats/session-1.jsonl"
    said_in_cursor = {"role": "user", "message": {"content": [{"type": "text", "text": "How do I rebase?"}]}}
    said_in_gemini = {"id": "u1", "type": "user", "content": "How do I rebase?", "timestamp": "2026-03-01T12:00:00Z"}
    head = {"sessionId": "s-1", "projectHash": "x", "startTime": "2026-03-01T12:00:00Z"}
    lines = [said_in_cursor] if product == "cursor" else [head, said_in_gemini]
    (folder / place).parent.mkdir(parents=True)
    (folder / place).write_text("".join(json.dumps(line) + "\n" for line in lines))
    if product == "gemini-cli":
        (folder / "tmp/shop/.project_root").write_text("/home/me/shop")
    (folder / "settings.json").write_text('{"key": "secret"}')
    assert recollect("sync")[1] == f"{product}: 1 conversation, 1 turn\n"
    assert said(alice) == ["How do I rebase?"]
    assert recollect("sync", product)[1] == f"{product}: nothing new\n"
    with (folder / place).open("a") as log:
        log.write(json.dumps({**lines[-1], "id": "u2"}).replace("rebase", "squash") + "\n")
    sent = []
    bring = syncing.import_files
    monkeypatch.setattr(
        syncing, "import_files", lambda s, files, *a, **o: sent.extend(files) or bring(s, files, *a, **o)
    )
    assert recollect("sync", product)[1] == f"{product}: 1 turn\n"
    assert {each.name for each in sent} == {place, *(["tmp/shop/.project_root"] if product == "gemini-cli" else [])}
    if product == "gemini-cli":
        assert Conversation.objects.for_user(alice).get().project == "shop"


def test_sync_says_where_it_looked_if_there_is_nothing(recollect, tmp_path, monkeypatch):
    monkeypatch.setenv("CODEX_HOME", str(tmp_path / "nowhere"))
    status, _, err = recollect("sync", "codex")
    assert (status, str(tmp_path / "nowhere") in err) == (1, True)
    status, _, err = recollect("sync", "codex", tmp_path / "elsewhere")
    assert (status, "There is no folder" in err) == (1, True)


def test_what_is_remembered_is_replaced_in_one_step_and_may_be_broken(recollect, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "other"))
    state.write("sync", {"a": 1})
    assert state.read("sync") == {"a": 1}
    (state.state_folder() / "sync.json").write_text("{")
    assert state.read("sync") == {}
    assert [path.name for path in state.state_folder().iterdir()] == ["sync.json"]


def interrupted(process):
    """As somebody who presses Ctrl-C until it helps: one that comes while Python cleans up is lost."""
    for _ in range(10):
        process.send_signal(signal.SIGINT)
        with suppress(subprocess.TimeoutExpired):
            return process.communicate(timeout=6)
    raise AssertionError("it goes on")


@pytest.fixture
def interruptible():
    """Programs that start meanwhile hear of Ctrl-C, also where the suite runs in the background of a shell."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def test_watching_brings_each_change_until_ctrl_c(server, alice, tmp_path, interruptible):
    folder = tmp_path / "claude"
    claude_code(folder)
    environment = {
        **os.environ,
        "RECOLLECT_URL": server,
        "RECOLLECT_TOKEN": create_token(user=alice, scopes=list(TokenScope)).secret,
        "XDG_STATE_HOME": str(tmp_path / "state"),
    }
    command = [sys.executable, "-m", "recollect_cli", "sync", "claude-code", str(folder), "--watch"]
    with subprocess.Popen(
        command, cwd=settings.BASE_DIR, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        # What never comes is not waited for: the pipe is then closed.
        given_up = threading.Timer(120, process.kill)
        given_up.start()
        assert process.stdout.readline() == "claude-code: 1 conversation, 1 turn\n"
        claude_code(folder, session="0000-2", text="And squash?")
        assert process.stdout.readline() == "claude-code: 1 turn\n"
        _, err = interrupted(process)
        given_up.cancel()
    assert process.returncode == 130, err
    assert "Traceback" not in err
    assert said(alice) == ["And squash?", "How do I rebase?"]


def watched_twice(recollect, folder, product, monkeypatch, between):
    """`sync --watch`, which sees a change after the first look; what it uploaded in whole files by then, and after."""
    sent, uploads = [], []

    def once_more(watched):
        yield {path.resolve() for _, path in watched}
        sent.append(len(uploads))
        between()
        yield {path.resolve() for _, path in watched}

    begun = importing._begun
    monkeypatch.setattr(importing, "_begun", lambda *names: uploads.append(names) or begun(*names))
    monkeypatch.setattr(syncing, "changes", once_more)
    status, out, err = recollect("sync", product, folder, "--watch")
    assert (status, err.strip()) == (0, "")
    return out.splitlines(), sent[0], len(uploads) - sent[0]


def test_watching_appends_the_new_turns_of_a_session_alone(recollect, alice, tmp_path, monkeypatch):
    path = claude_code(tmp_path)
    more = {
        "type": "user",
        "uuid": "q-2",
        "parentUuid": "0000-1-a",
        "message": {"role": "user", "content": "And then?"},
    }

    def go_on():
        with path.open("a") as file:
            file.write(json.dumps({**more, "sessionId": "0000-1", "timestamp": "2026-03-01T12:01:00Z"}) + "\n")

    lines, before, after = watched_twice(recollect, tmp_path, "claude-code", monkeypatch, go_on)
    assert (lines, before, after) == (["claude-code: 1 conversation, 1 turn", "claude-code: 1 turn"], 1, 0)
    assert said(alice) == ["And then?", "How do I rebase?"]
    # The whole folder once more: nothing doubles.
    state.write("sync", {})
    assert recollect("sync", "claude-code", tmp_path)[1] == "claude-code: nothing\n"
    assert Conversation.objects.for_user(alice).count() == 1


def test_watching_sends_the_folder_of_a_file_that_is_no_session(recollect, alice, tmp_path, monkeypatch):
    path = claude_code(tmp_path)
    note = path.parent / "memory" / "tools.md"
    note.parent.mkdir()

    lines, before, after = watched_twice(
        recollect, tmp_path, "claude-code", monkeypatch, lambda: note.write_text("# Tools\nUse uv.")
    )
    assert (before, after) == (1, 1)
    assert lines[1] == "claude-code: 1 document"


def test_watching_sends_folders_where_the_token_may_not_append(recollect, alice, tmp_path, monkeypatch):
    claude_code(tmp_path)
    scopes = [TokenScope.IMPORT, TokenScope.READ]
    monkeypatch.setenv("RECOLLECT_TOKEN", create_token(user=alice, scopes=scopes).secret)
    _, before, after = watched_twice(
        recollect, tmp_path, "claude-code", monkeypatch, lambda: claude_code(tmp_path, session="0000-2", text="Squash?")
    )
    assert (before, after) == (1, 1)
    assert said(alice) == ["How do I rebase?", "Squash?"]


def test_watching_goes_on_where_the_server_was_down_at_its_start(recollect, alice, server, tmp_path, monkeypatch):
    folder = tmp_path / "claude"
    claude_code(folder)
    tried = []

    def now_and_then(watched):
        yield {path.resolve() for _, path in watched}
        monkeypatch.setattr(client.Server, "ask", ask)
        monkeypatch.setattr("recollect_cli.commands.RETRY_SECONDS", 0)
        for _ in range(2):
            tried.append(Turn.objects.for_user(alice).count())
            yield set()

    ask = client.Server.ask

    def down(*_, **__):
        raise Failure("It does not answer.")

    monkeypatch.setattr("recollect_cli.commands.RETRY_SECONDS", -1)
    monkeypatch.setattr(client.Server, "ask", down)
    monkeypatch.setattr(syncing, "changes", now_and_then)
    status, out, err = recollect("sync", "claude-code", folder, "--watch")
    assert (status, out) == (0, "claude-code: 1 conversation, 1 turn\n")
    assert err.strip() == "recollect: It does not answer."
    assert tried == [0, 1]


def test_the_turns_that_came_in_are_found(recollect, alice, export):
    a_turn(alice, "Something else")
    recollect("import", export)
    status, out, _ = recollect("search", "Sourdough")
    assert (status, "Sourdough" in out) == (0, True)


def test_it_works_from_a_bare_virtual_environment(server, alice, export, tmp_path):
    """Without any package: neither a bar nor the server's code is there."""
    venv.create(tmp_path / "bare", with_pip=False, symlinks=True)
    bare = next((tmp_path / "bare" / "lib").iterdir()) / "site-packages"
    shutil.copytree(settings.BASE_DIR / "recollect_cli", bare / "recollect_cli", ignore=shutil.ignore_patterns("tests"))
    environment = {
        "RECOLLECT_URL": server,
        "RECOLLECT_TOKEN": create_token(user=alice, scopes=list(TokenScope)).secret,
        "XDG_STATE_HOME": str(tmp_path / "state"),
        "CLAUDE_CONFIG_DIR": str(tmp_path / "claude"),
        "HOME": str(tmp_path),
    }
    claude_code(tmp_path / "claude")
    python = str(tmp_path / "bare" / "bin" / "python")

    def run(*arguments):
        command = [python, "-m", "recollect_cli", *arguments]
        return subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)

    imported, synced, watched = run("import", str(export)), run("sync"), run("sync", "--watch")
    assert imported.returncode == 0, imported.stderr
    assert imported.stdout.startswith("Imported from ChatGPT: 3 conversations, 6 turns.\n")
    assert imported.stderr.startswith("Uploading …\n")
    assert synced.stdout == "claude-code: 1 conversation, 1 turn\n"
    assert (watched.returncode, "pip install watchfiles" in watched.stderr) == (1, True)


def test_the_copies_of_its_history_that_codex_keeps_are_not_uploaded(tmp_path):
    said = '{"timestamp":"2026-09-03T10:00:00Z","type":"response_item","payload":{"type":"compacted"}}\n'
    copy = '{"timestamp": "2026-09-03T10:00:01Z", "type": "compacted", "payload": {"x": "%s"}}\n' % ("y" * 3_000_000)
    path = tmp_path / "sessions/2026/09/03/rollout-2026-09-03T10-00-00-s.jsonl"
    path.parent.mkdir(parents=True)
    path.write_text(said + copy + said)
    packed = tmp_path / "packed.zip"
    with packed.open("wb") as target:
        packing.pack(packing.requested_files(tmp_path, "codex"), target)
    with zipfile.ZipFile(packed) as archive:
        (name,) = archive.namelist()
        # The number of a line stays: messages are identified by it.
        assert archive.read(name).decode() == f"{said}\n{said}"
