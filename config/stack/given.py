"""What a person gave us to work with: the port, and the database and the broker named in the environment or .env."""

import errno
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager

import environ
import psycopg

from config.stack.errors import StackError
from core.isolation.roles import ServerConnection

OLDEST_POSTGRES = 15
CONNECT_SECONDS = 5


def check_port(host: str, port: int) -> None:
    """Raise StackError unless the address is free and may be listened on."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        with socket.socket(family, kind, protocol) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(address)
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            hint = f"Port {port} is taken: stop what uses it, or choose another, as in `make up PORT={port + 1}`."
        elif error.errno == errno.EACCES:
            hint = f"Port {port} is reserved for root: choose one above 1023, as in `make up PORT=8000`."
        else:
            hint = f"{host} is not an address of this machine: choose another, as in `make up HOST=127.0.0.1`."
        raise StackError(hint) from error


@contextmanager
def connected(url: str, *, name: str = "DATABASE_URL") -> Iterator[ServerConnection]:
    """A connection in autocommit; raises StackError, which speaks of the variable `name`, where there is none."""
    settings = environ.Env.db_url_config(url)
    if "postgresql" not in settings.get("ENGINE", ""):
        raise StackError(f"{name} does not name a PostgreSQL database: it begins with postgres://.")
    wanted = {key: settings[key.upper()] for key in ("user", "password", "host", "port") if settings[key.upper()]}
    options = wanted | settings.get("OPTIONS", {}) | {"connect_timeout": CONNECT_SECONDS}
    try:
        with psycopg.connect(dbname=settings["NAME"], autocommit=True, **options) as connection:
            yield connection
    except psycopg.Error as error:
        reason = str(error).strip().splitlines()[0]
        raise StackError(f"The database in {name} does not answer ({reason}): start it or correct the URL.") from error


def check_database(url: str) -> None:
    """Raise StackError unless the address leads to a PostgreSQL that is new enough and has pgvector."""
    with connected(url) as server:
        _check_server(server)


def _check_server(connection: ServerConnection) -> None:
    major = connection.info.server_version // 10_000
    if major < OLDEST_POSTGRES:
        raise StackError(
            f"The database in DATABASE_URL is PostgreSQL {major}: version {OLDEST_POSTGRES} or newer is needed."
        )
    try:
        connection.execute("SET client_min_messages = warning")
        connection.execute("CREATE EXTENSION IF NOT EXISTS vector")
    except psycopg.Error as error:
        raise StackError(
            "The database in DATABASE_URL has no pgvector: install it on that server and, as its superuser, run "
            "CREATE EXTENSION vector in that database."
        ) from error


def check_broker(url: str) -> None:
    """Raise StackError unless REDIS_URL leads to a broker that answers."""
    import redis  # takes longer to load than everything else here, and most runs never need it

    try:
        address = url.replace("redis+socket://", "unix://", 1)
        with redis.Redis.from_url(address, socket_timeout=CONNECT_SECONDS, retry=None) as client:
            client.ping()
    except (redis.RedisError, OSError, ValueError) as error:
        raise StackError(f"The broker in REDIS_URL does not answer ({error}): start it or correct the URL.") from error


def read_environment() -> dict[str, str]:
    """Return the environment with .env behind it, which never overrides."""
    from config.stack.places import BASE_DIR

    environ.Env.read_env(BASE_DIR / ".env")
    return dict(os.environ)
