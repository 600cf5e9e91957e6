"""Throw-away servers as their starter sees them: a database and a broker that end with this process.

What starts them is `config.stack.throwaway_servers`, a program of its own, so that nothing is left of a killed run.
"""

import json
import subprocess
import sys
from pathlib import Path
from threading import Lock
from typing import IO, Any, cast

import psycopg
import redis

PROJECT = Path(__file__).resolve().parent.parent.parent
FOR_TESTS = "--for-tests"
# The names of the servers' settings in the environment.
ADDRESSES = ("DATABASE_URL", "DATABASE_WORKER_URL", "DATABASE_OWNER_URL", "REDIS_URL")
# Beside them, where servers are given it may be missing.
BACKUP_ADDRESS = "DATABASE_BACKUP_URL"
DATABASE = "recollect"
STOP_SECONDS = 30


class ServersFailed(Exception):
    """The message is a sentence for a person."""


class ThrowawayServers:
    """The servers as their starter sees them; started when this is made. Raises ServersFailed if they do not start."""

    def __init__(self, *options: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "config.stack.throwaway_servers", *options],
            cwd=PROJECT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._lock = Lock()
        self.urls: dict[str, str] = json.loads(self._answer())

    def command(self, name: str) -> None:
        """Returns when it is done: a server that was started answers. Raises ServersFailed if it cannot be done."""
        with self._lock:
            stdin = cast(IO[str], self._process.stdin)
            stdin.write(f"{name}\n")
            stdin.flush()
            if (answer := self._answer().strip()) != "done":
                raise ServersFailed(f"{name}: {answer}")

    def flush_broker(self) -> None:
        with redis.Redis.from_url(self.urls["REDIS_URL"], socket_timeout=5) as client:
            client.flushall()

    def connect_as_superuser(self) -> psycopg.Connection[Any]:
        """A connection that sees everybody's rows, as no role of the product does."""
        return psycopg.connect(self.urls["SUPERUSER_URL"], dbname=DATABASE, autocommit=True)

    def stop(self) -> None:
        self._process.communicate(timeout=STOP_SECONDS)

    def _answer(self) -> str:
        line = cast(IO[str], self._process.stdout).readline()
        if not line:
            self.stop()
            raise ServersFailed("The throw-away servers ended; the lines above say why.")
        return line
