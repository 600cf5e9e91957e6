"""Warns if the database server would write users' text into its own log.

Django sends statements with their values in them, so a logged statement is a logged text. `manage.py check --database
default` reports wrong settings, and a web process reports them when it starts.
"""

import logging
from collections.abc import Sequence
from typing import Any

from django.core import checks
from django.db import connections
from django.db.backends.base.base import BaseDatabaseWrapper

logger = logging.getLogger(__name__)

# By setting: the allowed values, and the value to set. The first four are PostgreSQL's defaults in other words.
SILENT: dict[str, tuple[set[str], str]] = {
    "log_statement": ({"none", "ddl"}, "none"),
    "log_min_duration_statement": ({"-1"}, "-1"),
    "log_min_duration_sample": ({"-1"}, "-1"),
    "log_transaction_sample_rate": ({"0"}, "0"),
    # A failed statement, its values, and the row that a constraint refused.
    "log_min_error_statement": ({"log", "fatal", "panic"}, "panic"),
    "log_parameter_max_length": ({"0"}, "0"),
    "log_parameter_max_length_on_error": ({"0"}, "0"),
    "log_error_verbosity": ({"terse"}, "terse"),
}


@checks.register(checks.Tags.database)
def check_database_logs(databases: Sequence[str] | None = None, **kwargs: Any) -> list[checks.CheckMessage]:
    return [found for alias in databases or () for found in problems(connections[alias])]


def warn_of_texts_in_logs() -> None:
    """Log one line, so that an operator sees it without running the check."""
    for found in problems(connections["default"]):
        logger.warning("%s: %s %s", found.id, found.msg, found.hint)


def problems(connection: BaseDatabaseWrapper) -> list[checks.CheckMessage]:
    with connection.cursor() as cursor:
        cursor.execute("SELECT name, current_setting(name) FROM unnest(%s::text[]) AS name", [[*SILENT]])
        talkative = [name for name, value in cursor.fetchall() if value not in SILENT[name][0]]
        cursor.execute("SELECT current_database()")
        (database,) = cursor.fetchone()
    if not talkative:
        return []
    lines = " ".join(f"ALTER DATABASE {database} SET {name} = '{SILENT[name][1]}';" for name in talkative)
    return [
        checks.Warning(
            f"PostgreSQL may write what people said into its log, by {', '.join(talkative)}.",
            hint=f"As a superuser: {lines} See docs/operations.md.",
            id="core.W006",
        )
    ]
