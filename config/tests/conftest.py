"""Residents whom several tests ask for; and at the end of a run, how many endpoints there are and how often they were tried."""

from datetime import date
from typing import Any

import pytest
from django.utils import timezone

from config.tests.endpoints.walking import ENDPOINTS_TRIED
from testing.kept_rows import kept_rows


@kept_rows
def alice_now() -> Any:
    """A person with one of everything."""
    from config.tests.endpoints import house  # Django's models: an option of the command line may come before them

    return house.move_in("alice", "rumpelstiltskin", day=date(2026, 2, 3))


@kept_rows
def alice_then() -> Any:
    """As `alice_now`, at the moment of the factories, at which the test has to set the clock."""
    from config.tests.endpoints import house
    from intake.tests.factories import NOW

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(timezone, "now", lambda: NOW)
        return house.move_in("alice", "rumpelstiltskin", day=date(2026, 2, 3))


@kept_rows
def residents_then() -> Any:
    """Everybody in the matrix of endpoints, at the same moment."""
    from config.tests.endpoints.matrix import residents
    from intake.tests.factories import NOW

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(timezone, "now", lambda: NOW)
        return residents()


def pytest_sessionfinish(session: pytest.Session) -> None:
    """A process that runs a part of the suite has no terminal: it hands over what there is to say."""
    told = session.config.stash.get(ENDPOINTS_TRIED, "")
    if told and hasattr(session.config, "workeroutput"):
        session.config.workeroutput["endpoints_tried"] = told


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    if told := getattr(node, "workeroutput", {}).get("endpoints_tried"):
        node.config.stash[ENDPOINTS_TRIED] = told


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    if told := config.stash.get(ENDPOINTS_TRIED, ""):
        terminalreporter.write_line(told)
