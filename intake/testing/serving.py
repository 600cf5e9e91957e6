"""Runs an ASGI application on a free port, in a thread of its own, for as long as a test needs it."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import uvicorn


@contextmanager
def serving(application: Any) -> Iterator[str]:
    """The address of the running server, such as `http://127.0.0.1:40123`."""
    config = uvicorn.Config(application, host="127.0.0.1", port=0, log_level="error", timeout_graceful_shutdown=1)
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    try:
        yield _address(server, thread)
    finally:
        server.should_exit = True
        thread.join(timeout=10)


def _address(server: uvicorn.Server, thread: threading.Thread) -> str:
    deadline = time.monotonic() + 10
    while not server.started:
        if not thread.is_alive() or time.monotonic() > deadline:
            raise RuntimeError("The test server did not start.")
        time.sleep(0.01)
    port = server.servers[0].sockets[0].getsockname()[1]
    return f"http://127.0.0.1:{port}"
