import json
import os
import socket
import subprocess
import sys
from pathlib import Path
from urllib.parse import urlsplit

import psycopg
import pytest
import redis
from django.conf import settings

from config.stack.processes import find_servers
from testing.servers import ADDRESSES

pytestmark = pytest.mark.extended


class Pipe:
    def __init__(self, process):
        self.process = process
        self.urls = json.loads(process.stdout.readline())

    def say(self, command):
        self.process.stdin.write(f"{command}\n")
        self.process.stdin.flush()
        return self.process.stdout.readline().strip()

    @property
    def root(self):
        """Where the servers' folders are: the broker's socket names it."""
        return Path(urlsplit(self.urls["REDIS_URL"].replace("%2F", "/")).path).parent.parent

    def database(self):
        return psycopg.connect(self.urls["SUPERUSER_URL"], autocommit=True)


@pytest.fixture(scope="module")
def servers(begin_migrated):
    with subprocess.Popen(
        [sys.executable, "-m", "testing.throwaway"],
        cwd=settings.BASE_DIR,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        yield Pipe(process)
        process.stdin.close()
        assert process.wait(30) == 0


def test_a_silent_broker_lets_everybody_in_and_answers_nobody(servers):
    assert servers.say("silence-broker") == "done"

    with socket.socket(socket.AF_UNIX) as visitor:
        visitor.settimeout(0.3)
        visitor.connect(str(servers.root / "socket" / "redis.sock"))
        visitor.sendall(b"PING\r\n")
        with pytest.raises(TimeoutError):
            visitor.recv(16)

    assert servers.say("start-broker") == "done"
    with redis.Redis.from_url(servers.urls["REDIS_URL"]) as client:
        assert client.ping()


def test_a_stopped_broker_refuses_and_comes_back_empty_at_the_same_address(servers):
    with redis.Redis.from_url(servers.urls["REDIS_URL"]) as client:
        client.set("kept", "no")
        assert servers.say("stop-broker") == "done"
        with pytest.raises(redis.ConnectionError):
            client.ping()
        assert servers.say("start-broker") == "done"
        assert client.get("kept") is None


def test_a_crashed_database_has_what_it_acknowledged(servers):
    with servers.database() as connection:
        connection.execute("CREATE TABLE said (word text)")
        connection.execute("INSERT INTO said VALUES ('kept')")
        assert servers.say("crash-database") == "done"
        with pytest.raises(psycopg.OperationalError):
            connection.execute("SELECT 1")
        with pytest.raises(psycopg.OperationalError):
            servers.database()

    assert servers.say("start-database") == "done"
    with servers.database() as connection:
        assert connection.execute("SELECT word FROM said").fetchall() == [("kept",)]
        assert connection.execute("SHOW synchronous_commit").fetchone() == ("on",)


def test_an_unknown_command_is_answered_by_those_there_are(servers):
    assert servers.say("burn-everything").startswith("There is no command 'burn-everything': start-broker, ")


def test_the_servers_end_with_whoever_started_them(begin_migrated):
    with subprocess.Popen(
        [sys.executable, "-m", "testing.throwaway"],
        cwd=settings.BASE_DIR,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        root = Pipe(process).root
        assert find_servers("postgres", root / "data")
    assert not find_servers("postgres", root / "data")
    assert not find_servers("valkey-server", root / "broker")
    assert not root.exists()


def test_an_eval_on_a_machine_where_nothing_runs_has_servers_of_its_own(begin_migrated):
    """It also migrates its scratch database, which the tests of the others copy."""
    environment = {name: value for name, value in os.environ.items() if name not in (*ADDRESSES, "PGHOST")}
    process = subprocess.run(
        [sys.executable, "manage.py", "run_evals", "--suite", "vec-02"],
        cwd=settings.BASE_DIR,
        env={
            **environment,
            "IGNORE_ENV_FILES": "1",
            "DJANGO_SETTINGS_MODULE": "config.settings.local",
            # The smaller of the built-in models.
            "EMBEDDING_LANGUAGES": "english",
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert process.returncode == 0, process.stderr
    assert process.stderr.startswith("No database is named and none runs here: using throw-away servers.")
    assert process.stdout.count(" pass ") == 3
