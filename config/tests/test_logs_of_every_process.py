"""A run full of errors, and then every log there is: the web process's, a worker's, the database's. No text is in any."""

import logging
import os
import time
from contextlib import suppress
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest
from django.core.checks import run_checks
from django.db import DatabaseError, connection, transaction

from core import logs as log_checks
from intake.models import Turn, User
from intake.tests.factories import a_person, a_turn
from memory.index import writer
from memory.models import Embedding
from memory.tests.test_real_worker import start_worker
from testing.model_server import BreakOff, CallTool, Refuse

pytestmark = [pytest.mark.extended, pytest.mark.django_db(transaction=True)]

SECRETS = ("kwyjibo", "rumpelstiltskin")
SAID, KEPT = (f"The word is {word}" for word in SECRETS)


class DatabaseLog:
    """What the embedded server has written since."""

    def __init__(self):
        host = parse_qs(urlsplit(os.environ["DATABASE_URL"]).query).get("host")
        if not host:
            pytest.skip("Another server's log is not here to be read.")
        self.path = Path(host[0]).parent / "servers.log"
        self.beginning = self.path.stat().st_size

    def read(self) -> str:
        return self.path.read_bytes()[self.beginning :].decode(errors="replace")


@pytest.fixture
def database_log():
    return DatabaseLog()


@pytest.fixture
def worker_log(tmp_path):
    """A worker that finds everything it needs except the right to read what was said."""
    path = tmp_path / "worker.log"
    _allow(False)
    with path.open("w") as log:
        process = start_worker(log, DJANGO_SETTINGS_MODULE="config.settings.test")
        yield path
        process.terminate()
        process.wait(20)
    _allow(True)


def _allow(is_allowed):
    verb, toward = ("GRANT", "TO") if is_allowed else ("REVOKE", "FROM")
    with connection.cursor() as cursor:
        cursor.execute(f"{verb} SELECT ON intake_conversation_turns {toward} recollect_worker")


def break_the_database():
    """Errors by statements, values and rows with the words in them; returns how many."""
    alice = a_person(f"{SECRETS[0]}@example.com")
    a_turn(alice, SAID)
    failures = [
        lambda: User.objects.create_user(alice.email, "password"),
        lambda: Turn.objects.update(status=None),
        lambda: Turn.objects.update(user_message=SAID, no_such_column=1),
        lambda: _execute("SET LOCAL statement_timeout = 1; SELECT pg_sleep(1), %s", SAID),
        lambda: _execute("SELECT %s FROM no_such_table", KEPT),
        lambda: _execute("SELECT 1 / length(%s) - 1 / 0", KEPT),
    ]
    failed = 0
    for fail in failures:
        try:
            with transaction.atomic():
                fail()
        except DatabaseError:
            failed += 1
        except Exception:
            continue
    return failed


def _execute(sql, *values):
    with connection.cursor() as cursor:
        cursor.execute(sql, values)


def ask_for_trouble(client, language_model):
    """Failures over HTTP, each with the words in what is sent or answered."""
    language_model(Refuse(500), Refuse(500), BreakOff((SAID,)), CallTool("search_chat_history", KEPT), Refuse(401))
    headers = client._csrf()
    for _ in range(3):
        client.post("/api/v1/intake/chat", json={"message": SAID}, headers=headers)
    for path, body in {
        "/api/v1/tools/search_chat_history/": {"query": SAID * 100, SECRETS[0]: 1},
        "/api/v1/tools/search_history/": {"query": SAID, "date_from": KEPT},
        "/api/v1/tools/save_memory/": {"content": KEPT, "tags": [KEPT * 100]},
        "/api/v1/memory/documents/daily-logs/2026-02-30/append/": {"text": KEPT},
        "/api/v1/tokens/": {"name": KEPT * 10},
    }.items():
        assert client.post(path, json=body, headers=headers).status_code == 400
    client.get("/search/", params={"q": SAID, "from": KEPT})
    client.get("/memory/records/", params={"tag": KEPT * 100})
    client.post("/login/", data={"username": f"{SECRETS[1]}@example.com", "password": KEPT}, headers=headers)


def wait_for(is_so, seconds=120):
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline and not is_so():
        time.sleep(0.1)


def test_no_log_of_a_run_full_of_errors_holds_a_word_of_what_was_said(
    logged, database_log, worker_log, person, log_in, language_model
):
    client = log_in(person)
    ask_for_trouble(client, language_model)
    failed = break_the_database()
    assert failed >= 4
    assert Embedding.objects.filter(vector=None).exists()
    writer.wake_worker()
    wait_for(lambda: "InsufficientPrivilege" in worker_log.read_text())
    with suppress(DatabaseError), transaction.atomic():
        _execute("SELECT %s::int", "the server's log is this one")
    logging.getLogger("chat.answers.hub").warning("the web process's log is this one")

    logs = {"web": "\n".join(logged.lines), "worker": worker_log.read_text(), "database": database_log.read()}
    assert "the web process's log is this one" in logs["web"]
    assert "InsufficientPrivilege" in logs["worker"]
    assert "the server's log is this one" in logs["database"]
    assert logs["database"].count("ERROR:") > failed
    for name, text in logs.items():
        found = [line for line in text.splitlines() if any(word in line.lower() for word in SECRETS)]
        assert found == [], name


def test_the_embedded_server_keeps_texts_out_of_its_log():
    assert log_checks.problems(connection) == []
    assert [found for found in run_checks(databases=["default"]) if found.id == "core.W006"] == []


def test_a_server_that_may_log_texts_is_named_with_the_lines_that_stop_it(monkeypatch, logged):
    monkeypatch.setitem(log_checks.SILENT, "work_mem", ({"1kB"}, "1kB"))
    (warning,) = [found for found in run_checks(databases=["default"]) if found.id == "core.W006"]
    assert "by work_mem." in warning.msg
    assert "SET work_mem = '1kB';" in warning.hint
    log_checks.warn_of_texts_in_logs()
    assert logged.about("core.W006")
