"""PgBouncer in transaction mode, as `docker-compose.scale.yml` has it: whose rows a shared connection shows."""

import os
import shutil
import socket
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import psycopg
import pytest
from django.db import DEFAULT_DB_ALIAS, connection, connections

from agent_tools.tools import registry
from config.stack.paths import choose_account, make_private, temporary_servers_dir
from config.stack.servers import EmbeddedPostgres
from core.isolation.connecting import parameters
from intake.tests.factories import a_person, a_turn

pytestmark = pytest.mark.extended

SECONDS = 20
DEPLOY = Path(__file__).parents[2] / "deploy"
PATH = f"{os.defpath}:/usr/sbin:/sbin"


def answers(address):
    try:
        psycopg.connect(address, connect_timeout=2).close()
    except psycopg.OperationalError:
        return False
    return True


def wait_until(holds):
    deadline = time.monotonic() + SECONDS
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.05)


@contextmanager
def connected_to(url):
    """Another server's database, whose name is not that of the suite's."""
    kept = connections[DEFAULT_DB_ALIAS]
    connections[DEFAULT_DB_ALIAS] = type(kept)(parameters(url, name="recollect"), DEFAULT_DB_ALIAS)
    try:
        yield
    finally:
        connection.close()
        connections[DEFAULT_DB_ALIAS] = kept


def found(person, words):
    output = registry.get("search_chat_history").call({"query": words, "mode": "hybrid"}, user=person)
    return [result.snippet for result in output.results]


@pytest.fixture
def database(begin_migrated, tmp_path):
    """A server of its own, with a schema."""
    root = temporary_servers_dir()
    subprocess.run(["cp", "-a", begin_migrated, root], check=True)
    server = EmbeddedPostgres(root, log=tmp_path / "log", durable=False, settings={"max_connections": "60"})
    try:
        server.start()
        yield server
    finally:
        server.stop()
        shutil.rmtree(root, ignore_errors=True)


@pytest.fixture
def pooler(database):
    """The web role's address through PgBouncer, which has two connections for everybody."""
    if shutil.which("pgbouncer", path=PATH) is None:
        pytest.skip("PgBouncer is not installed.")
    root = temporary_servers_dir()
    make_private(root, choose_account())
    shutil.copy2(DEPLOY / "pgbouncer" / "start.sh", root)
    (root / "start.sh").chmod(0o755)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    password = urlsplit(database.url).password
    # As Compose mounts them: a file for each, which the container's account may read.
    for name, url in (("database_password", database.url), ("database_worker_password", database.worker_url)):
        (root / name).write_text(f"{urlsplit(url).password}\n")
        (root / name).chmod(0o444)
    account = choose_account()
    process = subprocess.Popen(
        ["bash", "start.sh"],
        cwd=root,
        env={
            "PATH": PATH,
            "TZ": "UTC",
            "PGBOUNCER_FOLDER": str(root / "pgbouncer"),
            "DATABASE_HOST": str(database.socket),
            "SECRETS": str(root),
            "LISTEN_ON": "127.0.0.1",
            "PORT": str(port),
            "POOL_SIZE": "2",
        },
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        user=account.pw_uid if account else None,
        group=account.pw_gid if account else None,
        extra_groups=[] if account else None,
    )
    address = f"postgres://recollect_web:{password}@127.0.0.1:{port}/recollect"
    try:
        wait_until(lambda: answers(address))
        yield address
    finally:
        process.terminate()
        process.wait()
        shutil.rmtree(root, ignore_errors=True)


def test_people_who_share_two_connections_of_pgbouncer_see_their_own_rows_alone(pooler, django_db_blocker):
    def live(number):
        with connected_to(pooler):
            person = a_person(f"pooled-{number}@example.com")
            for turn in range(5):
                a_turn(person, f"Boat {number} sails on day {turn}")
                assert {text[:6] for text in found(person, "boat sails day")} == {f"Boat {number}"}

    with django_db_blocker.unblock(), ThreadPoolExecutor(6) as pool:
        list(pool.map(live, range(6)))
