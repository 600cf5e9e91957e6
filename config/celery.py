"""The Celery application: a worker fills vectors, imports, sweeps, and has the schedule."""

import gc
import os
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any

from celery import Celery, Task
from celery.signals import before_task_publish, celeryd_after_setup, task_postrun, task_prerun, worker_ready
from django.apps import apps
from django.conf import settings
from django.db import DatabaseError, connection

from config.stack import TASKS
from core.isolation.connecting import WEB, WORKER, use_login
from core.logs import APPLICATION, request_id, sane
from core.priority import share_from_now_on

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings.local")

# As in manage.py, if this module is the first of a worker, which then loads Django and the tasks.
if not apps.app_configs:
    gc.disable()


class WakeUp(Task):  # type: ignore[type-arg]
    """A task that runs once at a time in a process, whose message only wakes it: the rows say what there is to do.

    A message that comes meanwhile has it run once more, so that no row is overlooked and no thread waits for another.
    """

    abstract = True

    def __init__(self) -> None:
        self._state = threading.Lock()
        self._is_running = self._is_wanted = False

    def __call__(self, *args: Any, **kwargs: Any) -> None:
        with self._state:
            self._is_wanted = True
            if self._is_running:
                return
            self._is_running = True
        try:
            while self._is_still_wanted():
                self.run(*args, **kwargs)
        except BaseException:
            with self._state:
                self._is_running = False
            raise

    def _is_still_wanted(self) -> bool:
        with self._state:
            self._is_running, self._is_wanted = self._is_wanted, False
            return self._is_running


app = Celery("recollect", task_cls=WakeUp)
app.config_from_object("django.conf:settings", namespace="CELERY")
app.autodiscover_tasks()

# The header of a message with the id of the request that sent it.
REQUEST = "recollect_request"


@celeryd_after_setup.connect
def begin(**_: Any) -> None:
    """All is loaded."""
    share_from_now_on()


@worker_ready.connect
def keep_the_schedule(sender: Any, **_: Any) -> None:
    """In a worker of either kind of queue that sees what waits."""
    if {*app.amqp.queues.consume_from} - settings.QUEUES_OF_USERS:
        from config.schedule import keep  # no other process has it

        threading.Thread(target=keep, args=(sender.hostname,), name="schedule", daemon=True).start()


@before_task_publish.connect
def name_the_request(headers: dict[str, Any] | None = None, **_: Any) -> None:
    if headers is not None:
        headers[REQUEST] = request_id.get()


@task_prerun.connect
def show_that_tasks_come(**_: Any) -> None:
    """For the supervisor of `make up`, which starts the worker again when none comes."""
    if path := os.environ.get(TASKS):
        with suppress(OSError):
            Path(path).touch()


@task_prerun.connect
def take_on_the_request(task_id: str, task: "Task[Any, Any]", **_: Any) -> None:
    """Logs and the database name the request that caused a task; without one, the task itself. And log in for it."""
    queue = (task.request.delivery_info or {}).get("routing_key")
    use_login(WEB if queue in settings.QUEUES_OF_USERS else WORKER)
    # Celery puts a message's own headers among the request's fields, and those of a local call into a dict.
    sent = getattr(task.request, REQUEST, None) or (task.request.headers or {}).get(REQUEST)
    request_id.set(sane(str(sent or "")) or f"task-{task_id[:8]}")
    with suppress(DatabaseError), connection.cursor() as cursor:
        cursor.execute("SELECT set_config('application_name', %s, false)", [f"{APPLICATION} {request_id.get()}"])


@task_postrun.connect
def leave_the_request(**_: Any) -> None:
    request_id.set("")
