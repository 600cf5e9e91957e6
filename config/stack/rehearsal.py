"""Throw-away servers that fail on command, for `manage.py chaos` and `manage.py soak`.

`python -m config.stack.rehearsal` prints `{"DATABASE_URL": …, "REDIS_URL": …, "SUPERUSER_URL": …}` once both
answer. From then on each line of standard input is a command, and each is answered by a line when it is done. The
servers end when standard input does, however it ends. Unlike those of a test run the database is durable here: what it
acknowledged must outlive it.
"""

import json
import os
import shutil
import signal
import socket
import sys
from collections.abc import Callable
from contextlib import ExitStack

from config.stack.broker import EmbeddedRedis
from config.stack.errors import StackError
from config.stack.places import choose_account, make_private, temporary_servers_dir
from config.stack.postgres import EmbeddedPostgres

# How many may connect to the silent socket before they are refused: none of a product's processes is one of so many.
BACKLOG = 1024


class SilentSocket:
    """In a server's place: whoever connects is let in and never answered."""

    def __init__(self, broker: EmbeddedRedis) -> None:
        self._path = broker.socket
        self._socket: socket.socket | None = None

    def open(self) -> None:
        self._path.unlink(missing_ok=True)
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.bind(str(self._path))
        # Nobody accepts: the kernel lets connections in, and what is written to them goes nowhere.
        self._socket.listen(BACKLOG)

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None
            self._path.unlink(missing_ok=True)


class Rehearsal:
    """Both servers, and what may be done to them: each method is a command, with `-` for `_`."""

    def __init__(self, postgres: EmbeddedPostgres, broker: EmbeddedRedis) -> None:
        self._postgres, self._broker = postgres, broker
        self._silence = SilentSocket(broker)
        self.commands: dict[str, Callable[[], None]] = {
            "start-broker": self.start_broker,
            "stop-broker": self.stop_broker,
            "silence-broker": self.silence_broker,
            "start-database": postgres.start,
            "crash-database": postgres.crash,
        }

    def start_broker(self) -> None:
        self._silence.close()
        self._broker.start()

    def stop_broker(self) -> None:
        self._silence.close()
        self._broker.stop()

    def silence_broker(self) -> None:
        """Have a socket in its place that lets everybody in and answers nobody."""
        self.stop_broker()
        self._silence.open()

    def obey(self, command: str) -> str:
        """What to answer: `done`, or the sentence that says why not."""
        if command not in self.commands:
            return f"There is no command {command!r}: {', '.join(self.commands)}."
        try:
            self.commands[command]()
        except StackError as error:
            return str(error)
        return "done"


def main() -> None:
    os.umask(0o077)
    root = temporary_servers_dir()
    # Ends with its parent, in order, rather than at a signal to the whole terminal.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with ExitStack() as cleanup:
        cleanup.callback(shutil.rmtree, root, ignore_errors=True)
        try:
            make_private(root, choose_account())
            log = root / "servers.log"
            postgres, broker = EmbeddedPostgres(root, log=log), EmbeddedRedis(root, log=log)
            for server in (postgres, broker):
                cleanup.callback(server.stop)
                server.start()
        except StackError as error:
            sys.exit(f"{error}")
        urls = {**postgres.addresses, "REDIS_URL": broker.url, "SUPERUSER_URL": postgres.superuser_url}
        print(json.dumps(urls), flush=True)
        rehearsal = Rehearsal(postgres, broker)
        for line in sys.stdin:
            print(rehearsal.obey(line.strip()), flush=True)


if __name__ == "__main__":
    main()
