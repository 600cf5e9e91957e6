"""What is told of changes: to the person's own pages, which chat and nothing else, and nothing at all without Redis."""

import json
import threading
import time
from contextlib import ExitStack, contextmanager

import pytest
from django.conf import settings

from intake.chats import changes
from intake.chats.tree import conversation_path
from intake.tests.factories import a_turn, caller_for
from testing.sse_client import read_events

pytestmark = pytest.mark.django_db(transaction=True)

EVENTS = "/api/v1/intake/events"


@contextmanager
def listening(client):
    """The events, as they come."""
    heard = []
    with client.stream("GET", EVENTS) as response:
        assert response.status_code == 200
        assert response.headers["Content-Type"] == "text/event-stream"

        def read():
            try:
                heard.extend(_append(heard, read_events(response.iter_lines())))
            except Exception:  # the test has hung up
                return

        thread = threading.Thread(target=read, daemon=True)
        thread.start()
        wait_for(heard, 1)
        # The subscription is made beside the stream.
        time.sleep(0.5)
        yield heard


def _append(heard, events):
    for event in events:
        heard.append(event)
    return []


def wait_for(heard, count, seconds=5.0):
    deadline = time.monotonic() + seconds
    while len(heard) < count and time.monotonic() < deadline:
        time.sleep(0.02)
    return [event.data.get("conversationId") for event in heard[1:]]


def test_more_pages_listen_than_the_pool_has_connections(person, log_in):
    client = log_in(person)
    with ExitStack() as open_pages:
        for _ in range(settings.DATABASES["default"]["OPTIONS"]["pool"]["max_size"] + 4):
            page = open_pages.enter_context(client.stream("GET", EVENTS))
            assert next(page.iter_lines()) == "event: open"


def test_a_new_turn_a_rename_a_pin_and_a_deletion_are_told_within_two_seconds(person, log_in):
    client, other = log_in(person), log_in(person)
    turn = a_turn(person, "Hello")
    key, path = str(turn.conversation_id), conversation_path(turn.conversation_id)
    with listening(other) as heard:
        for what in (
            lambda: client.submit(f"{path}rename/", title="Secret plans"),
            lambda: client.post(f"{path}pin/", data={"on": "1"}, headers=client._csrf(), follow_redirects=False),
            lambda: client.events("And more", conversation_id=key),
            lambda: client.submit(f"{path}delete/"),
        ):
            before, begun = len(heard), time.monotonic()
            what()
            assert set(wait_for(heard, before + 1, 5.0)) == {key}
            assert len(heard) > before
            assert time.monotonic() - begun < 8
        assert "Secret" not in json.dumps([event.data for event in heard])


def test_nobody_hears_of_somebody_elses_chats(person, stranger, log_in):
    turn = a_turn(stranger, "Theirs")
    with listening(log_in(person)) as heard:
        changes.tell_now(caller_for(stranger), turn.conversation_id)
        mine = a_turn(person, "Mine").conversation_id
        changes.tell_now(caller_for(person), mine)
        wait_for(heard, 2)
        time.sleep(0.3)
        # Once or twice: the turn that was saved may have told of itself.
        assert {event.data["conversationId"] for event in heard[1:]} == {str(mine)}


def test_a_visitor_hears_of_their_own_and_somebody_unknown_of_nothing(visitor, new_client):
    assert new_client().get(EVENTS).status_code == 401
    visitor.events("Hello")
    with listening(visitor) as heard:
        visitor.events("And again")
        assert len(wait_for(heard, 2)) >= 1


def test_without_redis_everything_else_works_and_the_stream_is_silent(person, log_in, settings):
    client = log_in(person)
    settings.REDIS_URL = "redis://127.0.0.1:1/0"
    with listening(client) as heard:
        events = client.events("Hello")
        assert events[-1].name == "done"
        time.sleep(0.3)
        assert len(heard) == 1


def test_a_server_that_stops_ends_the_streams(person, log_in):
    with listening(log_in(person)):
        begun = time.monotonic()
        changes.end_streams()
        while any(listener.queues for listener in changes._listeners.values()) and time.monotonic() < begun + 3:
            time.sleep(0.02)
        assert time.monotonic() - begun < 2
