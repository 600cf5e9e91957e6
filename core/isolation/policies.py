"""Migration operations that put a table under row-level security, or grant roles access to a table without owners.

A personal table is one line in a migration: `isolate("table")`. Rights that are not granted are refused, so the
application cannot read a table that was forgotten.
"""

import hashlib
from collections.abc import Iterator, Sequence
from typing import Any

from django.conf import settings
from django.db import connection
from django.db.migrations.operations import RunSQL

from core.isolation.acting import is_cluster
from core.isolation.checks import personal_models
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


# A table that is not named here shows such a caller nothing. Everybody else acts as the web role, whose policies stay
# one equality: they cost nothing more. `manage.py migrate` applies these, on servers that have the role. A Citus
# cluster allows no subquery in a policy, so it has none.

PROJECT = "nullif(current_setting('app.project', true), '')"
_MINE = f"user_id = {USER}"
_CHATS = f"SELECT id FROM intake_conversations WHERE {_MINE} AND project = {PROJECT}"  # noqa: S608 - only constants
# The policies of these tables leave in them what is of the project.
_TURNS = f"SELECT id FROM intake_conversation_turns WHERE {_MINE}"  # noqa: S608 - only constants
_FILES = f"SELECT id FROM attachments WHERE {_MINE}"  # noqa: S608 - only constants
_CONTENTS = f"SELECT sha256 FROM attachments WHERE {_MINE}"  # noqa: S608 - only constants
_DOCUMENTS = f"SELECT id FROM memory_documents WHERE {_MINE}"  # noqa: S608 - only constants
_SOURCES = " UNION ALL ".join(
    f"SELECT id FROM {table} WHERE {_MINE}"  # noqa: S608 - only constants
    for table in ("intake_conversations", "attachments", "memory_records", "memory_documents")
)
_ADD, _WRITE = ("SELECT", "INSERT"), ("SELECT", "INSERT", "UPDATE")

# By table: which rows, and the rights on them. Nothing is deleted but what a write replaces: a deletion also looks for
# quotes and shared files, which may be in other projects.
BOUND: dict[str, tuple[str, Rights]] = {
    "intake_conversations": (f"{_MINE} AND project = {PROJECT}", _WRITE),
    "intake_conversation_turns": (f"{_MINE} AND conversation_id IN ({_CHATS})", _WRITE),
    "attachments": (f"{_MINE} AND conversation_id IN ({_CHATS})", READ),
    "attachment_pieces": (f"{_MINE} AND sha256 IN ({_CONTENTS})", READ),
    "attachment_texts": (f"{_MINE} AND attachment_id IN ({_FILES})", READ),
    "memory_records": (f"{_MINE} AND project_id = {PROJECT}", _WRITE),
    "memory_proposals": (f"{_MINE} AND project_id = {PROJECT}", _WRITE),
    "memory_documents": (f"{_MINE} AND project = {PROJECT}", _WRITE),
    "memory_document_versions": (f"{_MINE} AND document_id IN ({_DOCUMENTS})", EVERYTHING),
    "intake_projects": (f"{_MINE} AND name = {PROJECT}", READ),
    # The key of a bound caller's request begins so: `intake.chats.idempotency`.
    "intake_idempotent_answers": (f"{_MINE} AND starts_with(key, 'bound ' || md5({PROJECT}) || ' ')", EVERYTHING),
    "intake_activity": (_MINE, _ADD),
    # Digests with the token in them: another token finds none.
    "intake_known_answers": (_MINE, _ADD),
    # A message into a chat of the project closes a turn that waits there.
    "intake_paused_turns": (f"{_MINE} AND turn_id IN ({_TURNS})", ("SELECT", "DELETE")),
    # What says that a session's turn is here: ids and digests, which no endpoint shows a bound caller.
    "imports": (_MINE, EVERYTHING),
    "import_entries": (f"{_MINE} AND conversation_id IN ({_CHATS})", _WRITE),
    "imported_items": (_MINE, EVERYTHING),
    "indexed_texts": (f"{_MINE} AND source_id IN ({_SOURCES})", EVERYTHING),
    "embeddings": (f"{_MINE} AND source_id IN ({_SOURCES})", EVERYTHING),
    # Stems and numbers without a source: what they lead to is one of the two tables above. How rare a word is counts
    # over all of the user's texts.
    **dict.fromkeys(("pending_terms", "term_segments", "term_blocks", "deleted_texts"), (_MINE, EVERYTHING)),
    "memory_maps": (_MINE, _WRITE),
    # A writer locks the user's row, which takes the right to change a column.
    "users": (f"id = {USER}", ("SELECT", "UPDATE (retention_due_at)")),
}
# Tables without owners that a request reads while it acts as its caller.
BOUND_READS = ("embedding_models", "installation_settings", "django_content_type")
_HAS_ROLE = "SELECT EXISTS (SELECT FROM pg_roles WHERE rolname = %s)"
_HAS_POLICIES = """
SELECT EXISTS (SELECT FROM pg_policy WHERE polrelid = to_regclass('intake_conversations') AND polname = 'bound')
"""
_APPLIED = """
SELECT NOT EXISTS (
         SELECT FROM unnest(%(bound)s::text[]) AS bound (name)
          WHERE NOT EXISTS (
                SELECT FROM pg_policy
                 WHERE polrelid = to_regclass(name) AND polname = 'bound'
                   AND obj_description(oid, 'pg_policy') = %(version)s))
   AND (SELECT bool_and(has_table_privilege(%(role)s, name, 'SELECT')) FROM unnest(%(read)s::text[]) AS read (name))
"""


def can_bind() -> bool:
    """Whether this database keeps bound callers to their project."""
    with connection.cursor() as cursor:
        cursor.execute(_HAS_POLICIES)
        return bool(cursor.fetchone()[0])


def apply_bound_policies() -> None:
    """Give the role of bound callers its policies and rights, as the owner of the tables; twice changes nothing."""
    roles: Roles = settings.DATABASE_ROLES
    if is_cluster(connection):
        return
    statements = list(_bound_statements(roles.bound))
    version = hashlib.sha256("".join(statements).encode()).hexdigest()[:16]
    # At each table: one that a migration was undone for, and made anew, has lost its policy and its rights.
    statements += [f"COMMENT ON POLICY bound ON {table} IS '{version}'" for table in BOUND]
    personal = [model._meta.db_table for model in personal_models()]
    names: dict[str, Any] = {
        "bound": [*BOUND],
        "read": [*personal, *BOUND_READS],
        "role": roles.bound,
        "version": version,
    }
    with connection.cursor() as cursor:
        cursor.execute(_HAS_ROLE, [roles.bound])
        if not cursor.fetchone()[0]:
            return
        cursor.execute(_APPLIED, names)
        if not cursor.fetchone()[0]:
            # In one message, and so in one transaction.
            cursor.execute("; ".join(statements))


def _bound_statements(role: str) -> Iterator[str]:
    for model in personal_models():
        table = model._meta.db_table
        yield f"REVOKE ALL ON {table} FROM {role}"
        # Without a policy it shows nothing.
        yield f"GRANT SELECT ON {table} TO {role}"
    for table in BOUND_READS:
        yield f"GRANT SELECT ON {table} TO {role}"
    for table, (condition, rights) in BOUND.items():
        yield f"DROP POLICY IF EXISTS bound ON {table}"
        yield _policy(table, "bound", role, condition)
        yield f"GRANT {', '.join(rights)} ON {table} TO {role}"
