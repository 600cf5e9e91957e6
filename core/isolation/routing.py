"""Which person a connection's statements are about, so that a cluster can tell from each on which node it runs.

Acting as somebody says so for everything within (core/isolation/acting.py). A worker, which acts as nobody, says it
with `about` where it works on one person's rows. It opens no row: that is the policies'.
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

# No person has this number. A caller who is nobody sees no row on any node, and one is enough to ask, or to lock on.
NOBODY = 0

AnyRows = TypeVar("AnyRows", bound="QuerySet[Any, Any]")


@contextmanager
def about(user_id: int | None) -> Iterator[None]:
    """Within the block every query of the ORM on personal tables is for this person's rows, on a cluster."""
    database: Any = connections[DEFAULT_DB_ALIAS]
    before = getattr(database, "about_user", None)
    database.about_user = user_id
    try:
        yield
    finally:
        database.about_user = before


def routed_to(connection: BaseDatabaseWrapper) -> int | None:
    """The one person whose rows the connection's statements are about; None where that is not known or no cluster."""
    acting = getattr(connection, "acting", None)
    user_id: int | None = getattr(connection, "about_user", None)
    if acting is not None and acting.role == OWN_ROLE:
        user_id = int(acting.user_id or NOBODY)
    return user_id if user_id is not None and is_cluster(connection) else None


def by_owner(rows: AnyRows) -> Iterator[AnyRows]:
    """The rows as they are; on a cluster, where they may be several people's, those of one after the other.

    A lock is taken on one node: a caller that locks rows of many begins here.
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
    """By its table: the field of each personal model that names the owner."""
    return {model._meta.db_table: model._meta.get_field("user") for model in personal_models()}  # type: ignore[misc]
