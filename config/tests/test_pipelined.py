"""Statements that go to PostgreSQL together: whatever fails, nothing is lost, doubled or left to somebody else."""

import signal

import psycopg
import pytest
from django.db import (
    DatabaseError,
    IntegrityError,
    InterfaceError,
    OperationalError,
    connection,
    connections,
    transaction,
)
from psycopg.pq import TransactionStatus

from config.database.pipelined import PipelinedConnection
from config.database.pool import RecoveringPool
from core.db.statements import ask, fetch, put_off
from core.testing.examiner import as_the_application

pytestmark = pytest.mark.django_db(transaction=True)

WHO_AM_I = "SELECT current_setting('app.user_id', true)"
LARGE = 8_000_000


@pytest.fixture
def table():
    with connection.cursor() as cursor:
        cursor.execute("CREATE TABLE tried (number int UNIQUE)")
        yield
        cursor.execute("DROP TABLE tried")


def kept():
    return [number for (number,) in fetch("SELECT number FROM tried ORDER BY number", {})]


def insert(number, how):
    return how("INSERT INTO tried VALUES (%(number)s) RETURNING number", {"number": number})


def status():
    return connection.connection.info.transaction_status


@pytest.fixture
def batches(monkeypatch):
    """How many statements went to the server at a time."""
    sent = []
    send = PipelinedConnection._send

    def counting(self):
        sent.append(len(self._unsent))
        send(self)

    monkeypatch.setattr(PipelinedConnection, "_send", counting)
    return sent


def test_a_transaction_that_asks_nothing_is_never_begun(batches):
    connection.ensure_connection()
    with transaction.atomic():
        assert status() == TransactionStatus.IDLE
    assert not batches


def test_a_transaction_begins_along_with_its_first_statement_and_ends_with_its_last(table, batches):
    insert(0, fetch), kept()
    batches.clear()
    with transaction.atomic():
        assert insert(1, fetch) == [(1,)]
        assert status() == TransactionStatus.INTRANS
        last = insert(2, put_off)
    assert batches == [2, 2]
    assert last() == [(2,)]
    assert status() == TransactionStatus.IDLE
    assert kept() == [0, 1, 2]


def test_djangos_own_statements_come_after_what_was_put_off(table):
    with transaction.atomic():
        answer = insert(1, put_off)
        with connection.cursor() as cursor:
            cursor.execute("SELECT count(*) FROM tried")
            assert cursor.fetchone() == (1,)
        assert answer() == [(1,)]


def test_statements_are_answered_in_any_order_and_as_often_as_asked(table):
    with transaction.atomic():
        first, second = insert(1, ask), insert(2, ask)
        third = insert(3, put_off)
        assert third() == third() == [(3,)]
        assert (second(), first()) == ([(2,)], [(1,)])


def test_what_was_put_off_fails_the_commit_and_nothing_is_kept(table):
    with pytest.raises(IntegrityError), transaction.atomic():
        insert(1, fetch)
        insert(1, put_off)
    assert status() == TransactionStatus.IDLE
    assert kept() == []


def test_an_error_is_told_to_whoever_waits_first_and_undoes_all(table):
    with pytest.raises(IntegrityError), transaction.atomic():
        insert(1, fetch)
        wrong, right = insert(1, ask), insert(2, ask)
        with pytest.raises(IntegrityError):
            right()
        with pytest.raises(DatabaseError, match="aborted"):
            right()
        wrong()
    assert kept() == []


def test_who_fails_meanwhile_hears_of_their_own_failure_only(table):
    with pytest.raises(ZeroDivisionError), transaction.atomic():
        insert(1, fetch)
        insert(1, ask)
        raise ZeroDivisionError
    assert kept() == []


def test_what_was_put_off_before_a_rollback_is_never_done(table, batches):
    insert(0, fetch)
    batches.clear()
    with pytest.raises(ZeroDivisionError), transaction.atomic():
        answer = insert(1, put_off)
        raise ZeroDivisionError
    assert batches == []
    with pytest.raises(InterfaceError):
        answer()
    assert kept() == [0]


def test_a_savepoint_takes_back_what_was_put_off_within_it(table):
    with transaction.atomic():
        insert(1, put_off)
        with pytest.raises(ZeroDivisionError), transaction.atomic():
            insert(2, put_off)
            raise ZeroDivisionError
        insert(3, put_off)
    assert kept() == [1, 3]


def test_a_statement_that_is_none_takes_the_transactions_beginning_along_nowhere(table):
    with transaction.atomic():
        with pytest.raises(DatabaseError):
            fetch("SELEKT 1", {})
        insert(1, fetch)
        assert status() == TransactionStatus.INTRANS
        transaction.set_rollback(True)
    assert kept() == []


def test_outside_a_transaction_nothing_is_put_off(table):
    insert(1, put_off)
    assert status() == TransactionStatus.IDLE
    assert kept() == [1]


def test_more_than_a_socket_holds_goes_both_ways(table):
    echo = "SELECT %(text)s::text"
    with transaction.atomic():
        answers = [ask(echo, {"text": letter * LARGE}) for letter in "abc"]
        assert [rows == [(letter * LARGE,)] for letter, rows in zip("abc", (one() for one in answers), strict=True)]
        assert insert(1, fetch) == [(1,)]
    assert kept() == [1]


def test_statements_are_planned_each_time_where_plans_may_not_be_kept():
    settings = {**connections.settings["default"], "NAME": connection.settings_dict["NAME"]}
    options = {name: value for name, value in settings["OPTIONS"].items() if name != "pool"}
    unprepared = type(connections["default"])(
        {**settings, "OPTIONS": {**options, "prepare_threshold": None}}, "default"
    )
    connections["default"], usual = unprepared, connections["default"]
    try:
        with transaction.atomic():
            first = ask("SELECT %(number)s::int", {"number": 1})
            second = put_off("SELECT count(*) FROM pg_prepared_statements", {})
        assert (first(), second()) == ([(1,)], [(0,)])
    finally:
        unprepared.close()
        connections["default"] = usual


def test_a_connection_that_is_lost_meanwhile_is_said_to_be():
    fetch("SELECT 1", {})
    # A role may end its own sessions alone.
    with pytest.raises(OperationalError, match=r"terminating|closed"), as_the_application(), transaction.atomic():
        fetch("SELECT pg_terminate_backend(pg_backend_pid())", {})
    connection.close()
    assert fetch("SELECT 1", {}) == [(1,)]


def test_a_statement_is_cancelled_as_any_other():
    with pytest.raises(OperationalError, match="statement timeout"), transaction.atomic():
        fetch("SELECT set_config('statement_timeout', '50', true)", {})
        ask("SELECT pg_sleep(30)", {})()
    assert fetch("SELECT 1", {}) == [(1,)]


def test_who_is_interrupted_leaves_a_connection_that_works():
    def interrupt(*_):
        raise KeyboardInterrupt

    fetch("SELECT 1", {})
    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        with pytest.raises(KeyboardInterrupt), transaction.atomic():
            signal.setitimer(signal.ITIMER_REAL, 0.2)
            fetch("SELECT pg_sleep(30)", {})
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert fetch("SELECT 1", {}) == [(1,)]


def test_who_borrows_a_connection_gets_nothing_that_its_last_user_put_off():
    wrapper = type(connections["default"])(connections.settings["default"], "default")
    the_database = {**wrapper.get_connection_params(), "dbname": connection.settings_dict["NAME"], "autocommit": True}
    with RecoveringPool(kwargs=the_database, open=True, min_size=1, max_size=1) as pool:
        borrowed = pool.getconn()
        borrowed.begin("SELECT set_config('app.user_id', %(user)s, false)", {"user": "1"})
        pool.putconn(borrowed)
        again = pool.getconn()
        assert again is borrowed
        assert again.send(WHO_AM_I, {}).rows() in ([(None,)], [("",)])
        assert again.info.transaction_status == TransactionStatus.IDLE
        pool.putconn(again)


def test_a_transaction_that_cannot_begin_leaves_none_behind():
    fetch("SELECT 1", {})
    raw = connection.connection
    with pytest.raises(psycopg.DataError):
        raw.begin("SELECT set_config('app.visitor_key', %(key)s, true)", {"key": "a NUL: \0"})
    assert raw.send("SELECT 1", {}).rows() == [(1,)]
    assert status() == TransactionStatus.IDLE


def test_a_statement_without_an_answer_says_so():
    fetch("SELECT 1", {})
    raw = connection.connection
    raw.begin()
    failed, after = raw.put_off("SELECT 1 / %(zero)s::int", {"zero": 0}), raw.put_off("SELECT 1", {})
    with pytest.raises(psycopg.errors.DivisionByZero):
        raw.commit()
    raw.rollback()
    with pytest.raises(psycopg.errors.DivisionByZero):
        failed.rows()
    with pytest.raises(psycopg.InterfaceError):
        after.rows()
