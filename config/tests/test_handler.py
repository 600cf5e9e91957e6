"""Where a request is worked on: an ordinary one in one thread from end to end, a stream's on the event loop."""

import threading

import pytest
from asgiref.sync import SyncToAsync, iscoroutinefunction, markcoroutinefunction
from asgiref.testing import ApplicationCommunicator
from django.test import override_settings

from config.handler import Handler

pytestmark = pytest.mark.django_db(transaction=True)

seen: list[tuple[bool, int]] = []


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


async def status_of(handler, method, path):
    scope = {
        "type": "http",
        "http_version": "1.1",
        "method": method,
        "path": path,
        "query_string": b"",
        "headers": [(b"host", b"localhost")],
        "client": ("127.0.0.1", 1),
    }
    line = ApplicationCommunicator(handler, scope)
    await line.send_input({"type": "http.request", "body": b""})
    status = (await line.receive_output(30))["status"]
    while (await line.receive_output(30)).get("more_body"):
        pass
    await line.wait(30)
    return status


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
    # It begins, it is answered, it is closed.
    assert len(hops) == 3


async def test_a_stream_has_its_middleware_on_the_event_loop(handler):
    assert await status_of(handler, "POST", "/api/v1/intake/chat") == 401
    assert seen == [(True, threading.get_ident())]
