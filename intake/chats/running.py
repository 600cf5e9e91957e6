"""Answers that are being written: how many at once, and the turns whose writer has died.

A turn's `updated_at` is its writer's lease: the writer renews it at least once a second.
"""

import time
from datetime import datetime, timedelta

from django.db import connection, transaction

from core.citus.routing import about
from core.errors import RateLimited
from core.isolation.acting import Caller
from core.rate_limits import most_at_once
from core.rounds import for_each
from core.text import gettext_noop as _
from intake.chats import services
from intake.models import PausedTurn, Turn

# A running answer whose web process has not renewed its lease for so long is closed as interrupted. The lease is in the
# database, and is renewed once a second.
LEASE = timedelta(seconds=10)


def refuse_one_too_many(*, caller: Caller, now: datetime) -> None:
    """Call at the end of the transaction that begins a turn: it is rolled back if there is no room for an answer.

    Raises `RateLimited` when more than `most_at_once("answers")` of the caller's turns are being answered, this one
    included.
    """
    most = most_at_once("answers")
    if most < 1:
        return
    with connection.cursor() as cursor:
        # One transaction after the other, each until its commit: two that begin together would not see each other's
        # turn.
        # Separate from any other use of PostgreSQL's advisory locks.
        cursor.execute("SELECT pg_advisory_xact_lock(%s, %s)", [0x616E7377, caller.user_id])
    alive = now - LEASE
    running = Turn.objects.for_caller(caller).filter(status=Turn.Status.STREAMING, updated_at__gte=alive)
    if running.count() > most:
        raise RateLimited(
            _("%(count)s of your answers are being written. Wait for one to end."),
            count=most,
            retry_after=5,
        )


def close_abandoned_turns(*, now: datetime) -> int:
    """Close the turns whose lease has run out, and returns their number; and those that have waited for too long.

    No lease is renewed while the database is away. A running writer renews its own within the last fifth of the lease.
    """
    last = LEASE / 5
    silent = services.open_turns(silent_since=now - 4 * last)
    if silent:
        time.sleep(last.total_seconds())
    closed: list[bool] = []

    def close(turn: Turn) -> None:
        with about(turn.user_id):
            closed.append(services.interrupt_turn(turn_id=turn.pk, attempt=turn.attempt, renewed_at=turn.updated_at))

    for_each("memory.close_abandoned_turns, turns", silent, close)
    unanswered = PausedTurn.objects.filter(until__lt=now).order_by("until").values_list("user_id", "turn_id")[:1000]
    for_each("memory.close_abandoned_turns, unanswered", unanswered, _close_unanswered)
    return sum(closed)


def _close_unanswered(row: tuple[int, int]) -> None:
    user_id, turn_id = row
    with about(user_id), transaction.atomic():
        waiting = Turn.objects.select_for_update().filter(user=user_id, pk=turn_id, status=Turn.Status.WAITING).first()
        if waiting is not None:
            services.close_waiting(waiting)
