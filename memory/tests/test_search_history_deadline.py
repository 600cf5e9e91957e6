"""Sources that are slow or fail: what the others found is still given, and nothing of the inside is told."""

import logging
from time import monotonic

import pytest
from django.db import OperationalError, connection

from core.errors import SearchFailed, Unavailable
from intake.tests.factories import NOW, a_person, a_turn
from memory import index
from memory.search import history as searching
from memory.search.deadline import OutOfTime, at_most
from memory.search.history import HistoryRequest, search_history
from memory.search.sources import ATTACHMENTS, MEMORIES, MESSAGES, SESSIONS, HistoryScope

pytestmark = pytest.mark.django_db

SOURCES = {"memory": MEMORIES, "messages": MESSAGES, "sessions": SESSIONS, "attachments": ATTACHMENTS}


@pytest.fixture
def alice():
    alice = a_person()
    a_turn(alice, "A restaurant in Shibuya")
    index.embed_pending()
    return alice


def search(user, scope="all"):
    return search_history(HistoryRequest(query="restaurant", scope=HistoryScope(scope)), user=user, now=NOW)


def slow_down(monkeypatch, name, *, seconds=60, statements=1):
    """The source asks the database for something that takes so long, and then does its work."""
    find = SOURCES[name].find

    def slowly(asked):
        with connection.cursor() as cursor:
            for _ in range(statements):
                cursor.execute("SELECT pg_sleep(%s)", [seconds / statements])
        return find(asked)

    monkeypatch.setattr(SOURCES[name], "find", slowly)


def kinds(history):
    return {result.reference.kind.value for result in history.results}


def test_all_sources_that_finish_are_named_nowhere(alice):
    history = search(alice)
    assert (kinds(history), history.unfinished) == ({"message", "session"}, [])


@pytest.mark.parametrize(
    ("name", "left"), [("memory", {"message", "session"}), ("messages", {"session"}), ("sessions", {"message"})]
)
def test_past_the_timeout_the_sources_that_finished_are_given_and_the_other_is_named(
    alice, settings, monkeypatch, name, left
):
    settings.HISTORY_TIMEOUT_SECONDS = 1.5
    slow_down(monkeypatch, name)
    started = monotonic()
    history = search(alice)
    assert monotonic() - started < 4
    assert (kinds(history), history.unfinished) == (left, [name])


def test_many_statements_that_are_slow_together_are_ended_too(alice, settings, monkeypatch):
    settings.HISTORY_TIMEOUT_SECONDS = 1.5
    slow_down(monkeypatch, "messages", seconds=20, statements=100)
    started = monotonic()
    assert search(alice, "sessions").unfinished == ["messages"]
    assert monotonic() - started < 4


def test_when_no_source_finishes_all_are_named(alice, settings, monkeypatch):
    settings.HISTORY_TIMEOUT_SECONDS = 0.3
    for name in SOURCES:
        slow_down(monkeypatch, name)
    history = search(alice)
    assert (history.results, history.unfinished) == ([], list(SOURCES))


@pytest.mark.parametrize("name", ["memory", "messages", "sessions"])
def test_a_source_that_fails_is_a_search_error_that_tells_nothing_of_the_inside(alice, monkeypatch, caplog, name):
    def fail(asked):
        with connection.cursor() as cursor:
            cursor.execute("SELECT 'secret' FROM no_such_table")

    monkeypatch.setattr(SOURCES[name], "find", fail)
    with caplog.at_level(logging.ERROR), pytest.raises(SearchFailed) as failure:
        search(alice)
    assert failure.value.detail == f"Search failed: {name} could not be searched."
    assert (failure.value.code, failure.value.retryable) == ("search_error", False)
    assert "ProgrammingError" in caplog.text
    assert "secret" not in caplog.text and "restaurant" not in caplog.text


def test_results_that_cannot_be_read_are_a_search_error(alice, monkeypatch):
    def fail(keys, asked):
        raise KeyError("secret")

    monkeypatch.setattr(MESSAGES, "read", fail)
    with pytest.raises(SearchFailed, match=r"^Search failed: what was found could not be read\.$"):
        search(alice)


def test_results_that_are_not_read_in_time_can_be_asked_for_again(alice, monkeypatch, settings):
    def read(keys, asked):
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_sleep(60)")

    settings.HISTORY_TIMEOUT_SECONDS = 3.0
    monkeypatch.setattr(searching, "SECONDS_TO_READ", 0.5)
    monkeypatch.setattr(MESSAGES, "read", read)
    with pytest.raises(Unavailable, match="took longer than the server allows"):
        search(alice)


def test_a_database_that_is_away_stays_what_it_is(alice, monkeypatch):
    def away(asked):
        raise OperationalError("connection refused")

    monkeypatch.setattr(MESSAGES, "find", away)
    with pytest.raises(OperationalError):
        search(alice)


def timeout():
    with connection.cursor() as cursor:
        cursor.execute("SHOW statement_timeout")
        return cursor.fetchone()[0]


def test_the_limit_holds_inside_and_is_gone_afterwards():
    before = timeout()
    with at_most(5):
        assert timeout() != before
    assert timeout() == before
    with pytest.raises(OutOfTime), at_most(0.2), connection.cursor() as cursor:
        cursor.execute("SELECT pg_sleep(60)")
    assert timeout() == before


def test_when_no_time_is_left_nothing_is_asked():
    with pytest.raises(OutOfTime), at_most(0), connection.cursor() as cursor:
        cursor.execute("SELECT 1")


@pytest.mark.django_db(transaction=True)
def test_a_connection_goes_back_without_the_limit():
    before = timeout()
    with at_most(5):
        assert timeout() != before
    assert timeout() == before


@pytest.mark.django_db(transaction=True)
def test_a_connection_that_is_lost_is_a_database_that_is_away(alice, monkeypatch):
    def lose(asked):
        connection.connection.close()
        return SESSIONS.find(asked)

    monkeypatch.setattr(MESSAGES, "find", lose)
    try:
        with pytest.raises(OperationalError):
            search(alice)
    finally:
        connection.close()
