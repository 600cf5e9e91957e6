"""Limits the number of answers that are being written for one user at once, over all processes.

A running turn is marked in the database, with a sign of life every few seconds, so the count needs no data of its own.
An answer leaves it when it is saved, however it ended, or some time after its server was killed.
"""

from datetime import datetime, timedelta

from django.conf import settings
from django.db import connection

from core.errors import RateLimited
from core.isolation.caller import Caller
from intake.models import Turn

RETRY_AFTER_SECONDS = 5
# Separate from any other use of PostgreSQL's advisory locks.
LOCK = 0x616E7377


def refuse_one_too_many(*, caller: Caller, now: datetime) -> None:
    """Call at the end of the transaction that begins a turn: it is rolled back if there is no room for an answer.

    Raises `RateLimited` when more than `CONCURRENT_ANSWERS` of the caller's turns are being answered, this one
    included.
    """
    most = settings.CONCURRENT_ANSWERS
    if most < 1:
        return
    with connection.cursor() as cursor:
        # One transaction after the other, each until its commit: two that begin together would not see each other's
        # turn.
        cursor.execute("SELECT pg_advisory_xact_lock(%s, %s)", [LOCK, caller.user_id])
    alive = now - timedelta(seconds=settings.TURN_ABANDONED_SECONDS)
    running = Turn.objects.for_caller(caller).filter(status=Turn.Status.STREAMING, updated_at__gte=alive)
    if running.count() > most:
        raise RateLimited(
            f"{most} of your answers are being written. Wait for one to end.", retry_after=RETRY_AFTER_SECONDS
        )
