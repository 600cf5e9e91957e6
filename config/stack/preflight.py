"""Checks before the start: the port, the given database and broker, and the login of each program.

It creates the roles on a given server if necessary.
"""

import errno
import ipaddress
import os
import secrets
import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from urllib.parse import quote, urlsplit

import environ
import psutil
import psycopg
from django.core.exceptions import ImproperlyConfigured

from config.public_url import is_within_reach, settings_for
from config.stack import StackError
from config.stack.paths import BASE_DIR, write_secret
from core.ids import first_code
from core.isolation.roles import DEFAULT_PREFIX, Roles, ServerConnection, existing, make_roles

CONNECT_SECONDS = 5


def check_port(host: str, port: int) -> None:
    """Raise StackError unless the address is free and may be listened on."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        with socket.socket(family, kind, protocol) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(address)
            # Another copy that starts at this moment has bound it, and does not answer yet.
            probe.listen()
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            hint = f"Port {port} is taken: stop what uses it, or choose another, as in `make up PORT={port + 1}`."
        elif error.errno == errno.EACCES:
            hint = f"Port {port} is reserved for root: choose one above 1023, as in `make up PORT=8000`."
        else:
            hint = f"{host} is not an address of this machine: choose another, as in `make up HOST=127.0.0.1`."
        raise StackError(hint) from error


def check_public_url(environment: Mapping[str, str]) -> None:
    """Raise StackError unless PUBLIC_URL is empty or an address of a site."""
    try:
        settings_for(environment.get("PUBLIC_URL", ""))
    except ImproperlyConfigured as error:
        raise StackError(str(error)) from error


def about_the_first_person(environment: Mapping[str, str]) -> str:
    """A sentence while nobody has registered: who is first, and with which code; empty afterwards."""
    with connected(environment["DATABASE_OWNER_URL"], name="DATABASE_OWNER_URL") as server:
        row = server.execute("SELECT EXISTS (SELECT FROM users WHERE email IS NOT NULL)").fetchone()
    if row is None or row[0]:
        return ""
    hosts = [host for host in environment.get("ALLOWED_HOSTS", "").split(",") if host]
    asks = environment.get("FIRST_PERSON_CODE")
    if asks is None:
        needs_code = is_within_reach(environment.get("PUBLIC_URL", ""), hosts)
    else:
        needs_code = asks.strip().lower() in environ.Env.BOOLEAN_TRUE_STRINGS
    sentence = "Nobody has registered yet: the first account administers this Recollect"
    return f"{sentence}, and needs the code {first_code(environment['SECRET_KEY'])}." if needs_code else f"{sentence}."


def migrations_apart(environment: Mapping[str, str]) -> tuple[list[str], list[str]]:
    """The migrations of this version that the data lack, and those of the data that this version lacks.

    Both are empty for a new database.
    """
    here = {f"{path.parent.parent.name}.{path.stem}" for path in BASE_DIR.glob("*/migrations/0*.py")}
    apps = sorted({name.partition(".")[0] for name in here})
    with connected(environment["DATABASE_OWNER_URL"], name="DATABASE_OWNER_URL") as server:
        is_new = server.execute("SELECT to_regclass('django_migrations') IS NULL").fetchone()
        if is_new is None or is_new[0]:
            return [], []
        rows = server.execute("SELECT app || '.' || name FROM django_migrations WHERE app = ANY(%s)", [apps])
        applied = {str(name) for (name,) in rows.fetchall()}
    return (sorted(here - applied), sorted(applied - here)) if applied else ([], [])


def about_servers_of_models(environment: Mapping[str, str], *, own_port: int, address: str) -> list[str]:
    """A sentence for each server of language models on this machine, while no model is connected."""
    if environment.get("LLM_MODEL") or environment.get("LLM_MODELS"):
        return []
    with connected(environment["DATABASE_OWNER_URL"], name="DATABASE_OWNER_URL") as server:
        row = server.execute("SELECT value FROM installation_settings WHERE name = 'models'").fetchone()
    if row is not None and row[0]:
        return []
    from intake.llm.model_servers import find_servers  # only a start without a model needs it

    found = find_servers(own_port=own_port)
    return [f"{title} runs at {url}: use it by one click at {address}/staff/models/." for title, url, _names in found]


def names_of(host: str) -> list[str]:
    """The names by which others on the network reach this machine at `host`; for every address, all that it has."""
    if host not in ("0.0.0.0", "::"):  # noqa: S104 - compared with, not bound to
        return [f"[{host}]" if ":" in host else host]
    name = socket.gethostname().lower()
    # Link-local addresses come with the name of an interface, which no browser sends.
    own = [each.address.partition("%")[0] for found in psutil.net_if_addrs().values() for each in found]
    numbers = [f"[{one}]" if ":" in one else one for one in own if _is_ip(one)]
    local = [] if "." in name else [f"{name}.local"]
    return list(dict.fromkeys([*numbers, name, *local]))


def _is_ip(text: str) -> bool:
    try:
        return bool(ipaddress.ip_address(text))
    except ValueError:
        return False


@contextmanager
def connected(url: str, *, name: str = "DATABASE_URL") -> Iterator[ServerConnection]:
    """A connection in autocommit; raises StackError, which names the variable `name`, if it fails."""
    settings = environ.Env.db_url_config(url)
    if "postgresql" not in settings.get("ENGINE", ""):
        raise StackError(f"{name} does not name a PostgreSQL database: it begins with postgres://.")
    requested = {key: settings[key.upper()] for key in ("user", "password", "host", "port") if settings[key.upper()]}
    options = requested | settings.get("OPTIONS", {}) | {"connect_timeout": CONNECT_SECONDS}
    try:
        with psycopg.connect(dbname=settings["NAME"], autocommit=True, **options) as connection:
            yield connection
    except psycopg.Error as error:
        reason = str(error).strip().splitlines()[0]
        raise StackError(f"The database in {name} does not answer ({reason}): start it or correct the URL.") from error


def check_database(url: str) -> None:
    """Raise StackError unless the address is a PostgreSQL that is new enough and has pgvector."""
    with connected(url) as server:
        _check_server(server)


def _check_server(connection: ServerConnection) -> None:
    major = connection.info.server_version // 10_000
    if major < 15:
        raise StackError(f"The database in DATABASE_URL is PostgreSQL {major}: version 15 or newer is needed.")
    try:
        connection.execute("SET client_min_messages = warning")
        connection.execute("CREATE EXTENSION IF NOT EXISTS vector")
    except psycopg.Error as error:
        raise StackError(
            "The database in DATABASE_URL has no pgvector: install it on that server and, as its superuser, run "
            "CREATE EXTENSION vector in that database."
        ) from error


def check_broker(url: str) -> None:
    """Raise StackError unless REDIS_URL is a broker that answers."""
    import redis  # importing it takes longer than everything else here, and most runs never need it

    from core import resilience

    try:
        address = url.replace("redis+socket://", "unix://", 1)
        with resilience.client(address, seconds=CONNECT_SECONDS) as client:
            client.ping()
    except (redis.RedisError, OSError, ValueError) as error:
        raise StackError(f"The broker in REDIS_URL does not answer ({error}): start it or correct the URL.") from error


def read_environment() -> dict[str, str]:
    """Return the environment with the values of .env, which never override it."""
    environ.Env.read_env(BASE_DIR / ".env")
    return dict(os.environ)


def roles_named(environment: Mapping[str, str]) -> Roles:
    try:
        return Roles(environment.get("DATABASE_ROLE_PREFIX") or DEFAULT_PREFIX)
    except ValueError as error:
        raise StackError(str(error)) from error


def addresses(environment: Mapping[str, str], roles: Roles, *, kept: Path) -> dict[str, str]:
    """The three addresses. Raises StackError if the server cannot be used, or the roles can be neither created nor
    used.

    Given addresses of the web role and the worker are used unchanged. A single DATABASE_URL of another role is the
    owner's: the roles are created with it, and `kept` keeps their passwords.
    """
    if urlsplit(environment["DATABASE_URL"]).username == roles.web:
        return _taken(environment)
    owner = environment.get("DATABASE_OWNER_URL") or environment["DATABASE_URL"]
    check_database(owner)
    passwords = _made(owner, roles, kept)
    return {
        "DATABASE_URL": _with_login(owner, roles.web, passwords[roles.web]),
        "DATABASE_WORKER_URL": _with_login(owner, roles.worker, passwords[roles.worker]),
        "DATABASE_OWNER_URL": owner,
    }


def as_worker(environment: dict[str, str]) -> dict[str, str]:
    """For the worker: its own address, and that of the web role, by which it works as people, and no other."""
    # Empty and not missing, because a missing one would be read from a file.
    return environment | dict.fromkeys(("DATABASE_OWNER_URL", "DATABASE_BACKUP_URL"), "")


def _taken(environment: Mapping[str, str]) -> dict[str, str]:
    for name, purpose in (("DATABASE_WORKER_URL", "workers"), ("DATABASE_OWNER_URL", "migrations")):
        if not environment.get(name):
            raise StackError(
                f"DATABASE_URL names the web role, and {name}, for {purpose}, is missing: give all three addresses, or "
                "the owner's alone in DATABASE_URL."
            )
        with connected(environment[name], name=name):
            pass
    check_database(environment["DATABASE_URL"])
    return {}


def _made(owner: str, roles: Roles, kept: Path) -> dict[str, str]:
    passwords = {}
    with suppress(FileNotFoundError):
        passwords = dict(line.split() for line in kept.read_text().splitlines())
    logins = {roles.web, roles.worker}
    with connected(owner) as server:
        foreign = sorted((existing(server, roles) & logins) - passwords.keys())
        if foreign:
            raise StackError(
                f"The server has the role {foreign[0]} already and its password is not known here: give its address in "
                "DATABASE_URL and the others' beside it, or choose other names by DATABASE_ROLE_PREFIX."
            )
        passwords = {name: secrets.token_urlsafe(24) for name in sorted(logins)} | passwords
        write_secret(kept, "".join(f"{name} {password}\n" for name, password in passwords.items()))
        try:
            make_roles(server, roles, passwords={name: passwords[name] for name in logins})
        except ImproperlyConfigured as error:
            raise StackError(f"{error} Then give their addresses too (docs/isolation.md).") from error
    return passwords


def _with_login(url: str, name: str, password: str) -> str:
    parts = urlsplit(url)
    host = parts.netloc.rpartition("@")[2]
    return parts._replace(netloc=f"{quote(name)}:{quote(password, safe='')}@{host}").geturl()
