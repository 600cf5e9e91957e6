"""`benchmark overload`: what quiet people notice while somebody attacks the product they share.

1. A product of its own starts on throw-away servers, with the limits of a deployment.
2. Quiet people with a few notes each search them, now and then, each over a connection of their own: first by
   themselves, then beside each attack in turn. Every client names an address of its own, so that no limit by address
   protects them.
3. An attack runs in a process of its own, at a lower priority: it is the server that is to be measured.
"""

import json
import time
from argparse import ArgumentParser
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode, urlsplit

import numpy as np
from django.conf import settings
from django.core.management import CommandError

from evals.benchmarks.base import Benchmark, Figures
from evals.children import overload_client
from evals.datasets.loading import Report
from evals.processes import call_at_once
from evals.reliability.product import Person, Product, running_product
from evals.reliability.soak import exchange, new_visitor

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
JSON = {"Content-Type": "application/json"}
WARM_UP_SECONDS = 5
SETTLING_SECONDS = 2
HEADINGS = ["", "p50 ms", "p95 ms", "errors"]

Request = list[Any]


@dataclass(frozen=True, slots=True)
class Attack:
    """`rate`: requests a second over all `connections`; None is as fast as the answers come."""

    requests: list[Request]
    connections: int
    rate: float | None = None


@dataclass(frozen=True, slots=True)
class Target:
    """What attacks need to know of the product: a person's token, a visitor's session and page, a CSRF token."""

    product: Product
    token: str
    csrf: str
    visitors_cookie: str
    visitors_page: str


def anonymous_logins(target: Target) -> Attack:
    form = {"username": "{random}@example.com", "password": "wrong", "csrfmiddlewaretoken": target.csrf}
    return Attack([_form("/login/", form, target)], connections=64, rate=200)


def schema_readers(target: Target) -> Attack:
    return Attack([["GET", "/api/v1/schema/", _from_anywhere(), None]], connections=8)


def huge_queries(target: Target) -> Attack:
    body = json.dumps({"query": "word " * (HUGE_CHARACTERS // 5)})
    return Attack([["POST", SEARCH, {**_from_anywhere(), **JSON, **_bearer(target.token)}, body]], connections=8)


def long_answer(target: Target) -> Attack:
    headers = {**_from_anywhere(), "Cookie": target.visitors_cookie}
    return Attack([["GET", target.visitors_page, headers, None]], connections=8)


def concurrent_calls(target: Target) -> Attack:
    headers = {**_from_anywhere(), **JSON, **_bearer(target.token)}
    requests = [["POST", SEARCH, headers, json.dumps({"query": query, "rerank": True})] for query in QUERIES]
    return Attack(requests, connections=32)


def registration(target: Target) -> Attack:
    form = {"email": "{random}@example.com", "password": "{random}", "csrfmiddlewaretoken": target.csrf}
    return Attack([_form("/register/", form, target)], connections=32, rate=50)


def wrong_tokens(target: Target) -> Attack:
    headers = {**_from_anywhere(), **_bearer("{random}")}
    return Attack([["GET", "/api/v1/conversations/", headers, None]], connections=32, rate=500)


def anonymous_pages(target: Target) -> Attack:
    """From one address, as far as its limit lets it."""
    headers = {"X-Forwarded-For": "198.51.100.7"}
    return Attack([["GET", path, headers, None] for path in ("/", "/login/", "/healthz")], connections=16)


ATTACKS: dict[str, Callable[[Target], Attack]] = {
    attack.__name__: attack
    for attack in (
        anonymous_logins,
        schema_readers,
        huge_queries,
        long_answer,
        concurrent_calls,
        registration,
        wrong_tokens,
        anonymous_pages,
    )
}


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("--people", type=int, default=20, help="how many quiet people search (default 20)")
    parser.add_argument("--seconds", type=float, default=30, help="how long each attack lasts (default 30)")
    parser.add_argument(
        "--attack", action="append", choices=ATTACKS, default=None, help="only this one; may be given several times"
    )


def run(options: dict[str, Any], report: Report) -> Figures:
    if options["people"] < 1 or options["seconds"] <= 0:
        raise CommandError("--people and --seconds must be more than 0.")
    report("Starting a product of its own.")
    with running_product(extra=_limits()) as product:
        quiet, target = _prepared(product, options["people"])
        # Once for nobody's figures: the first searches find nothing in memory.
        _measured(product, quiet, WARM_UP_SECONDS, None, report)
        report("Quiet people alone.")
        figures: Figures = {"quiet": _measured(product, quiet, options["seconds"], None, report), "attacks": {}}
        for name in options["attack"] or ATTACKS:
            time.sleep(SETTLING_SECONDS)
            report(f"Attack: {name}.")
            attack = ATTACKS[name](target)
            figures["attacks"][name] = _measured(product, quiet, options["seconds"], attack, report)
    return figures


def table(figures: Figures) -> list[list[str]]:
    rows = [("quiet people alone", figures["quiet"]), *figures["attacks"].items()]
    shown = [[name, f"{row['p50_ms']:.1f}", f"{row['p95_ms']:.1f}", f"{row['errors']:,}"] for name, row in rows]
    return [HEADINGS, *shown]


def _limits() -> dict[str, str]:
    """A deployment's limits in place of those that are out of reach, behind a proxy that names each client."""
    rates = {f"RATE_LIMIT_{name.upper()}": rate for name, rate in settings.RATE_LIMITS.items()}
    concurrent = {name: str(getattr(settings, name)) for name in ("CONCURRENT_CALLS", "CONCURRENT_ANSWERS")}
    return {**rates, **concurrent, "TRUSTED_PROXIES": "1"}


def _prepared(product: Product, count: int) -> tuple[list[Request], Target]:
    """The searches of quiet people, and what an attack is aimed at."""
    *people, attacker = product.people(count + 1)
    for person in (*people, attacker):
        for note in NOTES:
            _save(product, person, note)
    searches = [
        ["POST", SEARCH, {**JSON, **_bearer(person.token), "X-Forwarded-For": f"192.0.2.{number}"}, json.dumps(asked)]
        for number, person in enumerate(people)
        for asked in [{"query": QUERIES[number % len(QUERIES)]}]
    ]
    visitor = new_visitor(product.address)
    conversation = visitor["conversations"][0]
    with product.servers.connect_as_superuser() as connection:
        text = LONG_ANSWER * (LONG_ANSWER_CHARACTERS // len(LONG_ANSWER))
        connection.execute(
            "UPDATE intake_conversation_turns SET assistant_message = %s WHERE conversation_id = %s",
            [text, conversation],
        )
    _, cookies, _ = exchange(product.address, "GET", "/login/", {}, None)
    target = Target(product, attacker.token, cookies["csrftoken"], visitor["cookie"], f"/c/{conversation}/")
    return searches, target


def _save(product: Product, person: Person, note: str) -> None:
    headers = {**JSON, **_bearer(person.token)}
    status, _, answer = exchange(product.address, "POST", "/api/v1/tools/save_memory/", headers, {"content": note})
    if status != 200:  # noqa: PLR2004
        raise CommandError(f"A note could not be saved: {status} {answer.decode()[:300]}")


def _measured(
    product: Product, quiet: list[Request], seconds: float, attack: Attack | None, report: Report
) -> dict[str, float]:
    rate = len(quiet) / SECONDS_BETWEEN_SEARCHES
    clients = [_clients(product, quiet, seconds, connections=len(quiet), rate=rate)]
    if attack is not None:
        orders = {"connections": attack.connections, "rate": attack.rate, "nice": ATTACKERS_NICENESS}
        clients.append(_clients(product, attack.requests, seconds, **orders))
    with _watching(product):
        people, *attackers = call_at_once(overload_client.run, product.environment, clients)
    for each in attackers:
        report(f"  The attack was answered: {each['statuses']}")
    failed = sum(count for status, count in people["statuses"].items() if status != "200")
    p50, p95 = np.percentile(people["milliseconds"] or [float("nan")], [50, 95])
    return {"p50_ms": round(float(p50), 1), "p95_ms": round(float(p95), 1), "errors": failed}


@contextmanager
def _watching(product: Product) -> Iterator[None]:
    """Raises `CommandError` when the web process died of it: what was measured then would be its restart."""
    before = product.programs["web"].starts
    yield
    if product.programs["web"].starts != before:
        raise CommandError(f"The web process ended:\n{product.programs['web'].last_lines()}")


def _clients(product: Product, requests: list[Request], seconds: float, **how: Any) -> dict[str, Any]:
    place = urlsplit(product.address)
    return {"host": place.hostname, "port": place.port, "seconds": seconds, "nice": 0, "requests": requests, **how}


def _from_anywhere() -> dict[str, str]:
    return {"X-Forwarded-For": "{address}"}


def _bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


def _form(path: str, form: dict[str, str], target: Target) -> Request:
    # The places for words stay as they are.
    body = urlencode(form, safe="{}@")
    return ["POST", path, {**_from_anywhere(), **FORM, "Cookie": f"csrftoken={target.csrf}"}, body]


BENCHMARK = Benchmark(
    name="overload",
    help="what quiet people notice while somebody attacks the product they share",
    add_arguments=add_arguments,
    run=run,
    table=table,
)
