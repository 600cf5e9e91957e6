"""The only way to rows that belong to somebody: for one transaction the database is told who is asking.

Row-level security compares each row with what is set here, whatever a query says. The settings are the transaction's:
they are gone when it ends, and a connection that goes back to the pool carries nothing. Where nobody is set, personal
tables are empty.

Every edge comes in through here once it knows its caller: pages, the API, tools, the chat's stream, staff's pages,
commands. Asynchronous code calls it inside `sync_to_async`. It is not for streams: nothing may stay open meanwhile.
"""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, NamedTuple

from django.conf import settings
from django.contrib.auth.base_user import AbstractBaseUser
from django.db import DEFAULT_DB_ALIAS, connections, transaction

from core.db.statements import fetch
from core.isolation.caller import Caller

# The role that logged in, whatever another has been taken on before.
OWN_ROLE = "none"

_BECOME = """
SELECT set_config('app.user_id', %(user_id)s, true), set_config('role', %(role)s, true)
"""
_WHO = "SELECT current_setting('app.user_id', true), current_setting('role')"


class ActingAsAnother(RuntimeError):
    """One person's work led to another's: a fault of the program, stopped before it shows anybody anything."""


class _Identity(NamedTuple):
    user_id: str = ""
    role: str = OWN_ROLE

    def __repr__(self) -> str:
        return f"staff ({self.role})" if self.role != OWN_ROLE else f"user {self.user_id or 'unknown'}"


@contextmanager
def acting_as(who: AbstractBaseUser | Caller) -> Iterator[None]:
    """A transaction in which the rows of `who`, and no others, can be seen and written.

    Within another `acting_as` of the same caller it costs nothing; within one of somebody else it raises
    `ActingAsAnother`.
    """
    caller = who if isinstance(who, Caller) else Caller(user_id=who.pk)
    user_id = "" if caller.user_id is None else str(caller.user_id)
    with _being(_Identity(user_id=user_id)):
        yield


@contextmanager
def acting_as_staff() -> Iterator[None]:
    """A transaction that sees everybody's embeddings from outside, and no table with a word of what anybody said."""
    with _being(_Identity(role=settings.DATABASE_ROLES.staff)):
        yield


@contextmanager
def _being(identity: _Identity) -> Iterator[None]:
    database = _database()
    present: _Identity | None = getattr(database, "acting", None)
    if present == identity:
        yield
        return
    if present is not None:
        raise ActingAsAnother(f"Acting as {present}, and asked to act as {identity}.")
    is_nested = database.in_atomic_block
    with transaction.atomic() if is_nested else _begun_as(identity):
        before = _present() if is_nested else None
        if is_nested:
            _become(identity)
        database.acting = identity
        try:
            yield
        finally:
            database.acting = None
        # A transaction that ends takes the settings along, and so does a savepoint that is rolled back; one that is
        # released leaves them to the transaction around it.
        if before is not None and not database.needs_rollback:
            _become(before)


@contextmanager
def _begun_as(identity: _Identity) -> Iterator[None]:
    """A transaction that is told as it begins: see `config.database`."""
    database = _database()
    database.ensure_connection()
    with ExitStack() as beginning:
        database.opening = _BECOME, identity._asdict()
        try:
            beginning.enter_context(transaction.atomic())
        finally:
            # Never left to another one's.
            database.opening = None
        yield


def _database() -> Any:
    """This thread's; what `django.db.connection` is, is worked out whenever it is asked for anything."""
    return connections[DEFAULT_DB_ALIAS]


def _become(identity: _Identity) -> None:
    fetch(_BECOME, identity._asdict())


def _present() -> _Identity:
    ((user_id, role),) = fetch(_WHO, {})
    return _Identity(user_id or "", role)
