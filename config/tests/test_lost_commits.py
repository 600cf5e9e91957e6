"""A node of a cluster that is lost while a transaction commits is a database that is away, and not a fault of ours."""

import pytest
from django.db import InternalError, OperationalError, connection

from core.isolation import acting
from intake.tests.factories import a_person

pytestmark = pytest.mark.django_db(transaction=True)

# Fails as Citus does then: with an internal error, at the end of the transaction.
FAILING_AT_THE_END = """
CREATE TEMPORARY TABLE lost (id int);
GRANT ALL ON lost TO PUBLIC;
CREATE FUNCTION pg_temp.lose() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'could not commit transaction for shard 1 on at least one active node' USING ERRCODE = 'XX000';
END $$;
CREATE CONSTRAINT TRIGGER lost AFTER INSERT ON lost DEFERRABLE INITIALLY DEFERRED
    FOR EACH ROW EXECUTE FUNCTION pg_temp.lose()
"""


def test_an_internal_error_of_a_commit_on_a_cluster_is_a_database_that_is_away(monkeypatch):
    alice = a_person()
    with connection.cursor() as cursor:
        cursor.execute(FAILING_AT_THE_END)
        try:
            for is_cluster, raised in ((False, InternalError), (True, OperationalError)):
                with (
                    monkeypatch.context() as patch,
                    pytest.raises(raised, match="could not commit transaction"),
                    acting.acting_as(alice),
                ):
                    cursor.execute("INSERT INTO lost VALUES (1)")
                    patch.setattr(acting, "is_cluster", lambda _, answer=is_cluster: answer)
        finally:
            cursor.execute("DROP TABLE lost")
