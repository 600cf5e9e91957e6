"""The pool of connections when PostgreSQL restarts: nobody is refused once it is back."""

import threading
import time

import pytest
from asgiref.sync import SyncToAsync
from django.db import connection, connections
from psycopg import OperationalError
from psycopg_pool import ConnectionPool

from config.database.pool import TRUSTED_SECONDS, RecoveringPool, _is_silent
from core.testing.examiner import as_the_application
from intake.tests.test_chat_stream import wait_until

pytestmark = pytest.mark.django_db(transaction=True)

SIZE = 16
PATIENCE = 10


def the_database(**others):
    """How the web role logs in to the test database."""
    wrapper = type(connections["default"])(connections.settings["default"], "default")
    return {**wrapper.get_connection_params(), "dbname": connection.settings_dict["NAME"], "autocommit": True, **others}


def a_database_that_leaves():
    """An event, and how to log in: in vain while it is set."""
    is_away, there, nowhere = threading.Event(), the_database(), the_database(port=1)
    return is_away, lambda: nowhere if is_away.is_set() else there


@pytest.fixture
def new_pool():
    pools = []

    def make(kwargs, **options):
        pools.append(RecoveringPool(kwargs=kwargs, open=True, **options))
        return pools[-1]

    yield make
    for pool in pools:
        pool.close()


def cut_everybody_off():
    """What a restart does to sessions."""
    with as_the_application(), connection.cursor() as cursor:
        cursor.execute(
            """
            SELECT count(*) FILTER (WHERE pg_terminate_backend(pid, 5000)) FROM pg_stat_activity
             WHERE datname = current_database() AND usename = session_user AND pid <> pg_backend_pid()
            """
        )
        cut_off = cursor.fetchone()[0]
    # The thread that tests of asynchronous code share keeps its connection from one test to the next.
    SyncToAsync.single_thread_executor.submit(connections.close_all).result()
    return cut_off


def fill(pool):
    """Have it open as many connections as it may, all idle afterwards."""
    borrowed = [pool.getconn() for _ in range(pool.max_size)]
    for one in borrowed:
        pool.putconn(one)


def test_a_pool_full_of_dead_connections_serves_the_first_who_asks(new_pool):
    pool = new_pool(the_database(), min_size=1, max_size=SIZE, timeout=PATIENCE)
    fill(pool)
    assert cut_everybody_off() >= SIZE
    with pool.connection(timeout=3) as borrowed:
        assert borrowed.execute("SELECT 1").fetchone() == (1,)


@pytest.fixture
def asked(monkeypatch):
    """The connections that were asked whether they are alive."""
    connections_asked = []
    ask = RecoveringPool.check_connection

    def asking(one):
        connections_asked.append(one)
        ask(one)

    monkeypatch.setattr(ConnectionPool, "check_connection", staticmethod(asking))
    return connections_asked


def test_a_connection_is_asked_whether_it_lives_once_a_second_at_most(new_pool, asked, monkeypatch):
    pool = new_pool(the_database(), min_size=1, max_size=1, timeout=PATIENCE)
    clock = time.monotonic()
    monkeypatch.setattr("config.database.pool.time.monotonic", lambda: clock)
    for _ in range(3):
        pool.putconn(pool.getconn())
    assert len(asked) == 1
    clock += TRUSTED_SECONDS
    pool.putconn(pool.getconn())
    assert len(asked) == 2


def test_a_connection_that_was_cut_off_a_moment_after_it_answered_is_given_to_nobody(new_pool, asked):
    pool = new_pool(the_database(), min_size=1, max_size=1, timeout=PATIENCE)
    first = pool.getconn()
    pool.putconn(first)
    cut_everybody_off()
    second = pool.getconn()
    assert second is not first
    assert second.execute("SELECT 1").fetchone() == (1,)
    pool.putconn(second)
    assert asked.count(first) == 2


def test_the_connection_that_was_given_back_last_is_given_first(new_pool):
    pool = new_pool(the_database(), min_size=3, max_size=3)
    pool.wait(PATIENCE)
    taken = [pool.getconn() for _ in range(3)]
    for one in taken:
        pool.putconn(one)

    again = [pool.getconn() for _ in range(3)]
    assert again == taken[::-1]
    for one in again:
        pool.putconn(one)


def test_what_a_living_server_says_unasked_costs_no_connection(new_pool, asked):
    pool = new_pool(the_database(), min_size=1, max_size=1, timeout=PATIENCE)
    with pool.connection() as one:
        one.execute("LISTEN news")
        one.commit()
    with as_the_application(), connection.cursor() as cursor:
        cursor.execute("NOTIFY news")
    # It arrives on its own time.
    wait_until(lambda: not _is_silent(one))
    with pool.connection() as again:
        assert again is one
    assert asked == [one, one]
    assert _is_silent(one)


def test_after_a_while_without_a_database_the_pool_is_back_within_a_second_or_two(new_pool):
    """psycopg's own tries after 1, 3 and 7 seconds."""
    is_away, login = a_database_that_leaves()
    pool = new_pool(login, min_size=1, max_size=4, timeout=PATIENCE)
    fill(pool)
    is_away.set()
    cut_everybody_off()
    with pytest.raises(OperationalError, match="couldn't get a connection"):
        pool.getconn(timeout=3.5)
    is_away.clear()
    began = time.monotonic()
    with pool.connection(timeout=3) as borrowed:
        assert borrowed.execute("SELECT 1").fetchone() == (1,)
    assert time.monotonic() - began < 2


def test_whoever_waits_while_the_database_is_away_is_served_when_it_is_back(new_pool):
    is_away, login = a_database_that_leaves()
    is_away.set()
    pool = new_pool(login, min_size=1, max_size=4)
    threading.Timer(2.5, is_away.clear).start()
    with pool.connection(timeout=PATIENCE) as borrowed:
        assert borrowed.execute("SELECT 1").fetchone() == (1,)


def test_a_connection_that_is_given_back_dead_is_replaced(new_pool):
    pool = new_pool(the_database(), min_size=1, max_size=1, timeout=PATIENCE)
    with pytest.raises(OperationalError), pool.connection() as borrowed:
        cut_everybody_off()
        borrowed.execute("SELECT 1")
    with pool.connection(timeout=3) as borrowed:
        assert borrowed.execute("SELECT 1").fetchone() == (1,)


def test_no_request_fails_once_the_database_is_back(visitor):
    """Pages, REST, MCP and the chat all ask through the pool of their process."""
    assert visitor.get("/login/").status_code == 200
    # As many as the pool has, but for those that the test itself and the server may hold.
    at_once = SIZE - 4
    barrier = threading.Barrier(at_once)

    def hold_one():
        try:
            with connection.cursor() as cursor:
                barrier.wait(PATIENCE)
                cursor.execute("SELECT 1")
        finally:
            connections.close_all()

    threads = [threading.Thread(target=hold_one) for _ in range(at_once)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
    assert cut_everybody_off() >= at_once
    events = visitor.events("Still there?")
    assert events[-1].name == "done"
