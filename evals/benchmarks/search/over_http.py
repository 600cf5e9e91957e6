"""The same questions as agents put them: over HTTP, with a token, to a real web process with its real model."""

from collections import Counter
from collections.abc import Sequence
from typing import Any
from urllib.parse import urlsplit

import psutil
from django.apps import apps
from django.conf import settings
from django.core.management import CommandError

from evals.benchmarks.search.asking import AskedQuestions, Question, Timing, figures
from evals.benchmarks.search.ours import LIMIT
from evals.children import http_client
from evals.processes import Environment, call, memory_megabytes
from intake.models import User
from memory.search import SearchMode

CLIENTS = 8
SECONDS = 10
PATH = "/api/v1/tools/search_chat_history/"
BEYOND_REACH = "60000000/minute"


def hardly_limited() -> Environment:
    """Settings that put the rate limits out of reach; they still count, since counting takes time in production too."""
    rates = {f"RATE_LIMIT_{name.upper()}": BEYOND_REACH for name in settings.RATE_LIMITS}
    return {**rates, "CONCURRENT_CALLS": "1000"}


class Web:
    """A running web process and the tokens of those who ask it."""

    def __init__(self, address: str, process: psutil.Process, given: Environment) -> None:
        self._address, self._process, self._given = urlsplit(address), process, given
        self._tokens: dict[int, str] = {}

    def timing(self, asked: Sequence[AskedQuestions], mode: SearchMode) -> Timing:
        """One client that asks one question after the other."""
        return figures(self._ask(asked, mode, clients=1, seconds=None)["milliseconds"])

    def requests_per_second(self, asked: Sequence[AskedQuestions], mode: SearchMode) -> float:
        """As many as get their answer with `CLIENTS` who ask at once, again and again."""
        done = self._ask(asked, mode, clients=CLIENTS, seconds=SECONDS)
        return float(round(len(done["milliseconds"]) / done["seconds"], 1))

    def megabytes(self) -> float:
        """The process's resident memory (10^6 bytes)."""
        return memory_megabytes(self._process)[0]

    def _ask(self, asked: Sequence[AskedQuestions], mode: SearchMode, *, clients: int, seconds: float | None) -> Any:
        order = {
            "host": self._address.hostname,
            "port": self._address.port,
            "path": PATH,
            "warm_up": [self._request(one.user, question, mode) for one in asked for question in one.warm_up],
            "requests": [self._request(one.user, question, mode) for one in asked for question in one.questions],
            "clients": clients,
            "seconds": seconds,
        }
        done = call(http_client.run, self._given, **order)
        if done["failures"]:
            failures = ", ".join(f"{count} x {what}" for what, count in Counter(done["failures"]).most_common())
            raise CommandError(f"Searches over HTTP failed: {failures}.")
        return done

    def _request(self, user: User, question: Question, mode: SearchMode) -> list[Any]:
        return [self._token(user), {"query": question.text, "limit": LIMIT, "mode": mode.value}]

    def _token(self, user: User) -> str:
        if user.pk not in self._tokens:
            _, self._tokens[user.pk] = apps.get_model("agent_tools.AccessToken").objects.issue(user=user)
        return self._tokens[user.pk]
