"""One name crosses the web process, the worker and the database, and stands in every line of their logs."""

import json
import logging
import re
import time

import pytest
from django.db import connection

from config.celery import REQUEST, app, name_the_request
from core.isolation.acting import acting_as
from core.logs import JsonFormatter, LineFormatter, request_id
from intake.tests.factories import a_person
from memory.index.writer import Waker
from testing.model_server import Say

pytestmark = pytest.mark.django_db(transaction=True)

MADE = re.compile(r"[0-9a-f]{16}")


@pytest.fixture(autouse=True)
def nothing_left():
    token = request_id.set("")
    yield
    request_id.reset(token)


@pytest.mark.parametrize("path", ["/", "/healthz", "/api/v1/conversations/", "/mcp", "/static/none", "/nowhere"])
def test_every_answer_bears_its_own(visitor, path):
    names = [visitor.get(path).headers.get_list("x-request-id") for _ in range(2)]
    assert all(len(each) == 1 and MADE.fullmatch(each[0]) for each in names)
    assert names[0] != names[1]


@pytest.mark.parametrize(
    ("given", "is_kept"),
    [
        ("trace-0123456789", True),
        ("01890a5d-ac96-774b-bcce-b302099a8057", True),
        ("x", False),
        ("x" * 100, False),
        ("with spaces in it", False),
        ("line]: forged", False),
        ("quoted'; SELECT 1", False),
    ],
)
def test_a_senders_own_is_kept_if_it_is_sane(visitor, given, is_kept):
    answer = visitor.get("/healthz", headers={"X-Request-ID": given}).headers["x-request-id"]
    assert answer == given if is_kept else MADE.fullmatch(answer)


def test_also_a_refusal_bears_it(visitor):
    answer = visitor.post("/api/v1/intake/chat", content=b"x" * 3_000_000, headers={"X-Request-ID": "trace-1"})
    assert (answer.status_code, answer.headers["x-request-id"]) == (413, "trace-1")


class Seen(logging.Handler):
    def __init__(self, formatter):
        super().__init__()
        self.lines = []
        self.setFormatter(formatter)

    def emit(self, record):
        self.lines.append(self.format(record))


@pytest.fixture
def seen():
    handlers = [Seen(LineFormatter()), Seen(JsonFormatter())]
    for handler in handlers:
        logging.getLogger().addHandler(handler)
    yield [handler.lines for handler in handlers]
    for handler in handlers:
        logging.getLogger().removeHandler(handler)


@pytest.mark.parametrize(
    ("method", "path"), [("GET", "/nowhere"), ("POST", "/api/v1/intake/chat"), ("POST", "/api/v1/tools/save_memory/")]
)
def test_what_the_web_process_logs_of_a_request_bears_it(visitor, seen, method, path):
    visitor.request(method, path, headers={"X-Request-ID": "trace-7"})
    lines, objects = seen
    # The path of a missing page is not logged: it may be a text that somebody typed.
    logged = "an address without a page" if path == "/nowhere" else path
    assert any(logged in line and "[trace-7]" in line for line in lines)
    assert any(logged in each["message"] and each["request_id"] == "trace-7" for each in map(json.loads, objects))


def test_an_answer_that_is_written_after_the_request_still_bears_it(visitor, seen, language_model, monkeypatch):
    from chat.answers import writer

    language_model(Say(("Hello.",)))
    original = writer.ending_of

    def tell(turn):
        logging.getLogger("chat.answers").warning("An answer is done")
        return original(turn)

    monkeypatch.setattr(writer, "ending_of", tell)
    headers = {**visitor._csrf(), "X-Request-ID": "trace-8"}
    visitor.post("/api/v1/intake/chat", json={"message": "Hello"}, headers=headers)
    assert any("[trace-8]: An answer is done" in line for line in seen[0])


def test_json_tells_of_a_failure_in_one_line():
    try:
        raise RuntimeError("broken")
    except RuntimeError as error:
        record = logging.LogRecord(
            "core", logging.ERROR, __file__, 1, "It %s", ("broke",), (type(error), error, error.__traceback__)
        )
    line = JsonFormatter().format(record)
    assert "\n" not in line
    told = json.loads(line)
    assert (told["level"], told["logger"], told["message"]) == ("ERROR", "core", "It broke")
    assert told["exception"].startswith("RuntimeError")
    assert "broken" not in told["exception"]
    assert "request_id" not in told


def application_name():
    with connection.cursor() as cursor:
        cursor.execute("SELECT current_setting('application_name')")
        return cursor.fetchone()[0]


def test_the_database_is_told_for_as_long_as_the_transaction_lasts():
    alice = a_person()
    before = application_name()
    request_id.set("trace-9")
    with acting_as(alice):
        assert application_name() == "recollect trace-9"
    assert application_name() == before
    request_id.set("")
    with acting_as(alice):
        assert application_name() == "recollect"


def test_a_message_to_a_worker_takes_it_along():
    headers = {}
    request_id.set("trace-10")
    name_the_request(headers=headers)
    assert headers == {REQUEST: "trace-10"}


def test_waking_a_worker_sends_it_from_the_wakers_thread(monkeypatch):
    from memory.index import writer

    sent = []
    monkeypatch.setattr(writer.current_app, "send_task", lambda *_, **__: sent.append(request_id.get()))
    monkeypatch.setattr(writer, "PAUSE_SECONDS", 0)
    request_id.set("trace-11")
    Waker().wake_worker()
    deadline = time.monotonic() + 5
    while not sent and time.monotonic() < deadline:
        time.sleep(0.01)
    assert sent == ["trace-11"]


@pytest.mark.parametrize(("sent", "named"), [("trace-12", "trace-12"), ("", "task-"), ("not sane at all", "task-")])
def test_a_task_takes_it_on_and_leaves_it_again(sent, named):
    seen = []

    @app.task(name="config.tests.look", bind=True, shared=False)
    def look(self):
        seen.append((request_id.get(), application_name()))

    try:
        look.apply(headers={REQUEST: sent})
    finally:
        app.tasks.unregister("config.tests.look")
    ((name, told),) = seen
    assert name.startswith(named)
    assert told == f"recollect {name}"
    assert request_id.get() == ""
