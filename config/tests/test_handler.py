"""Where a request is worked on: an ordinary one in one thread from end to end, a stream's on the event loop."""

import asyncio
import threading

import pytest
from asgiref.sync import SyncToAsync, iscoroutinefunction, markcoroutinefunction
from asgiref.testing import ApplicationCommunicator
from django.db import connection
from django.http import HttpResponse, StreamingHttpResponse
from django.test import override_settings
from django.urls import path
from django.utils.translation import activate, get_language

from config.handler import Handler
from config.urls import urlpatterns as all_urls
from core.threads import Threads

pytestmark = pytest.mark.django_db(transaction=True)

seen: list[tuple[bool, int]] = []
ended: list[str] = []


class Broken(Exception):
    pass


class Leaving(BaseException):
    """What no middleware makes an answer of."""


def speak_dutch(request):
    before = get_language()
    activate("nl")
    return HttpResponse(f"{before}, then {get_language()}")


def stream(request, how):
    """An ordinary view, whose thread has used the database, with an answer that the loop sends piece by piece."""
    connection.ensure_connection()

    async def pieces():
        try:
            yield b"one"
            if how == "breaks":
                raise Broken
            if how == "waits":
                await asyncio.sleep(60)
            yield b"two"
        finally:
            ended.append("pieces")

    response = StreamingHttpResponse(pieces())
    response._resource_closers.append(lambda: ended.append("response"))
    return response


def hold(request):
    connection.ensure_connection()
    raise Leaving


def has_connection(request):
    return HttpResponse(str(connection.connection is not None))


urlpatterns = [
    path("dutch", speak_dutch),
    path("stream/<how>", stream),
    path("hold", hold),
    path("has-connection", has_connection),
    *all_urls,
]


class Recorder:
    """A middleware that notes how it was called, and where."""

    sync_capable = async_capable = True

    def __init__(self, get_response):
        self.get_response = get_response
        if iscoroutinefunction(get_response):
            markcoroutinefunction(self)

    def __call__(self, request):
        seen.append((iscoroutinefunction(self.get_response), threading.get_ident()))
        return self.get_response(request)


@pytest.fixture
def handler(settings):
    seen.clear()
    with override_settings(MIDDLEWARE=[*settings.MIDDLEWARE, f"{__name__}.Recorder"]):
        yield Handler()


@pytest.fixture
def hops(monkeypatch):
    """The functions for which the event loop went to a thread."""
    gone = []
    go = SyncToAsync.__call__

    async def noting(self, *args, **kwargs):
        gone.append(self.func)
        return await go(self, *args, **kwargs)

    monkeypatch.setattr(SyncToAsync, "__call__", noting)
    return gone


@pytest.fixture
def own_views(handler):
    """The views of this module; one thread, so that each request gets the one that had the request before."""
    ended.clear()
    handler._threads = Threads(1, name="request")
    with override_settings(ROOT_URLCONF=__name__):
        yield handler


def line_to(handler, method, path):
    scope = {
        "type": "http",
        "http_version": "1.1",
        "method": method,
        "path": path,
        "query_string": b"",
        "headers": [(b"host", b"localhost")],
        "client": ("127.0.0.1", 1),
    }
    return ApplicationCommunicator(handler, scope)


async def ended_of(handler, method, path):
    """How it ends, whatever it has answered by then; an answer that never comes is waited for in vain."""
    line = line_to(handler, method, path)
    await line.send_input({"type": "http.request", "body": b""})
    await line.wait(30)


async def answer_of(handler, method, path):
    line = line_to(handler, method, path)
    await line.send_input({"type": "http.request", "body": b""})
    status, body, more = (await line.receive_output(30))["status"], b"", True
    while more:
        piece = await line.receive_output(30)
        body, more = body + piece.get("body", b""), piece.get("more_body")
    await line.wait(30)
    return status, body


async def status_of(handler, method, path):
    return (await answer_of(handler, method, path))[0]


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/healthz", 200),
        ("GET", "/", 200),
        ("GET", "/nowhere", 404),
        ("POST", "/api/v1/tools/search_chat_history/", 401),
        ("GET", "/api/v1/nowhere", 404),
    ],
)
async def test_an_ordinary_request_is_worked_on_in_one_thread_in_one_go(handler, hops, method, path, status):
    assert await status_of(handler, method, path) == status
    assert [(is_async, thread == threading.get_ident()) for is_async, thread in seen] == [(False, False)]
    # From the signal that it begins to the one that it has ended.
    assert not hops


async def test_no_request_has_a_thread_of_its_own(handler):
    for _ in range(10):
        await status_of(handler, "GET", "/healthz")
    # One that comes before a thread is back from the one before may get another.
    assert len({thread for _, thread in seen}) < 5


async def test_what_a_request_sets_for_its_thread_is_gone_for_the_next(own_views):
    for _ in range(2):
        assert await answer_of(own_views, "GET", "/dutch") == (200, b"en, then nl")


async def test_a_request_that_fails_utterly_leaves_no_connection_to_the_next(own_views):
    with pytest.raises(Leaving):
        await ended_of(own_views, "GET", "/hold")
    assert await answer_of(own_views, "GET", "/has-connection") == (200, b"False")


async def test_an_ordinary_views_answer_may_stream_and_holds_no_connection_meanwhile(own_views):
    line = line_to(own_views, "GET", "/stream/waits")
    await line.send_input({"type": "http.request", "body": b""})
    await line.receive_output(30)
    assert (await line.receive_output(30))["body"] == b"one"
    assert await answer_of(own_views, "GET", "/has-connection") == (200, b"False")
    assert not ended

    await line.send_input({"type": "http.disconnect"})
    await line.wait(30)

    assert ended == ["pieces", "response"]


async def test_a_stream_that_is_read_to_its_end_is_closed(own_views):
    assert await answer_of(own_views, "GET", "/stream/whole") == (200, b"onetwo")
    assert ended == ["pieces", "response"]


async def test_a_stream_that_breaks_is_closed_and_told_to_the_server(own_views):
    with pytest.raises(Broken):
        await ended_of(own_views, "GET", "/stream/breaks")
    assert ended == ["pieces", "response"]


async def test_who_leaves_before_the_body_is_whole_is_not_answered(handler):
    line = line_to(handler, "POST", "/healthz")
    await line.send_input({"type": "http.request", "body": b"{", "more_body": True})
    await line.send_input({"type": "http.disconnect"})
    await line.wait(30)
    assert await line.receive_nothing()
    assert not seen


async def test_a_stream_has_its_middleware_on_the_event_loop(handler):
    assert await status_of(handler, "POST", "/api/v1/intake/chat") == 401
    assert seen == [(True, threading.get_ident())]
