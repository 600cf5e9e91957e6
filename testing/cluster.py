"""Creates a test database on the Citus cluster of `CITUS_URLS`: the superuser's address of each node, coordinator
first.

The suite, or a part of it, then runs on that cluster, with the schema distributed by `manage.py distribute`:
`CITUS_URLS="postgres://postgres@127.0.0.1:5501/postgres …" pytest config/tests/test_endpoints.py`. Without the
variable, the tests that need a cluster are skipped.
"""

import os
import secrets
from collections.abc import Sequence
from typing import Any
from urllib.parse import urlsplit

import psycopg
from psycopg import sql

from core.isolation.roles import Roles
from testing.examiner import EXAMINER, make_examiner

VARIABLE = "CITUS_URLS"
OWNER = "recollect"
DATABASE = "recollect"
TEST_DATABASE = f"test_{DATABASE}"

Superuser = psycopg.Connection[Any]


def cluster_urls() -> list[str]:
    return os.environ.get(VARIABLE, "").split()


def make_roles_everywhere(urls: Sequence[str]) -> dict[str, str]:
    """Create the product's roles and the examiner on every node; returns the product's addresses on the coordinator."""
    roles = Roles()
    password = secrets.token_urlsafe(24)
    for url in urls:
        with psycopg.connect(url, autocommit=True) as server:
            # Each node is set up separately: Citus would create the roles only on nodes that this database has.
            server.execute("SET citus.enable_create_role_propagation = off")
            server.execute("SET citus.enable_alter_role_propagation = off")
            for name, kind in (
                (OWNER, "CREATEDB"),
                (roles.web, "NOINHERIT"),
                (roles.worker, "NOINHERIT"),
                (roles.staff, "NOINHERIT"),
                (EXAMINER, "BYPASSRLS"),
            ):
                _make_login(server, name, kind, password)
            for granted, to in ((roles.staff, roles.web),):
                server.execute(sql.SQL("GRANT {} TO {}").format(sql.Identifier(granted), sql.Identifier(to)))
            make_examiner(server, owner=OWNER, web=roles.web, worker=roles.worker)
    host = urlsplit(urls[0])
    place = f"{host.hostname}:{host.port or 5432}/{DATABASE}"
    logins = {
        "DATABASE_URL": roles.web,
        "DATABASE_WORKER_URL": roles.worker,
        "DATABASE_OWNER_URL": OWNER,
    }
    return {name: f"postgres://{role}:{password}@{place}" for name, role in logins.items()}


def make_database(urls: Sequence[str], owner_password: str, *, name: str = TEST_DATABASE) -> None:
    """Create an empty test database on every node, as a cluster; drop one that an earlier run left."""
    drop_database(urls, name)
    for url in urls:
        with psycopg.connect(url, autocommit=True) as server:
            server.execute("SET citus.enable_create_database_propagation = off")
            database, owner = sql.Identifier(name), sql.Identifier(OWNER)
            server.execute(sql.SQL("CREATE DATABASE {} OWNER {}").format(database, owner))
        with psycopg.connect(url, dbname=name, autocommit=True) as server:
            server.execute("CREATE EXTENSION citus")
            server.execute("CREATE EXTENSION vector")
            # How the nodes log in to each other.
            for role in (OWNER, *Roles().all, EXAMINER):
                server.execute("INSERT INTO pg_dist_authinfo VALUES (0, %s, %s)", [role, f"password={owner_password}"])
    with psycopg.connect(urls[0], dbname=name, autocommit=True) as server:
        first, *others = (urlsplit(url) for url in urls)
        server.execute("SELECT citus_set_coordinator_host(%s, %s)", [first.hostname, first.port or 5432])
        for other in others:
            server.execute("SELECT citus_add_node(%s, %s)", [other.hostname, other.port or 5432])
        # The fewest that show distributed rows: each shard is a table with its indexes, created for each run.
        server.execute(sql.SQL("ALTER DATABASE {} SET citus.shard_count = 4").format(sql.Identifier(name)))


def drop_database(urls: Sequence[str], name: str) -> None:
    """On every node, ending the open sessions."""
    for url in urls:
        with psycopg.connect(url, autocommit=True) as server:
            server.execute("SET citus.enable_create_database_propagation = off")
            server.execute(sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(sql.Identifier(name)))


def _make_login(server: Superuser, name: str, kind: str, password: str) -> None:
    role = sql.Identifier(name)
    if not server.execute("SELECT 1 FROM pg_roles WHERE rolname = %s", [name]).fetchone():
        server.execute(sql.SQL("CREATE ROLE {}").format(role))
    options = sql.SQL("ALTER ROLE {} LOGIN {} PASSWORD {}")
    server.execute(options.format(role, sql.SQL(kind), sql.Literal(password)))
