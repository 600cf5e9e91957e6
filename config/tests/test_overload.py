"""What one client can take from everybody: time, connections, memory, log lines, rows."""

import json
import logging
import secrets
import select
import socket
import threading
import time
from contextlib import ExitStack, suppress
from datetime import timedelta
from urllib.parse import urlsplit

import httpx2
import psycopg
import pytest
from django.contrib.auth.decorators import login_not_required
from django.db import OperationalError, connection, connections
from django.http import HttpResponse
from django.test import override_settings
from django.urls import path
from django.utils import timezone
from psycopg_pool import PoolTimeout

from config.urls import urlpatterns as all_urls
from core import deadlines
from core.deadlines import RequestDeadline
from core.errors import Unavailable
from core.isolation.acting import acting_as
from core.logs import LineFormatter, OneLine
from intake.models import Session
from memory.tasks import remove_expired_sessions

pytestmark = pytest.mark.django_db(transaction=True)

ended: list[str] = []


@login_not_required
def loop(request):
    """A loop over rows that never ends."""
    try:
        while True:
            with connection.cursor() as cursor:
                cursor.execute("SELECT 1")
    except Unavailable:
        ended.append("loop")
        raise


@login_not_required
def sleep(request):
    try:
        with acting_as(request.user), connection.cursor() as cursor:
            cursor.execute("SELECT pg_sleep(60)")
    except OperationalError:
        ended.append("sleep")
        raise
    return HttpResponse("slept")


@login_not_required
def session_of(request):
    request.session["word"] = secrets.token_hex(int(request.GET["length"]))
    return HttpResponse("kept")


urlpatterns = [
    path("api/v1/loop", loop),
    path("loop", loop),
    path("sleep", sleep),
    path("session", session_of),
    *all_urls,
]


@pytest.fixture
def own_views(new_client):
    ended.clear()
    with override_settings(ROOT_URLCONF=__name__):
        yield new_client()


@pytest.mark.medium
@pytest.mark.parametrize("address", ["/loop", "/api/v1/loop", "/sleep"])
def test_a_request_ends_at_its_deadline_and_so_does_its_thread(own_views, monkeypatch, address, person, log_in):
    client = log_in(person)
    monkeypatch.setattr("config.bodies.RESPONSE_SECONDS", 1.0)
    began = time.monotonic()
    answer = client.get(address)
    assert time.monotonic() - began < 5
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "5")
    if address.startswith("/api/"):
        assert answer.json()["code"] == "unavailable"
    else:
        assert "longer than the server allows" in answer.text
    ends = time.monotonic() + 5
    while not ended and time.monotonic() < ends:
        time.sleep(0.05)
    assert ended == [address.rpartition("/")[2]]


def test_a_deadline_is_lifted_for_what_a_request_leaves_behind(person):
    limit = RequestDeadline(0.0)
    token = deadlines.deadline.set(limit)
    try:
        with pytest.raises(Unavailable), acting_as(person):
            pass
        limit.lift()
        with acting_as(person):
            assert person.pk
    finally:
        deadlines.deadline.reset(token)


def test_the_roles_bound_every_transaction():
    there = type(connections["default"])(connections.settings["default"], "default").get_connection_params()
    with psycopg.connect(**{**there, "dbname": connection.settings_dict["NAME"]}) as web:
        name = "transaction_timeout" if web.info.server_version >= 170_000 else "statement_timeout"
        assert web.execute(f"SHOW {name}").fetchone()[0] not in ("0", "")
        assert web.execute("SHOW idle_in_transaction_session_timeout").fetchone()[0] not in ("0", "")


@pytest.mark.parametrize(
    "address",
    [
        "/",
        "/c/x/",
        "/memory/",
        "/settings/account/",
        "/admin/",
        "/api/v1/conversations/",
        "/api/v1/intake/events",
        "/api/v1/intake/turns/7/events",
        "/api/v1/imports/7/events/",
    ],
)
def test_a_full_pool_is_503_with_a_time_to_come_back_and_no_traceback(person, log_in, monkeypatch, address):
    client = log_in(person)
    lines = []

    class Kept(logging.Handler):
        def emit(self, record):
            lines.append(self.format(record))

    handler = Kept()
    handler.addFilter(OneLine())
    handler.setFormatter(LineFormatter())
    logging.getLogger().addHandler(handler)
    here, kind = threading.current_thread(), type(connections["default"])
    connect = kind.connect

    def refuse(self):
        if threading.current_thread() is here:
            return connect(self)
        raise OperationalError("couldn't get a connection after 5.00 sec") from PoolTimeout()

    monkeypatch.setattr(kind, "connect", refuse)
    try:
        answer = client.get(address, headers={"Accept": "*/*"})
    finally:
        logging.getLogger().removeHandler(handler)
        monkeypatch.undo()
    assert answer.status_code == 503, answer.text
    assert answer.headers["retry-after"]
    if address.startswith("/api/"):
        assert answer.headers["content-type"] == "application/problem+json"
    else:
        assert "<!doctype html>" in answer.text.lower()
    assert "Traceback" not in "".join(lines)


def test_a_wrong_host_is_one_line_and_no_traceback(server):
    lines = []

    class Kept(logging.Handler):
        def emit(self, record):
            lines.append(self.format(record))

    handler = Kept()
    handler.addFilter(OneLine())
    handler.setFormatter(LineFormatter())
    logging.getLogger().addHandler(handler)
    try:
        with override_settings(ALLOWED_HOSTS=["127.0.0.1"]):
            answer = httpx2.get(f"{server}/login/", headers={"Host": "evil.example.com"})
    finally:
        logging.getLogger().removeHandler(handler)
    assert answer.status_code == 400
    assert len(lines) == 1
    assert "WARNING" in lines[0]
    assert "\n" not in lines[0]


@pytest.mark.parametrize("registration", ["open", "invite", "closed"])
def test_a_stranger_leaves_no_invitation_behind(new_client, settings, registration):
    settings.REGISTRATION = registration
    new_client().get("/register/", params={"invitation": "x" * 50_000})
    assert not [each for each in Session.objects.all() if len(each.session_data) > 8_192]
    assert not [each for each in Session.objects.all() if "invitation" in json.dumps(each.get_decoded())]


def test_nothing_of_a_strangers_length_is_kept_in_a_session(own_views):
    assert own_views.get("/session", params={"length": "1000"}).status_code == 200
    assert own_views.get("/session", params={"length": "60000"}).status_code == 400
    assert max(len(each.session_data) for each in Session.objects.all()) <= 8_192


def test_expired_sessions_are_removed_and_others_stay(settings, monkeypatch):
    monkeypatch.setattr("intake.models.sessions.SWEPT_AT_ONCE", 3)
    now = timezone.now()
    for number in range(10):
        at = now + timedelta(days=1 if number % 5 == 0 else -1)
        Session.objects.create(session_key=f"key{number:010}", session_data="", expire_date=at)
    remove_expired_sessions()
    assert Session.objects.count() == 2
    assert settings.CELERY_TASK_ROUTES["memory.remove_expired_sessions"] == {"queue": "people"}
    assert "memory.remove_expired_sessions" in settings.SCHEDULE


@pytest.fixture
def small_budget(settings, monkeypatch):
    settings.DATA_UPLOAD_MAX_MEMORY_SIZE, settings.TRUSTED_PROXIES = 1_000_000, 1
    for name, most in {"SHORT": 10_000, "BODIES": 2_000_000, "BODIES_OF_ONE": 1_000_000}.items():
        monkeypatch.setattr(f"config.bodies.{name}", most)


def unfinished(stack, server, body, address):
    """A connection that has sent so much of a body of 500,000 bytes."""
    place = urlsplit(server)
    line = stack.enter_context(socket.create_connection((place.hostname, place.port), timeout=5))
    head = (
        f"POST /api/v1/tools/search_history/ HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
        f"X-Forwarded-For: {address}\r\nContent-Length: 500000\r\n\r\n"
    )
    line.sendall(head.encode() + b"x" * body)
    return line


def refused_of(lines, most):
    """The answers of connections that the server has ended: empty where it closed with unread bytes before it."""
    answers, open_lines, ends = [], list(lines), time.monotonic() + 20
    while len(answers) < most and time.monotonic() < ends:
        for line in select.select(open_lines, [], [], 0.5)[0]:
            open_lines.remove(line)
            with suppress(ConnectionError):
                answers.append(b"")
                answers[-1] = line.recv(4096)
    return answers


@pytest.mark.parametrize("uploads", [0, 30])
def test_bodies_in_flight_have_a_budget_over_all_connections(server, small_budget, settings, uploads):
    """Also after files, which have a budget of their own: each gives back to it what it took."""
    settings.ATTACHMENT_BYTES = 50_000
    for _ in range(uploads):
        assert httpx2.post(f"{server}/api/v1/attachments/", content=b"x" * 60_000).status_code == 415
    with ExitStack() as stack:
        lines = [unfinished(stack, server, 450_000, f"192.0.2.{number}") for number in range(30)]
        answers = refused_of(lines, 26)
        assert len(answers) >= 20
        assert {answer.split(b" ")[1] for answer in answers if answer} == {b"503"}
        # Those of ordinary length are served meanwhile.
        assert httpx2.post(f"{server}/api/v1/tools/search_history/", json={"query": "x"}).status_code == 401
    until_served(server, "192.0.2.200")


def until_served(server, address):
    """A body of any length; what the connections of before took is given back in a moment."""
    ends = time.monotonic() + 20
    while True:
        with ExitStack() as stack:
            answer = unfinished(stack, server, 500_000, address).recv(4096)
        if b" 401 " in answer or time.monotonic() > ends:
            break
        time.sleep(0.1)
    assert b" 401 " in answer


def test_one_address_cannot_take_the_whole_budget(server, small_budget):
    with ExitStack() as stack:
        for _ in range(10):
            unfinished(stack, server, 450_000, "192.0.2.1")
        until_served(server, "192.0.2.2")
