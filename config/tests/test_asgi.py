"""Where a request runs: an ordinary view in one worker thread, a streaming one on the event loop."""

import threading
from concurrent.futures import ThreadPoolExecutor

import httpx2
import pytest
from asgiref.sync import iscoroutinefunction
from django.conf import settings
from django.contrib.auth import get_user
from django.contrib.auth.decorators import login_not_required
from django.db import connection
from django.http import HttpResponse
from django.test import override_settings
from django.urls import get_resolver, path
from django.utils.translation import activate, get_language

from config.asgi import STRANGERS_THREADS, STREAMING
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


@pytest.mark.parametrize(
    "headers", [{"Cookie": f"a=b; {settings.SESSION_COOKIE_NAME}=x"}, {"Authorization": "Bearer x"}], ids=str
)
def test_a_crowd_of_strangers_takes_no_thread_from_those_with_a_session_or_a_token(own_views, server, headers):
    crowd = STRANGERS_THREADS + 2
    with ThreadPoolExecutor(crowd) as strangers:
        answers = [strangers.submit(httpx2.get, f"{server}/wait", timeout=20) for _ in range(crowd)]
        try:
            assert all(arrived.acquire(timeout=10) for _ in range(STRANGERS_THREADS))
            assert httpx2.get(f"{server}/address", headers=headers, timeout=10).text == "none"
            assert not arrived.acquire(blocking=False)
        finally:
            for _ in range(crowd):
                held.release()
        assert [answer.result().text for answer in answers] == ["waited"] * crowd
    for _ in range(crowd - STRANGERS_THREADS):
        arrived.acquire()


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
