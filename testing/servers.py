"""Client for temporary servers: a database and a broker that end with this process.

A separate program, `testing.throwaway`, starts them, so that a killed run leaves nothing.
"""

import json
import os
import subprocess
import sys
from pathlib import Path
from threading import Lock
from typing import IO, Any, cast

import psycopg
import redis

PROJECT = Path(__file__).resolve().parent.parent
FOR_TESTS = "--for-tests"
# In the environment of temporary servers: the folder of stopped ones that they begin as a copy of.
BEGIN_AS = "THROWAWAY_SERVERS_BEGIN_AS"
# The environment variables with the servers' settings.
ADDRESSES = ("DATABASE_URL", "DATABASE_WORKER_URL", "DATABASE_OWNER_URL", "REDIS_URL")
# May be missing if the servers are given by the environment.
BACKUP_ADDRESS = "DATABASE_BACKUP_URL"
DATABASE = "recollect"
STOP_SECONDS = 30


class ServersFailed(Exception):
    """The message is a sentence for a person."""


class ThrowawayServers:
    """The temporary servers, started by the constructor, empty or as a copy of the stopped servers in `begin_as`.

    Raises ServersFailed if they do not start.
    """

    def __init__(self, *options: str, begin_as: Path | None = None) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "testing.throwaway", *options],
            cwd=PROJECT,
            env=os.environ | ({BEGIN_AS: str(begin_as)} if begin_as else {}),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._lock = Lock()
        self.urls: dict[str, str] = json.loads(self._answer())

    def command(self, name: str) -> None:
        """Run a command and return when it is done. Raises ServersFailed if it fails."""
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
        """A connection that sees all rows, which no role of the product can."""
        return psycopg.connect(self.urls["SUPERUSER_URL"], dbname=DATABASE, autocommit=True)

    def stop(self) -> None:
        self._process.communicate(timeout=STOP_SECONDS)

    def _answer(self) -> str:
        line = cast(IO[str], self._process.stdout).readline()
        if not line:
            self.stop()
            raise ServersFailed("The throw-away servers ended; the lines above say why.")
        return line
