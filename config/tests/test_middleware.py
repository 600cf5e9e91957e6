"""The middleware: messages to the next page, and the Content-Security-Policy."""

import pytest
from django.contrib import messages
from django.contrib.auth.decorators import login_not_required
from django.http import Http404, HttpResponse
from django.test import Client, override_settings
from django.urls import path

from config.urls import urlpatterns as all_urls

pytestmark = [pytest.mark.django_db, pytest.mark.urls(__name__)]

POLICY = "Content-Security-Policy"


@login_not_required
def leave(request):
    messages.info(request, "Saved.")
    return HttpResponse("left")


@login_not_required
def read(request):
    return HttpResponse(", ".join(str(message) for message in messages.get_messages(request)))


@login_not_required
def missing(request):
    raise Http404


urlpatterns = [path("leave", leave), path("read", read), path("missing", missing), *all_urls]


def test_a_message_is_there_for_the_next_page_and_for_no_other():
    client = Client()
    client.get("/leave")
    assert [client.get("/read").content for _ in range(2)] == [b"Saved.", b""]


def test_an_unread_message_outlives_a_request_that_does_not_look():
    client = Client()
    client.get("/leave")
    client.get("/healthz")
    assert client.get("/read").content == b"Saved."


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


def test_the_look_that_a_script_chose_is_kept_for_a_year_and_nothing_else_is_repeated():
    """Safari keeps what scripts write for seven days."""
    client = Client()
    client.cookies.load({"theme": "dark", "projects": "0a1b.2c3d", "text": "<b>", "width": "", "other": "x"})
    cookies = client.get("/").cookies
    kept = {
        name: (each.value, each["max-age"]) for name, each in cookies.items() if name not in ("csrftoken", "sessionid")
    }
    assert kept == {"theme": ("dark", 365 * 86_400), "projects": ("0a1b.2c3d", 365 * 86_400)}
    assert "theme" not in client.get("/api/v1/models/").cookies
