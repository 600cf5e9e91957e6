"""Each later version migrates the databases and restores the backups that earlier ones have kept (`keep_data.py`)."""

import lzma
import subprocess

import pytest

from config.ops.backup import program
from config.tests.keep_data import FOLDER, manage
from testing.servers import ThrowawayServers
from testing.throwaway import BEGIN_AS

pytestmark = pytest.mark.slow

SAID = "SELECT user_message, assistant_message FROM intake_conversation_turns"
LARGEST = 200_000


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


def assert_all_is_there(servers):
    with servers.connect_as_superuser() as connection:
        said = connection.execute(SAID).fetchall()
        assert said == [("The blue kettle stands in the shed", "I keep that in mind.")]
        assert connection.execute("SELECT email FROM users").fetchall() == [("first@example.com",)]
    manage(servers, "check", "--database", "default")


def test_something_is_kept_and_all_of_it_is_small():
    assert list(FOLDER.glob("*.dump.xz")) and list(FOLDER.glob("*.backup.xz"))
    assert all(path.stat().st_size < LARGEST for path in FOLDER.iterdir())


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.dump.xz")), ids=lambda path: path.name)
def test_a_database_of_an_earlier_version_is_migrated(empty_servers, path):
    servers = empty_servers
    command = [program("pg_restore"), "--no-owner", "--exit-on-error", f"--dbname={servers.urls['DATABASE_OWNER_URL']}"]
    subprocess.run(command, input=lzma.decompress(path.read_bytes()), check=True)
    manage(servers, "migrate", "--verbosity=0")
    assert_all_is_there(servers)


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.backup.xz")), ids=lambda path: path.name)
def test_a_backup_of_an_earlier_version_is_restored(begin_migrated, servers, path, tmp_path):
    backup = tmp_path / path.stem
    backup.write_bytes(lzma.decompress(path.read_bytes()))
    manage(servers, "restore", str(backup))
    assert_all_is_there(servers)
    manage(servers, "verify_backup", str(backup))
