import json
import random
import threading
from collections import Counter
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from django.core.management import CommandError, call_command

from evals.metrics import Latency
from evals.reliability import chaos, faults, killed_answers
from evals.reliability.answering import NumberingModel
from evals.reliability.faults import Absence, ServerName, Timeline
from evals.reliability.product import Person, running_product
from evals.reliability.saving import Attempt, Kept, Save, Saver, Words
from evals.tests.conftest import violations
from testing.serving import serving

pytestmark = pytest.mark.extended

PERSON = Person(1, "token")
PLAN = chaos.Plan(turns=1, faults=1, seed=1)
ANSWERS = killed_answers.AnswersPlan(answers=2, kills=1, seed=1)


class Models:
    """One address for the models of several runs."""

    def __init__(self):
        self.application = None

    async def __call__(self, scope, receive, send):
        await self.application(scope, receive, send)


@pytest.fixture(scope="module")
def product(begin_migrated):
    """What each part would start for itself, and the models that it asks."""
    models = Models()
    with serving(models) as address:
        extra = {"LLM_MODEL": "fake", "LLM_BASE_URL": f"{address}/v1", "CHAT_TITLES": "0", "RERANK_SECONDS": "0"}
        extra[faults.MORTAL] = "2,1"
        poisonable = ["--include=evals.reliability.mortal_worker"]
        with running_product(extra=extra, worker_options=poisonable, webs=killed_answers.WEBS) as product:
            yield product, models, address, extra


@pytest.fixture
def shared_product(product, monkeypatch):
    """Both parts run on one product, which has what either asks for."""
    product, models, address, environment = product

    @contextmanager
    def serving_there(application):
        models.application = application
        yield address

    @contextmanager
    def running(*, extra, **options):
        assert extra.items() <= environment.items()
        yield product

    monkeypatch.setattr(killed_answers, "serving", serving_there)
    monkeypatch.setattr(killed_answers, "running_product", running)
    monkeypatch.setattr(chaos, "running_product", running)
    models.application = NumberingModel(words=1, pause=0.0).application


def test_nothing_acknowledged_is_lost_and_all_is_found_after_every_kind_of_fault(shared_product, capsys, monkeypatch):
    options = ["--part=saves", "--turns=12", "--faults=5", "--people=2", "--attempts=2", "--lease=1", "--seed=1"]
    monkeypatch.setattr(chaos, "SAMPLE", 10)
    away = {ServerName.DATABASE: (0.1, 0.3), ServerName.BROKER: (0.4, 0.6), ServerName.SILENT_BROKER: (0.4, 0.6)}
    monkeypatch.setattr(faults, "AWAY_SECONDS", away)

    # Other work on the machine makes it slow, never wrong.
    call_command("chaos", *options, "--patience=90")

    table = dict(line.split("  ", 1) for line in capsys.readouterr().out.splitlines())
    told = {name: value.strip() for name, value in table.items()}
    assert told["faults"] == "5  pass (at least 5)"
    assert all(f"1 x {fault.name}" in told["of each kind"] for fault in faults.FAULTS)
    assert int(told["turns saved (acknowledged)"].split(" ")[0]) >= 12
    assert told["lost"] == told["duplicated"] == "0  pass (none)"
    assert told["quarantined, and seen by staff"].startswith("1, 1  pass")
    assert told["requests failed while it was there"] == "0  pass (none)"
    assert told["of those begun in the 10 s after it was back"].startswith("0 of ")
    assert "FAIL" not in "".join(told.values())


@pytest.mark.parametrize(
    "option", ["--turns=0", "--faults=0", "--people=0", "--attempts=0", "--kills=0", "--answers=1"]
)
def test_a_run_of_nothing_is_an_error_in_words(option):
    with pytest.raises(CommandError, match=r"must be (above 0|at least 2)"):
        call_command("chaos", option)


def test_a_killed_web_process_loses_a_second_of_its_answers_and_all_readers_hear_how_they_ended(shared_product, capsys):
    call_command("chaos", "--part=answers", "--answers=6", "--kills=1", "--seed=1")

    figures = dict(line.split("  ", 1) for line in capsys.readouterr().out.splitlines())
    told = {name: value.strip() for name, value in figures.items()}
    assert (told["answers killed in mid-answer"], told["continued"]) == ("3  pass (some)", "3  pass (3)")
    assert told["whole, since they were not killed"] == "3  pass (3)"
    assert told["answers mixed up, or read in part"] == "0  pass (none)"
    assert "FAIL" not in "".join(told.values())


def test_faults_that_there_are_not_are_an_error_in_words():
    with pytest.raises(CommandError, match="No fault has 'flood' in its name: worker killed, "):
        call_command("chaos", "--only=flood")


def saved(word, place):
    return Save(PERSON, word, word, [Attempt(0.0, 0.1)], place)


def kept(word, number, *, status="complete", quarantined=0):
    return Kept(word, "c", number, status, has_word=True, vectors=1, waiting=0, quarantined=quarantined)


def test_what_was_acknowledged_and_is_not_there_is_lost():
    outcome = chaos.Outcome()

    chaos._compare([kept("a", 1), kept("b", 2, status="streaming")], [saved("a", ("c", 1)), saved("b", ("c", 2))],
                   saved("poison", ("c", 9)), outcome)  # fmt: skip

    assert outcome.lost == ["b"]


def test_what_is_there_twice_is_duplicated_however_the_second_ended():
    outcome = chaos.Outcome()

    chaos._compare([kept("a", 1, status="interrupted"), kept("a", 2)], [saved("a", ("c", 2))],
                   saved("poison", ("c", 9)), outcome)  # fmt: skip

    assert outcome.lost == []
    assert outcome.duplicated == ["a"]


def well(**changes):
    fine = {"saved": 1, "faults": Counter(flood=1), "quarantined": 1, "quarantined_for_staff": 1}
    return chaos.Outcome(**{**fine, "searchable_after": 1.0, **changes})


def latency(milliseconds):
    return Latency(20, milliseconds, milliseconds, milliseconds)


def test_a_run_in_which_all_went_well_has_nothing_to_complain_of():
    assert violations(well().checks(PLAN)) == []
    assert "FAIL" not in str([check.row for check in well().checks(PLAN)])


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"lost": ["a"]}, "lost: 1 (a), must be none."),
        ({"duplicated": ["a", "b"]}, "duplicated: 2 (a, b), must be none."),
        (
            {"searchable_after": None, "unsearchable": 3},
            "all searchable after the last fault: never, 3 turns missing, must be at most 30 s.",
        ),
        ({"not_found": ["a"], "searched_for": 3}, "found through the API: 2, not a, must be 3."),
        ({"quarantined": 2, "quarantined_for_staff": 2}, "quarantined, and seen by staff: 2, 2, must be 1: "),
        ({"quarantined_for_staff": 0}, "seen by staff: 1, 0, must be 1: "),
        (
            {"failed_while_there": Counter({"status 503": 2})},
            "requests failed while it was there: 2 (2 x status 503), must be none.",
        ),
        (
            {"broker_alive": latency(10.0), "broker_refusing": latency(250.0), "broker_silent": latency(20.0)},
            "save, broker refusing: 250 / 250 / 250 ms (n = 20), +240 ms at p50, must be at most +200 ms.",
        ),
        (
            {"broker_alive": latency(10.0), "broker_refusing": latency(20.0), "broker_silent": latency(211.0)},
            "save, broker hanging: 211 / 211 / 211 ms (n = 20), +201 ms at p50, must be at most +200 ms.",
        ),
    ],
)
def test_each_fault_is_named(changes, complaint):
    checks = well(**changes).checks(PLAN)
    (found,) = violations(checks)

    assert complaint in found
    assert sum("FAIL" in value for _, value in (check.row for check in checks)) == 1


def test_failures_are_told_apart_by_whether_the_database_was_away_and_latencies_by_the_broker():
    silence = Absence(ServerName.SILENT_BROKER, 50, 60)
    timeline = Timeline([Absence(ServerName.DATABASE, 10, 20), Absence(ServerName.BROKER, 30, 40), silence])
    attempts = [
        Attempt(5, 11, "OSError"),
        Attempt(19.5, 25, "status 503"),
        Attempt(21, 22, "status 503"),
        Attempt(9, 9.5),
        Attempt(29.9, 30.4),
        Attempt(35, 36),
        Attempt(19, 21),
        Attempt(55, 57),
    ]
    outcome = chaos.Outcome()

    chaos._measure([Save(PERSON, "a", "a", attempts, ("c", 1))], timeline, outcome)

    assert outcome.failed_while_away == Counter({"OSError": 1, "status 503": 1})
    assert outcome.failed_while_there == Counter({"status 503": 1})
    assert outcome.broker_alive.count == 1
    assert (outcome.broker_refusing.count, outcome.broker_refusing.longest) == (2, 1000.0)
    assert (outcome.broker_silent.count, outcome.broker_silent.longest) == (1, 2000.0)
    assert (outcome.after_restarts, outcome.failed_after_restarts) == (2, Counter({"status 503": 1}))


def test_the_same_seed_deals_the_same_faults_and_all_kinds_before_any_again():
    dealt = faults.deal(14, random.Random(3))

    assert dealt == faults.deal(14, random.Random(3))
    assert set(dealt[:5]) == set(dealt[5:10]) == set(faults.FAULTS)
    assert len(dealt) == 14
    assert {fault.name for fault in faults.deal(5, random.Random(3), only="silent")} == {"broker silent, then started"}


class Unreliable(BaseHTTPRequestHandler):
    """Refuses, breaks off in the middle, fails in the stream, and then does as it is told."""

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.bodies.append(body)
        turn = 'event: turn\ndata: {"conversationId": "c-1", "turnNumber": 4}\n\n'
        match len(self.server.bodies):
            case 1:
                return self._answer(503, "{}")
            case 2:
                return self._answer(200, turn + 'event: delta\ndata: {"text": "I am"}\n\n')
            case 3:
                error = 'event: error\ndata: {"code": "unavailable", "detail": "", "retryable": true}\n\n'
                return self._answer(200, turn + error)
            case _:
                done = 'event: done\ndata: {"conversationId": "c-1", "turnNumber": 4, "html": ""}\n\n'
                return self._answer(200, turn + done)

    def _answer(self, status, text):
        self.send_response(status)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, *args):
        pass


def test_a_client_tries_again_where_it_was_until_the_turn_is_acknowledged():
    with ThreadingHTTPServer(("127.0.0.1", 0), Unreliable) as server:
        server.bodies = []
        threading.Thread(target=server.serve_forever).start()
        saver = Saver(f"http://127.0.0.1:{server.server_address[1]}", PERSON, Words(), seed=1)
        save = saver.save("Remember {word}")
        saver.close()
        server.shutdown()

    assert save.place == ("c-1", 4)
    assert [attempt.failure for attempt in save.attempts] == ["status 503", "stream cut off", "unavailable", ""]
    assert {body["message"] for body in server.bodies} == {f"Remember {save.word}"}
    assert [body.get("conversation_id") for body in server.bodies] == [None, None, "c-1", "c-1"]


def ended(**changes):
    fine = {"killed": 2, "written": 100, "kept": 90, "closed_after": [3.0], "heard_after": [3.1]}
    return killed_answers.AnswersOutcome(**{**fine, "readers": 6, "lost_lines": 2, "continued": 2, **changes})


def test_answers_that_were_kept_have_nothing_to_complain_of():
    assert violations(ended().checks(ANSWERS)) == []


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"most_lost_seconds": 1.2}, "lost of what was written, at most: the last 1.20 s, must be 1 s."),
        ({"unclosed": 1}, "closed as interrupted"),
        ({"closed_after": [3.0, 21.0]}, "closed as interrupted (p50 / max): 21.0 / 21.0 s, must be at most 20 s."),
        ({"heard_after": [26.0]}, "readers at the other process heard of it: 26.0 / 26.0 s, must be at most 25 s."),
        ({"unended": 1}, "those who waited for the killed one: none; without an end: 1, must be none without."),
        ({"lost_lines": 0}, "lines lost by readers"),
        ({"wrong": [7]}, "answers mixed up, or read in part: 1, must be none."),
        ({"continued": 1}, "continued: 1, must be 2."),
        ({"others": 3, "others_whole": 2}, "whole, since they were not killed: 2, must be 3."),
    ],
)
def test_what_is_wrong_with_killed_answers_is_named(changes, complaint):
    (found,) = violations(ended(**changes).checks(ANSWERS))

    assert complaint in found


def test_what_is_lost_is_counted_from_the_first_word_that_was_not_kept():
    model = NumberingModel(words=3, pause=0.0)
    model._written[0] = [(1.0, "0.0 "), (2.0, "0.1 "), (3.0, "0.2 ")]

    assert model.lost_seconds(0, "0.0 0.1 0.2", killed_at=3.5) == 0
    assert model.lost_seconds(0, "0.0 ", killed_at=3.5) == 1.5
    assert model.lost_seconds(0, "", killed_at=3.5) == 2.5
