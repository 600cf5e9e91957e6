"""Closes turns whose web process died during the answer: its lease has expired, or it has been silent for long."""

from datetime import datetime, timedelta

from django.conf import settings

from core.isolation.routing import about
from core.periodic import for_each
from intake import services
from intake.answers import streams
from intake.models import Turn


def close_abandoned_turns(*, now: datetime, idle: timedelta) -> int:
    """Returns the number of closed turns. `idle` is the silence that is enough without Redis.

    The database must show a silence of a lease's length, and Redis a missing lease: either alone may have been
    unavailable for a moment.
    """
    silent = services.open_turns(silent_since=now - min(idle, timedelta(seconds=settings.ANSWER_LEASE_SECONDS)))
    dead = set(streams.without_lease([(turn.pk, turn.attempt) for turn in silent]) or ())
    abandoned = [turn for turn in silent if turn.pk in dead or turn.updated_at < now - idle]
    closed: list[bool] = []
    for_each("memory.close_abandoned_turns, turns", abandoned, lambda turn: closed.append(_interrupt(turn)))
    return sum(closed)


def _interrupt(turn: Turn) -> bool:
    with about(turn.user_id):
        return services.interrupt_turn(turn_id=turn.pk, attempt=turn.attempt)
