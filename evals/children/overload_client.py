"""Clients of `benchmark overload`, quiet people or an attack: send requests at a rate over kept connections.

Reads `{"host", "port", "seconds", "connections", "rate", "nice", "requests"}`. A request is `[method, path, headers,
body]`; `{random}` in any of its texts is another word each time, and `{address}` another client's address. `rate` is
requests a second in all; null is as fast as the answers come. Writes `{"milliseconds", "statuses"}`; a connection that
breaks counts as the name of its failure.
"""

import os
import random
import secrets
import threading
import time
from collections import Counter
from http.client import HTTPConnection, HTTPException
from typing import Any

TIMEOUT_SECONDS = 60


class Requester:
    """One connection in a thread of its own, and what came of its requests."""

    def __init__(self, given: dict[str, Any], number: int) -> None:
        self._given, self._number = given, number
        self._line = HTTPConnection(given["host"], given["port"], timeout=TIMEOUT_SECONDS)
        self.milliseconds: list[float] = []
        self.statuses: Counter[str] = Counter()

    def run(self, begun: float) -> None:
        rate, requests = self._given["rate"], self._given["requests"]
        pause = self._given["connections"] / rate if rate else 0.0
        # Spread over the first pause, so that they do not all ask at the same moment.
        due = begun + pause * self._number / self._given["connections"]
        turn = self._number
        while (now := time.perf_counter()) < begun + self._given["seconds"]:
            if now < due:
                time.sleep(min(due - now, 0.2))
                continue
            # One that is late does not catch up: a person who waits asks no more often afterwards.
            due = max(due + pause, now)
            self._ask(requests[turn % len(requests)])
            turn += self._given["connections"]

    def _ask(self, request: list[Any]) -> None:
        method, path, headers, body = _filled(request)
        began = time.perf_counter()
        try:
            self._line.request(method, path, body.encode() if body is not None else None, headers)
            answer = self._line.getresponse()
            answer.read()
        except (OSError, HTTPException) as error:
            self._line.close()
            self.statuses[type(error).__name__] += 1
            return
        self.milliseconds.append(1000 * (time.perf_counter() - began))
        self.statuses[str(answer.status)] += 1


def _filled(request: Any) -> Any:
    """The request with new words in the places for them."""
    match request:
        case str():
            if "{random}" in request:
                request = request.replace("{random}", secrets.token_hex(8))
            if "{address}" in request:
                numbers = (random.randrange(256) for _ in range(2))  # noqa: S311 - no secret
                request = request.replace("{address}", ".".join(["198.18", *map(str, numbers)]))
            return request
        case list():
            return [_filled(each) for each in request]
        case dict():
            return {name: _filled(value) for name, value in request.items()}
    return request


def run(**given: Any) -> dict[str, Any]:
    """Runs in a process of its own."""
    os.nice(given["nice"])
    connections = [Requester(given, number) for number in range(given["connections"])]
    begun = time.perf_counter()
    threads = [threading.Thread(target=connection.run, args=(begun,)) for connection in connections]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    statuses: Counter[str] = sum((connection.statuses for connection in connections), Counter())
    milliseconds = [each for connection in connections for each in connection.milliseconds]
    return {"milliseconds": milliseconds, "statuses": statuses}
