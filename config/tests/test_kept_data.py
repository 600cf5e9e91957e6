"""Each later version migrates the databases and restores the backups that earlier ones have kept (`keep_data.py`)."""

import lzma
import shutil
import subprocess

import psycopg
import pytest

from config.ops.backup import program
from config.stack.paths import make_private, servers_dir, temporary_servers_dir
from config.stack.preflight import migrations_apart
from config.stack.servers import EmbeddedPostgres
from config.stack.supervisor import Address, RunPaths, Supervisor
from config.tests.keep_data import FOLDER, manage_all
from config.tests.test_stack_failures import running
from config.tests.test_up import assert_one_sentence, begin_with, free_port, stack
from testing.servers import BEGIN_AS, ThrowawayServers

pytestmark = pytest.mark.extended

SAID = "SELECT user_message, assistant_message FROM intake_conversation_turns"
LARGEST = 200_000
*EARLIER, LAST = sorted(FOLDER.glob("*.dump.xz"))


@pytest.fixture
def servers():
    servers = ThrowawayServers()
    yield servers
    servers.stop()


@pytest.fixture
def empty_servers(monkeypatch):
    """Without the schema that another test's servers began with."""
    monkeypatch.delenv(BEGIN_AS, raising=False)
    servers = ThrowawayServers()
    yield servers
    servers.stop()


def assert_all_is_there(servers, *commands):
    """After these commands."""
    manage_all(servers, *commands, ["check", "--database", "default"])
    with servers.connect_as_superuser() as connection:
        said = connection.execute(SAID).fetchall()
        assert said == [("The blue kettle stands in the shed", "I keep that in mind.")]
        assert connection.execute("SELECT email FROM users").fetchall() == [("first@example.com",)]


def test_something_is_kept_and_all_of_it_is_small():
    assert list(FOLDER.glob("*.dump.xz")) and list(FOLDER.glob("*.backup.xz"))
    assert all(path.stat().st_size < LARGEST for path in FOLDER.iterdir())


@pytest.mark.parametrize("path", [*EARLIER, pytest.param(LAST, marks=pytest.mark.medium)], ids=lambda path: path.name)
def test_a_database_of_an_earlier_version_is_migrated(empty_servers, path):
    servers = empty_servers
    command = [program("pg_restore"), "--no-owner", "--exit-on-error", f"--dbname={servers.urls['DATABASE_OWNER_URL']}"]
    subprocess.run(command, input=lzma.decompress(path.read_bytes()), check=True)
    assert_all_is_there(servers, ["migrate", "--verbosity=0"])


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.backup.xz")), ids=lambda path: path.name)
def test_a_backup_of_an_earlier_version_is_restored(begin_migrated, servers, path, tmp_path):
    backup = tmp_path / path.stem
    backup.write_bytes(lzma.decompress(path.read_bytes()))
    assert_all_is_there(servers, ["restore", str(backup)], ["verify_backup", str(backup)])


@pytest.fixture(scope="module")
def earlier_servers(tmp_path_factory):
    """A folder with the data of the first version whose tables are frozen."""
    root = temporary_servers_dir()
    postgres = EmbeddedPostgres(root, log=tmp_path_factory.mktemp("earlier") / "log", durable=False)
    postgres.start()
    try:
        command = [program("pg_restore"), "--no-owner", "--exit-on-error", f"--dbname={postgres.owner_url}"]
        content = lzma.decompress(min(FOLDER.glob("*.dump.xz")).read_bytes())
        subprocess.run(command, input=content, check=True)
        with psycopg.connect(postgres.owner_url) as connection:
            # A test made it, whose model no product has. Nothing was embedded.
            connection.execute("TRUNCATE embedding_models CASCADE")
        postgres.stop()
        yield root
    finally:
        postgres.stop()
        shutil.rmtree(root, ignore_errors=True)


@pytest.fixture
def earlier_data(earlier_servers, tmp_path):
    """A folder for `make up` with these data."""
    var = tmp_path / "var"
    make_private(var)
    begin_with(earlier_servers, servers_dir(var))
    yield var
    shutil.rmtree(servers_dir(var), ignore_errors=True)


def test_make_up_backs_up_earlier_data_then_migrates_and_says_what_changed(
    begin_migrated, earlier_data, servers, tmp_path
):
    output = tmp_path / "output"
    with running(earlier_data, output):
        url = dict(line.split("=", 1) for line in (earlier_data / "env").read_text().splitlines())["DATABASE_OWNER_URL"]
        with psycopg.connect(url) as connection:
            assert connection.execute("SELECT email FROM users").fetchall() == [("first@example.com",)]
            assert connection.execute("SELECT count(*) FROM installation_settings").fetchone() == (0,)
        # The next start finds nothing to do, and so backs up nothing.
        assert migrations_apart({"DATABASE_OWNER_URL": url}) == ([], [])
    lines = output.read_text()
    (backup,) = (earlier_data / "backups").glob("*.backup")
    assert f"Making a backup …\nThe backup is {backup}." in lines
    assert "which added agent_tools.0002_projects_of_tokens, " in lines and "CHANGELOG.md says what is new" in lines
    assert backup.stat().st_mode & 0o777 == 0o600
    # The backup is of the data before: the way back begins with it.
    assert_all_is_there(servers, ["restore", str(backup)])


def test_data_that_lack_no_migration_are_not_backed_up(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr("config.stack.supervisor.migrations_apart", lambda _: ([], []))
    supervisor = Supervisor(RunPaths(tmp_path), Address("127.0.0.1", 8000))
    supervisor._backup_url = "postgres://recollect_backup@/recollect"
    assert supervisor._back_up_before_changes() == []
    assert (capsys.readouterr().out, list(tmp_path.iterdir())) == ("", [])


def test_a_backup_that_fails_leaves_earlier_data_as_they_are(earlier_data, tmp_path):
    postgres = EmbeddedPostgres(servers_dir(earlier_data), log=tmp_path / "log")
    postgres.start()
    with psycopg.connect(postgres.superuser_url, autocommit=True) as connection:
        connection.execute("ALTER ROLE recollect_backup NOBYPASSRLS")
    postgres.stop()
    done = stack("up", "--port", str(free_port()), var=earlier_data)
    assert_one_sentence(done, "The backup before the upgrade failed, and nothing was changed: ")
    assert "does not pass row-level security" in done.stdout and "Traceback" not in done.stdout
    assert list((earlier_data / "backups").iterdir()) == []
    postgres.start()
    with psycopg.connect(postgres.owner_url) as connection:
        assert connection.execute("SELECT to_regclass('installation_settings')").fetchone() == (None,)
    postgres.stop()
