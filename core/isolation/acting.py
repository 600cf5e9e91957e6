"""The only access to personal rows: sets, for one transaction, which user is asking.

Row-level security compares each row with that setting in every query. The setting ends with the transaction, so a
connection that returns to the pool carries nothing. Without the setting, personal tables are empty.

Pages, the API, tools, the chat's stream, staff pages and commands use this module once they know their caller.
Asynchronous code calls it inside `sync_to_async`. A stream does not keep it open: no transaction may stay open while it
lasts.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from threading import Lock
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from django.conf import settings
from django.db import (
    DEFAULT_DB_ALIAS,
    InternalError,
    OperationalError,
    connections,
    transaction,
)
from django.db.backends.base.base import BaseDatabaseWrapper

from core import deadlines
from core.errors import InsufficientScope
from core.logs import APPLICATION, request_id
from core.text import gettext_noop, project_label

if TYPE_CHECKING:
    from django.contrib.auth.base_user import AbstractBaseUser


@dataclass(frozen=True, slots=True)
class Caller:
    """The caller, from the session or token: a user's id, or None before one is known.

    `is_visitor`: the user has not registered, so the tools answer that an identity is required. The flag grants no
    access. `bound_to`: the project that the caller's token is bound to; empty for a caller who sees everything.
    """

    user_id: int | None
    is_visitor: bool = False
    bound_to: str = ""

    @property
    def is_registered(self) -> bool:
        return self.user_id is not None and not self.is_visitor


T = TypeVar("T")

OTHER_PROJECT = gettext_noop("This token is bound to another project.")
BOUND_ELSEWHERE = gettext_noop("This token is bound to a project, and this is not about one project.")

# The role of the login, also after SET ROLE.
OWN_ROLE = "none"

# The request's id appears in `pg_stat_activity` and in PostgreSQL's log.
_BECOME = """
SELECT set_config('app.user_id', %(user_id)s, true), set_config('app.project', %(project)s, true),
       set_config('role', %(role)s, true), set_config('application_name', %(name)s, true)
"""
# From PostgreSQL 17 on the server ends a whole transaction at the request's deadline, before that each statement.
# Within a transaction a new limit does not move a timer that runs already, as the role's does: 0 ends that one first.
_UNTIL = ", set_config(%(limit)s, '0', true), set_config(%(limit)s, %(milliseconds)s, true)"
# The codes of `transaction_timeout` and of `idle_in_transaction_session_timeout`.
_OUT_OF_TIME = ("25P04", "25P03")
TRANSACTION_TIMEOUT_SINCE = 170_000
# On a Citus cluster only a complete SET statement reaches the nodes; `set_config` stays on the coordinator.
BECOME_ON_NODES = "SET LOCAL citus.propagate_set_commands = 'local'; SET LOCAL app.user_id = '{user_id}'"
_ON_NODES_TOO = "SET LOCAL citus.propagate_set_commands = 'local'"
_HAS_CITUS = "SELECT EXISTS (SELECT FROM pg_extension WHERE extname = 'citus')"
_WHO = "SELECT current_setting('app.user_id', true), current_setting('role'), current_setting('app.project', true)"


# By database address: Citus is installed once, before the schema.
_clusters: dict[tuple[Any, ...], bool] = {}
_lock = Lock()


class ActingAsAnother(RuntimeError):
    """Code that acts as one user tried to act as another: a bug, stopped before any row is shown."""


PersonalChange = tuple[int, str, Sequence[Any]]
"""A user's id, and one statement, without a semicolon, with its parameters, that changes rows of this user."""


class _Identity(NamedTuple):
    user_id: str = ""
    role: str = OWN_ROLE
    project: str = ""

    def __repr__(self) -> str:
        if self.project:
            return f"user {self.user_id} bound to a project"
        return f"staff ({self.role})" if self.role != OWN_ROLE else f"user {self.user_id or 'unknown'}"


# The project that the caller of this request is bound to. A user or caller that is made from an id alone is bound too.
_binding: ContextVar[str] = ContextVar("binding", default="")


def bind(project: str) -> None:
    """Bind what follows in this context to a project; empty for nothing. A middleware ends it with the request."""
    _binding.set(project)


@contextmanager
def bound_to(project: str) -> Iterator[None]:
    token = _binding.set(project)
    try:
        yield
    finally:
        _binding.reset(token)


def binding_of(who: "AbstractBaseUser | Caller | None") -> str:
    """The project that the caller is bound to; empty for a caller who sees everything."""
    return getattr(who, "bound_to", "") or _binding.get()


def project_for(who: "AbstractBaseUser | Caller", label: str) -> str:
    """The project of what the caller stores or looks for under this label. Raises `InsufficientScope` if the caller is
    bound to another one.
    """
    project = binding_of(who)
    if project and project_label(label) not in ("", project):
        raise InsufficientScope(OTHER_PROJECT)
    return project or label


@contextmanager
def counting() -> Iterator[None]:
    """Within `acting_as` a bound caller: the same user without the binding, for sums alone and never for a text."""
    database = _database()
    present: _Identity | None = getattr(database, "acting", None)
    if present is None or not present.project:
        with bound_to(""):
            yield
        return
    _set_identity(present._replace(role=OWN_ROLE, project=""))
    database.acting, token = present._replace(role=OWN_ROLE, project=""), _binding.set("")
    try:
        yield
    finally:
        _binding.reset(token)
        database.acting = present
        if not database.needs_rollback:
            _set_identity(present)


@contextmanager
def acting_as(who: "AbstractBaseUser | Caller") -> Iterator[None]:
    """A transaction that can see and write only the rows of `who`.

    Inside another `acting_as` of the same caller it is free. Inside one of another user it raises `ActingAsAnother`.
    """
    with _with_identity(_identity(who)):
        yield


def change_for_each(changes: Sequence[PersonalChange]) -> list[int]:
    """Apply the changes of several users in one transaction, each while acting as its own user.

    A single server receives all of them in one message.

    Returns the number of changed rows for each. Must not run within `acting_as`. No user is set at the end.
    """
    database = _database()
    if getattr(database, "acting", None) is not None:
        raise ActingAsAnother(f"Acting as {database.acting}, and asked to act as several.")
    statements: list[tuple[str, Sequence[Any]]] = []
    for user_id, statement, parameters in changes:
        statements += [_set_person(user_id), (statement, parameters)]
    statements.append(_set_person(None))
    # Citus sends the nodes the whole message that a setting stands in: there each statement is a message.
    on_cluster = is_cluster(database)
    messages = [[one] for one in [(_ON_NODES_TOO, ()), *statements]] if on_cluster else [statements]
    counts: list[int] = []
    with node_loss_as_unavailable(database), transaction.atomic(), database.cursor() as cursor:
        for message in messages:
            every = [each for _, its in message for each in its]
            cursor.execute("; ".join(statement for statement, _ in message), every)
            counts.append(cursor.rowcount)
            while cursor.nextset():
                counts.append(cursor.rowcount)
    # A setting has no row count.
    return [count for count in counts if count >= 0]


def _set_person(user_id: int | None) -> tuple[str, Sequence[Any]]:
    return f"SET LOCAL app.user_id = '{'' if user_id is None else int(user_id)}'", ()


@contextmanager
def acting_as_staff() -> Iterator[None]:
    """A transaction of the staff role: it sees everybody's embeddings and their states, but no users' text."""
    with _with_identity(_Identity(role=settings.DATABASE_ROLES.staff)):
        yield


@contextmanager
def _with_identity(identity: _Identity) -> Iterator[None]:
    database = _database()
    present: _Identity | None = getattr(database, "acting", None)
    if present == identity:
        yield
        return
    if present is not None:
        raise ActingAsAnother(f"Acting as {present}, and asked to act as {identity}.")
    is_nested = database.in_atomic_block
    with node_loss_as_unavailable(database), transaction.atomic():
        before = _present() if is_nested else None
        _set_identity(identity)
        database.acting = identity
        try:
            yield
        finally:
            database.acting = None
        # A rollback of the transaction or of a savepoint also reverts the settings. A released savepoint leaves them to
        # the enclosing transaction.
        if before is not None and not database.needs_rollback:
            _set_identity(before)


@contextmanager
def node_loss_as_unavailable(database: BaseDatabaseWrapper) -> Iterator[None]:
    """Report a transaction that the server ended for its time, and a node that a cluster loses, as an unavailable
    database: for the first PostgreSQL, for the second Citus at a commit, raises an internal error instead.
    """
    try:
        yield
    except InternalError as error:
        is_out_of_time = getattr(error.__cause__, "sqlstate", None) in _OUT_OF_TIME
        if not is_out_of_time and not is_cluster(database):
            raise
        raise OperationalError(*error.args) from error


def is_cluster(connection: BaseDatabaseWrapper) -> bool:
    """Whether the connection's database is part of a Citus cluster; queried once per database and process."""
    address = tuple(connection.settings_dict[name] for name in ("HOST", "PORT", "NAME"))
    with _lock:
        known = _clusters.get(address)
    if known is None:
        with connection.cursor() as cursor:
            cursor.execute(_HAS_CITUS)
            known = bool(cursor.fetchone()[0])
        with _lock:
            _clusters[address] = known
    return known


def _identity(who: "AbstractBaseUser | Caller") -> _Identity:
    user_id = who.user_id if isinstance(who, Caller) else who.pk
    project = binding_of(who)
    role = settings.DATABASE_ROLES.bound if project else OWN_ROLE
    return _Identity(user_id="" if user_id is None else str(user_id), role=role, project=project)


def _database() -> Any:
    return connections[DEFAULT_DB_ALIAS]


def _set_identity(identity: _Identity) -> None:
    database = _database()
    statement, left = _BECOME, deadlines.left()
    limit = {}
    if left is not None:
        name = "transaction_timeout" if database.pg_version >= TRANSACTION_TIMEOUT_SINCE else "statement_timeout"
        # 0 would be no limit.
        statement, limit = statement + _UNTIL, {"limit": name, "milliseconds": str(max(1, int(left * 1000)))}
    if is_cluster(database):
        # One message. Only a number or nothing is interpolated, never a user's text.
        on_nodes = BECOME_ON_NODES.format(user_id=int(identity.user_id) if identity.user_id else "")
        statement = f"{on_nodes}; {statement}"
    with database.cursor() as cursor:
        cursor.execute(statement, {**identity._asdict(), "name": f"{APPLICATION} {request_id.get()}".rstrip(), **limit})


def _present() -> _Identity:
    with _database().cursor() as cursor:
        cursor.execute(_WHO)
        user_id, role, project = cursor.fetchone()
    return _Identity(user_id or "", role, project or "")
