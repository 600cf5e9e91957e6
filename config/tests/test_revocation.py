"""Nobody goes on reading after their access has ended: every endpoint that streams ends within five seconds."""

import re
import time
from itertools import chain

import httpx2 as httpx
import pytest
from django.apps import apps
from django.contrib.auth import get_user_model

from config.asgi import MCP, STREAMING
from imports.tests.factories import an_import
from intake.models import Session
from intake.tests.attached import a_file
from intake.tests.factories import a_turn
from testing.model_server import Say

pytestmark = [pytest.mark.extended, pytest.mark.django_db(transaction=True)]

SECONDS = 5


def slowly(*args, **kwargs):
    """A part of an export that takes longer than anybody may stay."""
    for number in range(2000):
        time.sleep(0.02)
        # Enough for a piece of the response each time: one that is begun is not broken off.
        yield {"number": number, "text": "x" * 20_000}


def slowly_as_text(*args, **kwargs):
    return (f"line {part['number']}\n".encode() for part in slowly())


def chat(person, settings, monkeypatch, language_model):
    language_model(Say(("Ready.",)), Say(tuple(f"word{n} " for n in range(400)), seconds_apart=0.1))
    return "POST", "/api/v1/intake/chat", {"json": {"message": "Talk"}}


def changes(person, settings, monkeypatch, language_model):
    return "GET", "/api/v1/intake/events", {}


def export(form):
    def export(person, settings, monkeypatch, language_model):
        monkeypatch.setattr("intake.chats.exporting.conversations", slowly)
        return "GET", "/api/v1/account/export/", {"params": {"as": form}}

    return export


def conversation(person, settings, monkeypatch, language_model):
    monkeypatch.setattr("chat.rest.conversations.conversation_as_markdown", slowly_as_text)
    turn = a_turn(person, "Hello")
    return "GET", f"/api/v1/conversations/{turn.conversation_id}/export/", {"params": {"as": "markdown"}}


def file(person, settings, monkeypatch, language_model):
    monkeypatch.setattr("chat.rest.downloads.pieces_of", slowly_as_text)
    stored = a_file(person, b"x" * 1_000_000)
    return "GET", f"/api/v1/attachments/{stored.pk}/content", {}


def importing(person, settings, monkeypatch, language_model):
    return "GET", f"/api/v1/imports/{an_import(person, state='reading')}/events/", {}


# By the address of the endpoint. Those that follow a running answer begin with the chat's own.
STREAMS = {
    "/api/v1/intake/chat": [chat],
    "/api/v1/intake/events": [changes],
    "/api/v1/account/export/": [export("json")],
    "/api/v1/conversations/<str:conversation_id>/export/": [conversation],
    "/api/v1/imports/<str:import_id>/events/": [importing],
    "/api/v1/attachments/<str:attachment_id>/content": [file],
}
# Here or elsewhere: these answer at once, or have tests beside their own protocol.
ELSEWHERE = {
    "/api/v1/intake/turns/<str:turn_id>/stop": "answers at once",
    "/api/v1/intake/turns/<str:turn_id>/approvals/<str:call_id>": "answers at once",
    "/api/v1/intake/answering": "answers at once",
    "/api/v1/intake/turns/<str:turn_id>/events": "test_a_second_reader_of_an_answer_is_out_too",
    **{address: "chat/endpoint/tests" for address in STREAMING if address.startswith("/v1/")},
    MCP: "agent_tools/tests/test_mcp_http.py, agent_tools/tests/test_mcp_stdio.py",
}


def revoke(person):
    apps.get_model("agent_tools.AccessToken").objects.filter(user=person).delete()


def expire(person):
    apps.get_model("agent_tools.AccessToken").objects.filter(user=person).update(expiry="2020-01-01T00:00:00Z")


def end_the_session(person):
    Session.objects.filter(user=person).delete()


def change_the_password(person):
    person.set_password("another long password")
    person.save()


def deactivate(person):
    get_user_model().objects.filter(pk=person.pk).update(is_active=False)


BY_TOKEN, BY_SESSION = (revoke, expire, deactivate), (end_the_session, change_the_password, deactivate)
ENDINGS = [*((True, end) for end in BY_TOKEN), *((False, end) for end in BY_SESSION)]
CASES = [
    pytest.param(begin, has_token, end, id=f"{begin.__name__}-{'token' if has_token else 'session'}-{end.__name__}")
    for begin in chain.from_iterable(STREAMS.values())
    for has_token, end in ENDINGS
]


@pytest.fixture
def client_of(person, new_client, log_in):
    def client_of(*, has_token):
        client = new_client() if has_token else log_in(person)
        if has_token:
            scopes = ["search", "write", "import"]
            _, secret = apps.get_model("agent_tools.AccessToken").objects.issue(user=person, scopes=scopes)
            client.headers["Authorization"] = f"Bearer {secret}"
        return client

    return client_of


def test_every_endpoint_that_streams_is_tried():
    assert {*STREAMS, *ELSEWHERE} == {*STREAMING, MCP}


def test_no_other_module_streams():
    """A new response that lasts needs its address in `config.asgi.STREAMING`, and a case here."""
    from django.conf import settings

    sources = [
        path
        for app in ("agent_tools", "chat", "config", "core", "imports", "intake", "memory")
        for path in (settings.BASE_DIR / app).rglob("*.py")
        if "tests" not in path.parts
    ]
    streaming = {
        str(path.relative_to(settings.BASE_DIR))
        for path in sources
        if re.search(r"\b(StreamingHttpResponse|FileResponse)\(", path.read_text())
    }
    assert streaming <= {
        "chat/rest/downloads.py",
        "core/responses.py",
    }


def read_to_the_end(pieces):
    """Whether the response broke off."""
    try:
        for _ in pieces:
            pass
    except httpx.RemoteProtocolError:
        return True
    return False


@pytest.mark.parametrize(("begin", "has_token", "end"), CASES)
def test_a_stream_ends_within_five_seconds_of_its_callers_access(
    begin, has_token, end, person, client_of, settings, monkeypatch, language_model
):
    if end is not revoke:
        # One of each stream's cases waits as long as in production.
        monkeypatch.setattr("intake.revocation.CHECKED_EVERY_SECONDS", 0.05)
    client = client_of(has_token=has_token)
    method, path, options = begin(person, settings, monkeypatch, language_model)
    if begin is chat:
        # Beside the first answer of a process its modules are loaded.
        assert client.events("First")[-1].name == "done"
    headers = {} if has_token or method == "GET" else client._csrf()
    with client.stream(method, path, headers=headers, **options) as response:
        assert response.status_code == 200, response.read()
        pieces = response.iter_raw()
        next(pieces)
        end(person)
        ended_at = time.monotonic()
        broke_off = read_to_the_end(pieces)
        assert time.monotonic() - ended_at < SECONDS
    # A file that ends cleanly would pass for a whole one.
    assert broke_off is path.endswith(("export/", "content"))


def test_a_second_reader_of_an_answer_is_out_too(person, client_of, language_model):
    language_model(Say(tuple(f"word{n} " for n in range(400)), seconds_apart=0.1))
    writer, reader = client_of(has_token=False), client_of(has_token=True)
    with writer.stream("POST", "/api/v1/intake/chat", json={"message": "Talk"}, headers=writer._csrf()) as response:
        lines = response.iter_lines()
        turn_id = re.search(r'"turnId":(\d+)', next(line for line in lines if "turnId" in line))[1]
        with reader.stream("GET", f"/api/v1/intake/turns/{turn_id}/events") as followed:
            pieces = followed.iter_raw()
            next(pieces)
            revoke(person)
            ended_at = time.monotonic()
            read_to_the_end(pieces)
            assert time.monotonic() - ended_at < SECONDS
        assert next(lines) is not None


@pytest.mark.parametrize("begin", [changes, importing, export("json"), conversation])
def test_a_stream_goes_on_while_its_caller_may_read(begin, person, client_of, settings, monkeypatch, language_model):
    monkeypatch.setattr("intake.revocation.CHECKED_EVERY_SECONDS", 0.05)
    client, other = client_of(has_token=True), client_of(has_token=False)
    method, path, options = begin(person, settings, monkeypatch, language_model)
    with client.stream(method, path, **options) as response:
        pieces = response.iter_raw()
        next(pieces)
        end_the_session(person)
        # Some ten looks.
        time.sleep(0.5)
        if begin is changes:
            other.get("/")
            a_turn(person, "Another")
            return
        if path.endswith("export/"):
            assert next(pieces)
