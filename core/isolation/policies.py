"""Migration operations that put a table under row-level security, or grant roles access to a table without owners.

A personal table is one line in a migration: `isolate("table")`. Rights that are not granted are refused, so the
application cannot read a table that was forgotten.
"""

from collections.abc import Sequence

from django.conf import settings
from django.db.migrations.operations import RunSQL

from core.isolation.roles import Roles

# Stable, so an index scan on `user_id` remains possible. Without a subquery, which Citus does not allow in a policy.
USER = "nullif(current_setting('app.user_id', true), '')::bigint"

READ = ("SELECT",)
EVERYTHING = ("SELECT", "INSERT", "UPDATE", "DELETE")

Rights = Sequence[str]


def isolate(table: str, *, web: Rights = EVERYTHING, worker: Rights = (), staff: Rights = ()) -> RunSQL:
    """Force row-level security on a table whose `user_id` names the owner.

    The web role reads and writes (or has the rights in `web` on) only the rows of the user it acts as. The worker and
    staff see every row, with only these rights.
    """
    roles: Roles = settings.DATABASE_ROLES
    policies = [_policy(table, "person", roles.web, f"user_id = {USER}")]
    if worker:
        policies.append(_policy(table, "worker", roles.worker, "true"))
    if staff:
        policies.append(_policy(table, "staff", roles.staff, "true"))
    forward = [
        f"ALTER TABLE {table} ENABLE ROW LEVEL SECURITY",
        f"ALTER TABLE {table} FORCE ROW LEVEL SECURITY",
        *policies,
        *_grants(table, roles, web=web, worker=worker, staff=staff),
    ]
    names = ("person", "worker", "staff")
    backward = [
        *(f"DROP POLICY IF EXISTS {name} ON {table}" for name in names),
        f"ALTER TABLE {table} NO FORCE ROW LEVEL SECURITY",
        f"ALTER TABLE {table} DISABLE ROW LEVEL SECURITY",
        _revoke(table, roles),
    ]
    return _operation(forward, backward)


def grant(table: str, *, web: Rights = (), worker: Rights = (), staff: Rights = ()) -> RunSQL:
    """Grant rights to each role on a table without owners, or on one that is read before the caller is known."""
    roles: Roles = settings.DATABASE_ROLES
    return _operation(_grants(table, roles, web=web, worker=worker, staff=staff), [_revoke(table, roles)])


def _operation(forward: Sequence[str], backward: Sequence[str]) -> RunSQL:
    return RunSQL([*forward], [*backward])


def _policy(table: str, name: str, role: str, condition: str) -> str:
    return f"CREATE POLICY {name} ON {table} TO {role} USING ({condition}) WITH CHECK ({condition})"


def _grants(table: str, roles: Roles, *, web: Rights, worker: Rights, staff: Rights) -> list[str]:
    requested = ((roles.web, web), (roles.worker, worker), (roles.staff, staff))
    return [f"GRANT {', '.join(rights)} ON {table} TO {role}" for role, rights in requested if rights]


def _revoke(table: str, roles: Roles) -> str:
    return f"REVOKE ALL ON {table} FROM {', '.join(roles.all)}"
