"""What PostgreSQL makes of a statement, as the code under test sends it."""

from contextlib import contextmanager

from django.db import connection


@contextmanager
def plans(beginning):
    """Within the block every statement that begins so is explained too; gives the list of the plans, each a text."""
    explained = []

    def explain(execute, sql, params, many, context):
        if sql.strip().startswith(beginning):
            with connection.connection.cursor() as cursor:
                cursor.execute(f"EXPLAIN (ANALYZE, COSTS OFF) {sql}", params)
                explained.append("\n".join(line for (line,) in cursor.fetchall()))
        return execute(sql, params, many, context)

    with connection.execute_wrapper(explain):
        yield explained
