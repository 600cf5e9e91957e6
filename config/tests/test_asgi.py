"""Where a request runs: an ordinary view in one worker thread, a streaming one on the event loop."""

import threading

import httpx2
import pytest
from asgiref.sync import iscoroutinefunction
from django.contrib.auth import get_user
from django.contrib.auth.decorators import login_not_required
from django.db import connection
from django.http import HttpResponse
from django.test import override_settings
from django.urls import get_resolver, path
from django.utils.translation import activate, get_language

from config.asgi import STREAMING
from config.urls import urlpatterns as all_urls

pytestmark = pytest.mark.django_db(transaction=True)


@login_not_required
def speak_dutch(request):
    before = get_language()
    activate("nl")
    return HttpResponse(f"{before}, then {get_language()}")


@login_not_required
def hold(request):
    connection.ensure_connection()
    raise RuntimeError


@login_not_required
def has_connection(request):
    return HttpResponse(str(connection.connection is not None))


@login_not_required
def where(request):
    get_user(request)
    return HttpResponse(threading.current_thread().name)


@login_not_required
def address(request):
    return HttpResponse(request.headers.get("X-Forwarded-For", "none"))


held = threading.Semaphore(0)
arrived = threading.Semaphore(0)


@login_not_required
def wait(request):
    arrived.release()
    held.acquire(timeout=20)
    return HttpResponse("waited")


urlpatterns = [
    path("wait", wait),
    path("dutch", speak_dutch),
    path("hold", hold),
    path("has-connection", has_connection),
    path("where", where),
    path("address", address),
    *all_urls,
]


@pytest.fixture
def own_views(new_client):
    with override_settings(ROOT_URLCONF=__name__):
        yield new_client()


def views_of(patterns, prefix="/"):
    for each in patterns:
        if hasattr(each, "url_patterns"):
            yield from views_of(each.url_patterns, prefix + str(each.pattern))
        else:
            yield prefix + str(each.pattern), each.callback


def test_each_asynchronous_view_is_among_those_that_stream():
    asynchronous = {address for address, view in views_of(get_resolver().url_patterns) if iscoroutinefunction(view)}
    assert asynchronous
    assert asynchronous <= set(STREAMING)
    assert set(STREAMING) <= {address for address, _ in views_of(get_resolver().url_patterns)}


def test_an_ordinary_view_runs_in_a_worker_thread(own_views):
    assert own_views.get("/where").text.startswith("WSGI")


def test_past_its_deadline_a_request_keeps_its_turn_until_its_thread_ends(own_views, server, monkeypatch):
    monkeypatch.setattr("config.bodies.RESPONSE_SECONDS", 0.3)
    try:
        for _ in range(2):
            assert httpx2.get(f"{server}/wait", timeout=20).status_code == 503
            assert arrived.acquire(timeout=10)
        # Both turns of this address are taken.
        assert httpx2.get(f"{server}/address", timeout=20).status_code == 503
    finally:
        for _ in range(2):
            held.release()
    monkeypatch.undo()
    assert httpx2.get(f"{server}/address", timeout=20).text == "none"


def test_what_a_request_sets_for_its_thread_is_gone_for_the_next(own_views):
    assert {own_views.get("/dutch").text for _ in range(5)} == {"en, then nl"}


def test_a_request_that_fails_leaves_no_connection_to_the_next(own_views):
    assert own_views.get("/hold").status_code == 500
    assert {own_views.get("/has-connection").text for _ in range(5)} == {"False"}


@pytest.mark.parametrize("name", ["X_Forwarded_For", "x-forwarded_for"])
def test_a_header_with_an_underscore_passes_for_no_other(own_views, name):
    assert own_views.get("/address", headers={name: "192.0.2.1"}).text == "none"
    assert own_views.get("/address", headers={name: "192.0.2.1", "X-Forwarded-For": "192.0.2.2"}).text == "192.0.2.2"


@pytest.mark.parametrize(
    ("path", "kind"),
    [("/api/v1/conversations/a%0Ab/", "application/problem+json"), ("/a%0Ab/", "text/html; charset=utf-8")],
)
def test_a_path_with_a_line_break_is_refused_by_django_like_any_other(server, path, kind):
    answer = httpx2.get(f"{server}{path}")
    assert answer.status_code in (401, 404)
    assert answer.headers["content-type"] == kind
    assert "x-request-id" in answer.headers
