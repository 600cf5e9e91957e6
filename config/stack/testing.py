"""pytest plugin: before the settings are read, starts throw-away servers for what the environment does not name.

Under `-n` each of the suite's processes has servers of its own. They share no database, no role and no queue, so a test
may count on being alone with all of them, however many run beside it. `-n auto` is a process for each core, up to
MOST_PROCESSES.
"""

import argparse
import os
from collections.abc import Generator

import pytest

from core.testing.cluster import cluster_urls, make_roles_everywhere
from core.testing.throwaway_servers import ADDRESSES, BACKUP_ADDRESS, FOR_TESTS, ServersFailed, ThrowawayServers

DATABASE = tuple(name for name in ADDRESSES if name.startswith("DATABASE"))
NAMES = ADDRESSES
# Each has a database, a broker and now and then a browser beside it.
MOST_PROCESSES = 4
# Named by pytest-xdist in the environment of a process that it has started.
WORKER = "PYTEST_XDIST_WORKER"


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_load_initial_conftests(early_config: pytest.Config) -> Generator[None, None, None]:
    os.environ["IGNORE_ENV_FILES"] = "1"
    options = early_config.known_args_namespace
    if cluster_urls():
        os.environ.update(make_roles_everywhere(cluster_urls()))
    given = [name for name in DATABASE if os.environ.get(name)]
    if given and given != list(DATABASE):
        raise pytest.UsageError(f"{', '.join(given)} is set: set all of {', '.join(DATABASE)}, or none of them.")
    processes = 0 if WORKER in os.environ else _processes(options)
    if processes and _has_servers():
        raise pytest.UsageError(f"-n {processes} starts servers for each process: leave out -n, or {', '.join(NAMES)}.")
    runs_tests = not (processes or options.help or options.version)
    if runs_tests and not all(os.environ.get(name) for name in NAMES):
        _start_servers(early_config)
    yield


@pytest.hookimpl(tryfirst=True, optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """One for each core that this process may use; none beside it on a single core, or on servers that were given."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return 0 if cores == 1 or _has_servers() else min(cores, MOST_PROCESSES)


def _processes(options: argparse.Namespace) -> int:
    """How many processes pytest-xdist is going to start; 0 when the tests run in this one."""
    asked = getattr(options, "numprocesses", None) or 0
    if isinstance(asked, int):
        return asked
    return 0 if options.usepdb else pytest_xdist_auto_num_workers()


def _has_servers() -> bool:
    return any(os.environ.get(name) for name in NAMES)


def _start_servers(config: pytest.Config) -> None:
    try:
        servers = ThrowawayServers(FOR_TESTS)
    except ServersFailed as error:
        raise pytest.UsageError(str(error)) from error
    config.add_cleanup(servers.stop)
    for name in (*NAMES, BACKUP_ADDRESS):
        os.environ.setdefault(name, servers.urls[name])
