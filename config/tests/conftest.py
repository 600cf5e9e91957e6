"""Says at the end of a run how many endpoints there are, and how often they were tried."""

from typing import Any

import pytest

from config.tests.endpoints.walking import ENDPOINTS_TRIED


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
