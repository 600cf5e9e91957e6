"""Says at the end of a run how many doors there are, and how often they were tried."""

import pytest

from config.tests.doors.walking import DOORS_TRIED


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    if told := config.stash.get(DOORS_TRIED, ""):
        terminalreporter.write_line(told)
