"""Plans the distribution of tables on a cluster: personal tables by their user, all others on every node."""

from dataclasses import dataclass

from django.db import connection

from core.isolation.checks import personal_models

OWNER_COLUMN = "user_id"

_REFERENCES = """
SELECT conrelid::regclass::text, confrelid::regclass::text
  FROM pg_constraint WHERE contype = 'f' AND connamespace = 'public'::regnamespace AND conparentid = 0
"""


@dataclass(frozen=True, slots=True)
class TablePlan:
    """Tables by name, sorted: `personal` are distributed by `user_id`, `shared` have a copy on every node."""

    personal: tuple[str, ...]
    shared: tuple[str, ...]

    @property
    def tables(self) -> list[str]:
        return [*self.shared, *self.personal]


def plan_tables() -> TablePlan:
    """Plan the tables of the database. A table that refers to a personal table is placed beside it, with or without
    row-level security, because a table on every node cannot refer to a distributed one.
    """
    existing = set(connection.introspection.django_table_names(only_existing=True, include_views=False))
    existing |= {"django_migrations"} & set(connection.introspection.table_names())
    personal = {model._meta.db_table for model in personal_models()} & existing
    with connection.cursor() as cursor:
        cursor.execute(_REFERENCES)
        references = [pair for pair in cursor.fetchall() if existing.issuperset(pair)]
    while beside := {table for table, other in references if other in personal} - personal:
        personal |= beside
    return TablePlan(tuple(sorted(personal)), tuple(sorted(existing - personal)))
