"""`benchmark overload`: what quiet people notice while somebody attacks the product they share.

1. A product of its own starts on throw-away servers, with the limits of a deployment.
2. Quiet people with a few notes each search them, now and then, each over a connection of their own: first by
   themselves, then beside each attack in turn. Every client names an address of its own, so that no limit by address
   protects them.
3. An attack runs in a process of its own, at a lower priority: it is the server that is to be measured.
"""

import json
import os
import random
import secrets
import time
from argparse import ArgumentParser
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import count
from typing import Any
from urllib.parse import urlencode

from django.conf import settings
from django.core.management import CommandError

from evals.benchmarks.base import Benchmark, Figures
from evals.client import Client
from evals.datasets.loading import Report
from evals.metrics import p50_and_p95
from evals.options import Number
from evals.processes import call_at_once
from evals.reliability.product import Person, Product, Visitor, new_visitor, running_product

NOTES = (
    "We take the oak worktop from the sawmill in Baarn",
    "The plumber comes on Tuesday at eight",
    "Miso the cat is afraid of the vacuum cleaner",
    "The anniversary dinner is at the small place by the canal",
    "The spare key is with the neighbours on the left",
)
QUERIES = ("which worktop did we choose", "when does the plumber come", "the cat", "anniversary", "where is the key")
# How often one of the quiet people searches.
SECONDS_BETWEEN_SEARCHES = 4
ATTACKERS_NICENESS = 10
HUGE_CHARACTERS = 2_500_000
LONG_ANSWER = "A line of **words** with `code` and a [link](https://example.com/).\n\n"
LONG_ANSWER_CHARACTERS = 500_000
SEARCH = "/api/v1/tools/search_history/"
FORM = {"Content-Type": "application/x-www-form-urlencoded"}
# Another client's address with each request.
FROM_ANYWHERE = {"X-Forwarded-For": "{address}"}
WRONG_TOKEN = {**FROM_ANYWHERE, "Authorization": "Bearer {random}"}
WARM_UP_SECONDS = 5
SETTLING_SECONDS = 2
HEADINGS = ["", "p50 ms", "p95 ms", "errors"]

PreparedRequest = list[Any]
"""`[method, path, headers, body]`; `{random}` in a header or the body is another word each time, `{address}` another
client's address."""


@dataclass(frozen=True, slots=True)
class Attack:
    """`rate`: requests a second over all `connections`; None is as fast as the answers come."""

    requests: list[PreparedRequest]
    connections: int
    rate: float | None = None


@dataclass(frozen=True, slots=True)
class Target:
    """The parts of the product that attacks aim at: somebody with a token, a visitor, a stranger's CSRF token."""

    person: Person
    visitor: Visitor
    csrf: str


ATTACKS = (
    "anonymous_logins",
    "schema_readers",
    "huge_queries",
    "long_answer",
    "concurrent_calls",
    "registration",
    "wrong_tokens",
    "anonymous_pages",
)


def attacks_on(target: Target) -> dict[str, Attack]:
    """Each of `ATTACKS`."""
    login = {"username": "{random}@example.com", "password": "wrong"}
    newcomer = {"email": "{random}@example.com", "password": "{random}"}
    huge = _search(target.person, FROM_ANYWHERE, query="word " * (HUGE_CHARACTERS // 5))
    again = [_search(target.person, FROM_ANYWHERE, query=query, rerank=True) for query in QUERIES]
    page = _get(f"/c/{target.visitor.conversation_id}/", {**FROM_ANYWHERE, "Cookie": target.visitor.cookie})
    # From one address, as far as its limit lets it.
    here = {"X-Forwarded-For": "198.51.100.7"}
    return {
        "anonymous_logins": Attack([_form("/login/", login, target)], connections=64, rate=200),
        "schema_readers": Attack([_get("/api/v1/schema/", FROM_ANYWHERE)], connections=8),
        "huge_queries": Attack([huge], connections=8),
        "long_answer": Attack([page], connections=8),
        "concurrent_calls": Attack(again, connections=32),
        "registration": Attack([_form("/register/", newcomer, target)], connections=32, rate=50),
        "wrong_tokens": Attack([_get("/api/v1/conversations/", WRONG_TOKEN)], connections=32, rate=500),
        "anonymous_pages": Attack([_get(path, here) for path in ("/", "/login/", "/healthz")], connections=16),
    }


def _get(path: str, headers: dict[str, str]) -> PreparedRequest:
    return ["GET", path, headers, None]


def _search(person: Person, headers: dict[str, str], **arguments: Any) -> PreparedRequest:
    return ["POST", SEARCH, {**headers, **person.headers}, json.dumps(arguments)]


def _form(path: str, form: dict[str, str], target: Target) -> PreparedRequest:
    # The places for words stay as they are.
    body = urlencode({**form, "csrfmiddlewaretoken": target.csrf}, safe="{}@")
    return ["POST", path, {**FROM_ANYWHERE, **FORM, "Cookie": f"csrftoken={target.csrf}"}, body]


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("--attack", action="append", choices=ATTACKS, help="only this one; may be given several times")


def run(options: dict[str, Any], report: Report) -> Figures:
    # A deployment's limits in place of those that are out of reach, behind a proxy that names each client.
    rates = {f"RATE_LIMIT_{name.upper()}": rate for name, rate in settings.RATE_LIMITS.items()}
    concurrent = {name: str(getattr(settings, name)) for name in ("CONCURRENT_CALLS", "CONCURRENT_ANSWERS")}
    report("Starting a product of its own.")
    with running_product(extra={**rates, **concurrent, "TRUSTED_PROXIES": "1"}) as product:
        quiet, target = _prepared(product, options["people"])
        # Once for nobody's figures: the first searches find nothing in memory.
        _measured(product, quiet, WARM_UP_SECONDS, None, report)
        report("Quiet people alone.")
        figures: Figures = {"quiet": _measured(product, quiet, options["seconds"], None, report), "attacks": {}}
        for name in options["attack"] or ATTACKS:
            time.sleep(SETTLING_SECONDS)
            report(f"Attack: {name}.")
            attack = attacks_on(target)[name]
            figures["attacks"][name] = _measured(product, quiet, options["seconds"], attack, report)
    return figures


def table(figures: Figures) -> list[list[str]]:
    rows = [("quiet people alone", figures["quiet"]), *figures["attacks"].items()]
    shown = [[name, f"{row['p50_ms']:.1f}", f"{row['p95_ms']:.1f}", f"{row['errors']:,}"] for name, row in rows]
    return [HEADINGS, *shown]


def _prepared(product: Product, people_count: int) -> tuple[list[PreparedRequest], Target]:
    """The searches of quiet people, and what an attack is aimed at."""
    *people, attacker = product.people(people_count + 1)
    for person in (*people, attacker):
        with Client(product.address, person.headers) as client:
            for note in NOTES:
                answer = client.ask("POST", "/api/v1/tools/save_memory/", {"content": note})
                if not answer.is_ok:
                    raise CommandError(f"A note could not be saved: {answer}")
    searches = [
        _search(person, {"X-Forwarded-For": f"192.0.2.{number}"}, query=QUERIES[number % len(QUERIES)])
        for number, person in enumerate(people)
    ]
    visitor = new_visitor(product.address, NOTES[0])
    with product.servers.connect_as_superuser() as connection:
        connection.execute(
            "UPDATE intake_conversation_turns SET assistant_message = %s WHERE conversation_id = %s",
            [LONG_ANSWER * (LONG_ANSWER_CHARACTERS // len(LONG_ANSWER)), visitor.conversation_id],
        )
    with Client(product.address) as client:
        csrf = client.ask("GET", "/login/").cookies["csrftoken"]
    return searches, Target(attacker, visitor, csrf)


def _measured(
    product: Product, quiet: list[PreparedRequest], seconds: float, attack: Attack | None, report: Report
) -> dict[str, float]:
    """Raises `CommandError` when the web process died of it: its restart would be measured."""
    common = {"address": product.address, "seconds": seconds}
    rate = len(quiet) / SECONDS_BETWEEN_SEARCHES
    orders = [{**common, "requests": quiet, "connections": len(quiet), "rate": rate, "nice": 0}]
    if attack is not None:
        how = {"requests": attack.requests, "connections": attack.connections, "rate": attack.rate}
        orders.append({**common, **how, "nice": ATTACKERS_NICENESS})
    web = product.programs["web"]
    before = web.starts
    people, *attackers = call_at_once(send_at_a_rate, product.environment, orders)
    if web.starts != before:
        raise CommandError(web.failure())
    for each in attackers:
        report(f"  The attack was answered: {each['statuses']}")
    failed = sum(count for status, count in people["statuses"].items() if status != "200")
    p50, p95 = p50_and_p95(people["milliseconds"], digits=1)
    return {"p50_ms": p50, "p95_ms": p95, "errors": failed}


def send_at_a_rate(
    *, address: str, requests: list[PreparedRequest], connections: int, rate: float | None, seconds: float, nice: int
) -> Figures:
    """Runs in a process of its own: requests over kept connections, `rate` of them a second or as fast as they can.

    A connection that breaks counts as the name of its failure.
    """
    os.nice(nice)
    begun, pause = time.perf_counter(), connections / rate if rate else 0.0

    def send(number: int) -> _Sender:
        # Spread over the first pause, so that they do not all ask at the same moment.
        first = begun + pause * number / connections
        turns = (requests[turn % len(requests)] for turn in count(number, connections))
        with Client(address) as client:
            sender = _Sender(client)
            sender.send(turns, first=first, pause=pause, until=begun + seconds)
        return sender

    with ThreadPoolExecutor(max_workers=connections) as pool:
        senders = list(pool.map(send, range(connections)))
    statuses = sum((sender.statuses for sender in senders), Counter[str]())
    return {"milliseconds": [each for sender in senders for each in sender.milliseconds], "statuses": statuses}


@dataclass(slots=True)
class _Sender:
    """One connection, and what came of its requests."""

    client: Client
    milliseconds: list[float] = field(default_factory=list)
    statuses: Counter[str] = field(default_factory=Counter)

    def send(self, requests: Iterator[PreparedRequest], *, first: float, pause: float, until: float) -> None:
        """At times of `time.perf_counter()`."""
        due = first
        for request in requests:
            time.sleep(max(0.0, min(due, until) - time.perf_counter()))
            now = time.perf_counter()
            if now >= until:
                return
            # One that is late does not catch up: a person who waits asks no more often afterwards.
            due = max(due + pause, now)
            self._ask(*request)

    def _ask(self, method: str, path: str, headers: dict[str, str], body: str | None) -> None:
        headers = {name: _filled(value) for name, value in headers.items()}
        content = None if body is None else _filled(body).encode()
        began = time.perf_counter()
        try:
            answer = self.client.ask(method, path, content, headers)
        except OSError as error:
            self.statuses[type(error).__name__] += 1
            return
        self.milliseconds.append(1000 * (time.perf_counter() - began))
        self.statuses[str(answer.status)] += 1


def _filled(text: str) -> str:
    numbers = (str(random.randrange(256)) for _ in range(2))  # noqa: S311 - no secret
    return text.replace("{random}", secrets.token_hex(8)).replace("{address}", f"198.18.{'.'.join(numbers)}")


BENCHMARK = Benchmark(
    "overload",
    "what quiet people notice while somebody attacks the product they share",
    run,
    {
        "people": Number(20, "how many quiet people search"),
        "seconds": Number(30.0, "how long each attack lasts"),
    },
    add_arguments=add_arguments,
    table=table,
)
