import json
import os
import shutil
from urllib.parse import parse_qs, urlsplit

import psutil
import pytest
from django.conf import settings as project
from django.core.management import CommandError, call_command
from kombu import Connection

from evals import processes, synthetic
from evals.benchmarks import BENCHMARKS, attachments, backup, capacity, indexing, pages, saving
from evals.tests.test_scratch import database_names

pytestmark = [pytest.mark.extended, pytest.mark.django_db, pytest.mark.usefixtures("copied_scratch")]


def embed_here(function, environment, **order):
    if function is indexing.embedding_seconds:
        return function(**order)
    return processes.call(function, environment, **order)


def test_indexing_is_measured_with_a_real_worker_that_is_gone_afterwards(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(indexing, "ROUNDS", 1)
    # The saves alone need a process of their own, which wakes the worker.
    monkeypatch.setattr(indexing, "call", embed_here)
    before = database_names()
    target = tmp_path / "figures.json"

    call_command("benchmark", "indexing", "--turns=12", "--samples=3", f"--json={target}")

    figures = json.loads(target.read_text())
    assert list(figures) == [
        "pipeline_turns_per_s",
        "model_turns_per_s",
        "searchable_p50_ms",
        "searchable_p95_ms",
    ]
    assert all(value > 0 for value in figures.values())
    assert "searchable_p50_ms" in capsys.readouterr().out
    assert database_names() == before
    assert not [child for child in psutil.Process().children() if "celery" in " ".join(child.cmdline())]


def test_both_saves_of_a_turn_are_measured_beside_a_bare_insert(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(saving, "WARM_UP", 5)
    before = database_names()
    target = tmp_path / "figures.json"

    call_command("benchmark", "saving", "--samples=10", f"--json={target}")

    figures = json.loads(target.read_text())
    steps = [figures[f"{step}_p50_ms"] for step in ("message", "answer", "both_saves", "bare_insert")]
    assert all(milliseconds > 0 for milliseconds in steps)
    assert figures["both_saves_by_bare_insert"] == pytest.approx(steps[2] / steps[3], abs=0.06)
    assert "both_saves_by_bare_insert" in capsys.readouterr().out
    assert database_names() == before


def test_capacity_is_measured_by_table_after_everything_is_indexed_and_reckoned_for_so_many_people(
    monkeypatch, tmp_path, capsys
):
    monkeypatch.setattr(capacity, "SEARCHED_PEOPLE", 1)
    before = database_names()
    target = tmp_path / "figures.json"

    population = ("--people=1000,1000000", "--active=0.5", "--turns-a-day=4", "--years=0.05", "--samples=10")
    call_command("benchmark", "capacity", "--turns=20", *population, f"--json={target}")

    figures = json.loads(target.read_text())
    by_table = figures["bytes_per_turn_by_table"]
    assert by_table["intake_conversation_turns"] > 0
    assert by_table["term_blocks"] > 0
    assert by_table["embeddings"] > 0
    assert figures["bytes_per_turn"] == pytest.approx(sum(by_table.values()), abs=len(by_table))
    for operation in ("search_ms", "save_ms", "embedding_ms_per_turn"):
        assert figures[operation] > 0
    few, many = figures["populations"]
    assert (few["people"], many["people"]) == (1_000, 1_000_000)
    assert many["stored_turns"] == pytest.approx(1_000_000 * 0.5 * 4 * 365 * 0.05)
    assert many["disk_gb"] == pytest.approx(many["stored_turns"] * figures["bytes_per_turn"] / 1e9, rel=0.001)
    assert many["nodes"] > few["nodes"]
    shown = capsys.readouterr().out
    assert "stored_turns" in shown
    assert "On a day 50% of the people come" in shown
    assert "1,000,000 people: " in shown.partition("What breaks first:")[2]
    assert database_names() == before


@pytest.mark.skipif(not project.DATABASE_BACKUP_URL, reason="no role for backups")
def test_a_backup_is_measured_with_the_refusal_of_a_damaged_file_and_the_restore(monkeypatch, tmp_path):
    monkeypatch.setattr(backup, "PEOPLE", 1)
    monkeypatch.setenv("RECOLLECT_BACKUP_PASSPHRASE", "several words")
    before = database_names()
    target = tmp_path / "figures.json"

    call_command("benchmark", "backup", "--turns=10", f"--json={target}")

    figures = json.loads(target.read_text())
    for step in ("backup", "refusal", "restore", "verify_backup"):
        assert figures[f"{step}_s"] > 0, step
        assert figures[f"{step}_peak_mb"] > 0, step
    # Each step's own memory, and not this process's four times.
    assert len({figures[f"{step}_peak_mb"] for step in ("backup", "refusal", "restore", "verify_backup")}) > 1
    assert database_names() == before


@pytest.mark.skipif(not any(map(shutil.which, pages.BROWSERS)), reason="no Chromium")
def test_every_page_is_opened_in_a_browser_and_what_it_fetches_is_counted(monkeypatch, tmp_path):
    before = database_names()
    target = tmp_path / "figures.json"
    monkeypatch.setattr(pages, "LONG_CHAT", 30)
    monkeypatch.setattr(pages, "CHATS", 3)
    monkeypatch.setattr(pages, "SETTLED_MS", 100)
    monkeypatch.setattr(pages, "LONG_CHARACTERS", 400)

    call_command("benchmark", "pages", "--runs=1", "--messages=1", f"--json={target}")

    written = json.loads(target.read_text())
    figures, click = written["pages"], written["click"]
    assert {"home", "home, a visitor", "chat of 30 turns", "search", "log in"} <= set(figures)
    for name, measured in figures.items():
        assert measured["fcp_ms"] > 0, name
        assert measured["bytes"] > 2_000, name
        assert measured["cls"] < 0.05, name
    assert figures["home, a visitor"]["requests"] <= 12
    assert figures["home"]["requests"] <= 13
    assert figures["home"]["bytes"] < 90_000
    assert set(click["parts"]) == set(pages.PARTS)
    assert click["parts"][click["largest"]] == max(click["parts"].values())
    assert (click["ms"] > 0, click["bare_ms"] > 0, figures["home"]["of_file"] > 0) == (True, True, True)
    assert database_names() == before


def test_pages_opened_no_times_are_refused():
    with pytest.raises(CommandError, match="--runs: must be above 0"):
        call_command("benchmark", "pages", "--runs=0")


def test_capacity_follows_the_length_of_the_answers(tmp_path):
    passages = []
    for length in (10_000, 20_000):
        target = tmp_path / f"{length}.json"
        call_command("benchmark", "capacity", "--turns=2", "--samples=0", f"--answer={length}", f"--json={target}")
        passages.append(json.loads(target.read_text())["passages_per_turn"])
    assert passages[0] > 5
    assert passages[1] == pytest.approx(2 * passages[0], rel=0.2)


@pytest.mark.parametrize(
    ("option", "error"),
    [
        ("--turns=0", "--turns: must be above 0"),
        ("--active=20", "--active: must be above 0 and at most 1"),
        ("--node-disk=0", "--node-disk: must be above 0"),
        ("--people=many", "invalid people_counts value: 'many'"),
    ],
)
def test_capacity_of_nothing_is_refused(option, error):
    with pytest.raises(CommandError, match=error):
        call_command("benchmark", "capacity", option)


def test_query_embedding_is_measured_without_a_migrated_database(capsys, django_assert_num_queries):
    with django_assert_num_queries(0):
        call_command("benchmark", "embedding", "--samples=5")

    assert "query_p50_ms" in capsys.readouterr().out


def test_every_benchmark_goes_by_its_own_name():
    assert {name: benchmark.name for name, benchmark in BENCHMARKS.items()} == {
        "search": "search",
        "saving": "saving",
        "indexing": "indexing",
        "embedding": "embedding",
        "capacity": "capacity",
        "footprint": "footprint",
        "overload": "overload",
        "pages": "pages",
        "import": "import",
        "backup": "backup",
        "attachments": "attachments",
    }


def test_two_benchmarks_never_share_a_broker_database_and_leave_theirs_empty():
    with processes.own_broker() as first, processes.own_broker() as second:
        assert first != second

    for url in (first, second):
        with Connection(url) as broker:
            assert broker.default_channel.client.dbsize() == 0


def test_a_broker_without_an_empty_database_is_an_error_in_words(monkeypatch):
    monkeypatch.setattr(processes, "BROKER_DATABASES", range(15, 14, -1))
    with (
        processes.own_broker(),
        pytest.raises(CommandError, match="databases 15 to 15 are in use"),
        processes.own_broker(),
    ):
        pass


def test_another_broker_database_is_named_as_celery_wants_it():
    assert processes._in_database("redis://:p%40@host:6379/0", 7) == "redis://:p%40@host:6379/7"
    assert processes._in_database("rediss://host", 7) == "rediss://host/7"

    socket = processes._in_database("redis+socket://:pw@/run/redis.sock?virtual_host=0", 7)
    assert urlsplit(socket).path == "/run/redis.sock"
    assert parse_qs(urlsplit(socket).query) == {"virtual_host": ["7"]}
    without_password = processes._in_database("redis+socket:///run/redis.sock", 7)
    assert without_password == "redis+socket:///run/redis.sock?virtual_host=7"


def test_a_function_that_fails_in_a_process_of_its_own_is_an_error_in_words(capfd):
    nowhere = {**processes.environment(database="nowhere", broker="redis://127.0.0.1:1/0"), "PYTHONPATH": "/nowhere"}

    assert processes.call(processes.free_port, nowhere) > 0
    with pytest.raises(CommandError, match=r"evals.synthetic.queries ended with status 1"):
        processes.call(synthetic.queries, nowhere, count=-1)


def test_a_program_that_ends_before_it_is_ready_is_an_error_in_words(capfd, tmp_path):
    with (
        processes.ModuleProcess("The module", ["evals.no_such_module"], dict(os.environ)) as program,
        pytest.raises(CommandError, match="The module failed; the lines above say why"),
    ):
        program.wait_until(lambda: False)


def test_a_program_with_a_log_is_started_again_until_it_is_hopeless(monkeypatch, tmp_path):
    monkeypatch.setattr(processes, "RESTART_SECONDS", 0.01)
    log = tmp_path / "log"
    with (
        processes.ModuleProcess("The module", ["evals.no_such_module"], dict(os.environ), log=log) as program,
        pytest.raises(CommandError, match=r"The module failed:\n.*No module named evals.no_such_module"),
    ):
        program.wait_until(lambda: False)
    assert program.starts == processes.MOST_STARTS + 1


def test_files_are_measured_until_they_are_found_and_hostile_ones_are_tried(monkeypatch, tmp_path):
    few = {what: attachments.files.HOSTILE[what] for what in ("an encrypted PDF", "a wrong extension")}
    monkeypatch.setattr(attachments.files, "HOSTILE", few)
    before = database_names()
    target = tmp_path / "figures.json"

    call_command("benchmark", "attachments", "--pages=3", "--rows=50", "--pictures=1", f"--json={target}")

    figures = json.loads(target.read_text())
    assert figures["files"].keys() == {"pdf", "csv", "docx_with_pictures"}
    assert all(each["found_s"] > 0 < each["peak_rss_mb"] for each in figures["files"].values())
    assert figures["hostile"]["an encrypted PDF"]["sentence"] == "The file is protected by a password."
    assert all(each["refused_or_read"] and each["seconds"] < 20 for each in figures["hostile"].values())
    assert database_names() == before
