"""Adds the user to a connection's statements, so that a cluster can route each statement to one node.

`acting_as` sets it for everything within (core/isolation/acting.py). A worker acts as no user and sets it with `about`
when it works on one user's rows. It grants no access: the policies do.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any, TypeVar

from django.db import DEFAULT_DB_ALIAS, connections
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.models import Field, QuerySet

from core.isolation.acting import OWN_ROLE, is_cluster
from core.isolation.checks import personal_models

# No user has this number. A caller without a user sees no row on any node, so one node is enough to query or lock.
NOBODY = 0

AnyRows = TypeVar("AnyRows", bound="QuerySet[Any, Any]")


@contextmanager
def about(user_id: int | None) -> Iterator[None]:
    """Within the block, on a cluster, every ORM query on personal tables is restricted to this user's rows."""
    database: Any = connections[DEFAULT_DB_ALIAS]
    before = getattr(database, "about_user", None)
    database.about_user = user_id
    try:
        yield
    finally:
        database.about_user = before


def routed_to(connection: BaseDatabaseWrapper) -> int | None:
    """The user whose rows the connection's statements are about; None if unknown, or without a cluster."""
    acting = getattr(connection, "acting", None)
    user_id: int | None = getattr(connection, "about_user", None)
    if acting is not None and acting.role == OWN_ROLE:
        user_id = int(acting.user_id or NOBODY)
    return user_id if user_id is not None and is_cluster(connection) else None


def by_owner(rows: AnyRows) -> Iterator[AnyRows]:
    """Return the rows unchanged; on a cluster, where rows of several users are possible, user by user.

    A lock is taken on one node, so a caller that locks rows of many users starts here.
    """
    if not is_cluster(connections[rows.db]) or routed_to(connections[rows.db]) is not None:
        yield rows
        return
    owners = rows.order_by("user_id").values_list("user_id", flat=True).distinct()
    for user_id in list(owners):
        with about(user_id):
            yield rows.filter(user_id=user_id)


@cache
def owner_fields() -> dict[str, "Field[Any, Any]"]:
    """For each personal model, by table: the field that names the owner."""
    return {model._meta.db_table: model._meta.get_field("user") for model in personal_models()}  # type: ignore[misc]
