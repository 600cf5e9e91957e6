"""`recollect` against a real server."""

import io
import json
import subprocess
import sys

from django.conf import settings

from agent_tools.authentication import create_token
from agent_tools.models import TokenScope
from intake.tests.factories import a_turn
from memory.models import MemoryRecord


def test_what_was_said_is_found(recollect, alice):
    a_turn(alice, "I adopted a cat named Miso")
    status, out, err = recollect("search", "Miso")
    assert (status, err) == (0, "")
    assert out.startswith('[Search Results for "Miso" (scope: all, ')
    assert "I adopted a cat named Miso" in out


def test_the_whole_answer_is_had_as_json(recollect, alice):
    a_turn(alice, "I adopted a cat named Miso")
    status, out, _ = recollect("search", "Miso", "--limit", "1", "--json")
    assert status == 0
    assert len(json.loads(out)["results"]) == 1


def test_a_second_look_is_asked_for_and_the_answer_says_whether_it_happened(recollect, alice):
    a_turn(alice, "I adopted a cat named Miso")
    _, out, _ = recollect("search", "Miso", "--rerank", "--json")
    assert json.loads(out)["reranked"] is False


def test_a_refusal_says_each_sentence_once(recollect):
    status, _, err = recollect("search", " ")
    assert (status, err) == (1, "recollect: Parameter 'query' is required and cannot be empty\n")


def test_what_is_added_is_kept_and_said(recollect, alice):
    status, out, _ = recollect("add", "The worktop is oak", "--type", "decision", "--tag", "house", "--tag", "kitchen")
    kept = MemoryRecord.objects.for_user(alice).get()
    assert (status, kept.content, kept.type, kept.tags) == (0, "The worktop is oak", "decision", ["house", "kitchen"])
    assert str(kept.pk) in out


def test_it_is_added_from_standard_input_too(recollect, alice, monkeypatch):
    monkeypatch.setattr("sys.stdin", io.StringIO("from a pipe"))
    assert recollect("add", "-")[0] == 0
    assert MemoryRecord.objects.for_user(alice).get().content == "from a pipe"


def test_what_is_typed_twice_is_kept_once_and_said_so(recollect):
    first, second = (recollect("add", "again") for _ in range(2))
    assert first[1].startswith("Saved a memory")
    assert (second[0], second[1].startswith("This was saved before, with the id ")) == (0, True)
    assert MemoryRecord.objects.count() == 1


def test_a_refusal_is_told_on_stderr(recollect, alice):
    reader = create_token(user=alice, scopes=[TokenScope.SEARCH]).secret
    for arguments, told in (
        (["search", " "], "Parameter 'query' is required and cannot be empty"),
        (["search", "x", "--token", "f" * 64], "The token is not known"),
        (["search", "x", "--token", ""], "RECOLLECT_TOKEN"),
        (["search", "x", "--url", "file:///etc/passwd"], "is no address of a server"),
        (["search", "x", "--url", "http://127.0.0.1:1"], "does not answer"),
        (["add", "x", "--token", reader], "lacks the scope `write`"),
    ):
        status, out, err = recollect(*arguments)
        assert (status, out) == (1, "")
        assert told in err


def test_a_token_from_a_file_with_a_line_end_is_good(recollect, alice, monkeypatch):
    monkeypatch.setenv("RECOLLECT_TOKEN", f"{create_token(user=alice).secret}\r\n")
    assert recollect("search", "Miso")[0] == 0


def test_nothing_is_not_saved(recollect, alice, monkeypatch):
    monkeypatch.setattr("sys.stdin", io.StringIO("\n"))
    for content in ("", " ", "-"):
        assert recollect("add", content) == (1, "", "recollect: There is nothing to save: the text is empty.\n")
    assert not MemoryRecord.objects.exists()


def test_a_text_that_is_not_utf_8_is_refused_with_a_sentence(recollect, monkeypatch):
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"caf\xe9"), encoding="utf-8"))
    for content in ("-", "caf\udce9"):
        status, out, err = recollect("add", content)
        assert (status, out, "not in UTF-8" in err) == (1, "", True)
    assert not MemoryRecord.objects.exists()


def test_the_context_of_an_agent_is_printed(recollect, alice, monkeypatch, tmp_path):
    folder = tmp_path / "app"
    folder.mkdir()
    monkeypatch.chdir(folder)
    assert recollect("context")[1] == "Nothing.\n"
    recollect("add", "The worktop is oak", "--project", "app")
    recollect("add", "The sink is steel", "--project", "other")
    out = recollect("context")[1]
    assert ("worktop" in out, "sink" in out) == (True, False)
    assert "sink" in recollect("context", "--project", "other")[1]
    assert json.loads(recollect("context", "--max-tokens", "200", "--json")[1])["tokens"] <= 200


def test_everything_is_exported_into_a_file(recollect, alice, tmp_path):
    a_turn(alice, "I adopted a cat named Miso")
    file = tmp_path / "mine.json"
    status, out, err = recollect("export", file)
    assert (status, out) == (0, f"{file}: {file.stat().st_size:,} bytes.\n"), err
    assert "Miso" in file.read_text()
    status, _, err = recollect("export", tmp_path / "none" / "mine.json")
    assert (status, err.startswith("recollect: ")) == (1, True)


def test_the_version_is_printed():
    command = [sys.executable, "-m", "recollect_cli", "--version"]
    ran = subprocess.run(command, cwd=settings.BASE_DIR, capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stdout.startswith("recollect ")) == (0, True)


def test_a_server_that_is_not_recollects_is_told(recollect, server):
    status, _, err = recollect("search", "x", "--url", f"{server}/nowhere")
    assert status == 1
    assert "404" in err or "Not found" in err or "not there" in err


def test_it_is_a_program_of_its_own_without_any_package():
    command = [sys.executable, "-S", "-m", "recollect_cli", "search", "--help"]
    ran = subprocess.run(command, cwd=settings.BASE_DIR, capture_output=True, text=True, check=False)
    assert ran.returncode == 0
    assert ran.stdout.startswith("usage: recollect search")


def test_a_reader_that_leaves_early_gets_no_traceback(server, alice):
    a_turn(alice, "I adopted a cat named Miso")
    command = [sys.executable, "-m", "recollect_cli", "search", "Miso", "--url", server]
    with subprocess.Popen(
        [*command, "--token", create_token(user=alice).secret],
        cwd=settings.BASE_DIR,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        process.stdout.close()
        said = process.stderr.read()
    assert (process.returncode, said) == (0, "")
