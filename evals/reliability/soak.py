"""`manage.py soak`: people and visitors call everything at once, leave in the middle, and never see each other's words.

1. Everybody gets a secret of their own, said in chats and, by people, written into records, a daily log and MEMORY.md.
2. Clients call: searches, tools over REST and MCP, chats that stream, pages, and what belongs to somebody else. A share
   of them leaves before the answer is complete (`soak_calls`).
3. Every byte of every answer is looked through for others' secrets; statuses are compared with what they must be.
4. Meanwhile the database is asked how many connections each role has, and afterwards the logs are read for errors.
"""

import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psycopg

from evals.client import Client
from evals.datasets.loading import Report
from evals.metrics import Latency
from evals.processes import call_at_once, looking
from evals.reliability.product import CHAT, Person, Product, new_visitor, running_product
from evals.reliability.soak_calls import SoakCaller, Tally, call_at_random, new_secret
from evals.tables import Check, none_of

SAMPLE_SECONDS = 0.25
# All say the same but for the secret, so that each is the best answer to the others' questions too.
SAID = (
    "The code of the garden shed is {secret}",
    "My locker at the pool opens with {secret}",
    "The spare key is hidden where {secret} is written",
    "The name that nobody may know is {secret}",
)
_SESSIONS = """
SELECT usename, count(*)
  FROM pg_stat_activity
 WHERE datname = current_database() AND pid <> pg_backend_pid() AND usename IS NOT NULL
 GROUP BY usename
"""


@dataclass(frozen=True, slots=True)
class SoakPlan:
    """`cancelled`: the share of calls whose client leaves early. `pool`: connections to the database of a process."""

    calls: int
    people: int = 8
    visitors: int = 4
    connections: int = 16
    processes: int = 2
    cancelled: float = 0.05
    pool: int = 16
    seed: int = 0
    logs: Path | None = None


@dataclass
class SoakOutcome(Tally):
    """The tallies of all clients together, and what was seen of the product meanwhile."""

    logged: list[str] = field(default_factory=list)
    # By role, the most that were seen at once.
    connections: Counter[str] = field(default_factory=Counter)
    samples: int = 0
    seconds: float = 0.0
    # By program, what the calls took of the processor: it hardly depends on what else the machine does.
    processor_seconds: dict[str, float] = field(default_factory=dict)

    def checks(self, plan: SoakPlan) -> list[Check]:
        total = self.calls.total()
        calls = f"{total:,} in {self.seconds:,.0f} s, {total / self.seconds:,.0f}/s"
        processor = ", ".join(f"{name} {1000 * took / total:.1f} ms" for name, took in self.processor_seconds.items())
        most = ", ".join(f"{role} {count}" for role, count in sorted(self.connections.items()))
        is_within = self.samples > 0 and max(self.connections.values(), default=0) <= plan.pool
        server_errors = {status: count for status, count in self.statuses.items() if status.startswith("5")}
        return [
            Check("calls", calls, total >= plan.calls, f"at least {plan.calls:,}"),
            Check("of the processor, a call", processor),
            Check("people and visitors, at once", f"{plan.people} and {plan.visitors}, {plan.connections}"),
            Check("left before the answer was complete", f"{self.cancelled:,}"),
            # Without one nothing was put to the test.
            Check("answers that held one's own secret", f"{self.own_secrets:,}", self.own_secrets > 0, "some"),
            none_of("answers that held another's", self.leaks),
            Check("statuses", ", ".join(f"{count:,} x {status}" for status, count in sorted(self.statuses.items()))),
            none_of("of them 5xx", Counter(server_errors)),
            none_of("answers that were not what they must be", self.unexpected),
            none_of("errors logged by the product", self.logged),
            Check(
                "most connections at once",
                f"{most}; {self.samples:,} samples",
                is_within,
                f"at most {plan.pool} by role",
            ),
            *(
                Check(f"  {kind} (p50 / p95 / max)", str(Latency.of(each)))
                for kind, each in sorted(self.milliseconds.items())
            ),
        ]


def run(plan: SoakPlan, report: Report) -> SoakOutcome:
    report("Starting a product of its own.")
    with running_product(extra={"DATABASE_POOL_MAX": str(plan.pool)}, logs=plan.logs) as product:
        report(f"Giving {plan.people} people and {plan.visitors} visitors their secrets.")
        orders = _orders(plan, product.address, _callers(plan, product))
        outcome = SoakOutcome()
        with (
            product.servers.connect_as_superuser() as connection,
            looking(lambda: _count_sessions(connection, outcome), every=SAMPLE_SECONDS),
        ):
            began = time.monotonic()
            before = {name: program.processor_seconds() for name, program in product.programs.items()}
            for tallies in call_at_once(call_at_random, product.environment, orders):
                for tally in tallies:
                    outcome.add(tally)
            outcome.seconds = time.monotonic() - began
            outcome.processor_seconds = {
                name: program.processor_seconds() - before[name] for name, program in product.programs.items()
            }
        outcome.logged = [line for program in product.programs.values() for line in _errors(program.log)]
    return outcome


def _orders(plan: SoakPlan, address: str, callers: list[SoakCaller]) -> list[dict[str, Any]]:
    shares = [plan.calls // plan.processes + (number < plan.calls % plan.processes) for number in range(plan.processes)]
    return [
        {
            "address": address,
            "callers": callers,
            "calls": share,
            "connections": max(1, plan.connections // plan.processes),
            "cancelled": plan.cancelled,
            "seed": f"{plan.seed}-{number}",
        }
        for number, share in enumerate(shares)
    ]


def _callers(plan: SoakPlan, product: Product) -> list[SoakCaller]:
    """Everybody with their secret, and with the paths of what all others have."""
    everybody = [_person(product.address, person) for person in product.people(plan.people)]
    everybody += [_visitor(product.address) for _ in range(plan.visitors)]
    form = {"person": "/api/v1/conversations/{}/", "visitor": "/c/{}/"}
    for caller in everybody:
        others = [other for other in everybody if other is not caller]
        caller["foreign"] = [form[caller["kind"]].format(key) for other in others for key in other["conversations"]]
        if caller["kind"] == "person":
            caller["foreign"] += [f"/api/v1/memory/records/{key}/" for other in others for key in other["records"]]
    return everybody


def _person(address: str, person: Person) -> SoakCaller:
    """Says the secret in a conversation for each sentence, and writes it wherever something can be written."""
    secret = new_secret()
    sentences = [sentence.format(secret=secret) for sentence in SAID]
    with Client(address, {**person.headers, "If-None-Match": "*"}) as client:
        turns = [_sent(client, "POST", CHAT, {"message": sentence}).events[-1].data for sentence in sentences]
        saved = _sent(client, "POST", "/api/v1/tools/save_memory/", {"content": sentences[0]}).data
        _sent(client, "POST", "/api/v1/tools/append_daily_log/", {"text": sentences[1]})
        _sent(client, "PUT", "/api/v1/memory/documents/memory/", {"content": sentences[2]})
    return {
        "kind": "person",
        "headers": person.headers,
        "secret": secret,
        "conversations": [turn["conversationId"] for turn in turns],
        "records": [saved["record"]["id"]],
    }


def _visitor(address: str) -> SoakCaller:
    secret = new_secret()
    visitor = new_visitor(address, SAID[0].format(secret=secret))
    found = {"headers": visitor.headers, "secret": secret, "conversations": [visitor.conversation_id], "records": []}
    return {"kind": "visitor", **found}


def _sent(client: Client, method: str, path: str, body: dict[str, Any]) -> Any:
    answer = client.ask(method, path, body)
    if answer.status not in (200, 201):
        raise RuntimeError(f"{method} {path} was answered {answer}")
    return answer


def _count_sessions(connection: psycopg.Connection[Any], outcome: SoakOutcome) -> None:
    for role, sessions in connection.execute(_SESSIONS).fetchall():
        outcome.connections[role] = max(outcome.connections[role], sessions)
    outcome.samples += 1


def _errors(log: Path | None) -> list[str]:
    lines = log.read_text(errors="replace").splitlines() if log is not None else []
    return [line for line in lines if " ERROR " in line or " CRITICAL " in line or line.startswith("Traceback")]
