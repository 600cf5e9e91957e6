"""The Celery application: workers fill vectors, beat runs the sweeps for rows without a message."""

import gc
import logging
import os
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

from celery import Celery, Task
from celery.beat import PersistentScheduler
from celery.signals import beat_init, before_task_publish, celeryd_after_setup, task_postrun, task_prerun
from django.apps import apps
from django.db import DatabaseError, connection

from config.stack import TASKS
from core.logs import APPLICATION, request_id, sane

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings.local")

logger = logging.getLogger(__name__)

# As in manage.py, if this module is the first of a worker or of beat, which then loads Django and the tasks.
if not apps.app_configs:
    gc.disable()

app = Celery("recollect")
app.config_from_object("django.conf:settings", namespace="CELERY")
app.autodiscover_tasks()

# The header of a message with the id of the request that sent it.
REQUEST = "recollect_request"


@celeryd_after_setup.connect
@beat_init.connect
def collect_again(**_: Any) -> None:
    """All is loaded, and a worker has no children yet: they inherit a collector that is on."""
    gc.freeze()
    gc.enable()


@before_task_publish.connect
def name_the_request(headers: dict[str, Any] | None = None, **_: Any) -> None:
    if headers is not None:
        headers[REQUEST] = request_id.get()


class ClockwiseScheduler(PersistentScheduler):
    """Beat's schedule on disk, without times in the future.

    After the clock was set back, every entry was last sent in the future, and beat would send nothing until then, also
    after a restart, because the times are on disk.
    """

    def tick(self, *args: Any, **kwargs: Any) -> Any:
        latest = self.app.now() + timedelta(seconds=1)
        ahead = [entry for entry in self.schedule.values() if entry.last_run_at and entry.last_run_at > latest]
        for entry in ahead:
            entry.last_run_at = self.app.now()
        if ahead:
            logger.warning("The clock went back: %d times of the schedule were in the future", len(ahead))
            self.populate_heap()
        return super().tick(*args, **kwargs)


@task_prerun.connect
def show_that_tasks_come(**_: Any) -> None:
    """For the supervisor of `make up`, which starts beat again when none comes."""
    if path := os.environ.get(TASKS):
        with suppress(OSError):
            Path(path).touch()


@task_prerun.connect
def take_on_the_request(task_id: str, task: "Task[Any, Any]", **_: Any) -> None:
    """Logs and the database name the request that caused a task; without one, the task itself."""
    # Celery puts a message's own headers among the request's fields, and those of a local call into a dict.
    sent = getattr(task.request, REQUEST, None) or (task.request.headers or {}).get(REQUEST)
    request_id.set(sane(str(sent or "")) or f"task-{task_id[:8]}")
    with suppress(DatabaseError), connection.cursor() as cursor:
        cursor.execute("SELECT set_config('application_name', %s, false)", [f"{APPLICATION} {request_id.get()}"])


@task_postrun.connect
def leave_the_request(**_: Any) -> None:
    request_id.set("")
