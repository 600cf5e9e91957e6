"""`benchmark overload`: what quiet people notice while somebody attacks the product they share.

1. A product of its own starts on throw-away servers, with the limits of a deployment.
2. Quiet people with a few notes each search them, now and then, each over a connection of their own: first by
   themselves, then beside each attack in turn. Every client names an address of its own, so that no limit by address
   protects them.
3. An attack runs in a process of its own, at a lower priority: it is the server that is to be measured.
4. The control is the same load, of the quiet people and of the attack, on a server that answers all of it with the
   same few bytes: the clients share the machine with the product, and this is their part of each figure.
5. For `hanging_endpoint` another product starts, whose models are all at an endpoint on loopback. It answers until the
   attack begins, and then accepts requests and never answers.
"""

import asyncio
import io
import json
import os
import random
import secrets
import socket
import threading
import time
import zipfile
from argparse import ArgumentParser
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from typing import Any
from urllib.parse import urlencode, urlsplit

from django.conf import settings
from django.core.management import CommandError
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from evals.benchmarks import hostile
from evals.benchmarks.base import Benchmark, Figures
from evals.benchmarks.hostile import Hostile
from evals.client import Client
from evals.datasets.loading import Report
from evals.metrics import p50_and_p95
from evals.options import Number
from evals.processes import call, call_at_once, free_port
from evals.reliability.product import CHAT, Person, Product, Visitor, new_visitor, running_product
from memory.backends.embedders import FakeEmbedder
from testing.model_server import chunk
from testing.serving import serving

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
STOP = "/stop"
STATIC_ANSWER = b'HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 15\r\n\r\n{"results": []}'
SETTLING_SECONDS = 2
HEADINGS = ["", "p50 ms", "p95 ms", "errors", "of quiet", "control ms", "of control"]
STREAMS = 60
VISITORS_STREAMS = 400
LONG_BODY = 2_500_000
LONG_INVITATION = 60_000
HOSTILE_CHARACTERS = 100_000
HOSTILE_TEXTS = {
    "brackets": "[" * HOSTILE_CHARACTERS,
    "table": "|" * 300 + "\n" + "-|" * 300 + "\n" + ("|" * 300 + "\n") * 300,
    "code": "```autoit\n" + " " * 20_000,
    "formulas": "$" * HOSTILE_CHARACTERS,
}
HOSTILE_SUMMARY = 60_000
# A stored zip of blanks, packed once more: 4 MB that unpack to hundreds.
NESTED_BYTES = 300_000_000
# Its models' endpoint hangs. The people who chat have as many answers under way as they may.
HANGING = "hanging_endpoint"
CHATTING_PEOPLE = 8
CHATS_OF_EACH = 4

PreparedRequest = list[Any]
"""`[method, path, headers, body]`; `{random}` in a header or the body is another word each time, `{address}` another
client's address."""


@dataclass(frozen=True, slots=True)
class Attack:
    """`rate`: requests a second over all `connections`; None is as fast as the answers come.

    `holds`: each connection keeps its first response open and reads no more of it. `announces`: bytes of body that a
    request announces beyond those that it sends. `before` prepares the attack, with the address of the product.
    """

    requests: list[PreparedRequest]
    connections: int
    rate: float | None = None
    holds: bool = False
    announces: int = 0
    before: Callable[[str], None] | None = None

    def order(self) -> dict[str, Any]:
        return {
            "requests": self.requests,
            "connections": self.connections,
            "rate": self.rate,
            "holds": self.holds,
            "announces": self.announces,
            "nice": ATTACKERS_NICENESS,
        }


@dataclass(frozen=True, slots=True)
class Target:
    """The parts of the product that attacks aim at: somebody with a token, a visitor, a stranger's CSRF token."""

    person: Person
    visitor: Visitor
    csrf: str
    waiting_import: str
    # A visitor whose chat continues itself, and pages with hostile texts, by their names.
    ring: Visitor
    hostile: dict[str, Visitor]
    # Accounts and visitors with costly texts, and the thumbnails of the visitors' pictures.
    accounts: list[Hostile]
    strangers: list[Visitor]
    thumbnails: list[str]


ATTACKS = (
    "anonymous_logins",
    "schema_readers",
    "huge_queries",
    "long_answer",
    "concurrent_calls",
    "registration",
    "wrong_tokens",
    "anonymous_pages",
    "ring_of_branches",
    "many_pieces",
    "import_streams",
    "visitor_streams",
    "bodies_in_flight",
    "wrong_hosts",
    "long_invitations",
    "nested_zips",
    "hostile_markdown",
    "hostile_summaries",
    "pictures_of_scans",
    "costly_versions",
    "wide_tables",
    "slow_sheets",
    "made_up_tokens",
    "two_accounts",
    "two_accounts_and_nine_strangers",
    "all_at_once",
    HANGING,
)


def attacks_on(target: Target) -> dict[str, Attack]:
    """Each of `ATTACKS` but `HANGING`, which needs a product of its own."""
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
        **_newer_attacks_on(target),
        **_attacks_without_an_account(target),
    }


def _attacks_without_an_account(target: Target) -> dict[str, Attack]:
    """Those of nobody in particular, or of two accounts that somebody made."""
    thumbnails = [
        _get(path, {"X-Forwarded-For": "198.51.100.66", "Cookie": visitor.cookie})
        for path, visitor in zip(target.thumbnails, target.strangers, strict=True)
    ]
    versions = [_get("/memory/history/?version=1", {"Cookie": each.cookie}) for each in target.accounts]
    tables = [_get(f"/c/{each.chat}/", {"Cookie": each.cookie}) for each in target.accounts]
    made_up = [_get("/api/v1/conversations/", {**WRONG_TOKEN, "X-Forwarded-For": "198.51.100.67"})]
    of_accounts = [each for account in target.accounts for each in hostile.searches(account, SEARCH, QUERIES)]
    of_strangers = [_page(visitor) for visitor in target.strangers]
    upload = partial(hostile.upload_sheets, visitors=target.strangers)
    together = [*thumbnails, *versions * 8, *tables * 8, *made_up * 100]
    return {
        "pictures_of_scans": Attack(thumbnails, connections=18),
        "costly_versions": Attack(versions, connections=16),
        "wide_tables": Attack(tables, connections=16),
        "slow_sheets": Attack(of_strangers, connections=9, rate=2, before=upload),
        "made_up_tokens": Attack(made_up, connections=500),
        "two_accounts": Attack(of_accounts, connections=16),
        "two_accounts_and_nine_strangers": Attack([*of_accounts, *of_strangers], connections=25),
        "all_at_once": Attack(together, connections=len(together), before=upload),
    }


def _newer_attacks_on(target: Target) -> dict[str, Attack]:
    """Those that hold something, or that a stored text or an upload carries."""
    pieces = " ".join(f'"{first}{second}"' for first in "abcdefghij" for second in "klmnopqrst")[:500]
    invitation = f"/register/?invitation={'x' * LONG_INVITATION}"
    markdown = [_page(visitor) for name, visitor in target.hostile.items() if name != "summary"]
    return {
        "ring_of_branches": Attack([_page(target.ring)], connections=16),
        "many_pieces": Attack([_chat_search(target.person, query=pieces)], connections=16),
        "import_streams": Attack(_import_streams(target), connections=STREAMS, holds=True),
        "visitor_streams": Attack(
            [_get("/api/v1/intake/events", {"Cookie": target.visitor.cookie})], connections=VISITORS_STREAMS, holds=True
        ),
        "bodies_in_flight": Attack(
            [["POST", "/login/", {**FROM_ANYWHERE, **FORM}, "x" * LONG_BODY]], connections=60, holds=True, announces=1
        ),
        "wrong_hosts": Attack([_get("/login/", {**FROM_ANYWHERE, "Host": "evil.invalid"})], connections=16, rate=500),
        "long_invitations": Attack([_get(invitation, FROM_ANYWHERE)], connections=16, rate=100),
        "nested_zips": Attack(
            [_get("/api/v1/imports/", target.person.headers)],
            connections=1,
            rate=2,
            before=partial(_bring_nested_zips, person=target.person),
        ),
        "hostile_markdown": Attack(markdown, connections=8),
        "hostile_summaries": Attack([_page(target.hostile["summary"])], connections=8),
    }


def _page(visitor: Visitor) -> PreparedRequest:
    return _get(f"/c/{visitor.conversation_id}/", {**FROM_ANYWHERE, "Cookie": visitor.cookie})


def _chat_search(person: Person, **arguments: Any) -> PreparedRequest:
    path = "/api/v1/tools/search_chat_history/"
    return ["POST", path, {**FROM_ANYWHERE, **person.headers}, json.dumps({**arguments, "mode": "hybrid"})]


def _import_streams(target: Target) -> list[PreparedRequest]:
    """Of an import that waits for its upload, and so stays as it is."""
    return [_get(f"/api/v1/imports/{target.waiting_import}/events/", {**FROM_ANYWHERE, **target.person.headers})]


def _begin_import(address: str, person: Person, size: int) -> str:
    """The id of the import."""
    with Client(address, person.headers) as client:
        answer = client.ask("POST", "/api/v1/imports/", {"filename": "export.zip", "bytes": size})
    if not answer.is_ok:
        raise CommandError(f"An import could not be begun: {answer}")
    return str(json.loads(answer.body)["id"])


def _bring_nested_zips(address: str, *, person: Person) -> None:
    """The importing worker reads them while quiet people search."""
    inner, outer = io.BytesIO(), io.BytesIO()
    with zipfile.ZipFile(inner, "w", zipfile.ZIP_STORED) as packed:
        packed.writestr("conversations.json", b" " * NESTED_BYTES)
    with zipfile.ZipFile(outer, "w", zipfile.ZIP_DEFLATED) as packed:
        packed.writestr("inner.zip", inner.getvalue())
    data = outer.getvalue()
    id_ = _begin_import(address, person, len(data))
    with Client(address, person.headers) as client:
        headers = {
            "Content-Type": "application/octet-stream",
            "Content-Range": f"bytes 0-{len(data) - 1}/{len(data)}",
        }
        answer = client.ask("PUT", f"/api/v1/imports/{id_}/content/", data, headers)
    if not answer.is_ok:
        raise CommandError(f"A zip could not be uploaded: {answer}")


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
    names = options["attack"] or ATTACKS
    report("Starting a product of its own.")
    with running_product(extra=_deployed()) as product:
        quiet, target = _prepared(product, options["people"])
        # Once for nobody's figures: the first searches find nothing in memory.
        _measured(product, quiet, WARM_UP_SECONDS, None, report)
        report("Quiet people alone.")
        figures: Figures = {"quiet": _measured(product, quiet, options["seconds"], None, report), "attacks": {}}
        figures["control"] = {"quiet": _control(product, quiet, options["seconds"], None), "attacks": {}}
        for name in names:
            if name != HANGING:
                _attacked(product, quiet, name, attacks_on(target)[name], figures, options, report)
    if HANGING in names:
        _beside_a_hanging_endpoint(figures, options, report)
    return figures


def _deployed() -> dict[str, str]:
    """A deployment's limits in place of those that are out of reach, behind a proxy that names each client."""
    return {"RATE_LIMITS": str(settings.RATE_LIMITS), "TRUSTED_PROXIES": "1"}


def _attacked(
    product: Product,
    quiet: list[PreparedRequest],
    name: str,
    attack: Attack,
    figures: Figures,
    options: dict[str, Any],
    report: Report,
) -> None:
    """Adds the figures of this attack and its control."""
    time.sleep(SETTLING_SECONDS)
    report(f"Attack: {name}.")
    if attack.before is not None:
        attack.before(product.address)
    figures["attacks"][name] = _measured(product, quiet, options["seconds"], attack, report)
    figures["control"]["attacks"][name] = _control(product, quiet, options["seconds"], attack)


def _beside_a_hanging_endpoint(figures: Figures, options: dict[str, Any], report: Report) -> None:
    report("Starting a product whose models are at an endpoint.")
    endpoint = ModelEndpoint()
    with (
        serving(endpoint.application) as address,
        running_product(extra={**_deployed(), **endpoint.settings(address)}) as product,
    ):
        quiet, chats = _prepared_to_chat(product, options["people"])
        _measured(product, quiet, WARM_UP_SECONDS, None, report)
        attack = Attack(
            chats, connections=CHATTING_PEOPLE * CHATS_OF_EACH, holds=True, before=lambda _: endpoint.hang()
        )
        _attacked(product, quiet, HANGING, attack, figures, options, report)


class ModelEndpoint:
    """Embeds, reranks and answers until it hangs. `hung` counts the requests left open."""

    def __init__(self) -> None:
        self.embedder = FakeEmbedder()
        self.is_hanging = False
        self.hung: Counter[str] = Counter()
        routes = {"embeddings": self._embed, "rerank": self._rerank, "chat/completions": self._answer}
        self.application = Starlette(routes=[Route(f"/v1/{at}", do, methods=["POST"]) for at, do in routes.items()])

    def settings(self, address: str) -> dict[str, str]:
        """Of a product all of whose models are here."""
        return {
            "EMBEDDING_BASE_URL": f"{address}/v1",
            "EMBEDDING_MODEL": self.embedder.name,
            "EMBEDDING_DIMENSIONS": str(self.embedder.dimensions),
            "RERANKER_BASE_URL": f"{address}/v1",
            "LLM_MODEL": "hanging",
            "LLM_BASE_URL": f"{address}/v1",
            # A title is one more request.
            "CHAT_TITLES": "0",
        }

    def hang(self) -> None:
        self.is_hanging = True

    async def _embed(self, request: Request) -> Response:
        def embed(body: Any) -> dict[str, Any]:
            vectors = self.embedder.embed_documents(body["input"]).tolist()
            return {"data": [{"index": index, "embedding": vector} for index, vector in enumerate(vectors)]}

        return await self._unless_hanging(request, embed)

    async def _rerank(self, request: Request) -> Response:
        def score(body: Any) -> dict[str, Any]:
            count = len(body["documents"])
            return {"results": [{"index": index, "relevance_score": 1 / (index + 2)} for index in range(count)]}

        return await self._unless_hanging(request, score)

    async def _answer(self, request: Request) -> Response:
        if self.is_hanging:
            return await self._hang(request)
        answer = [chunk({"role": "assistant", "content": "Noted."}), chunk(finish_reason="stop"), b"data: [DONE]\n\n"]
        return StreamingResponse(iter(answer), media_type="text/event-stream")

    async def _unless_hanging(self, request: Request, answer: Callable[[Any], dict[str, Any]]) -> Response:
        return await self._hang(request) if self.is_hanging else JSONResponse(answer(await request.json()))

    async def _hang(self, request: Request) -> Response:
        self.hung[request.url.path] += 1
        while (await request.receive())["type"] != "http.disconnect":
            pass
        return Response()


def table(figures: Figures) -> list[list[str]]:
    """Each attack's p95 also as a multiple of the quiet run's, and of the same load's on the static server."""
    quiet, control = figures["quiet"], figures["control"]
    rows = [("quiet people alone", quiet, control["quiet"])]
    rows += [(name, row, control["attacks"][name]) for name, row in figures["attacks"].items()]
    shown = []
    for name, row, beside in rows:
        ratios = row["p95_ms"] / quiet["p95_ms"], row["p95_ms"] / _own(quiet, control, beside)
        cells = [f"{row['p50_ms']:.1f}", f"{row['p95_ms']:.1f}", f"{row['errors']:,}"]
        shown.append([name, *cells, f"{ratios[0]:.1f}", f"{beside['p95_ms']:.1f}", f"{ratios[1]:.1f}"])
    return [HEADINGS, *shown]


def _own(quiet: dict[str, float], control: dict[str, Any], beside: dict[str, float]) -> float:
    """The p95 that this attack's clients would cause alone: the quiet run's, and what the control adds to it."""
    return quiet["p95_ms"] + max(0.0, beside["p95_ms"] - float(control["quiet"]["p95_ms"]))


def _prepared(product: Product, people_count: int) -> tuple[list[PreparedRequest], Target]:
    """The searches of quiet people, and what an attack is aimed at."""
    *people, attacker = product.people(people_count + 1)
    searches = _searches_with_notes(product, people)
    _save_notes(product, attacker)
    visitor = new_visitor(product.address, NOTES[0])
    with product.servers.connect_as_superuser() as connection:
        connection.execute(
            "UPDATE intake_conversation_turns SET assistant_message = %s WHERE conversation_id = %s",
            [LONG_ANSWER * (LONG_ANSWER_CHARACTERS // len(LONG_ANSWER)), visitor.conversation_id],
        )
    with Client(product.address) as client:
        csrf = client.ask("GET", "/login/").cookies["csrftoken"]
    ring, rows = _hostile_rows(product)
    waiting, strangers = _begin_import(product.address, attacker, 1_000), hostile.strangers(product)
    thumbnails = hostile.pictures(product.address, strangers)
    accounts = hostile.hostile_accounts(product)
    return searches, Target(attacker, visitor, csrf, waiting, ring, rows, accounts, strangers, thumbnails)


def _prepared_to_chat(product: Product, people_count: int) -> tuple[list[PreparedRequest], list[PreparedRequest]]:
    """The searches of quiet people, which ask for reranking, and a message of each of the people who chat."""
    people = product.people(people_count + CHATTING_PEOPLE)
    chats: list[PreparedRequest] = [
        ["POST", CHAT, {**FROM_ANYWHERE, **person.headers, "Content-Type": "application/json"}, '{"message": "Hello"}']
        for person in people[people_count:]
    ]
    return _searches_with_notes(product, people[:people_count], rerank=True), chats


def _searches_with_notes(product: Product, people: list[Person], **arguments: Any) -> list[PreparedRequest]:
    """Saves notes for each of the people; one search of each, from an address of its own."""
    for person in people:
        _save_notes(product, person)
    return [
        _search(person, {"X-Forwarded-For": f"192.0.2.{number}"}, query=QUERIES[number % len(QUERIES)], **arguments)
        for number, person in enumerate(people)
    ]


def _save_notes(product: Product, person: Person) -> None:
    with Client(product.address, person.headers) as client:
        for note in NOTES:
            answer = client.ask("POST", "/api/v1/tools/save_memory/", {"content": note})
            if not answer.is_ok:
                raise CommandError(f"A note could not be saved: {answer}")


def _hostile_rows(product: Product) -> tuple[Visitor, dict[str, Visitor]]:
    """Chats as forged imports or models of the past may have left them: put into the database, past every check."""
    ring = new_visitor(product.address, NOTES[0])
    hostile = {name: new_visitor(product.address, NOTES[0]) for name in (*HOSTILE_TEXTS, "summary")}
    call = {"id": "1", "name": "search", "input": {"query": "[" * HOSTILE_SUMMARY}, "summary": "[" * HOSTILE_SUMMARY}
    with product.servers.connect_as_superuser() as connection:
        connection.execute(
            "UPDATE intake_conversations SET branched_from = id, branched_after = 77 WHERE id = %s",
            [ring.conversation_id],
        )
        for name, text in HOSTILE_TEXTS.items():
            connection.execute(
                "UPDATE intake_conversation_turns SET assistant_message = %s WHERE conversation_id = %s",
                [text, hostile[name].conversation_id],
            )
        connection.execute(
            "UPDATE intake_conversation_turns SET tool_calls = %s WHERE conversation_id = %s",
            [json.dumps([call]), hostile["summary"].conversation_id],
        )
    return ring, hostile


def _control(product: Product, quiet: list[PreparedRequest], seconds: float, attack: Attack | None) -> dict[str, float]:
    """The same load on a server that does nothing: the time that the clients themselves cost on this machine."""
    port = free_port()
    place = {"host": "127.0.0.1", "port": port}
    with ThreadPoolExecutor(1) as beside:
        serving = beside.submit(call, serve_statically, product.environment, **place)
        _wait_for(port)
        try:
            people, *_ = call_at_once(
                send_at_a_rate, product.environment, _orders(f"http://127.0.0.1:{port}", quiet, seconds, attack)
            )
        finally:
            _ask_to_stop(port)
        serving.result()
    p50, p95 = p50_and_p95(people["milliseconds"], digits=1)
    return {"p50_ms": p50, "p95_ms": p95, "errors": sum(people["statuses"].values()) - people["statuses"].get("200", 0)}


def _wait_for(port: int) -> None:
    """Raises `CommandError`."""
    until = time.monotonic() + 120
    while time.monotonic() < until:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
            return
        except OSError:
            time.sleep(0.1)
    raise CommandError("The static server did not start.")


def _ask_to_stop(port: int) -> None:
    with Client(f"http://127.0.0.1:{port}") as client:
        client.ask("GET", STOP)


def serve_statically(*, host: str, port: int) -> Figures:
    """Runs in a process of its own: reads whole requests and answers each with the same few bytes, until `STOP`."""
    served = 0

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal served
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                lines = head.lower().split(b"\r\n")
                length = next((int(line[15:]) for line in lines if line.startswith(b"content-length:")), 0)
                await reader.readexactly(length)
                served += 1
                writer.write(STATIC_ANSWER)
                await writer.drain()
                if head.startswith(f"GET {STOP} ".encode()):
                    ended.set()
        except (asyncio.IncompleteReadError, asyncio.LimitOverrunError, ConnectionError, asyncio.CancelledError):
            # Also when the server ends while clients keep their connections.
            pass
        finally:
            writer.close()

    async def serve() -> None:
        async with await asyncio.start_server(answer, host, port, limit=1024 * 1024, backlog=2_048):
            await ended.wait()

    ended = asyncio.Event()
    asyncio.run(serve())
    return {"served": served}


def _orders(address: str, quiet: list[PreparedRequest], seconds: float, attack: Attack | None) -> list[dict[str, Any]]:
    common = {"address": address, "seconds": seconds}
    rate = len(quiet) / SECONDS_BETWEEN_SEARCHES
    orders = [{**common, "requests": quiet, "connections": len(quiet), "rate": rate, "nice": 0}]
    return orders if attack is None else [*orders, {**common, **attack.order()}]


def _measured(
    product: Product, quiet: list[PreparedRequest], seconds: float, attack: Attack | None, report: Report
) -> dict[str, float]:
    """Raises `CommandError` when the web process died of it: its restart would be measured."""
    orders = _orders(product.address, quiet, seconds, attack)
    if attack is not None and any("{random}" in each[2].get("Authorization", "") for each in attack.requests):
        # Its victims are people whom the process has not seen before.
        newcomers = product.people(int(len(quiet) * seconds / SECONDS_BETWEEN_SEARCHES) + len(quiet))
        orders[0]["requests"] = [_search(person, FROM_ANYWHERE, query=QUERIES[0]) for person in newcomers]
    web = product.programs["web"]
    before = web.starts
    people, *attackers = call_at_once(send_at_a_rate, product.environment, orders)
    if web.starts != before:
        raise CommandError(web.failure())
    for each in attackers:
        report(f"  The attack was answered: {each['statuses']}")
    failed = sum(count for status, count in people["statuses"].items() if status != "200")
    p50, p95 = p50_and_p95(people["milliseconds"], digits=1)
    report(f"  Quiet people: p50 {p50} ms, p95 {p95} ms; answered: {people['statuses']}")
    return {"p50_ms": p50, "p95_ms": p95, "errors": failed}


def send_at_a_rate(
    *,
    address: str,
    requests: list[PreparedRequest],
    connections: int,
    rate: float | None,
    seconds: float,
    nice: int,
    holds: bool = False,
    announces: int = 0,
) -> Figures:
    """Runs in a process of its own: requests over kept connections, `rate` of them a second or as fast as they can.

    A connection that breaks counts as the name of its failure. With `holds` each sends one request and keeps what it
    gets open to the end.
    """
    os.nice(nice)
    if holds:
        return _hold(address, requests, connections, seconds, announces)
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


def _hold(address: str, requests: list[PreparedRequest], connections: int, seconds: float, announces: int) -> Figures:
    """A connection whose response ends, as a refused one's does, is opened anew a second later."""
    until, statuses, lock = time.monotonic() + seconds, Counter[str](), threading.Lock()

    def hold(number: int) -> None:
        while time.monotonic() < until:
            status = _held_once(address, requests[number % len(requests)], announces, until)
            with lock:
                statuses[status] += 1
            time.sleep(max(0.0, min(1.0, until - time.monotonic())))

    with ThreadPoolExecutor(max_workers=connections) as pool:
        list(pool.map(hold, range(connections)))
    return {"milliseconds": [], "statuses": statuses}


def _held_once(address: str, request: PreparedRequest, announces: int, until: float) -> str:
    """The status, or the name of the failure; "open" for a request that was never answered."""
    method, path, headers, body = request
    parts = urlsplit(address)
    content = b"" if body is None else _filled(body).encode()
    given = {"Host": parts.netloc, "Content-Length": str(len(content) + announces)}
    given |= {name: _filled(value) for name, value in headers.items()}
    head = "".join(f"{name}: {value}\r\n" for name, value in given.items())
    status = "open"
    try:
        with socket.create_connection((parts.hostname or "", parts.port or 80), timeout=5) as line:
            line.sendall(f"{method} {path} HTTP/1.1\r\n{head}\r\n".encode() + content)
            while (left := until - time.monotonic()) > 0:
                line.settimeout(left)
                piece = line.recv(1_024)
                if not piece:
                    return status
                status = piece[9:12].decode("latin-1") if piece.startswith(b"HTTP/1.1 ") else status
    except TimeoutError:
        pass
    except OSError as error:
        return type(error).__name__
    return status


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
