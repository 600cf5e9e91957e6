"""Inserts many rows with one statement."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from django.db import (
    connection,
    models,
)

if TYPE_CHECKING:
    pass
from core.isolation.acting import is_cluster

# An array for each column: so the statement is as short for a thousand rows as for one. Django's `bulk_create` writes a
# placeholder for each value of a model with JSON or bytes, which takes longer than the insertion itself. Source:
# PostgreSQL's documentation of `unnest` with several arrays.


InsertedRow = TypeVar("InsertedRow", bound=models.Model)


def insert_many(rows: Sequence[InsertedRow], *, ignore_conflicts: bool = False) -> None:
    """Insert unsaved rows of one model and set their keys. Sends no signal, like `bulk_create`.

    `ignore_conflicts` skips rows that exist already and sets no key on them.
    """
    if not rows:
        return
    model = type(rows[0])
    key = model._meta.pk
    fields = [
        field
        for field in model._meta.concrete_fields
        if not (isinstance(field, models.AutoField) and field is key) and not field.generated
    ]
    quote = connection.ops.quote_name
    columns = ", ".join(quote(str(field.column)) for field in fields)
    # Without a length: a cast to one would silently truncate the text.
    arrays = ", ".join(f"%s::{str(field.db_type(connection)).partition('(')[0]}[]" for field in fields)
    values = [[field.get_db_prep_save(field.pre_save(row, True), connection) for row in rows] for field in fields]
    returning = "ON CONFLICT DO NOTHING" if ignore_conflicts else f"RETURNING {quote(str(key.column))}"
    if is_cluster(connection):
        names = [str(field.column) for field in fields]
        keys = insert_values(model._meta.db_table, names, list(zip(*values, strict=True)), ending=returning)
    else:
        into = f"INSERT INTO {quote(model._meta.db_table)} ({columns})"
        with connection.cursor() as cursor:
            cursor.execute(f"{into} SELECT * FROM unnest({arrays}) {returning}", values)  # noqa: S608 - names of our own models
            keys = [] if ignore_conflicts else cursor.fetchall()
    if not ignore_conflicts:
        for row, (pk,) in zip(rows, keys, strict=True):
            row.pk = pk


def insert_values(
    table: str, columns: Sequence[str], rows: Sequence[Sequence[Any]], *, ending: str = ""
) -> list[tuple[Any, ...]]:
    """Insert rows of one user in the form that a Citus cluster runs on one node; returns the result of `ending`.

    Citus would send rows that come from a query by COPY, which PostgreSQL does not allow under row-level security.
    """
    quote = connection.ops.quote_name
    row = f"({', '.join(['%s'] * len(columns))})"
    into = f"INSERT INTO {quote(table)} ({', '.join(map(quote, columns))})"
    answers: list[tuple[Any, ...]] = []
    with connection.cursor() as cursor:
        # PostgreSQL's protocol counts the parameters of a statement in two bytes.
        most = 65_535 // len(columns)
        for some in (rows[start : start + most] for start in range(0, len(rows), most)):
            values = ", ".join([row] * len(some))
            cursor.execute(f"{into} VALUES {values} {ending}", [value for row in some for value in row])
            answers += cursor.fetchall() if "RETURNING" in ending else []
    return answers
