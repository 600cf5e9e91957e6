import json
import re
import threading
from collections import Counter
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import psutil
import pytest
from django.core.management import CommandError, call_command

from evals.reliability import soak
from evals.reliability.soak_calls import call_at_random, foreign_secrets, new_secret
from evals.tests.conftest import violations

pytestmark = pytest.mark.extended

PLAN = soak.SoakPlan(calls=1, pool=4)
OWN, ANOTHERS = "hush0123456789abcdef", "hushfedcba9876543210"


@pytest.mark.usefixtures("begin_migrated")
def test_people_and_visitors_at_once_see_their_own_words_and_nobody_elses(capsys, calls_in_this_process, monkeypatch):
    monkeypatch.setattr(soak, "call_at_once", calls_in_this_process)
    # The smaller of the built-in models.
    monkeypatch.setenv("EMBEDDING_LANGUAGES", "english")
    options = ["--people=2", "--visitors=1", "--processes=1", "--connections=8", "--cancelled=0.15"]

    call_command("soak", "--calls=100", *options)

    told = {name.strip(): value for name, value in map(split, capsys.readouterr().out.splitlines())}
    assert told["calls"].startswith("100 in ")
    assert re.fullmatch(r"web [1-9]\d*\.\d ms, worker \d+\.\d ms", told["of the processor, a call"])
    assert int(told["left before the answer was complete"]) > 0
    assert int(told["answers that held one's own secret"].split()[0]) > 20
    assert told["answers that held another's"] == told["answers that were not what they must be"] == "0  pass (none)"
    assert "FAIL" not in "".join(told.values())
    running = [" ".join(child.cmdline()) for child in psutil.Process().children()]
    assert not [command for command in running if "celery" in command or "config.serving" in command]


def split(line):
    name, _, value = line.strip().partition("  ")
    return name, value.strip()


@pytest.mark.parametrize("option", ["--calls=0", "--people=0", "--visitors=0", "--connections=0", "--pool=0"])
def test_a_run_of_nothing_is_an_error_in_words(option):
    with pytest.raises(CommandError, match=r"must be (above 0|at least 2)"):
        call_command("soak", option)


def test_a_secret_is_recognised_whole_and_cut_off_and_only_if_it_is_anothers():
    assert foreign_secrets(f"a {OWN} b".encode(), own=OWN) == []
    assert foreign_secrets(f"{OWN[:9]}…".encode(), own=OWN) == []
    assert foreign_secrets(f"{OWN} {ANOTHERS} {ANOTHERS[:7]}…".encode(), own=OWN) == [ANOTHERS, ANOTHERS[:7]]
    assert foreign_secrets(b"hush, little baby", own=OWN) == []
    assert foreign_secrets(new_secret().encode(), own=OWN)


class Leaky(BaseHTTPRequestHandler):
    """Gives everybody the same answer, with one person's secret in it, and now and then fails."""

    protocol_version = "HTTP/1.1"

    def do_GET(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        self.server.count += 1
        status = 500 if self.server.count % 5 == 0 else 200
        text = json.dumps({"results": [OWN]})
        self.send_response(status)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text.encode())

    def do_POST(self):
        self.do_GET()

    def log_message(self, *args):
        pass


def test_a_server_that_leaks_and_fails_is_found_out(calls_in_this_process):
    callers = [
        {"kind": "person", "headers": {}, "secret": secret, "conversations": ["c"], "foreign": ["/c"]}
        for secret in (OWN, ANOTHERS)
    ]
    with ThreadingHTTPServer(("127.0.0.1", 0), Leaky) as server:
        server.count = 0
        threading.Thread(target=server.serve_forever).start()
        order = {"address": f"http://127.0.0.1:{server.server_address[1]}", "callers": callers, "calls": 60}
        options = {"connections": 1, "cancelled": 0.0, "seed": "1"}
        ((tally,),) = calls_in_this_process(call_at_random, {}, [order | options])
        server.shutdown()

    outcome = soak.SoakOutcome(samples=1, seconds=1.0)
    outcome.add(tally)
    assert outcome.calls.total() == 60
    assert outcome.statuses["500"] == 12
    assert outcome.own_secrets + len(outcome.leaks) == 60
    leak, server_errors, wrong = violations(outcome.checks(PLAN))
    assert leak.startswith(f"answers that held another's: {len(outcome.leaks)} (")
    assert server_errors == "of them 5xx: 12 (12 x 500), must be none."
    assert "status 500" in wrong


def well(**changes):
    return soak.SoakOutcome(
        **{
            "calls": Counter(chat=1),
            "seconds": 1.0,
            "own_secrets": 1,
            "samples": 1,
            "connections": Counter(web=4),
            **changes,
        }
    )


def test_a_run_in_which_all_went_well_has_nothing_to_complain_of():
    assert violations(well().checks(PLAN)) == []


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"own_secrets": 0}, "answers that held one's own secret: 0, must be some."),
        (
            {"connections": Counter(web=5, worker=1)},
            "most connections at once: web 5, worker 1; 1 samples, must be at most 4 by role.",
        ),
        ({"samples": 0}, "most connections at once: web 4; 0 samples, must be"),
        ({"logged": ["ERROR x"]}, "errors logged by the product: 1 (ERROR x), must be none."),
    ],
)
def test_each_fault_is_named(changes, complaint):
    (found,) = violations(well(**changes).checks(PLAN))

    assert complaint in found
