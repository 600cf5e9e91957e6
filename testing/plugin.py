"""A pytest plugin: starts temporary servers for missing addresses before the settings are read.

Under `-n` each of the suite's processes has its own servers. They share no database, no role and no queue, so a test is
alone with all of them, however many run in parallel. `-n auto` starts one process more than there are cores, as far as
the memory reaches: a quarter of a test's time is waiting for a server, a browser or a lease.

After a run it lists the tests that took the most processor time: those over the budget of `make quick`, or the thirty
slowest of `make test-all`.
"""

import argparse
import gc
import os
import sys
from collections.abc import Generator, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

import psutil
import pytest
from django.conf import LazySettings

from config.stack import StackError
from testing.cluster import cluster_urls, make_roles_everywhere
from testing.migrated import migrated_servers
from testing.servers import ADDRESSES, BACKUP_ADDRESS, BEGIN_AS, FOR_TESTS, ServersFailed, ThrowawayServers

T = TypeVar("T")

DATABASE = tuple(name for name in ADDRESSES if name.startswith("DATABASE"))
NAMES = ADDRESSES
# Each process has a database, a broker and sometimes a browser.
BYTES_OF_A_PROCESS = 1_200_000_000
# The lane of `make quick`, and what one of its tests may take.
QUICK, QUICK_SECONDS = "not extended and not medium", 0.3
# In the environment of a process whose servers have the test database already.
BEGAN_MIGRATED = "SERVERS_BEGAN_MIGRATED"
PROCESSOR_SECONDS = "processor seconds"
SLOWEST = 30
# Named by pytest-xdist in the environment of a process that it has started.
WORKER = "PYTEST_XDIST_WORKER"


_set = LazySettings.__setattr__


def _exchange(settings: LazySettings, name: str, value: Any) -> None:
    """Where a test overrides settings. Django's own setter removes all of them before it sets the others, and a thread
    of the product that reads one at this moment would fail.
    """
    if name != "_wrapped":
        return _set(settings, name, value)
    values = vars(settings)
    values[name] = value
    for read in {*values} - {name}:
        values.pop(read, None)
    return None


LazySettings.__setattr__ = _exchange  # type: ignore[assignment, method-assign]


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_load_initial_conftests(early_config: pytest.Config) -> Generator[None, None, None]:
    os.environ["IGNORE_ENV_FILES"] = "1"
    _keep_bytecode()
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
    if runs_tests:
        gc.disable()
    if runs_tests and not all(os.environ.get(name) for name in NAMES):
        _start_servers(early_config)
    yield


@pytest.hookimpl(trylast=True)
def pytest_collection_finish() -> None:
    """What is loaded by now stays until the end. For the garbage collector to look through it again and again would
    take a tenth of the suite's processor time.
    """
    gc.freeze()
    gc.enable()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, None, None]:
    """Notes a test's processor seconds: those of this process, and of the children that it waited for."""
    before = sum(os.times()[:4])
    try:
        return (yield)
    finally:
        item.user_properties.append((PROCESSOR_SECONDS, sum(os.times()[:4]) - before))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Lists what is above the budget of `make quick`, or the slowest of all tests; seconds fail nothing."""
    spent = sorted(
        (
            (seconds, report.nodeid)
            for reports in terminalreporter.stats.values()
            for report in reports
            for name, seconds in getattr(report, "user_properties", [])
            if name == PROCESSOR_SECONDS and report.when == "call"
        ),
        reverse=True,
    )
    if config.option.markexpr == QUICK:
        title, shown = f"above {QUICK_SECONDS} processor seconds", [each for each in spent if each[0] > QUICK_SECONDS]
    elif config.getoption("numprocesses", None) and not config.option.markexpr:
        title, shown = "the slowest, in processor seconds", spent[:SLOWEST]
    else:
        return
    terminalreporter.section(title)
    for seconds, test in shown:
        terminalreporter.line(f"{seconds:7.1f}  {test}")


@pytest.hookimpl(tryfirst=True, optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """One more than the cores that this process may use, while each has enough memory; none on a single core, or with
    given servers.
    """
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    if cores == 1 or _has_servers():
        return 0
    return max(2, min(cores + 1, psutil.virtual_memory().total // BYTES_OF_A_PROCESS))


def _keep_bytecode() -> None:
    """Even if the environment says otherwise, as in many containers: otherwise each process of the suite, and each of a
    hundred that tests start, would compile every module.
    """
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    sys.dont_write_bytecode = False


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
        servers = ThrowawayServers(FOR_TESTS, begin_as=migrated_servers())
    except (ServersFailed, StackError) as error:
        raise pytest.UsageError(str(error)) from error
    config.add_cleanup(servers.stop)
    os.environ[BEGAN_MIGRATED] = "1"
    for name in (*NAMES, BACKUP_ADDRESS):
        os.environ.setdefault(name, servers.urls[name])


def processes_of_run() -> int:
    return int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))


def deal(slow: Sequence[Sequence[T]], others: Sequence[T], *, processes: int) -> list[T]:
    """The tests of the modules in an order in which each process has its slow ones first, so that all end together.

    pytest-xdist cuts the list into equal parts, one for each process, and a process without tests takes half of
    another's, from its end. Slow tests wait much of their time: one process of three or more begins with the others,
    for which the processor is then free.
    """
    hands = max(1, processes - 1) if processes > 2 else processes
    rest, left = list(others), sum(map(len, slow)) + len(others)
    dealt: list[T] = []
    for number in range(processes):
        part = left // (processes - number)
        hand = [test for module in slow[number::hands] for test in module] if number < hands else []
        taken = max(0, part - len(hand))
        dealt += [*hand, *rest[:taken]]
        rest, left = rest[taken:], left - part
    return [*dealt, *rest]


@pytest.fixture(scope="module")
def begin_migrated() -> Iterator[Path]:
    """Temporary servers that start meanwhile begin as a copy of this folder, with the schema."""
    migrated = migrated_servers()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(BEGIN_AS, str(migrated))
        yield migrated
