"""Checks before a process serves: the database refuses rows of other users.

`manage.py check --database default` runs the same checks. They read the database's catalogue, not the migrations: a
migration that once ran does not prove the present state.
"""

from collections.abc import Iterator, Sequence
from typing import Any

from django.apps import apps
from django.conf import settings
from django.contrib.auth import get_user_model
from django.core import checks
from django.core.exceptions import ImproperlyConfigured
from django.db import connections, models
from django.db.backends.base.base import BaseDatabaseWrapper

DOCUMENTED = "See docs/isolation.md."

# A role with the owner's rights can switch the policies off.
_OWNED = """
    SELECT relname FROM pg_class
     WHERE oid = ANY(SELECT to_regclass(name) FROM unnest(%s::text[]) AS name) AND pg_has_role(relowner, 'USAGE')
     ORDER BY relname
"""
_GUARDED = """
    SELECT relname FROM pg_class
     WHERE oid = ANY(SELECT to_regclass(name) FROM unnest(%s::text[]) AS name)
       AND relrowsecurity AND relforcerowsecurity
       AND EXISTS (SELECT FROM pg_policy WHERE polrelid = pg_class.oid AND %s = ANY(polroles::regrole[]::text[]))
"""


@checks.register(checks.Tags.database)
def check_isolation(databases: Sequence[str] | None = None, **kwargs: Any) -> list[checks.CheckMessage]:
    """Run by `manage.py check --database default`; accepts either of the application's roles."""
    roles = settings.DATABASE_ROLES
    return [
        found for alias in databases or () for found in problems(connections[alias], roles=(roles.web, roles.worker))
    ]


def refuse_unless_isolated(role: str) -> None:
    """Raise `ImproperlyConfigured`, with a line per reason, unless the process logs in as `role`, the role is harmless,
    and every personal table is guarded: the process could show rows of other users.
    """
    found = problems(connections["default"], roles=(role,))
    if found:
        raise ImproperlyConfigured("\n".join(f"{one.id}: {one.msg} {one.hint}" for one in found))


def problems(connection: BaseDatabaseWrapper, *, roles: Sequence[str]) -> list[checks.CheckMessage]:
    with connection.cursor() as cursor:
        cursor.execute("SELECT current_user, rolsuper OR rolbypassrls FROM pg_roles WHERE rolname = current_user")
        name, is_mighty = cursor.fetchone()
        tables = [model._meta.db_table for model in personal_models()]
        cursor.execute(_OWNED, [tables])
        owned = [table for (table,) in cursor.fetchall()]
        cursor.execute(_GUARDED, [tables, settings.DATABASE_ROLES.web])
        unguarded = sorted(set(tables) - {table for (table,) in cursor.fetchall()})
    return list(_sentences(name, roles, is_mighty=is_mighty, owned=owned, unguarded=unguarded))


def personal_models() -> Iterator[type[models.Model]]:
    """Every model that refers to a user, except those for which `settings.NOT_PERSONAL` gives a reason."""
    user = get_user_model()
    for model in apps.get_models():
        refers = any(field.is_relation and field.related_model is user for field in model._meta.concrete_fields)
        if refers and model._meta.managed and model._meta.label not in settings.NOT_PERSONAL:
            yield model


def _sentences(
    name: str, roles: Sequence[str], *, is_mighty: bool, owned: Sequence[str], unguarded: Sequence[str]
) -> Iterator[checks.Error]:
    if is_mighty:
        yield checks.Error(
            f"The database role {name} is a superuser or passes over row-level security.",
            hint=f"Run `manage.py create_roles` and put {roles[0]} into DATABASE_URL. {DOCUMENTED}",
            id="core.E001",
        )
    if owned:
        yield checks.Error(
            f"The database role {name} owns {', '.join(owned)}, so it could switch row-level security off.",
            hint=f"Put {roles[0]} into DATABASE_URL, and the owner into DATABASE_OWNER_URL alone. {DOCUMENTED}",
            id="core.E002",
        )
    if unguarded:
        yield checks.Error(
            f"No forced row-level security guards {', '.join(unguarded)}.",
            hint="Run `manage.py migrate`; for a new table, add `isolate(…)` to its migration. "
            f"A table without owners is named in NOT_PERSONAL. {DOCUMENTED}",
            id="core.E003",
        )
    if name not in roles and not is_mighty and not owned:
        yield checks.Error(
            f"The database role is {name}, and the policies know {' and '.join(roles)}.",
            hint=f"Put {roles[0]} into DATABASE_URL, or its prefix into DATABASE_ROLE_PREFIX. {DOCUMENTED}",
            id="core.E004",
        )
