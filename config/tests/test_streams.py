"""Open streams: an idle one has neither a thread nor a connection, and nobody has too many of them."""

import inspect
import subprocess
import sys
import threading
import time
from contextlib import ExitStack

import pytest
import redis
from django.conf import settings as deployed
from django.db import connection
from django.http import FileResponse, StreamingHttpResponse
from django.urls import get_resolver

from config.asgi import STREAMING
from config.tests.test_asgi import views_of
from core import rate_limits
from core.errors import RateLimited
from imports.models import Import
from intake.models import Turn
from intake.tests.attached import a_file
from intake.tests.factories import NOW, a_turn
from testing.examiner import as_the_application
from testing.model_server import Hang

pytestmark = [pytest.mark.extended, pytest.mark.django_db(transaction=True)]

# More than the pool has connections, and than the loop has threads for all requests together.
TABS = 40
# Of five letters: a megabyte and a half, several times what the system buffers on the way to a reader who stops.
LONG = 300_000
OURS = ("config", "chat", "agent_tools", "imports", "memory", "intake", "core")


def changes(client, user):
    return "GET", "/api/v1/intake/events", {}


def running_turn(client, user):
    turn = a_turn(user, "Hello", "")
    Turn.objects.filter(pk=turn.pk).update(status=Turn.Status.STREAMING, assistant_message="")
    return "GET", f"/api/v1/intake/turns/{turn.pk}/events", {}


def new_answer(client, user):
    client.get("/")
    headers = {"X-CSRFToken": client.cookies["csrftoken"]}
    return "POST", "/api/v1/intake/chat", {"json": {"message": "Hello"}, "headers": headers}


def running_import(client, user):
    batch = Import.objects.create(user=user, filename="x.zip", bytes=10, created_at=NOW, updated_at=NOW)
    return "GET", f"/api/v1/imports/{batch.pk}/events/", {}


def long_export(client, user):
    turn = a_turn(user, "Hello", "long " * LONG)
    return "GET", f"/api/v1/conversations/{turn.conversation_id}/export/", {}


def whole_export(client, user):
    a_turn(user, "Hello", "long " * LONG)
    return "GET", "/api/v1/account/export/", {}


def large_file(client, user):
    stored = a_file(user, b"large" * LONG)
    return "GET", f"/api/v1/attachments/{stored.pk}/content", {}


# Each endpoint that streams, and how one is opened that stays idle after its first byte.
STREAMS = {
    "/api/v1/intake/events": changes,
    "/api/v1/intake/turns/<str:turn_id>/events": running_turn,
    "/api/v1/intake/chat": new_answer,
    "/api/v1/imports/<str:import_id>/events/": running_import,
    "/api/v1/conversations/<str:conversation_id>/export/": long_export,
    "/api/v1/account/export/": whole_export,
    "/api/v1/attachments/<str:attachment_id>/content": large_file,
}
# They run beside the streams and answer at once.
ANSWER_AT_ONCE = {
    "/api/v1/intake/turns/<str:turn_id>/stop",
    "/api/v1/intake/turns/<str:turn_id>/approvals/<str:call_id>",
    "/api/v1/intake/answering",
}
# Those of other programs have tests beside their protocols, in `chat/endpoint/tests`.
OF_PROGRAMS = {address for address in STREAMING if address.startswith("/v1/")}


def streams(view):
    """Whether a view can answer with a stream, by the functions that it is made of."""
    kind = getattr(view, "view_class", None) or getattr(view, "cls", None)
    bases = [] if kind is None else [each for each in kind.__mro__ if each.__module__.startswith(OURS)]
    functions = [f for base in bases for f in vars(base).values() if inspect.isfunction(f)] or [inspect.unwrap(view)]
    # An operation's view has a function around it.
    inner = [inspect.getclosurevars(each).nonlocals.get("function", each) for each in functions]
    made_of = "".join(map(inspect.getsource, inner))
    kinds = StreamingHttpResponse.__name__, FileResponse.__name__
    return any(word in made_of for word in (*kinds, "event_stream(", "download("))


def test_each_endpoint_that_streams_is_tried():
    found = {
        address
        for address, view in views_of(get_resolver().url_patterns)
        if view.__module__.startswith(OURS) and streams(view)
    }
    assert found == set(STREAMS)
    assert set(STREAMING) == set(STREAMS) | ANSWER_AT_ONCE | OF_PROGRAMS


def borrowed():
    """Sessions of the application. Without a pool, as in tests, an idle one is a connection that somebody holds."""
    with as_the_application(), connection.cursor() as cursor:
        cursor.execute(
            """
            SELECT coalesce(array_agg(state || ': ' || query), '{}') FROM pg_stat_activity
             WHERE datname = current_database() AND usename = session_user AND pid <> pg_backend_pid()
            """
        )
        return cursor.fetchone()[0]


def threads():
    """Without those of pools that are bounded, whatever is open."""
    bounded = ("WSGI", "asyncio_", "uvloop_", "leases of streams", "teller", "pool-", "psycopg", "AnyIO", "uvicorn")
    return [each.name for each in threading.enumerate() if not each.name.startswith(bounded)]


def settled(look, requested):
    ends = time.monotonic() + 5
    while len(found := look()) > requested and time.monotonic() < ends:
        time.sleep(0.05)
    return found


@pytest.mark.parametrize("address", STREAMS)
def test_an_open_stream_keeps_no_thread_and_no_connection(address, person, log_in, language_model, settings):
    settings.LLM_MODEL = ""
    client = log_in(person)
    method, path, options = STREAMS[address](client, person)
    tabs = TABS if address not in ("/api/v1/intake/chat", "/api/v1/account/export/") else 6
    if address == "/api/v1/intake/chat":
        language_model(*[Hang()] * (tabs + 1))
    with ExitStack() as stack:
        before = threads(), borrowed()
        for _ in range(tabs):
            response = stack.enter_context(client.stream(method, path, **options))
            assert response.status_code == 200, response.read()
            next(response.iter_raw(1))
        # A few threads open all streams, each with the connection that it keeps: far fewer than there are streams.
        held = settled(borrowed, len(before[1]) + tabs // 2)
        assert len(held) <= len(before[1]) + tabs // 2, held
        assert len(settled(threads, len(before[0]) + 3)) <= len(before[0]) + 3


@pytest.fixture
def few(limited):
    limited(streams=3, streams_address=5)
    rate_limits.bypass.until = 0.0
    with redis.Redis.from_url(deployed.REDIS_URL) as broker:
        for key in broker.scan_iter(match="streams*"):
            broker.delete(key)


@pytest.mark.parametrize("address", STREAMS)
def test_one_stream_too_many_is_refused_until_another_ends(address, person, log_in, language_model, few):
    client = log_in(person)
    method, path, options = STREAMS[address](client, person)
    language_model(*[Hang()] * 9)
    opened = [rate_limits.open_streams.begin(user_id=person.pk, address=str(number)) for number in range(3)]
    refused = client.request(method, path, **options)
    assert (refused.status_code, refused.json()["code"]) == (429, "rate_limited")
    assert int(refused.headers["retry-after"]) > 0
    opened.pop().end()
    ends = time.monotonic() + 10
    while time.monotonic() < ends:
        with client.stream(method, path, **options) as response:
            if response.status_code == 200:
                return
        time.sleep(0.1)
    pytest.fail("the place was not given back")


def test_an_address_has_a_number_of_streams_whoever_opens_them(few):
    kept = [rate_limits.open_streams.begin(user_id=number, address="192.0.2.1") for number in range(5)]
    with pytest.raises(RateLimited):
        rate_limits.open_streams.begin(user_id=9, address="192.0.2.1")
    with pytest.raises(RateLimited):
        rate_limits.open_streams.begin(user_id=None, address="192.0.2.1")
    kept.append(rate_limits.open_streams.begin(user_id=9, address="192.0.2.2"))
    assert len(kept) == 6


def test_streams_are_counted_without_redis_too(few, settings):
    settings.REDIS_URL = "redis://127.0.0.1:1/0"
    kept = [rate_limits.open_streams.begin(user_id=7, address="192.0.2.7") for _ in range(3)]
    with pytest.raises(RateLimited):
        rate_limits.open_streams.begin(user_id=7, address="192.0.2.7")
    assert len(kept) == 3
    rate_limits.bypass.until = 0.0


DIES = """
import os, sys
import django
django.setup()
from django.conf import settings
settings.RATE_LIMITS = 1
from core import rate_limits
rate_limits.AT_ONCE["streams"] = 3
rate_limits.STREAM_LEASE_SECONDS = 2.0
kept = [rate_limits.open_streams.begin(user_id=5, address="192.0.2.5") for _ in range(3)]
print("open", flush=True)
os.kill(os.getpid(), 9)
"""


def test_a_process_that_dies_gives_its_streams_back(few):
    environment = {**__import__("os").environ, "REDIS_URL": deployed.REDIS_URL}
    died = subprocess.run(
        [sys.executable, "-c", DIES], env=environment, capture_output=True, text=True, timeout=60, check=False
    )
    assert died.stdout == "open\n", died.stderr
    with pytest.raises(RateLimited):
        rate_limits.open_streams.begin(user_id=5, address="192.0.2.5")
    time.sleep(2.2)
    rate_limits.open_streams.begin(user_id=5, address="192.0.2.5").end()


def test_a_stream_that_lasts_keeps_its_place(few, monkeypatch):
    monkeypatch.setattr(rate_limits, "STREAM_LEASE_SECONDS", 1.0)
    streams = rate_limits.OpenStreams()
    kept = [streams.begin(user_id=6, address="192.0.2.6") for _ in range(3)]
    time.sleep(2.5)
    with pytest.raises(RateLimited):
        streams.begin(user_id=6, address="192.0.2.6")
    assert len(kept) == 3
