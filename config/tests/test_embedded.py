"""The embedded servers: closed to everybody else, whole after a kill, and nothing around them is touched."""

import os
import shutil
import signal
from contextlib import suppress
from pathlib import Path

import environ
import psutil
import psycopg
import pytest
import redis

from config.stack import StackError
from config.stack.broker import EmbeddedRedis
from config.stack.paths import choose_account, make_private, socket_dir, temporary_servers_dir, write_secret
from config.stack.processes import find_servers
from config.stack.servers import EmbeddedPostgres

pytestmark = pytest.mark.extended


def modes(folders):
    return {folder: folder.stat().st_mode for folder in folders}


@pytest.fixture(scope="module")
def servers(tmp_path_factory):
    root = temporary_servers_dir()
    log = tmp_path_factory.mktemp("servers") / "servers.log"
    postgres, broker = EmbeddedPostgres(root, log=log, durable=False), EmbeddedRedis(root, log=log)
    postgres.modes_before = modes({*root.parents, *Path(psycopg.__file__).parents})
    try:
        postgres.start()
        broker.start()
        yield postgres, broker
    finally:
        postgres.stop()
        broker.stop()
        shutil.rmtree(root)


@pytest.fixture
def postgres(servers):
    return servers[0]


@pytest.fixture
def broker(servers):
    return servers[1]


@pytest.fixture
def new_root():
    root = temporary_servers_dir()
    yield root
    shutil.rmtree(root, ignore_errors=True)


def postmaster(server):
    return int((server.data / "postmaster.pid").read_text().splitlines()[0])


def test_no_folder_above_the_servers_or_their_programs_changes(postgres):
    assert modes(postgres.modes_before) == postgres.modes_before


def test_data_and_sockets_are_for_their_owner_alone(postgres, broker):
    for folder in (postgres.root, postgres.data, postgres.socket, broker.folder):
        assert folder.stat().st_mode & 0o777 == 0o700
    assert (postgres.root / "postgres-passwords").stat().st_mode & 0o777 == 0o600


def test_the_servers_do_not_run_as_root(postgres, broker):
    owners = []
    for process in find_servers("postgres", postgres.data) + find_servers("valkey-server", broker.folder):
        with suppress(psutil.NoSuchProcess):  # one of PostgreSQL's own workers may have ended since
            owners.append(process.uids().real)
    assert len(owners) >= 2
    assert 0 not in owners


def test_the_servers_listen_on_no_network(postgres, broker):
    with psycopg.connect(postgres.url) as connection:
        assert connection.execute("SHOW listen_addresses").fetchone() == ("",)
    with redis.Redis.from_url(broker.url) as client:
        assert client.config_get("port") == {"port": "0"}


@pytest.mark.parametrize("role", ["recollect", "recollect_web", "recollect_worker", "postgres"])
def test_a_wrong_password_is_refused(postgres, role):
    with pytest.raises(psycopg.OperationalError, match="password authentication failed"):
        psycopg.connect(host=str(postgres.socket), dbname="recollect", user=role, password="guessed")


def test_the_broker_refuses_a_wrong_password(broker):
    client = redis.Redis(unix_socket_path=str(broker.socket), password="guessed", retry=None)
    with client, pytest.raises(redis.AuthenticationError):
        client.ping()


@pytest.mark.parametrize(("address", "role"), [("url", "recollect_web"), ("worker_url", "recollect_worker")])
def test_who_serves_and_who_works_are_bound_by_row_level_security_and_can_become_nobody_mightier(
    postgres, address, role
):
    with psycopg.connect(getattr(postgres, address), autocommit=True) as connection:
        query = """
            SELECT current_user, rolsuper, rolbypassrls, rolcreaterole, rolcreatedb
              FROM pg_roles WHERE rolname = current_user
        """
        assert connection.execute(query).fetchone() == (role, False, False, False, False)
        for other in {"recollect", "recollect_web", "recollect_worker", "postgres"} - {role}:
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                connection.execute(f"SET ROLE {other}")
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            connection.execute("CREATE TABLE mine (id int)")


def test_the_application_has_nothing_of_staffs_rights_until_it_takes_the_role_on(postgres):
    with psycopg.connect(postgres.owner_url) as connection:
        connection.execute("CREATE TABLE for_staff AS SELECT 1 AS one")
        connection.execute("GRANT SELECT ON for_staff TO recollect_staff")
    with psycopg.connect(postgres.url, autocommit=True) as connection:
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            connection.execute("SELECT * FROM for_staff")
        with connection.transaction():
            connection.execute("SET LOCAL ROLE recollect_staff")
            assert connection.execute("SELECT * FROM for_staff").fetchone() == (1,)
    with psycopg.connect(postgres.worker_url) as connection, pytest.raises(psycopg.errors.InsufficientPrivilege):
        connection.execute("SET ROLE recollect_staff")


def test_a_cluster_made_before_there_were_three_roles_gets_the_others(postgres):
    passwords = postgres.root / "postgres-passwords"
    before = passwords.read_text().splitlines()
    passwords.write_text("\n".join(line for line in before if "_" not in line.split()[0]) + "\n")
    (postgres.root / "prepared-for").write_text("an earlier version")
    postgres.stop()
    postgres.start()
    with psycopg.connect(postgres.worker_url) as connection:
        assert connection.execute("SELECT current_user").fetchone() == ("recollect_worker",)
    assert passwords.stat().st_mode & 0o777 == 0o600


def test_every_new_database_has_pgvector(postgres):
    with psycopg.connect(postgres.owner_url, autocommit=True) as connection:
        connection.execute("CREATE DATABASE scratch")
    with psycopg.connect(postgres.url, dbname="scratch") as connection:
        assert connection.execute("SELECT '[1,0]'::halfvec <=> '[0,1]'::halfvec").fetchone() == (1.0,)


def test_letters_beyond_ascii_are_letters_and_fold(postgres):
    with psycopg.connect(postgres.url) as connection:
        row = connection.execute("SELECT 'É' ILIKE 'é', to_tsvector('simple', 'Москва naïve')::text").fetchone()
    assert row == (True, "'naïve':2 'москва':1")


def test_django_reads_the_address(postgres):
    settings = environ.Env.db_url_config(postgres.url)
    assert (settings["NAME"], settings["USER"]) == ("recollect", "recollect_web")
    assert settings["OPTIONS"] == {"host": str(postgres.socket)}


def test_starting_twice_is_harmless(postgres):
    before = postmaster(postgres)
    postgres.start()
    assert postmaster(postgres) == before


def test_a_killed_server_comes_back_with_what_it_was_told(postgres):
    with psycopg.connect(postgres.owner_url) as connection:
        connection.execute("SET synchronous_commit = on")  # as it is wherever nothing is thrown away
        connection.execute("CREATE TABLE kept AS SELECT 1")
    os.kill(postmaster(postgres), signal.SIGKILL)
    psutil.wait_procs([psutil.Process(postgres._process.pid)], timeout=5)
    # As after a reboot: the number in the lock belongs to somebody else, who is alive.
    (postgres.data / "postmaster.pid").write_text(f"{os.getpid()}\n{postgres.data}\n")
    postgres.start()
    with psycopg.connect(postgres.owner_url) as connection:
        assert connection.execute("SELECT * FROM kept").fetchone() == (1,)


def test_a_server_left_by_a_killed_run_is_replaced(broker, tmp_path):
    left = find_servers("valkey-server", broker.folder)
    successor = EmbeddedRedis(broker.root, log=tmp_path / "log")
    try:
        successor.start()
        assert not any(process.is_running() for process in left)
    finally:
        successor.stop()
        broker.stop()
        broker.start()


def test_data_of_another_postgres_is_left_alone(new_root, tmp_path):
    make_private(new_root, choose_account())
    (new_root / "data").mkdir()
    (new_root / "data" / "PG_VERSION").write_text("17\n")
    with pytest.raises(StackError, match="written by PostgreSQL 17 and this is 18: dump it"):
        EmbeddedPostgres(new_root, log=tmp_path / "log").start()


def test_a_folder_open_to_others_is_refused_and_not_changed(tmp_path):
    folder = tmp_path / "open"
    folder.mkdir()
    folder.chmod(0o755)
    with pytest.raises(StackError, match="its owner's alone"):
        make_private(folder)
    assert folder.stat().st_mode & 0o777 == 0o755


def test_a_link_is_not_taken_for_a_private_folder(tmp_path):
    (tmp_path / "elsewhere").mkdir(mode=0o700)
    (tmp_path / "link").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(StackError, match="its owner's alone"):
        make_private(tmp_path / "link")


def test_a_secret_is_readable_by_its_owner_only(tmp_path):
    write_secret(tmp_path / "secret", "word")
    assert (tmp_path / "secret").stat().st_mode & 0o777 == 0o600


def test_the_socket_of_a_deep_folder_has_an_address_that_fits():
    deep = Path("/srv") / "/".join(["a-folder-with-a-long-name"] * 8)
    assert len(os.fsencode(socket_dir(deep) / ".s.PGSQL.5432")) < 104
    assert socket_dir(deep) != socket_dir(deep / "other")
