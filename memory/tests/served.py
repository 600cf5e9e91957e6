"""A small application on a port of this machine, for tests of what asks an endpoint over HTTP."""

import socket
import threading
import time

import uvicorn
from starlette.applications import Starlette
from starlette.routing import Route


class ServedEndpoint:
    """Answers a POST to `path` with `answer(request)`, from `start` until `stop`."""

    def __init__(self, path, answer):
        app = Starlette(routes=[Route(path, answer, methods=["POST"])])
        self.server = uvicorn.Server(uvicorn.Config(app, log_level="error", lifespan="off"))
        self.socket = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self.socket.getsockname()[1]}/v1"
        self.thread = threading.Thread(target=self.server.run, kwargs={"sockets": [self.socket]}, daemon=True)

    def start(self):
        self.thread.start()
        while not self.server.started:
            time.sleep(0.005)

    def stop(self):
        self.server.should_exit = True
        self.thread.join(timeout=10)
        self.socket.close()
