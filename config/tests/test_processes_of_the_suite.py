"""In how many processes the suite runs, and on whose servers."""

import os
import subprocess
import sys

import pytest
from django.conf import settings

from testing.plugin import NAMES, pytest_xdist_auto_num_workers


@pytest.fixture
def no_servers(monkeypatch):
    for name in NAMES:
        monkeypatch.delenv(name)


@pytest.mark.parametrize(("cores", "processes"), [(1, 0), (2, 3), (4, 4), (64, 4)])
def test_there_is_one_process_more_than_cores_up_to_four(no_servers, monkeypatch, cores, processes):
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(cores)), raising=False)
    assert pytest_xdist_auto_num_workers() == processes


@pytest.mark.parametrize("name", NAMES)
def test_servers_that_were_given_are_for_one_process(no_servers, monkeypatch, name):
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0, 1}, raising=False)
    monkeypatch.setenv(name, "given")
    assert pytest_xdist_auto_num_workers() == 0


@pytest.mark.slow
def test_several_processes_are_refused_on_servers_that_were_given():
    command = [sys.executable, "-m", "pytest", "-n", "2", "-p", "no:cacheprovider", __file__]
    # Not of this run's: a process that another run starts.
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    done = subprocess.run(
        command, cwd=settings.BASE_DIR, env=environment, capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == pytest.ExitCode.USAGE_ERROR
    assert "-n 2 starts servers for each process: leave out -n, or DATABASE_URL, " in done.stderr


@pytest.mark.slow
def test_each_process_has_servers_that_no_other_has(tmp_path):
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
