"""Runs an ASGI application on a free port, in a thread of its own, for as long as a test needs it."""

import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import uvicorn

SEND_BUFFER_BYTES = 64 * 1024
T = TypeVar("T")


@contextmanager
def serving(application: Any) -> Iterator[str]:
    """The address of the running server, such as `http://127.0.0.1:40123`."""
    config = uvicorn.Config(application, log_level="error", timeout_graceful_shutdown=1)
    server = uvicorn.Server(config)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        # As in the web process: it soon notices a reader who stops reading.
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER_BYTES)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
        thread.start()
        try:
            _wait(server, thread)
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            server.should_exit = True
            thread.join(timeout=10)


def _wait(server: uvicorn.Server, thread: threading.Thread) -> None:
    deadline = time.monotonic() + 10
    while not server.started:
        if not thread.is_alive() or time.monotonic() > deadline:
            raise RuntimeError("The test server did not start.")
        time.sleep(0.01)


def wait_until(condition: Callable[[], T], seconds: float = 5.0) -> T:
    deadline = time.monotonic() + seconds
    while not (result := condition()):
        assert time.monotonic() < deadline, "it never came true"
        time.sleep(0.02)
    return result
