"""The throw-away database and broker of one run, and the levers that make them fail (`config.stack.rehearsal`)."""

import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO, Any, cast

import psycopg
import redis
from django.conf import settings
from django.core.management import CommandError

DATABASE = "recollect"


class Servers:
    """What the other end of the pipe prints and obeys."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        self._lock = threading.Lock()
        self.urls: dict[str, str] = json.loads(self._answer())

    def command(self, name: str) -> None:
        """Returns when it is done: a server that was started answers."""
        with self._lock:
            cast(IO[str], self._process.stdin).write(f"{name}\n")
            cast(IO[str], self._process.stdin).flush()
            if (answer := self._answer().strip()) != "done":
                raise CommandError(f"{name}: {answer}")

    def flush_broker(self) -> None:
        with redis.Redis.from_url(self.urls["REDIS_URL"], socket_timeout=5) as client:
            client.flushall()

    def look(self) -> psycopg.Connection[Any]:
        """A connection that sees everybody's rows, as no role of the product does."""
        return psycopg.connect(self.urls["SUPERUSER_URL"], dbname=DATABASE, autocommit=True)

    def _answer(self) -> str:
        line = cast(IO[str], self._process.stdout).readline()
        if not line:
            raise CommandError("The servers of this run ended; the lines above say why.")
        return line


@contextmanager
def own_servers() -> Iterator[Servers]:
    """They end with this block, and with this process however it ends: their standard input closes."""
    with subprocess.Popen(
        [sys.executable, "-m", "config.stack.rehearsal"],
        cwd=settings.BASE_DIR,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        yield Servers(process)
