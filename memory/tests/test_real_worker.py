"""A real Celery worker on a real broker: what is said becomes searchable; without its model it refuses to start."""

import itertools
import os
import signal
import socket
import statistics
import subprocess
import sys
import threading
import time
from urllib.parse import urlsplit

import psutil
import pytest
from celery import current_app
from django.apps import apps
from django.conf import settings as django_settings
from django.db import connection
from django.utils import timezone

from intake.models import Attachment
from intake.tests.attached import a_file
from memory import tasks
from memory.backends.on_device import MINILM, find_package
from memory.index import writer
from memory.models import Embedding, EmbeddingModel
from testing import files
from testing.model_server import Say
from testing.serving import wait_until

pytestmark = [pytest.mark.extended, pytest.mark.django_db(transaction=True)]


def worker_environment(role, **extra):
    """The worker's settings: those of `make up`, on the test database and the test broker."""
    database = connection.settings_dict
    # The name alone: the embedded server's address goes on after it.
    address = urlsplit(os.environ[role])._replace(path=f"/{database['NAME']}")
    return {
        **os.environ,
        "DJANGO_SETTINGS_MODULE": "config.settings.local",
        "SECRET_KEY": "for tests only",
        # The smaller of the built-in models.
        "EMBEDDING_LANGUAGES": "english",
        "DATABASE_URL": address.geturl(),
        **extra,
    }


def start_worker(log, *arguments, role="DATABASE_WORKER_URL", **extra):
    command = [
        sys.executable,
        "-m",
        "celery",
        "-A",
        "config",
        "worker",
        "--without-gossip",
        "-n",
        "test",
        *arguments,
    ]
    return subprocess.Popen(
        command,
        cwd=django_settings.BASE_DIR,
        env=worker_environment(role, **extra),
        stdout=log,
        stderr=subprocess.STDOUT,
    )


@pytest.fixture
def worker(tmp_path):
    with (tmp_path / "worker.log").open("w") as log:
        process = start_worker(log)
        yield process
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            # Seen twice: Celery's warm shutdown never ended. A supervisor kills it, too.
            for each in (*psutil.Process(process.pid).children(recursive=True), process):
                each.kill()
            process.wait()


@pytest.mark.medium
def test_a_turn_said_over_http_becomes_searchable(server, settings, person, log_in, language_model, worker, tmp_path):
    settings.EMBEDDER = {
        "BACKEND": "memory.backends.minilm.MiniLMEmbedder",
        "OPTIONS": {"cache_dir": settings.MODEL_CACHE_DIR},
    }
    language_model(Say(("What a lovely name.",)))
    client = log_in(person)
    client.events("We adopted a kitten and called her Miso")
    _, token = apps.get_model("agent_tools.AccessToken").objects.issue(user=person)
    deadline = time.monotonic() + 120
    while True:
        answer = client.post(
            "/api/v1/tools/search_chat_history/",
            json={"query": "what is the name of our cat?"},
            headers={"Authorization": f"Token {token}"},
        ).json()
        if answer["results"]:
            break
        assert answer["pending"] == 1
        assert time.monotonic() < deadline, (tmp_path / "worker.log").read_text()
        time.sleep(0.1)
    assert answer["results"][0]["snippet"] == "We adopted a kitten and called her Miso"
    assert answer["results"][0]["score"] < 0.6
    assert "Miso" not in (tmp_path / "worker.log").read_text(), "no words in the log"


@pytest.fixture
def model_dir(tmp_path):
    """A folder with a tokenizer and no weights."""
    (tmp_path / "tokenizer.json").symlink_to(find_package(MINILM) / "model/tokenizer.json")
    return tmp_path


@pytest.fixture
def refusal(monkeypatch):
    """Says why a worker does not start, without a process that ends with this sentence."""
    monkeypatch.setattr("memory.backends.embedders.ACTIVE_NAME_SECONDS", 0.0)
    monkeypatch.setattr(tasks, "_leave_no_connection", lambda: None)

    def refusal():
        with pytest.raises(SystemExit) as ended:
            tasks.refuse_without_a_model()
        return str(ended.value)

    return refusal


@pytest.mark.parametrize("weights", [b"", b"tampered"])
def test_a_worker_whose_model_is_missing_or_was_changed_names_the_file(model_dir, refusal, settings, tmp_path, weights):
    if weights:
        (model_dir / "model.safetensors").write_bytes(weights)
    options = {"cache_dir": tmp_path / "no graph yet", "model_dir": str(model_dir)}
    settings.EMBEDDER = {"BACKEND": "memory.backends.minilm.MiniLMEmbedder", "OPTIONS": options}
    start, said = "The worker cannot start: ", refusal()
    assert said.startswith((f"{start}{model_dir}", f"{start}The embedding model's file"))
    assert str(model_dir / "model.safetensors") in said


def test_a_worker_that_would_log_in_as_the_application_refuses_to_start_and_says_what_to_do(tmp_path):
    with (tmp_path / "worker.log").open("w") as log:
        process = start_worker(log, role="DATABASE_URL", DATABASE_WORKER_URL="")
        assert process.wait(120) != 0
    said = (tmp_path / "worker.log").read_text()
    assert "The worker cannot start: core.E004: The database role is recollect_web" in said
    assert "Traceback" not in said


def test_a_worker_that_knows_only_a_former_model_says_what_to_do(refusal):
    EmbeddingModel.objects.create(name="of an endpoint", dimensions=3, activated_at=timezone.now())
    assert refusal().startswith(
        "The worker cannot start: The index was made with the embedding model of an endpoint, and the settings"
    )


@pytest.fixture
def wake_at(monkeypatch):
    """Has this process wake a worker through another broker."""
    send = writer.current_app.send_task

    def wake_at(url):
        def send_there(*arguments, **options):
            with writer.current_app.connection_for_write(url) as connection:
                return send(*arguments, connection=connection, **options)

        monkeypatch.setattr(writer.current_app, "send_task", send_there)

    return wake_at


def in_vain(caplog):
    """How often waking a worker failed."""
    return caplog.text.count("No worker could be woken")


def test_a_broker_that_refuses_or_is_silent_delays_no_save(monkeypatch, caplog, wake_at, person):
    from intake.tests.factories import a_turn

    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        for broker in (f"redis://127.0.0.1:{silent.getsockname()[1]}/0", "redis://127.0.0.1:1/0"):
            wake_at(broker)
            monkeypatch.setattr(writer, "wake_worker", writer.Waker().wake_worker)
            started = time.monotonic()
            a_turn(person, "Kept")
            assert time.monotonic() - started < 4, "well under the five seconds that the broker is given to answer"
    assert Embedding.objects.waiting().count() == 2
    wait_until(lambda: in_vain(caplog) == 2, seconds=15)


def test_saves_in_a_row_are_a_few_messages_and_a_single_one_does_not_wait(monkeypatch):
    messages = []
    monkeypatch.setattr(writer.current_app, "send_task", lambda *_, **__: messages.append(time.monotonic()))
    wake_worker = writer.Waker().wake_worker
    began = time.monotonic()
    wake_worker()
    wait_until(lambda: messages)
    while time.monotonic() < began + 3 * writer.PAUSE_SECONDS:
        wake_worker()
    wait_until(lambda: len(messages) > 1)
    time.sleep(2 * writer.PAUSE_SECONDS)
    ended = time.monotonic()
    assert 2 <= len(messages) <= 1 + (ended - began) / writer.PAUSE_SECONDS
    assert all(later - earlier >= writer.PAUSE_SECONDS for earlier, later in itertools.pairwise(messages))


def test_hundreds_of_saves_under_a_silent_broker_wait_for_nothing_and_start_one_thread(caplog, wake_at, person):
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        wake_at(f"redis://127.0.0.1:{silent.getsockname()[1]}/0")
        wake_worker, threads = writer.Waker().wake_worker, threading.active_count()
        wake_worker()
        time.sleep(0.2)
        took = []
        for _ in range(300):
            began = time.monotonic()
            wake_worker()
            took.append(time.monotonic() - began)
        assert statistics.median(took) < 0.001
        assert sum(took) < 1, "one that waited for the broker would take five seconds"
        assert threading.active_count() == threads + 1
    # The first message, and the others together.
    wait_until(lambda: in_vain(caplog) == 2, seconds=15)


def test_a_file_is_read_although_its_worker_is_killed_once(person, tmp_path):
    name, make = files.HOSTILE["a million cells in an XLSX"]
    # Of now: the schedule removes what no message has named within a day.
    a_file(person, make(), name, now=timezone.now())
    with (tmp_path / "worker.log").open("w") as log:
        worker = start_worker(log, "--queues=housekeeping")
        try:
            current_app.send_task("memory.read_attachments")
            wait_until(lambda: Attachment.objects.filter(attempts=1, state="waiting").exists(), seconds=180)
            worker.kill()
            worker.wait()
            # As if the lease of the first attempt were over.
            Attachment.objects.update(next_attempt_at=timezone.now())
            # Its schedule finds the file, without a message.
            worker = start_worker(log, "--queues=housekeeping")
            wait_until(lambda: Attachment.objects.filter(state="read").exists(), seconds=180)
        finally:
            worker.terminate()
            worker.wait(30)
    assert Attachment.objects.get().attempts == 2
