"""The one worker: a task runs once at a time, by the login of its queue, and one worker has the schedule."""

import statistics
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import psutil
import pytest
from celery import current_app
from django.conf import settings as configured
from django.db import connection, connections
from django.db.utils import ProgrammingError

from config import schedule
from config.celery import WakeUp, app
from core import resilience
from core.isolation.connecting import WEB, WORKER, add_logins_of_a_worker, use_login
from intake.models import Turn
from intake.tests.factories import a_person, a_turn
from memory.models import Embedding
from memory.tests.test_real_worker import start_worker
from testing.serving import wait_until

pytestmark = pytest.mark.django_db(transaction=True)


class Slow(WakeUp):
    """Says when it runs, and waits until it may end."""

    name = "slow"

    def __init__(self):
        super().__init__()
        self.began, self.may_end, self.runs = threading.Semaphore(0), threading.Semaphore(0), 0

    def run(self):
        self.runs += 1
        self.began.release()
        assert self.may_end.acquire(timeout=60)


def test_messages_that_come_while_a_task_runs_have_it_run_once_more():
    task = Slow()
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(task)
        assert task.began.acquire(timeout=60)
        for _ in range(3):
            task()
        task.may_end.release(2)
        running.result(60)
    assert task.runs == 2


def test_a_task_that_failed_runs_again():
    class Failing(WakeUp):
        name, runs = "failing", 0

        def run(self):
            self.runs += 1
            raise ValueError

    task = Failing()
    for _ in range(2):
        with pytest.raises(ValueError):
            task()
    assert task.runs == 2


def test_every_task_has_a_thread_and_takes_no_arguments():
    app.loader.import_default_modules()
    tasks = [task for name, task in app.tasks.items() if not name.startswith("celery.")]
    assert len(tasks) < configured.CELERY_WORKER_CONCURRENCY
    assert all(isinstance(task, WakeUp) for task in tasks)


@pytest.fixture
def two_logins(monkeypatch):
    """Runs a function in a thread of a worker, by one of its logins."""
    monkeypatch.setattr("core.isolation.connecting._logins", {})
    add_logins_of_a_worker()

    def by(login, look):
        def run():
            use_login(login)
            try:
                return look()
            finally:
                connection.close()
                connections["default"].close_pool()

        with ThreadPoolExecutor(1) as pool:
            return pool.submit(run).result(60)

    return by


def role():
    with connection.cursor() as cursor:
        cursor.execute("SELECT current_user")
        return cursor.fetchone()[0]


def test_each_login_of_one_worker_may_do_its_own_part_alone(two_logins):
    a_turn(a_person(), "Alice's secret")
    roles = configured.DATABASE_ROLES
    assert two_logins(WEB, role) == roles.web
    assert two_logins(WORKER, role) == roles.worker
    # Without a person the web role sees no rows; the worker sees all rows and may write no message.
    assert two_logins(WEB, lambda: (Turn.objects.count(), Embedding.objects.count())) == (0, 0)
    assert two_logins(WORKER, Turn.objects.count) == 1
    with pytest.raises(ProgrammingError, match="permission denied"):
        two_logins(WORKER, lambda: Turn.objects.update(user_message="changed"))


@pytest.fixture
def broker():
    with resilience.client(configured.REDIS_URL, seconds=5) as client:
        client.delete(schedule.LEASE)
        yield client
        client.delete(schedule.LEASE)


def test_one_of_two_workers_has_the_schedule_until_it_is_gone(broker):
    assert [schedule._has_lease(broker, name) for name in ("one", "two", "one")] == [True, False, True]
    broker.delete(schedule.LEASE)
    assert [schedule._has_lease(broker, name) for name in ("two", "one")] == [True, False]


def test_sweeps_hurry_only_while_something_waits(two_logins):
    assert not two_logins(WORKER, schedule._something_waits)
    a_turn(a_person(), "Not embedded yet")
    assert two_logins(WORKER, schedule._something_waits)


def seconds_until_embedded(person, text):
    a_turn(person, text)
    began = time.monotonic()
    current_app.send_task("memory.embed_pending")
    wait_until(lambda: not Embedding.objects.waiting().exists(), seconds=60)
    return time.monotonic() - began


@pytest.mark.extended
def test_a_long_import_and_a_map_delay_no_message_by_more_than_two_seconds(settings, tmp_path):
    person = a_person()
    settings.EMBEDDER = {
        "BACKEND": "memory.backends.minilm.MiniLMEmbedder",
        "OPTIONS": {"cache_dir": settings.MODEL_CACHE_DIR},
    }
    everything = "--queues=celery,housekeeping,imports,people"
    with (tmp_path / "worker.log").open("w") as log:
        worker = start_worker(log, everything, "--include=config.tests.busy_worker", role="DATABASE_URL")
        try:
            seconds_until_embedded(person, "The first message has it started")
            alone = statistics.median(seconds_until_embedded(person, f"Alone, {number}") for number in range(3))
            for task in ("memory.draw_maps", "imports.work"):
                current_app.send_task(task)
            wait_until(lambda: psutil.Process(worker.pid).children(), seconds=60)
            beside = statistics.median(seconds_until_embedded(person, f"Beside, {number}") for number in range(3))
        finally:
            worker.terminate()
            for child in psutil.Process(worker.pid).children():
                child.kill()
            worker.kill()
            worker.wait()
    sys.stdout.write(f"alone {alone:.2f} s, beside both {beside:.2f} s")
    assert beside < alone + 2
