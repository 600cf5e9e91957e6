"""Runs uvicorn, for a container (`python -m config.serving HOST PORT`) and for `make up` (with the word `up` after it).

For `make up` it runs migrations and collects static files first.
"""

import asyncio
import gc
import os
import socket
import sys
from contextlib import suppress
from types import FrameType

import django
import uvicorn
from django.core.management import CommandError, call_command

from config.stack import REFUSED, WEB_PROCESSES
from config.static import collect
from core.priority import share_from_now_on
from core.telemetry import delete_our_queue


class StoppingServer(uvicorn.Server):
    """Ends the streams of pages that only listen, so that stopping the server does not wait for them."""

    _loop: asyncio.AbstractEventLoop | None = None

    async def main_loop(self) -> None:
        """As uvicorn's own, which looks ten times a second whether it is to end: here the signal wakes it."""
        self._loop, self._ending = asyncio.get_running_loop(), asyncio.Event()
        # The number 0 has it write the date of the next answers.
        while not await self.on_tick(0):
            with suppress(TimeoutError):
                await asyncio.wait_for(self._ending.wait(), 1)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        if "intake.chats.changes" in sys.modules:
            sys.modules["intake.chats.changes"].end_streams()
        super().handle_exit(sig, frame)
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._ending.set)


def serve(host: str, port: int, *, graceful_seconds: int = 10, shares_address: bool = False) -> None:
    """Serve until the process is told to end. Exits with status 3 if it cannot start.

    `graceful_seconds`: how long a streaming response may go on then.

    `shares_address`: other processes listen there too, and the kernel distributes connections over them (on Linux).
    """
    config = uvicorn.Config(
        "config.asgi:application",
        host=host,
        port=port,
        # Django's settings have it.
        log_config=None,
        # Access logs would contain users' queries.
        access_log=False,
        # No version in the headers.
        server_header=False,
        # Only `TRUSTED_PROXIES` decides which proxies may name a client's address.
        proxy_headers=False,
        timeout_graceful_shutdown=graceful_seconds,
    )
    delete_our_queue()
    server = StoppingServer(config)
    server.run(sockets=[_listen(host, port, shares_address=shares_address)])
    if not server.started:
        # The default of uvicorn's own command.
        sys.exit(3)


def _listen(host: str, port: int, *, shares_address: bool) -> socket.socket:
    listener = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if shares_address:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    # Each accepted connection inherits it.
    # The send buffer for a reader who is slower than the answer. Left to itself it grows to megabytes, which would be
    # as much of an answer that nobody reads, made, paid for and kept in memory before the model is held up.
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 128 * 1024)
    try:
        listener.bind((host, port))
        if not shares_address:
            # Two sockets may be bound to one address, and only one may listen there. Where several processes share the
            # address, each listens when it is ready: the kernel would send it requests before.
            # Connections that wait to be accepted; uvicorn's default.
            listener.listen(2048)
    except OSError as error:
        listener.close()
        sys.stderr.write(f"{host} port {port} cannot be listened on: {error.strerror}.\n")
        # For a supervisor: trying again is of no use.
        sys.exit(os.EX_CONFIG)
    return listener


def serve_up(host: str, port: int) -> None:
    """Serve for `make up`, once the tables and the static files are those of this version."""
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings.local")
    # As in manage.py.
    gc.disable()
    django.setup()
    share_from_now_on()
    # In this process and not in an earlier one, because loading Django takes longer than both together.
    try:
        call_command("migrate", interactive=False, verbosity=0)
    except CommandError as refusal:
        sys.stderr.write(f"{refusal}\n")
        sys.exit(REFUSED)
    collect()
    is_one_of_several = (os.environ.get(WEB_PROCESSES) or "1") != "1"
    # A user who presses Ctrl-C waits less long than an operator who restarts a busy server.
    serve(host, port, graceful_seconds=3, shares_address=is_one_of_several)


if __name__ == "__main__":
    if sys.argv[3:] == ["up"]:
        serve_up(sys.argv[1], int(sys.argv[2]))
    else:
        os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings.production")
        serve(sys.argv[1], int(sys.argv[2]))
