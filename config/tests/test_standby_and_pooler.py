"""Servers that stand between or beside, as `docker-compose.scale.yml` has them, run by the programs that it runs.

A standby by streaming replication: what is read there, and when the primary is read in its place. PgBouncer in
transaction mode: whose rows a connection shows that many people share.
"""

import os
import shutil
import signal
import socket
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from urllib.parse import quote, urlsplit

import psycopg
import pytest
from django.db import DEFAULT_DB_ALIAS, connection, connections

from agent_tools.tools import registry
from config.stack.paths import choose_account, make_private, temporary_servers_dir
from config.stack.servers import EmbeddedPostgres
from core.isolation import replica
from core.isolation.acting import read_as
from core.isolation.checks import parameters
from intake.tests.factories import a_person, a_turn

pytestmark = pytest.mark.extended

STALENESS = 0.6
SECONDS = 20
SETTINGS = {"wal_level": "replica", "max_wal_senders": "4", "max_connections": "60"}
DEPLOY = Path(__file__).parents[2] / "deploy"
PASSWORD = "replicates"
PATH = f"{os.defpath}:/usr/sbin:/sbin"


def run_as_the_servers(command, root, **environment):
    """A program of the deployment, as the account that the servers run as, with the embedded servers' programs."""
    account = choose_account()
    return subprocess.Popen(
        command,
        cwd=root,
        env={"PATH": os.defpath, "TZ": "UTC", **environment},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        user=account.pw_uid if account else None,
        group=account.pw_gid if account else None,
        extra_groups=[] if account else None,
    )


def write_secrets(folder, **values):
    """As Compose mounts them: a file for each, which the container's account may read."""
    for name, value in values.items():
        (folder / name).write_text(f"{value}\n")
        (folder / name).chmod(0o444)


class Standby:
    """What `deploy/standby.sh` makes of an empty folder: the container's program, on a socket."""

    def __init__(self, primary, root):
        self.root = root
        self.primary = primary
        self.url = primary.url.replace(quote(str(primary.socket), safe=""), quote(str(root), safe=""))
        self.superuser_url = urlsplit(primary.superuser_url)._replace(path="/recollect", query=f"host={root}").geturl()
        make_private(root, choose_account())
        shutil.copy2(DEPLOY / "standby.sh", root)
        shutil.chown(root / "standby.sh", *([choose_account().pw_uid] if choose_account() else [os.geteuid()]))
        write_secrets(root, database_replication_password=PASSWORD)
        self.process = None

    def start(self):
        if self.process and self.process.poll() is None:
            return
        programs = str(self.primary._program("postgres").parent)
        self.process = run_as_the_servers(
            ["bash", self.root / "standby.sh", "--listen_addresses=", f"--unix_socket_directories={self.root}"]
            + [f"--{name}={value}" for name, value in SETTINGS.items()],
            self.root,
            PATH=f"{programs}:{os.defpath}",
            PGDATA=str(self.root / "data"),
            PRIMARY_HOST=str(self.primary.socket),
            SECRETS=str(self.root),
        )
        wait_until(lambda: answers(self.superuser_url))

    def crash(self):
        self.process.send_signal(signal.SIGQUIT)
        self.process.wait()


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


@pytest.fixture(scope="module")
def servers(begin_migrated, tmp_path_factory):
    """A primary and its standby, with a schema."""
    log = tmp_path_factory.mktemp("servers") / "log"
    roots = [temporary_servers_dir() for _ in range(2)]
    subprocess.run(["cp", "-a", begin_migrated, roots[0]], check=True)
    primary = EmbeddedPostgres(roots[0], log=log, durable=False, settings=SETTINGS)
    standby = None
    try:
        primary.start()
        with psycopg.connect(primary.superuser_url, autocommit=True) as server:
            server.execute(f"CREATE ROLE recollect_replication LOGIN REPLICATION PASSWORD '{PASSWORD}'")
        standby = Standby(primary, roots[1])
        standby.start()
        yield primary, standby
    finally:
        if standby and standby.process:
            standby.crash()
        primary.stop()
        for root in roots:
            shutil.rmtree(root, ignore_errors=True)


@pytest.fixture
def standby(servers, django_db_blocker, monkeypatch, settings):
    """Both are configured, as DATABASE_URL and DATABASE_REPLICA_URL would."""
    settings.DATABASE_REPLICA_STALENESS_SECONDS = STALENESS
    kept = connections[DEFAULT_DB_ALIAS]
    addresses = {DEFAULT_DB_ALIAS: servers[0].url, replica.ALIAS: servers[1].url}
    both = {alias: type(kept)(parameters(url, name="recollect"), alias) for alias, url in addresses.items()}
    monkeypatch.setitem(connections.settings, replica.ALIAS, both[replica.ALIAS].settings_dict)
    monkeypatch.setattr(replica, "_known", replica._Known())
    with django_db_blocker.unblock():
        for alias, wrapper in both.items():
            connections[alias] = wrapper
        try:
            servers[1].start()
            yield servers[1]
        finally:
            for wrapper in both.values():
                wrapper.close()
            del connections[replica.ALIAS]
            connections[DEFAULT_DB_ALIAS] = kept


@pytest.fixture
def person(standby, request):
    return a_person(f"{abs(hash(request.node.name))}@example.com")


def where_read(person):
    return read_as(person, lambda: connection.alias)


def wait_for(alias, person):
    wait_until(lambda: where_read(person) == alias)


def found(person, words):
    output = registry.get("search_chat_history").call({"query": words, "mode": "hybrid"}, user=person)
    return [result.snippet for result in output.results]


def ask_standby(standby, statement):
    with psycopg.connect(standby.superuser_url, autocommit=True) as server:
        server.execute(statement)


@pytest.fixture
def clock(monkeypatch):
    """By which positions grow old: it goes on when a test says so, however slow the machine is meanwhile."""
    clock = SimpleNamespace(now=time.monotonic())
    monkeypatch.setattr(replica, "monotonic", lambda: clock.now)
    return clock


@pytest.fixture
def paused(standby, person, clock):
    """It was read a moment ago, and replays nothing from now on."""
    wait_for(replica.ALIAS, person)
    ask_standby(standby, "SELECT pg_wal_replay_pause()")
    yield
    ask_standby(standby, "SELECT pg_wal_replay_resume()")


def test_a_search_reads_the_standby_and_finds_there_what_was_said(person):
    a_turn(person, "The roof is leaking above the stairs")
    wait_for(replica.ALIAS, person)
    assert found(person, "leaking roof") == ["The roof is leaking above the stairs"]


def test_a_person_who_just_wrote_reads_the_primary_while_the_standby_has_stopped(person, paused):
    assert where_read(person) == replica.ALIAS
    a_turn(person, "The plumber comes on Thursday")
    assert where_read(person) == DEFAULT_DB_ALIAS
    assert found(person, "plumber") == ["The plumber comes on Thursday"]


def test_no_one_reads_a_standby_that_is_further_behind_than_allowed(person, paused, clock):
    a_turn(a_person("another@example.com"), "Somebody else writes")
    assert where_read(person) == replica.ALIAS
    # Clearly past the limit: the sum and difference of two floats need not give STALENESS itself.
    clock.now += 2 * STALENESS
    assert where_read(person) == DEFAULT_DB_ALIAS


def test_a_standby_that_goes_away_fails_nobody_and_is_read_again_later(person, standby, monkeypatch):
    monkeypatch.setattr(replica, "LEFT_ALONE_SECONDS", 0.2)
    a_turn(person, "The garden needs water")
    wait_for(replica.ALIAS, person)
    standby.crash()
    assert found(person, "garden") == ["The garden needs water"]
    assert where_read(person) == DEFAULT_DB_ALIAS
    standby.start()
    wait_for(replica.ALIAS, person)


def test_work_that_fails_on_the_standby_is_done_on_the_primary(person):
    wait_for(replica.ALIAS, person)
    tried = []

    def change():
        tried.append(connection.alias)
        with connection.cursor() as cursor:
            cursor.execute("UPDATE users SET time_zone = 'UTC' WHERE id = %s", [person.pk])

    read_as(person, change)
    assert tried == [replica.ALIAS, DEFAULT_DB_ALIAS]


def test_nobody_sees_anothers_rows_on_the_standby(person):
    a_turn(person, "A secret about the boat")
    stranger = a_person("stranger@example.com")
    wait_for(replica.ALIAS, stranger)
    wait_for(replica.ALIAS, person)
    assert found(stranger, "boat") == []
    assert found(person, "boat") == ["A secret about the boat"]


@pytest.fixture
def pooler(servers):
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
    password = urlsplit(servers[0].url).password
    write_secrets(root, database_password=password, database_worker_password=urlsplit(servers[0].worker_url).password)
    process = run_as_the_servers(
        ["bash", "start.sh"],
        root,
        PATH=PATH,
        PGBOUNCER_FOLDER=str(root / "pgbouncer"),
        DATABASE_HOST=str(servers[0].socket),
        SECRETS=str(root),
        LISTEN_ON="127.0.0.1",
        PORT=str(port),
        POOL_SIZE="2",
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
