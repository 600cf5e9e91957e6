"""What each answer passes through: headers that are put together once, messages that are stored when there are any."""

import pytest
from django.contrib import messages
from django.contrib.messages.middleware import MessageMiddleware
from django.contrib.messages.storage import default_storage
from django.http import Http404, HttpResponse
from django.test import Client, override_settings
from django.urls import path

from config.urls import urlpatterns as all_urls

pytestmark = [pytest.mark.django_db, pytest.mark.urls(__name__)]

POLICY = "Content-Security-Policy"
made: list[object] = []


def leave(request):
    messages.info(request, "Saved.")
    return HttpResponse("left")


def read(request):
    return HttpResponse(", ".join(str(message) for message in messages.get_messages(request)))


def missing(request):
    raise Http404


urlpatterns = [path("leave", leave), path("read", read), path("missing", missing), *all_urls]


@pytest.fixture
def stores(monkeypatch):
    """The stores of messages that were made."""
    made.clear()

    def making(request):
        made.append(store := default_storage(request))
        return store

    monkeypatch.setattr("intake.middleware.default_storage", making)
    return made


def test_a_message_is_there_for_the_next_page_and_for_no_other():
    client = Client()
    client.get("/leave")
    assert [client.get("/read").content for _ in range(2)] == [b"Saved.", b""]


def test_who_neither_leaves_nor_reads_a_message_has_no_store_made(stores):
    client = Client()
    assert client.get("/healthz").status_code == 200
    assert client.get("/api/v1/tools/").status_code == 401
    assert not stores
    client.get("/leave")
    assert len(stores) == 1


def test_an_unread_message_outlives_a_request_that_does_not_look():
    client = Client()
    client.get("/leave")
    client.get("/healthz")
    assert client.get("/read").content == b"Saved."


def test_djangos_own_middleware_would_do_the_same(settings):
    ours = "intake.middleware.LazyMessageMiddleware"
    theirs = f"{MessageMiddleware.__module__}.{MessageMiddleware.__qualname__}"
    assert ours in settings.MIDDLEWARE
    settings.MIDDLEWARE = [theirs if one == ours else one for one in settings.MIDDLEWARE]
    client = Client()
    client.get("/leave")
    client.get("/healthz")
    assert [client.get("/read").content for _ in range(2)] == [b"Saved.", b""]


def test_the_policy_is_the_settings_own(settings):
    sent = Client().get("/healthz")[POLICY]
    directives = settings.CONTENT_SECURITY_POLICY["DIRECTIVES"]
    assert set(sent.split("; ")) == {f"{name} {' '.join(values)}" for name, values in directives.items()}


@pytest.mark.parametrize(("is_debugged", "is_bound"), [(False, True), (True, False)])
def test_only_djangos_pages_for_developers_are_bound_by_no_policy(is_debugged, is_bound):
    with override_settings(DEBUG=is_debugged):
        response = Client().get("/missing")
    assert response.status_code == 404
    assert (POLICY in response) is is_bound
