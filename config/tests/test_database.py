"""Django's own pool of connections, with this project's settings, when PostgreSQL restarts."""

import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import pytest
from asgiref.sync import SyncToAsync
from django.conf import settings
from django.db import connection, connections
from psycopg_pool import ConnectionPool, PoolTimeout

from testing.examiner import as_the_application

pytestmark = pytest.mark.django_db(transaction=True)

SECONDS = 10


@pytest.fixture
def new_pool():
    """A pool as Django makes it, for a database that may be away: `login` gives the parameters of each attempt."""
    pools = []
    wrapper = type(connections["default"])(connections.settings["default"], "default")
    there = {**wrapper.get_connection_params(), "dbname": connection.settings_dict["NAME"], "autocommit": True}

    def make(*, is_away=lambda: False):
        options = settings.DATABASES["default"]["OPTIONS"]["pool"] | {"max_size": 4}
        check = ConnectionPool.check_connection
        pool = ConnectionPool(
            kwargs=lambda: {**there, "port": 1} if is_away() else there, open=True, check=check, **options
        )
        pools.append(pool)
        return pool

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


def fill_the_pool(count):
    """
    Opens so many connections in a new pool of this process, which the served application uses too: in a thread, since
    the tests' own connection is of no pool. The one before may lack those of threads that ended with their tests.
    """

    def fill():
        connection.close_pool()
        connection.pool.open()
        with ExitStack() as held:
            for _ in range(count):
                held.enter_context(connection.pool.connection(timeout=60))

    with ThreadPoolExecutor() as threads:
        threads.submit(fill).result()


def test_a_request_after_a_restart_is_given_a_live_connection(new_pool):
    pool = new_pool()
    with pool.connection() as first, pool.connection() as second:
        first.execute("SELECT 1")
        second.execute("SELECT 1")
    assert cut_everybody_off() >= 2
    with pool.connection() as borrowed:
        assert borrowed.execute("SELECT 1").fetchone() == (1,)


def test_a_request_that_waits_while_the_database_is_away_is_served_when_it_is_back(new_pool):
    away = threading.Event()
    away.set()
    pool = new_pool(is_away=away.is_set)
    threading.Timer(1.5, away.clear).start()
    with pool.connection(timeout=SECONDS) as borrowed:
        assert borrowed.execute("SELECT 1").fetchone() == (1,)


def test_a_request_that_waits_in_vain_is_refused_and_the_next_is_served(new_pool):
    away = threading.Event()
    pool = new_pool(is_away=away.is_set)
    pool.wait(SECONDS)
    away.set()
    cut_everybody_off()
    with pytest.raises(PoolTimeout):
        pool.getconn(timeout=2.5)
    away.clear()
    with pool.connection(timeout=SECONDS) as borrowed:
        assert borrowed.execute("SELECT 1").fetchone() == (1,)


def test_the_first_request_after_a_restart_is_served_at_once(visitor):
    fill_the_pool(12)
    # One asks, and a busy machine may not see the end of another within five seconds.
    assert cut_everybody_off() >= 8
    events = visitor.events("Still there?")
    assert events[-1].name == "done"
