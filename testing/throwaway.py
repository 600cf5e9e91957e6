"""Temporary servers for the suite, the evals, the benchmarks and `chaos`: a database and a broker for one run.

`python -m testing.throwaway` prints `{"DATABASE_URL": …, "REDIS_URL": …, "SUPERUSER_URL": …, …}` once both
answer. From then on each line of standard input is a command, which is answered by a line when it is done. The servers
end with standard input, so that even a killed run leaves none behind.

The database is durable: acknowledged data must survive a crash, and a benchmark's save must cost what a save costs.
With `--for-tests` it is not durable, and it has the examiner's role. It begins empty or, if BEGIN_AS names the folder
of stopped servers, as a copy of theirs.
"""

import json
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

import environ
import psycopg

from config.stack import StackError
from config.stack.broker import EmbeddedRedis
from config.stack.paths import BASE_DIR, choose_account, make_private, temporary_servers_dir, var_dir
from config.stack.servers import OWNER, EmbeddedPostgres
from testing.examiner import make_examiner
from testing.servers import ADDRESSES, BACKUP_ADDRESS, BEGIN_AS, FOR_TESTS, ThrowawayServers

# How many may connect to the silent socket before others are refused; no process of a product opens as many.
BACKLOG = 1024
CONNECT_SECONDS = 2


@contextmanager
def unless_named(*, is_needed: bool) -> Iterator[None]:
    """Temporary servers within the block, unless others are named: in the environment, .env or by `make up`."""
    if not is_needed or _is_named():
        yield
        return
    print("No database is named and none runs here: using throw-away servers.", file=sys.stderr)
    servers = ThrowawayServers()
    try:
        os.environ.update({name: servers.urls[name] for name in (*ADDRESSES, BACKUP_ADDRESS)})
        # `make up` would have generated these.
        os.environ.setdefault("SECRET_KEY", secrets.token_urlsafe())
        yield
    finally:
        servers.stop()


def _is_named() -> bool:
    if os.environ.get("IGNORE_ENV_FILES"):
        return "DATABASE_URL" in os.environ
    environ.Env.read_env(BASE_DIR / ".env")
    if "DATABASE_URL" in os.environ:
        return True
    # The files of `make up` still exist after it was killed.
    environ.Env.read_env(var_dir() / "env")
    try:
        psycopg.connect(
            os.environ.get("DATABASE_URL", "postgres:///recollect"), connect_timeout=CONNECT_SECONDS
        ).close()
    except psycopg.OperationalError:
        return False
    return True


class SilentSocket:
    """Replaces a server: accepts every connection and never answers."""

    def __init__(self, broker: EmbeddedRedis) -> None:
        self._path = broker.socket
        self._socket: socket.socket | None = None

    def open(self) -> None:
        self._path.unlink(missing_ok=True)
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.bind(str(self._path))
        # Nothing calls accept(): the kernel completes the connections, and discards the written data.
        self._socket.listen(BACKLOG)

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None
            self._path.unlink(missing_ok=True)


class Levers:
    """Both servers, and the operations on them: each method is a command, with `-` for `_`."""

    def __init__(self, postgres: EmbeddedPostgres, broker: EmbeddedRedis) -> None:
        self._postgres, self._broker = postgres, broker
        self._silence = SilentSocket(broker)
        self.commands: dict[str, Callable[[], None]] = {
            "start-broker": self.start_broker,
            "stop-broker": self.stop_broker,
            "silence-broker": self.silence_broker,
            "start-database": postgres.start,
            "crash-database": self.crash_database,
        }

    def crash_database(self) -> None:
        """Stop it as a power failure does: nothing more is written to disk (PostgreSQL's immediate mode)."""
        self._postgres.ends_by = signal.SIGQUIT
        self._postgres.stop()
        self._postgres.ends_by = signal.SIGINT

    def start_broker(self) -> None:
        self._silence.close()
        self._broker.start()

    def stop_broker(self) -> None:
        self._silence.close()
        self._broker.stop()

    def silence_broker(self) -> None:
        """Replace the broker by a socket that accepts every connection and never answers."""
        self.stop_broker()
        self._silence.open()

    def obey(self, command: str) -> str:
        """The answer: `done`, or a sentence with the reason of a failure."""
        if command not in self.commands:
            return f"There is no command {command!r}: {', '.join(self.commands)}."
        try:
            self.commands[command]()
        except StackError as error:
            return str(error)
        return "done"


def main(*options: str) -> None:
    os.umask(0o077)
    root = temporary_servers_dir()
    # Ends with its parent, in order, and not by a signal to the whole terminal.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with ExitStack() as cleanup:
        cleanup.callback(shutil.rmtree, root, ignore_errors=True)
        log = root / "servers.log"
        try:
            if begin_as := os.environ.get(BEGIN_AS):
                # With its owners and modes, which the servers require.
                subprocess.run(["cp", "-a", begin_as, root], check=True)
            make_private(root, choose_account())
            postgres = EmbeddedPostgres(root, log=log, durable=FOR_TESTS not in options)
            broker = EmbeddedRedis(root, log=log)
            for server in (postgres, broker):
                cleanup.callback(server.stop)
                server.start()
        except StackError as error:
            sys.exit(f"{error}")
        if FOR_TESTS in options:
            with psycopg.connect(postgres.superuser_url, autocommit=True) as connection:
                make_examiner(connection, owner=OWNER, web=postgres.roles.web, worker=postgres.roles.worker)
        urls = {**postgres.addresses, "REDIS_URL": broker.url, "SUPERUSER_URL": postgres.superuser_url}
        print(json.dumps(urls), flush=True)
        levers = Levers(postgres, broker)
        for line in sys.stdin:
            print(levers.obey(line.strip()), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
