"""`manage.py soak`: people and visitors call everything at once, leave in the middle, and never see each other's words.

1. Everybody gets a secret of their own, said in chats and, by people, written into records, a daily log and MEMORY.md.
2. Clients call: searches, tools over REST and MCP, chats that stream, pages, and what belongs to somebody else. A share
   of them leaves before the answer is complete.
3. Every byte of every answer is looked through for others' secrets; statuses are compared with what they must be.
4. Meanwhile the database is asked how many connections each role has, and afterwards the logs are read for errors.
"""

import json
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from http.client import HTTPConnection, HTTPResponse
from http.cookies import SimpleCookie
from pathlib import Path
from typing import Any, cast
from urllib.parse import urlsplit

from evals.children import soak_client
from evals.datasets.loading import Report
from evals.metrics import Latency
from evals.processes import call_at_once
from evals.reliability.product import Person, Product, running_product
from evals.reliability.saving import Saver, Words
from evals.reliability.tally import Tally, new_secret
from evals.tables import judged

SAMPLE_SECONDS = 0.25
EXAMPLES = 3
# All say the same but for the secret, so that each is the best answer to the others' questions too.
SAID = (
    "The code of the garden shed is {secret}",
    "My locker at the pool opens with {secret}",
    "The spare key is hidden where {secret} is written",
    "The name that nobody may know is {secret}",
)


@dataclass(frozen=True, slots=True)
class SoakPlan:
    calls: int
    people: int = 8
    visitors: int = 4
    connections: int = 16
    processes: int = 2
    # The share of calls whose client leaves early.
    cancelled: float = 0.05
    # How many connections to the database each process may have.
    pool: int = 16
    seed: int = 0
    logs: Path | None = None


@dataclass(slots=True)
class SoakOutcome(Tally):
    """What all clients counted, and what was seen of the product meanwhile."""

    logged: list[str] = field(default_factory=list)
    # By role, the most that were seen at once.
    connections: Counter[str] = field(default_factory=Counter)
    samples: int = 0
    seconds: float = 0.0
    # By program, what the calls took of the processor: it hardly depends on what else the machine does.
    processor_seconds: dict[str, float] = field(default_factory=dict)

    def add(self, result: dict[str, Any]) -> None:
        self.calls.update(result["calls"])
        self.statuses.update(result["statuses"])
        self.cancelled += result["cancelled"]
        self.own_secrets += result["own_secrets"]
        self.leaks += result["leaks"]
        self.unexpected += result["unexpected"]
        for kind, milliseconds in result["milliseconds"].items():
            self.milliseconds.setdefault(kind, []).extend(milliseconds)

    @property
    def server_errors(self) -> int:
        return sum(count for status, count in self.statuses.items() if status.startswith("5"))

    def faults_found(self, plan: SoakPlan) -> list[str]:
        """Each violation as a sentence; empty when all is well."""
        too_many = {role: count for role, count in self.connections.items() if count > plan.pool}
        found: dict[str, object] = {
            f"{len(self.leaks)} answers held somebody else's secret: {_some(self.leaks)}.": self.leaks,
            "No answer held anybody's own secret: nothing was put to the test.": not self.own_secrets,
            f"{len(self.unexpected)} answers were not what they must be: {_some(self.unexpected)}.": self.unexpected,
            f"{len(self.logged)} errors were logged: {_some(self.logged)}.": self.logged,
            f"There were more connections than the pool of {plan.pool} may have: {too_many}.": too_many,
            "The connections were never counted.": not self.samples,
        }
        return [sentence for sentence, is_so in found.items() if is_so]

    def table(self, plan: SoakPlan) -> list[tuple[str, str]]:
        total = self.calls.total()
        connections = ", ".join(f"{role} {count}" for role, count in sorted(self.connections.items()))
        processor = ", ".join(f"{name} {1000 * took / total:.1f} ms" for name, took in self.processor_seconds.items())
        return [
            (
                "calls",
                judged(
                    f"{total:,} in {self.seconds:,.0f} s, {total / self.seconds:,.0f}/s",
                    total >= plan.calls,
                    f"at least {plan.calls:,}",
                ),
            ),
            ("of the processor, a call", processor),
            ("people and visitors, at once", f"{plan.people} and {plan.visitors}, {plan.connections}"),
            ("left before the answer was complete", f"{self.cancelled:,}"),
            ("answers that held one's own secret", f"{self.own_secrets:,}"),
            ("answers that held another's", judged(f"{len(self.leaks):,}", not self.leaks, "none")),
            ("statuses", ", ".join(f"{count:,} x {status}" for status, count in sorted(self.statuses.items()))),
            ("of them 5xx", judged(f"{self.server_errors:,}", not self.server_errors, "none")),
            (
                "answers that were not what they must be",
                judged(f"{len(self.unexpected):,}", not self.unexpected, "none"),
            ),
            ("errors logged by the product", judged(f"{len(self.logged):,}", not self.logged, "none")),
            (
                "most connections at once",
                judged(
                    f"{connections}; {self.samples:,} samples",
                    max(self.connections.values(), default=0) <= plan.pool,
                    f"at most {plan.pool} by role",
                ),
            ),
            *(
                (f"  {kind} (p50 / p95 / max)", str(Latency.of(each)))
                for kind, each in sorted(self.milliseconds.items())
            ),
        ]


def run(plan: SoakPlan, report: Report) -> SoakOutcome:
    report("Starting a product of its own.")
    with running_product(extra={"DATABASE_POOL_MAX": str(plan.pool)}, logs=plan.logs) as product:
        report(f"Giving {plan.people} people and {plan.visitors} visitors their secrets.")
        callers = _callers(plan, product)
        outcome = SoakOutcome()
        with _counting_connections(product, outcome):
            began, took_before = time.monotonic(), _processor_seconds(product)
            for result in call_at_once(soak_client.run, product.environment, _orders(plan, product, callers)):
                outcome.add(result)
            outcome.seconds = time.monotonic() - began
            took = _processor_seconds(product)
            outcome.processor_seconds = {name: took[name] - took_before[name] for name in took}
        outcome.logged = [line for program in product.programs.values() for line in _errors(program.log)]
    return outcome


def _processor_seconds(product: Product) -> dict[str, float]:
    return {name: program.processor_seconds() for name, program in product.programs.items()}


def _orders(plan: SoakPlan, product: Product, callers: list[dict[str, Any]]) -> list[dict[str, Any]]:
    address = urlsplit(product.address)
    shares = [plan.calls // plan.processes + (number < plan.calls % plan.processes) for number in range(plan.processes)]
    return [
        {
            "host": address.hostname,
            "port": address.port,
            "callers": callers,
            "calls": share,
            "connections": max(1, plan.connections // plan.processes),
            "cancelled": plan.cancelled,
            "seed": f"{plan.seed}-{number}",
        }
        for number, share in enumerate(shares)
    ]


def _callers(plan: SoakPlan, product: Product) -> list[dict[str, Any]]:
    words = Words()
    people = [_person(product.address, person, words) for person in product.people(plan.people)]
    visitors = [new_visitor(product.address) for _ in range(plan.visitors)]
    everybody = [*people, *visitors]
    for caller in everybody:
        prefixes = ("/api/v1/conversations/{}/", "/api/v1/memory/records/{}/") if "token" in caller else ("/c/{}/",)
        caller["foreign"] = [
            prefix.format(key)
            for other in everybody
            if other is not caller
            for prefix, kind in zip(prefixes, ("conversations", "records"), strict=False)
            for key in other.get(kind, [])
        ]
    return everybody


def _person(address: str, person: Person, words: Words) -> dict[str, Any]:
    """Says the secret in a conversation for each sentence, and writes it wherever something can be written."""
    secret = new_secret()
    with closing(Saver(address, person, words, seed=person.user_id)) as saver:
        places = [saver.save_anew(sentence.format(secret=secret) + " {word}").place for sentence in SAID]
    caller = {"token": person.token, "secret": secret, "conversations": [place[0] for place in places if place]}
    saved = _send(address, caller, "POST", "/api/v1/tools/save_memory/", {"content": SAID[0].format(secret=secret)})
    _send(address, caller, "POST", "/api/v1/tools/append_daily_log/", {"text": SAID[1].format(secret=secret)})
    _send(address, caller, "PUT", "/api/v1/memory/documents/memory/", {"content": SAID[2].format(secret=secret)})
    return {**caller, "records": [saved["record"]["id"]]}


def _send(address: str, caller: dict[str, Any], method: str, path: str, body: Any) -> Any:
    headers = {"Authorization": f"Token {caller['token']}", "Content-Type": "application/json", "If-None-Match": "*"}
    status, _, answer = exchange(address, method, path, headers, body)
    if status not in (200, 201):
        raise RuntimeError(f"{method} {path} answered {status}: {answer.decode()[:300]}")
    return json.loads(answer)


def new_visitor(address: str) -> dict[str, Any]:
    """`cookie`, `csrf`, `secret` and `conversations` of a visitor who said the secret.

    Comes as a browser does: a page, its cookie, and then the first words.
    """
    _, cookies, _ = exchange(address, "GET", "/", {}, None)
    csrf = cookies["csrftoken"]
    secret = new_secret()
    headers = {"Cookie": f"csrftoken={csrf}", "X-CSRFToken": csrf, "Content-Type": "application/json"}
    body = {"message": SAID[0].format(secret=secret)}
    status, given, answer = exchange(address, "POST", "/api/v1/intake/chat", headers, body)
    if status != 200 or b"event: done" not in answer:  # noqa: PLR2004
        raise RuntimeError(f"A visitor's chat answered {status}: {answer.decode()[:300]}")
    turn = json.loads(answer.split(b"data: ", 1)[1].split(b"\n", 1)[0])
    cookie = "; ".join(f"{name}={value}" for name, value in (cookies | given).items())
    # Logging the visitor in has changed it.
    csrf = given.get("csrftoken", csrf)
    return {"cookie": cookie, "csrf": csrf, "secret": secret, "conversations": [turn["conversationId"]]}


def exchange(
    address: str, method: str, path: str, headers: dict[str, str], body: Any
) -> tuple[int, dict[str, str], bytes]:
    parts = urlsplit(address)
    connection = HTTPConnection(parts.hostname or "", parts.port, timeout=60)
    try:
        connection.request(method, path, None if body is None else json.dumps(body), headers)
        response = connection.getresponse()
        return response.status, _cookies(response), response.read()
    finally:
        connection.close()


def _cookies(response: HTTPResponse) -> dict[str, str]:
    jar: SimpleCookie = SimpleCookie()
    for header in response.headers.get_all("Set-Cookie") or []:
        jar.load(header)
    return {name: morsel.value for name, morsel in jar.items()}


@contextmanager
def _counting_connections(product: Product, outcome: SoakOutcome) -> Iterator[None]:
    """Ask the database, again and again, how many sessions each role has."""
    is_over = threading.Event()

    def count() -> None:
        with product.servers.connect_as_superuser() as connection:
            while not is_over.wait(SAMPLE_SECONDS):
                rows = connection.execute(
                    "SELECT usename, count(*) FROM pg_stat_activity WHERE datname = current_database()"
                    " AND pid <> pg_backend_pid() AND usename IS NOT NULL GROUP BY usename"
                ).fetchall()
                for role, sessions in cast("list[tuple[str, int]]", rows):
                    outcome.connections[role] = max(outcome.connections[role], sessions)
                outcome.samples += 1

    thread = threading.Thread(target=count, daemon=True)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()


def _errors(log: Path) -> list[str]:
    lines = log.read_text(errors="replace").splitlines()
    return [line for line in lines if " ERROR " in line or " CRITICAL " in line or line.startswith("Traceback")]


def _some(found: list[str]) -> str:
    shown = Counter(found).most_common(EXAMPLES)
    return "; ".join(f"{count} x {what}" for what, count in shown)
