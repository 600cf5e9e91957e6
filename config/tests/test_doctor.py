"""`manage.py doctor` names each fault of an installation with its remedy, and prints no user's text and no secret."""

import os
import re
import socket
import subprocess
import sys
from datetime import timedelta

import celery
import pytest
from django.conf import settings as project
from django.core.management import call_command
from django.utils import timezone

from config import VERSION
from config.ops import doctor
from config.settings.table import names_set
from config.stack.lock import RunLock
from config.stack.supervisor import HealthAnswer, RunPaths
from intake.tests.factories import a_person, a_turn
from memory.models import Embedding
from memory.tests.test_real_worker import worker_environment
from testing.examiner import as_the_application
from testing.serving import wait_until

SECRET = "kwyjibo-0123456789"


@pytest.fixture
def examined(transactional_db):
    """The report of an installation on the test's own database, by the role that a web process has."""

    def examined(*, now=None):
        with as_the_application():
            return doctor.examine(now=now or timezone.now())

    return examined


@pytest.fixture(autouse=True)
def nobody_is_waited_for(request, monkeypatch):
    """Where there is no worker, none answers within a second either."""
    if "all_queues" not in request.fixturenames:
        monkeypatch.setattr(doctor, "WORKER_SECONDS", 0.05)


@pytest.fixture
def all_queues(transactional_db, tmp_path):
    """A real worker that reads every queue."""
    queues = ",".join(doctor._queues())
    command = [sys.executable, "-m", "celery", "-A", "config", "worker", f"--queues={queues}"]
    with (tmp_path / "log").open("w") as log:
        environment = worker_environment("DATABASE_URL")
        process = subprocess.Popen(command, cwd=project.BASE_DIR, env=environment, stdout=log, stderr=log)
    try:
        # Few questions: the worker answers one a second, and those of before it is there are lost.
        wait_until(lambda: celery.current_app.control.inspect(timeout=10, limit=1).active_queues(), seconds=120)
        yield
    finally:
        process.terminate()
        process.wait(30)


def nobody_listens():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


@pytest.fixture(scope="module")
def away():
    """The command where neither the database nor Redis answers, and settings are wrong."""
    nowhere = f"127.0.0.1:{nobody_listens()}"
    environment = {
        "DJANGO_SETTINGS_MODULE": "config.settings.local",
        "SECRET_KEY": SECRET,
        "DATABASE_URL": f"postgres://kwyjibo_web:kwyjibo-password@{nowhere}/recollect",
        "REDIS_URL": f"redis://:kwyjibo-password@{nowhere}/0",
        "LOGIN_HEADER": "kwyjibo:header",
        "LLM_MODELS": "rumpelstiltskin",
        "LLM_RUMPELSTILTSKIN_API_KEY": "kwyjibo",
    }
    command = [sys.executable, "manage.py", "doctor"]
    return subprocess.run(
        command, cwd=project.BASE_DIR, env=os.environ | environment, capture_output=True, text=True, check=False
    )


def whats(report):
    return [what for what, _ in report.problems]


@pytest.mark.extended
def test_a_whole_installation_has_its_versions_and_no_problem(examined, all_queues):
    report = examined()
    facts = dict(report.facts)
    assert whats(report) == []
    assert report.as_text().endswith("\nNothing is wrong.")
    assert facts["Recollect"] == VERSION
    assert re.match(r"1\d\.\d", facts["PostgreSQL"])
    assert re.match(r"\d\.\d", facts["pgvector"])
    assert re.search(r"\d\.\d", facts["Redis"])
    assert facts["Migrations"] == "all applied"
    assert all(queue in facts["Workers"] for queue in doctor._queues())


@pytest.mark.medium
def test_queues_that_no_worker_reads_are_named_with_what_to_do(examined):
    ((what, remedy),) = examined().problems
    assert what.startswith("No worker reads the queues celery, housekeeping, imports, people")
    assert "make up" in remedy


@pytest.mark.medium
def test_it_exits_with_1_when_something_is_wrong(transactional_db, capsys):
    with as_the_application(), pytest.raises(SystemExit) as ended:
        call_command("doctor")
    assert ended.value.code == 1
    assert "\n1. No worker reads the queues" in capsys.readouterr().out


@pytest.mark.medium
def test_texts_that_wait_for_long_are_a_problem_and_stay_unread(examined):
    a_turn(a_person("alice"), "I adopted a cat named Miso")
    assert Embedding.objects.waiting().count() == 1
    assert not [what for what in whats(examined()) if "A text has waited" in what]
    report = examined(now=timezone.now() + timedelta(hours=1))
    assert any(what.startswith("A text has waited for 60 minutes") for what in whats(report))
    assert dict(report.facts)["Texts"] == "1 wait for a vector, 0 of them failed, 0 quarantined"
    assert not re.search("Miso|alice", report.as_text())


@pytest.mark.medium
def test_a_migration_that_is_not_applied_is_named(examined, settings, tmp_path, monkeypatch):
    package = tmp_path / "migrations_of_tomorrow"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "0001_tomorrow.py").write_text(
        "from django.db import migrations\n\n\nclass Migration(migrations.Migration):\n    initial = True\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    settings.MIGRATION_MODULES = {"evals": package.name}
    report = examined()
    assert dict(report.facts)["Migrations"] == "1 pending"
    assert "evals.0001_tomorrow is not applied." in whats(report)


@pytest.mark.medium
def test_a_full_disk_is_said_before_uploads_are_refused(examined, monkeypatch):
    monkeypatch.setattr(doctor, "FREE_BYTES", 10**18)
    assert any("less than uploads leave free" in what for what in whats(examined()))


@pytest.mark.medium
def test_a_model_that_did_not_make_the_index_is_a_problem(examined, settings, monkeypatch):
    monkeypatch.setenv("MODEL_CACHE_DIR", "/home/alice/weights")
    settings.EMBEDDER = project.BUILT_IN_MODEL | {
        "OPTIONS": project.BUILT_IN_MODEL["OPTIONS"] | {"model_dir": "/home/alice/weights"}
    }
    report = examined()
    assert any(what.startswith("The embedding model is of no use: ") for what in whats(report))
    assert "alice" not in report.as_text()


@pytest.mark.medium
def test_an_index_of_the_other_built_in_model_is_named_with_the_command_that_switches(examined, settings, monkeypatch):
    monkeypatch.setattr("memory.backends.embedders.ACTIVE_NAME_SECONDS", 0.0)
    fake = "memory.backends.embedders.FakeEmbedder"
    a_turn(a_person(), "Hello")
    settings.EMBEDDER = {"BACKEND": fake, "OPTIONS": {"name": "other"}}
    settings.EMBEDDER_BEFORE = {"BACKEND": fake}

    problems = dict(examined().problems)

    (remedy,) = [remedy for what, remedy in problems.items() if "another built-in model" in what]
    assert "manage.py switch_embedding_model" in remedy


def test_without_database_and_redis_it_says_so_and_goes_on(away):
    assert (away.returncode, away.stderr) == (1, "")
    assert re.search(
        r"^1\. The database does not answer \(\w+\)\.\n   Start it with `make up`", away.stdout, re.MULTILINE
    )
    assert re.search(r"^2\. Redis does not answer \(ConnectionError\)\.$", away.stdout, re.MULTILINE)
    # The rest is examined nevertheless.
    assert re.search(r"^Disk of var/ +[\d.,]+ GB free", away.stdout, re.MULTILINE)
    assert re.search(r"^Embedding model +built-in, \w+$", away.stdout, re.MULTILINE)


def test_settings_are_named_and_no_value_is_shown_even_where_a_check_quotes_it(away):
    (named,) = re.findall(r"^Settings set +(.*)$", away.stdout, re.MULTILINE)
    assert {"DATABASE_URL", "SECRET_KEY", "LOGIN_HEADER", "LLM_MODELS", "LLM_…_API_KEY"} <= set(named.split(", "))
    assert "intake.E006: LOGIN_HEADER is '<LOGIN_HEADER>', which is no name of a header for log-in." in away.stdout
    assert not re.search("kwyjibo|rumpelstiltskin", away.stdout, re.IGNORECASE)


def test_a_setting_in_a_file_counts_as_set():
    assert names_set({"SECRET_KEY_FILE": "/run/secrets/secret_key", "LLM_MY_OWN_MODEL": "x", "PATH": "/bin"}) == [
        "SECRET_KEY_FILE",
        "LLM_…_MODEL",
    ]


def test_what_make_up_runs_is_looked_at_and_the_age_of_the_last_backup(tmp_path, settings, monkeypatch):
    now, settings.VAR_DIR, paths = timezone.now(), tmp_path, RunPaths(tmp_path)

    def seen():
        report = doctor.Report()
        doctor._look_at_the_stack(report, now)
        return dict(report.facts), [what for what, _ in report.problems]

    assert seen() == ({"Supervisor": "none: not started by `make up`"}, [])
    paths.make()
    paths.backups.mkdir()
    (paths.log / "web.log").write_bytes(bytes(3 * 2**20))
    paths.lock.touch()
    backup = paths.backups / "2026-03-14-030000-daily.backup"
    backup.touch()
    old = (now - timedelta(hours=50)).timestamp()
    os.utime(backup, (old, old))
    facts, problems = seen()
    assert facts == {"Supervisor": "does not run", "Last backup": "50 hours ago", "Logs": "3.0 MB"}
    assert problems == ["Recollect is not running.", "The last daily backup is over two days old."]

    lock = RunLock(paths.lock)
    assert lock.acquire()
    backup.touch()
    paths.tasks.touch()
    os.utime(paths.tasks, (now.timestamp() - 600, now.timestamp() - 600))
    # An address where nobody answers.
    paths.address.write_text(f"http://127.0.0.1:{nobody_listens()}")
    facts, problems = seen()
    assert (facts["Supervisor"], facts["Address"]) == ("runs", "does not answer")
    assert facts["Last task"] == "10 minutes ago"
    assert problems == ["The web process is not well.", "The schedule sends no task."]
    monkeypatch.setattr(doctor, "ask_there", lambda address: HealthAnswer("200 ok"))
    paths.tasks.touch()
    facts, problems = seen()
    assert (facts["Address"], facts["Last task"], problems) == ("answers", "0 minutes ago", [])
