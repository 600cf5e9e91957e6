"""The periodic tasks: a thread of each worker sends them, in the one that holds the lease.

The lease stands in the broker, without which no task can be sent either. A lock of the database's would not do: behind
a pooler a session's lock belongs to nobody. Times are the machine's own, which no change of the clock moves.
"""

import logging
import time
from math import inf

import redis
from celery import current_app
from django.conf import settings
from django.db import Error, connection

from core import resilience
from core.isolation.connecting import WORKER, use_login

logger = logging.getLogger(__name__)

LEASE = "recollect:schedule"
# How often the thread looks whether something is due or waits, and for how long a worker that died keeps the lease.
LOOK_SECONDS, LEASE_SECONDS = 5, 20
# Rows that a message normally leads a worker to at once: while there are any, their sweeps come sooner.
_SOMETHING_WAITS = """
SELECT EXISTS (SELECT FROM embeddings WHERE vector IS NULL AND quarantined_at IS NULL)
    OR EXISTS (SELECT FROM attachments WHERE state = 'waiting')
    OR EXISTS (SELECT FROM intake_conversation_turns WHERE status = 'streaming')
"""


def keep(name: str) -> None:
    """Send each task when it is due, as long as this process lives. `name`: the worker's, which no other one has."""
    broker = resilience.client(settings.REDIS_URL, seconds=2)
    sent = dict.fromkeys(settings.SCHEDULE, -inf)
    while True:
        time.sleep(LOOK_SECONDS)
        try:
            if not _has_lease(broker, name):
                continue
            is_hurried = _something_waits()
            for task, (seconds, seconds_if_hurried) in settings.SCHEDULE.items():
                if time.monotonic() >= sent[task] + (seconds_if_hurried if is_hurried else seconds):
                    current_app.send_task(task, expires=seconds, retry=False)
                    sent[task] = time.monotonic()
        except Exception as error:  # the next round tries again after any error of the broker
            logger.warning("The periodic tasks are not sent: %s", type(error).__name__)


def _has_lease(broker: "redis.Redis", name: str) -> bool:
    """Takes it if it is free, and keeps it alive. A worker that was started again has the name of its former self."""
    if not broker.set(LEASE, name, nx=True, ex=LEASE_SECONDS) and broker.get(LEASE) != name.encode():
        return False
    return bool(broker.expire(LEASE, LEASE_SECONDS))


def _something_waits() -> bool:
    use_login(WORKER)
    try:
        with connection.cursor() as cursor:
            cursor.execute(_SOMETHING_WAITS)
            return bool(cursor.fetchone()[0])
    except Error:
        # The tasks themselves say that it is away, and find what waits once it is back.
        return True
    finally:
        connection.close()
