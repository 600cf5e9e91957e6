"""In how many processes the suite runs, on whose servers, and what one test leaves for the next."""

import gc
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from types import SimpleNamespace

import psutil
import pytest
from django.conf import settings
from django.db import connection, transaction
from django.test import override_settings

from intake.models import User
from intake.tests.factories import a_person
from testing import kept_rows as keeping
from testing.cluster import cluster_urls
from testing.emptying import schema_digest, schema_lines
from testing.kept_rows import kept_rows
from testing.plugin import NAMES, pytest_xdist_auto_num_workers

pytestmark = pytest.mark.extended


@pytest.fixture
def no_servers(monkeypatch):
    for name in NAMES:
        monkeypatch.delenv(name)


@pytest.mark.parametrize(
    ("cores", "gigabytes", "processes"), [(1, 24, 0), (2, 24, 3), (8, 24, 9), (64, 24, 20), (8, 2, 2)]
)
def test_there_is_one_process_more_than_cores_as_far_as_memory_reaches(
    no_servers, monkeypatch, cores, gigabytes, processes
):
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(cores)), raising=False)
    monkeypatch.setattr(psutil, "virtual_memory", lambda: SimpleNamespace(total=gigabytes * 10**9))
    assert pytest_xdist_auto_num_workers() == processes


@pytest.mark.parametrize("name", NAMES)
def test_servers_that_were_given_are_for_one_process(no_servers, monkeypatch, name):
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0, 1}, raising=False)
    monkeypatch.setenv(name, "given")
    assert pytest_xdist_auto_num_workers() == 0


@pytest.mark.extended
def test_several_processes_are_refused_on_servers_that_were_given():
    command = [sys.executable, "-m", "pytest", "-n", "2", "-p", "no:cacheprovider", __file__]
    # Not of this run's: a process that another run starts.
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    done = subprocess.run(
        command, cwd=settings.BASE_DIR, env=environment, capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == pytest.ExitCode.USAGE_ERROR
    assert "-n 2 starts servers for each process: leave out -n, or DATABASE_URL, " in done.stderr


@pytest.mark.extended
def test_each_process_has_servers_that_no_other_has(begin_migrated, tmp_path):
    """The two tell each other where theirs are, and neither ends before it has heard of the other's."""
    (tmp_path / "test_two.py").write_text(TWO)
    environment = {
        name: value for name, value in os.environ.items() if name not in NAMES and not name.startswith("PYTEST_")
    }
    command = [sys.executable, "-m", "pytest", "-n", "2", "-p", "no:cacheprovider", "-c", "pyproject.toml"]
    done = subprocess.run(
        [*command, f"--rootdir={settings.BASE_DIR}", tmp_path / "test_two.py"],
        cwd=settings.BASE_DIR,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert "2 passed" in done.stdout, done.stdout + done.stderr


TWO = """
import os, time
from pathlib import Path

import pytest

NAMES = ("DATABASE_URL", "REDIS_URL")


@pytest.mark.parametrize("mine", ["one", "other"])
def test_of_two(mine):
    folder = Path(__file__).parent
    (folder / mine).write_text(" ".join(os.environ[name] for name in NAMES))
    other = folder / {"one": "other", "other": "one"}[mine]
    deadline = time.monotonic() + 60
    while not other.exists() or not other.read_text():
        assert time.monotonic() < deadline
        time.sleep(0.05)
    assert not set(other.read_text().split()) & {os.environ[name] for name in NAMES}
"""


# -- What a test leaves -------------------------------------------------------------------------------------------------


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("statement", "missing"),
    [
        ("DROP POLICY person ON term_blocks", "term_blocks has policy person"),
        ("ALTER TABLE term_blocks NO FORCE ROW LEVEL SECURITY", "term_blocks is guarded: t, forced: t"),
        ("REVOKE SELECT ON memory_records FROM {web}", "memory_records may be used: {web}"),
        ("ALTER TABLE users ALTER language TYPE text", "users.language is character varying"),
        ("ALTER TABLE users DROP COLUMN language", "users.language is"),
        ("DROP INDEX idx_ic_user_id", "CREATE INDEX idx_ic_user_id"),
    ],
    ids=["policy", "force", "right", "type", "column", "index"],
)
def test_a_schema_that_lacks_something_is_another(statement, missing):
    before, lines, web = schema_digest(), schema_lines(), settings.DATABASE_ROLES.web
    with transaction.atomic():
        with connection.cursor() as cursor:
            cursor.execute(statement.format(web=web))
        assert schema_digest() != before
        assert any(line.startswith(missing.format(web=web)) for line in lines - schema_lines())
        transaction.set_rollback(True)
    assert schema_digest() == before


@kept_rows
def somebody_kept():
    return a_person()


@pytest.mark.skipif(bool(cluster_urls()), reason="On a cluster every test commits.")
@pytest.mark.parametrize("turn", [1, 2])
def test_a_test_changes_copies_of_kept_rows_and_the_change_is_undone(somebody_kept, turn):
    kept = keeping._kept[0].made
    assert (kept.pk, kept.language) == (somebody_kept.pk, somebody_kept.language)
    assert [(user.pk, user.language) for user in User.objects.all()] == [(kept.pk, kept.language)]
    somebody_kept.language = "de"
    somebody_kept.save()
    a_person("bob@example.com")
    assert kept.language != somebody_kept.language


@pytest.mark.django_db
def test_rows_that_were_kept_are_gone_for_a_test_that_does_not_ask_for_them():
    assert not User.objects.exists()


def test_threads_read_settings_while_a_test_overrides_them(request):
    request.addfinalizer(partial(sys.setswitchinterval, sys.getswitchinterval()))
    sys.setswitchinterval(1e-6)
    with ThreadPoolExecutor() as pool:
        overriding = pool.submit(lambda: [override_settings(DEBUG=True)(gc.isenabled)() for _ in range(4_000)])
        while not overriding.done():
            assert settings.REDIS_URL
    overriding.result()
