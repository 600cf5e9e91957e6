"""Checks that a cluster's schema is distributed: otherwise everything runs on the coordinator alone.

Part of `manage.py check --database default`. It reads only catalogues, so it works with the application's role.
"""

from collections.abc import Sequence
from typing import Any

from django.core.checks import CheckMessage, Error, Tags, register
from django.db import connections

from core.isolation.acting import is_cluster
from core.isolation.checks import personal_models
from core.isolation.cluster import placed_tables


@register(Tags.database)
def check_distribution(databases: Sequence[str] | None = None, **kwargs: Any) -> list[CheckMessage]:
    connection = connections["default"]
    if "default" not in (databases or ()) or not is_cluster(connection):
        return []
    existing = set(connection.introspection.table_names())
    distributed = {table for table, method in placed_tables(connection).items() if method == "h"}
    missing = sorted({model._meta.db_table for model in personal_models()} & existing - distributed)
    if not missing:
        return []
    return [
        Error(
            f"The database is a Citus cluster, and {', '.join(missing)} lie on its coordinator alone.",
            hint="Stop the application, run `manage.py distribute`, and start it again. See docs/scale.md.",
            id="core.E006",
        )
    ]
