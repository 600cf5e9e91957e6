"""pytest plugin: before the settings are read, starts throw-away servers for what the environment does not name."""

import json
import os
import subprocess
import sys
from collections.abc import Generator

import pytest

DATABASE = ("DATABASE_URL", "DATABASE_WORKER_URL", "DATABASE_OWNER_URL")
NAMES = (*DATABASE, "REDIS_URL")


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_load_initial_conftests(early_config: pytest.Config) -> Generator[None, None, None]:
    os.environ["IGNORE_ENV_FILES"] = "1"
    options = early_config.known_args_namespace
    given = [name for name in DATABASE if os.environ.get(name)]
    if given and given != list(DATABASE):
        raise pytest.UsageError(f"{', '.join(given)} is set: set all of {', '.join(DATABASE)}, or none of them.")
    if not (options.help or options.version) and not all(os.environ.get(name) for name in NAMES):
        _start_servers(early_config)
    yield


def _start_servers(config: pytest.Config) -> None:
    # The keeper ends the servers when its standard input closes: even a killed run leaves nothing behind.
    keeper = subprocess.Popen(
        [sys.executable, "-m", "config.stack.keeper"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    config.add_cleanup(lambda: _end(keeper))
    answer = keeper.stdout.readline() if keeper.stdout else ""
    if not answer:
        raise pytest.UsageError("The test servers did not start: the line above says why.")
    for name, url in json.loads(answer).items():
        os.environ.setdefault(name, url)


def _end(keeper: subprocess.Popen[str]) -> None:
    keeper.communicate(timeout=30)
