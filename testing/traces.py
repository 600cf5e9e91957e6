"""Searches for a word in every column of every table, in every session and in every key of the broker."""

from collections.abc import Iterator
from typing import Any

import redis
from django.conf import settings
from django.db import connection
from django.utils.module_loading import import_string

TABLES = """
    SELECT c.oid::regclass::text,
           array_agg(quote_ident(a.attname) ORDER BY a.attnum)
      FROM pg_class c
      JOIN pg_namespace n ON n.oid = c.relnamespace
      JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
     WHERE c.relkind IN ('r', 'p', 'm') AND n.nspname NOT IN ('pg_catalog', 'information_schema', 'pg_toast')
     GROUP BY c.oid
"""


def traces_of(word: str) -> list[str]:
    """The places that contain the word, in any case."""
    return [*_in_tables(word), *_in_sessions(word), *_in_broker(word)]


def rows_naming(column: str, value: Any) -> list[str]:
    """The tables with this value in this column."""
    found = []
    with connection.cursor() as cursor:
        cursor.execute(TABLES)
        for table, columns in cursor.fetchall():
            if column in columns:
                cursor.execute(f"SELECT count(*) FROM {table} WHERE {column}::text = %s", [str(value)])
                if cursor.fetchone()[0]:
                    found.append(table)
    return found


def _in_tables(word: str) -> Iterator[str]:
    with connection.cursor() as cursor:
        cursor.execute(TABLES)
        for table, columns in cursor.fetchall():
            for column in columns:
                # Binary columns show their bytes in hexadecimal.
                text = f"{column}::text"
                cursor.execute(
                    f"SELECT count(*) FROM {table} WHERE {text} ILIKE %s OR {text} ILIKE %s",
                    [f"%{word}%", f"%{word.encode().hex()}%"],
                )
                if cursor.fetchone()[0]:
                    yield f"{table}.{column}"


def _in_sessions(word: str) -> Iterator[str]:
    store = import_string(f"{settings.SESSION_ENGINE}.SessionStore")
    for data in store.get_model_class().objects.values_list("session_data", flat=True):
        if word.lower() in str(store().decode(data)).lower():
            yield "a session's data"


def _in_broker(word: str) -> Iterator[str]:
    requested = word.lower().encode()
    with redis.Redis.from_url(settings.REDIS_URL) as broker:
        for key in broker.scan_iter():
            # DUMP gives any type's value in one piece.
            value = broker.dump(key) or b""
            if requested in key.lower() or requested in value.lower():
                yield f"the broker's {key!r}"
