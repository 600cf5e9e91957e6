"""Compares a backup with this product: rows and a hash per table, settings, the secret key, one search per user."""

import hashlib
import hmac
import secrets
from collections.abc import Iterator
from typing import Any

from allauth.mfa.models import Authenticator
from django.conf import settings
from django.db import connection
from psycopg import sql

from config.ops import backup
from config.ops.backup_file import SCRYPT
from core.isolation.acting import acting_as
from core.isolation.fitting import applied_migrations, tables_found
from intake.accounts.adapters import is_readable
from intake.models import Turn, User
from memory.search.chat_history import SearchMode, search_chat_history

# Makes the text of every value the same on all servers: times, floats, intervals and bytes.
_ONE_WAY_OF_WRITING = """
SET LOCAL TimeZone = 'UTC'; SET LOCAL DateStyle = 'ISO, MDY'; SET LOCAL IntervalStyle = 'postgres';
SET LOCAL extra_float_digits = 1; SET LOCAL bytea_output = 'hex'
"""
_TABLES = """
SELECT relname FROM pg_class
 WHERE relnamespace = 'public'::regnamespace AND relkind IN ('r', 'p') AND NOT relispartition
 ORDER BY relname
"""
# A sum does not depend on the order of the rows.
_COUNT = "SELECT count(*), coalesce(sum(hashtextextended(item::text, 0)::numeric), 0)::text FROM {} AS item"

# Filled by migrations and for each version anew.
OF_THE_VERSION = ("django_migrations", "django_content_type", "auth_permission")
# Workers change these while the product runs, and no row of a person is in them alone. A search of each user follows.
PACKED = ("embeddings", "pending_terms", "term_blocks", "term_segments")
# A table of version 1.0, which stays, empty, until all vectors have their bits.
RETIRED = "embedding_blocks"
# Settings that must be equal for a restored product to answer alike. No secrets.
SETTINGS = ("TEXT_SEARCH_CONFIG", "HISTORY_DECAY_RATE", "HISTORY_WEIGHTS")


def tables() -> dict[str, dict[str, Any]]:
    """Of every table the number of its `rows`, and as `hash` the sum of their hashes, equal only for equal rows in any
    order; as this transaction sees it. The connection's role must pass row-level security.
    """
    with connection.cursor() as cursor:
        cursor.execute(_ONE_WAY_OF_WRITING)
        cursor.execute(_TABLES)
        names = [str(name) for (name,) in cursor.fetchall()]
        found = {}
        for name in names:
            cursor.execute(sql.SQL(_COUNT).format(sql.Identifier(name)))
            found[name] = dict(zip(("rows", "hash"), cursor.fetchone(), strict=True))
    return found


def kept_settings() -> dict[str, Any]:
    return {name: getattr(settings, name) for name in SETTINGS}


def differences(manifest: dict[str, Any], *, was_just_restored: bool = False) -> Iterator[str]:
    """A sentence for each table of this product that differs from the backup.

    A product of another version has other columns in some tables, and lists of its own of what a version consists of:
    such tables are compared by their number of rows, if at all, unless the backup `was_just_restored` as it is. The
    index is compared as it is then, too: later its workers have packed it in another way.
    """
    requested: dict[str, dict[str, Any]] = manifest["tables"]
    with backup.reading_everything():
        found = tables()
        changed = set() if was_just_restored else _changed_tables(manifest)
        is_other_version = not was_just_restored and manifest.get("migrations") != applied_migrations()
    for name in sorted(requested.keys() | found.keys()):
        before, now = requested.get(name), found.get(name)
        if name == RETIRED and not was_just_restored:
            continue
        if is_other_version and (name in OF_THE_VERSION or before is None or now is None):
            continue
        if before is None or now is None:
            yield f"{name}: only in the {'product' if before is None else 'backup'}."
        elif name in PACKED and not was_just_restored and (name != "embeddings" or before["rows"] == now["rows"]):
            continue
        elif before["rows"] != now["rows"]:
            yield f"{name}: {before['rows']:,} rows in the backup, {now['rows']:,} in the product."
        elif before["hash"] != now["hash"] and name not in changed:
            yield f"{name}: as many rows ({now['rows']:,}) with other contents."


def changed_settings(manifest: dict[str, Any]) -> Iterator[str]:
    """A sentence for each setting with which this product answers in another way than the backup's.

    A part that the backup's version did not have, such as the weight of a new source, is no difference.
    """
    for name, value in kept_settings().items():
        before = manifest["settings"].get(name, value)
        now = {part: value.get(part) for part in before} if isinstance(before, dict) else value
        if now != before:
            yield f"The setting {name} was {before} and is {now}."


def compared_by_number(manifest: dict[str, Any]) -> Iterator[str]:
    """A sentence about the tables that this version has changed, if there are any."""
    with backup.reading_everything():
        changed = _changed_tables(manifest) & manifest["tables"].keys()
    if changed:
        yield (
            f"The backup is of another version: {len(changed)} tables have other columns here and are compared by "
            "their number of rows."
        )


def _changed_tables(manifest: dict[str, Any]) -> set[str]:
    """The tables with other columns than in the backup; all of them, if it does not name its columns."""
    before = manifest.get("columns", {})
    return {table for table, columns in column_types().items() if before.get(table) != columns}


def column_types() -> dict[str, dict[str, str]]:
    """The columns of every table, each with its type."""
    return {table: {name: column.type for name, column in one.items()} for table, one in tables_found().items()}


def fingerprint(key: str, salt: str | None = None) -> dict[str, str]:
    """Recognises a key, and is of no use for guessing it: a slow digest with a salt."""
    salt = salt or secrets.token_hex(16)
    digest = hashlib.scrypt(key.encode(), salt=bytes.fromhex(salt), **SCRYPT)
    return {"salt": salt, "digest": digest.hex()}


def about_the_key(manifest: dict[str, Any], *, counts: bool = True) -> Iterator[str]:
    """A sentence if this product has another SECRET_KEY than the backup, or cannot open what the key has encrypted."""
    known = manifest.get("secret_key")
    keys = (settings.SECRET_KEY, *settings.SECRET_KEY_FALLBACKS)
    digests = [fingerprint(each, known["salt"])["digest"] for each in keys] if known else []
    if known and not any(hmac.compare_digest(digest, known["digest"]) for digest in digests):
        yield (
            "SECRET_KEY is another one than in the product that the backup is of: put that one into SECRET_KEY, or "
            "into SECRET_KEY_FALLBACKS beside this one (docs/operations.md says where to find it)."
        )
    if counts:
        with backup.reading_everything():
            factors = list(Authenticator.objects.values_list("data", flat=True))
        if lost := sum(not is_readable(data) for data in factors):
            yield (
                f"{lost:,} authenticator apps and sets of recovery codes cannot be opened with this SECRET_KEY: their "
                "owners log in with a recovery code that is kept as a digest, or with a passkey."
            )


def total_rows(manifest: dict[str, Any]) -> int:
    return sum(int(table["rows"]) for table in manifest["tables"].values())


def failing_searches() -> Iterator[str]:
    """A sentence for each user whose latest indexed message is not found by a search for its own beginning."""
    for user_id in list(User.objects.filter(is_visitor=False).order_by("pk").values_list("pk", flat=True)):
        user = User.objects.get(pk=user_id)
        with acting_as(user):
            if not _finds_itself(user):
                yield f"User {user_id}: a search for a message of theirs does not find it."


def _finds_itself(user: User) -> bool:
    complete = Turn.objects.for_user(user).filter(status=Turn.Status.COMPLETE, is_recall=False)
    turn = complete.order_by("-pk").first()
    if turn is None:
        return True
    query = " ".join(turn.user_message.split())[:200]
    found = search_chat_history(user=user, query=query, limit=20, mode=SearchMode.HYBRID)
    # The user may have written the same text more often than a search has results.
    return any(turn.user_message.startswith(hit.snippet) for hit in found.matches if hit.snippet is not None)
