"""`benchmark overload`: quiet people are measured alone and beside each attack, by clients that ask as they are told."""

import json
import re
from ast import literal_eval
from collections import Counter
from contextlib import contextmanager, nullcontext

import pytest
from django.core.management import CommandError, call_command
from starlette.applications import Starlette
from starlette.responses import JSONResponse
from starlette.routing import Route

from evals.benchmarks import overload
from evals.reliability.product import running_product
from testing.serving import serving

pytestmark = pytest.mark.extended


@pytest.fixture
def clients_in_threads(calls_in_this_process, monkeypatch):
    """The clients and the static server; that they can run in a process of their own is tested below."""
    monkeypatch.setattr(overload, "call", lambda *called, **order: calls_in_this_process(*called, [order])[0])
    monkeypatch.setattr(overload, "call_at_once", calls_in_this_process)
    # The priority would be that of this process's threads.
    monkeypatch.setattr(overload, "ATTACKERS_NICENESS", 0)


@contextmanager
def one_product(monkeypatch):
    """All its models are at the endpoint that hangs at last: a second product would take as long to start."""
    endpoint = overload.ModelEndpoint()
    with serving(endpoint.application) as address:
        extra = overload._deployed() | endpoint.settings(address)
        with running_product(extra=extra) as product:
            monkeypatch.setattr(overload, "ModelEndpoint", lambda: endpoint)
            monkeypatch.setattr(overload, "running_product", lambda **options: nullcontext(product))
            yield


@pytest.mark.usefixtures("begin_migrated", "clients_in_threads", "people_made_in_this_process")
def test_each_attack_is_measured_beside_an_unattacked_run(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(overload, "SECONDS_BETWEEN_SEARCHES", 0.5)
    monkeypatch.setattr(overload, "WARM_UP_SECONDS", 0.5)
    monkeypatch.setattr(overload, "SETTLING_SECONDS", 0)
    monkeypatch.setattr(overload, "NESTED_BYTES", 100_000)
    target = tmp_path / "figures.json"
    # One that holds its responses, one that keeps a rate, and the endpoint; as fast as the answers come is tested below.
    attacks = ["visitor_streams", "nested_zips", overload.HANGING]
    chosen = [f"--attack={name}" for name in attacks]
    with one_product(monkeypatch):
        call_command("benchmark", "overload", "--people=4", "--seconds=2", *chosen, f"--json={target}")
    figures = json.loads(target.read_text())
    assert list(figures) == ["quiet", "attacks", "control"]
    assert list(figures["attacks"]) == list(figures["control"]["attacks"]) == attacks
    hanging = figures["attacks"].pop(overload.HANGING)
    measured = figures["quiet"], *figures["attacks"].values()
    control = figures["control"]["quiet"], *figures["control"]["attacks"].values()
    for each in (*measured, *control):
        assert list(each) == ["p50_ms", "p95_ms", "errors"]
        assert 0 < each["p50_ms"] <= each["p95_ms"]
        assert each["errors"] == 0
    # The first searches have waited for the endpoint, and no other failed.
    assert hanging["p95_ms"] > 4_500
    assert hanging["errors"] <= 2
    shown = capsys.readouterr()
    assert "quiet people alone" in shown.out
    assert "of control" in shown.out
    # What the attack was answered says that it was one.
    assert "'200': " in shown.err
    # The chats' answers have begun, as many as the time was enough for, and wait for the model.
    of_hanging = shown.err.partition(f"Attack: {overload.HANGING}.")[2]
    statuses = literal_eval(re.search(r"The attack was answered: (.*)", of_hanging)[1])
    assert statuses["200"] > 0
    assert set(statuses) <= {"200", "open"}
    assert sum(statuses.values()) == 32


def test_nobody_and_no_time_are_refused():
    for wrong in ("--people=0", "--seconds=0"):
        with pytest.raises(CommandError, match="must be above 0"):
            call_command("benchmark", "overload", wrong)


def test_every_attack_of_the_table_is_there():
    assert set(overload.ATTACKS) >= {
        "anonymous_logins",
        "schema_readers",
        "huge_queries",
        "long_answer",
        "concurrent_calls",
        "registration",
        "wrong_tokens",
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
        "hanging_endpoint",
    }


@pytest.mark.parametrize(("rate", "fewest", "most"), [(10, 5, 11), (None, 30, 10_000)])
def test_clients_keep_to_their_rate_and_send_other_words_each_time(rate, fewest, most):
    seen = []

    async def note(request):
        seen.append((request.headers["x-forwarded-for"], (await request.body()).decode()))
        return JSONResponse({}, status_code=200 if len(seen) % 2 else 429)

    application = Starlette(routes=[Route("/", note, methods=["POST"])])
    with serving(application) as address:
        orders = {"address": address, "seconds": 1, "connections": 4, "rate": rate, "nice": 0}
        requests = [["POST", "/", {"X-Forwarded-For": "{address}"}, "word={random}"]]
        result = overload.send_at_a_rate(**orders, requests=requests)
    assert fewest <= len(seen) <= most
    assert len({body for _, body in seen}) == len(seen)
    assert len({address for address, _ in seen}) > len(seen) / 2
    assert Counter(result["statuses"]).total() == len(seen) == len(result["milliseconds"])
    assert set(result["statuses"]) == {"200", "429"}
