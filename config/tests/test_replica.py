"""A standby by streaming replication: what is read there, and when the primary is read in its place."""

import shutil
import subprocess
import time
from urllib.parse import urlsplit

import psycopg
import pytest
from django.core.management import call_command
from django.db import DEFAULT_DB_ALIAS, connection, connections
from django.test import override_settings

from agent_tools.tools import registry
from config.stack.paths import choose_account, make_private, temporary_servers_dir
from config.stack.postgres import EmbeddedPostgres
from core.isolation import replica
from core.isolation.acting import read_as
from core.isolation.connections import connected_as, parameters
from intake.tests.factories import a_person, a_turn

STALENESS = 0.6
SECONDS = 20
SETTINGS = {"wal_level": "replica", "max_wal_senders": "4"}


@pytest.fixture(scope="module")
def servers(tmp_path_factory):
    """A primary and its standby, with a schema."""
    log = tmp_path_factory.mktemp("servers") / "log"
    roots = [temporary_servers_dir() for _ in range(2)]
    primary, standby = (EmbeddedPostgres(root, log=log, durable=False, settings=SETTINGS) for root in roots)
    try:
        primary.start()
        copy_to(primary, standby)
        standby.start()
        yield primary, standby
    finally:
        for server, root in zip((standby, primary), reversed(roots), strict=True):
            server.stop()
            shutil.rmtree(root, ignore_errors=True)


def copy_to(primary, standby):
    account = choose_account()
    make_private(standby.root, account)
    program = next(primary.root.parent.glob("nothing"), None) or primary._program("pg_basebackup")
    subprocess.run(
        [
            program,
            "--dbname",
            primary.superuser_url,
            "--pgdata",
            standby.data,
            "--write-recovery-conf",
            "--checkpoint=fast",
        ],
        check=True,
        cwd=standby.root,
        user=account.uid if account else None,
        group=account.gid if account else None,
        extra_groups=[] if account else None,
    )
    for name in ("postgres-passwords", "prepared-for"):
        shutil.copy2(primary.root / name, standby.root / name)


@pytest.fixture(scope="module")
def schema(servers, django_db_blocker):
    """The owner's tables; everything else in this module is done by the web role."""
    owner = servers[0].owner_url
    with django_db_blocker.unblock(), override_settings(DATABASE_OWNER_URL=owner), connected_as(owner):
        call_command("migrate", verbosity=0)


@pytest.fixture
def standby(servers, schema, django_db_blocker, monkeypatch, settings):
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
    deadline = time.monotonic() + SECONDS
    while time.monotonic() < deadline:
        if where_read(person) == alias:
            return
        time.sleep(0.05)
    pytest.fail(f"{alias} was not read within {SECONDS} seconds.")


def found(person, words):
    output = registry.get("search_chat_history").call({"query": words, "mode": "hybrid"}, user=person)
    return [result.snippet for result in output.results]


def ask_standby(standby, statement):
    address = urlsplit(standby.superuser_url)._replace(path="/recollect").geturl()
    with psycopg.connect(address, autocommit=True) as server:
        server.execute(statement)


@pytest.fixture
def paused(standby, person):
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


def test_no_one_reads_a_standby_that_is_further_behind_than_allowed(person, paused):
    a_turn(a_person("another@example.com"), "Somebody else writes")
    assert where_read(person) == replica.ALIAS
    time.sleep(STALENESS)
    where_read(person)
    time.sleep(STALENESS)
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
