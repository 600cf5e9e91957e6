"""Somebody who searches over HTTP, for `benchmark search`: outside of the process that measures, on kept connections.

Reads `{"host", "port", "path", "warm_up", "requests", "clients", "seconds"}`; a request is `[token, body]`. Without
`seconds` every request is made once; with them the clients go round until the time is up. Writes `{"milliseconds",
"seconds", "failures"}`: of those that succeeded, the time from first to last, and what went wrong with the others.
"""

import json
import threading
import time
from http.client import HTTPConnection, HTTPException
from itertools import cycle
from typing import Any


class Client:
    """One connection, and what came of its requests."""

    def __init__(self, given: dict[str, Any]) -> None:
        self._connection = HTTPConnection(given["host"], given["port"], timeout=60)
        self._path = given["path"]
        self.milliseconds: list[float] = []
        self.failures: list[str] = []

    def ask(self, token: str, body: dict[str, Any]) -> None:
        headers = {"Authorization": f"Token {token}", "Content-Type": "application/json"}
        begun = time.perf_counter()
        try:
            self._connection.request("POST", self._path, json.dumps(body), headers)
            response = self._connection.getresponse()
            answer = response.read()
        except (OSError, HTTPException) as error:
            self._connection.close()
            self.failures.append(type(error).__name__)
            return
        taken = 1000 * (time.perf_counter() - begun)
        if response.status != 200:  # noqa: PLR2004
            self.failures.append(f"status {response.status}")
        elif not json.loads(answer)["results"]:
            self.failures.append("nothing found")
        else:
            self.milliseconds.append(taken)

    def ask_all(self, requests: list[list[Any]]) -> None:
        for request in requests:
            self.ask(*request)

    def ask_until(self, deadline: float, requests: list[list[Any]], first: int) -> None:
        for request in cycle(requests[first:] + requests[:first]):
            if time.perf_counter() >= deadline:
                return
            self.ask(*request)


def run(**given: Any) -> dict[str, Any]:
    """Runs in a process of its own."""
    clients = [Client(given) for _ in range(given["clients"])]
    clients[0].ask_all(given["warm_up"])
    clients[0].milliseconds.clear()
    begun = time.perf_counter()
    if given["seconds"] is None:
        clients[0].ask_all(given["requests"])
    else:
        _ask_at_once(clients, given["requests"], until=begun + given["seconds"])
    return {
        "milliseconds": [each for client in clients for each in client.milliseconds],
        "seconds": time.perf_counter() - begun,
        "failures": [each for client in clients for each in client.failures],
    }


def _ask_at_once(clients: list[Client], requests: list[list[Any]], *, until: float) -> None:
    """Each client on a thread of its own, and each begins with another request."""
    apart = len(requests) // len(clients)
    threads = [
        threading.Thread(target=client.ask_until, args=(until, requests, number * apart))
        for number, client in enumerate(clients)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
