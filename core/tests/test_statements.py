"""Statements written by hand."""

import pytest
from django.db import DatabaseError, IntegrityError, connection, transaction
from django.db.transaction import TransactionManagementError
from django.test.utils import CaptureQueriesContext

from core.db.statements import fetch
from intake.models import User

pytestmark = pytest.mark.django_db

DOUBLED = "SELECT 2 * %(number)s::int"


def test_a_parameter_is_bound_and_never_part_of_the_statement():
    assert fetch("SELECT %(text)s::text, %(text)s::text", {"text": "'; --"}) == [("'; --", "'; --")]


def test_a_parameter_may_occur_again_and_a_percent_sign_is_written_twice():
    assert fetch("SELECT %(a)s::int %% %(b)s::int, %(a)s::int", {"b": 5, "a": 7, "unused": 0}) == [(2, 7)]


def test_whoever_watches_statements_sees_it_and_may_refuse_it():
    seen = []

    def watch(execute, sql, params, many, context):
        assert context["connection"].connection is connection.connection
        seen.append((sql, params, many))
        return execute(sql, params, many, context)

    def refuse(*_):
        raise PermissionError

    with connection.execute_wrapper(watch):
        assert fetch(DOUBLED, {"number": 4}) == [(8,)]
        with connection.execute_wrapper(refuse), pytest.raises(PermissionError):
            fetch(DOUBLED, {"number": 4})
    # Whoever came first is asked first, as Django has it.
    assert seen == [(DOUBLED, {"number": 4}, False)] * 2


def test_it_is_counted_and_logged_with_its_values():
    with CaptureQueriesContext(connection) as asked:
        assert fetch(DOUBLED, {"number": 21}) == [(42,)]
    assert [query["sql"] for query in asked] == ["SELECT 2 * 21::int"]


def test_its_errors_are_djangos():
    with pytest.raises(DatabaseError), transaction.atomic():
        fetch("SELECT 1 / %(number)s::int", {"number": 0})
    with pytest.raises(IntegrityError), transaction.atomic():
        fetch(f"INSERT INTO {User._meta.db_table} (id) VALUES (%(id)s) RETURNING id", {"id": 1})


def test_a_broken_transaction_is_told_of_before_the_server_is_asked():
    with transaction.atomic():
        transaction.set_rollback(True)
        with pytest.raises(TransactionManagementError):
            fetch(DOUBLED, {"number": 1})
        transaction.set_rollback(False)
