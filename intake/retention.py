"""Removing what was said longer ago than `settings.RETENTION_DAYS`, with all that was made of it."""

from datetime import datetime, timedelta

from django.conf import settings

from core.isolation.acting import acting_as
from core.isolation.caller import Caller
from intake.deleting import delete_older
from intake.models import Turn, User


def remove_old_turns(*, now: datetime) -> int:
    """As the web role, which acts as each person in turn; returns how many turns went. Twice leaves the same."""
    if settings.RETENTION_DAYS < 1:
        return 0
    before = now - timedelta(days=settings.RETENTION_DAYS)
    people = User.objects.order_by("pk").values_list("pk", flat=True)
    return sum(_remove_of(user_id, before) for user_id in list(people))


def _remove_of(user_id: int, before: datetime) -> int:
    """A conversation at a time, so that nobody waits long for a lock."""
    caller = Caller(user_id=user_id)
    with acting_as(caller):
        old = Turn.objects.for_caller(caller).filter(said_at__lt=before)
        conversations = list(old.order_by().values_list("conversation_id", flat=True).distinct())
    removed = 0
    for conversation_id in conversations:
        with acting_as(caller):
            removed += delete_older(caller=caller, conversation_id=conversation_id, before=before)
    return removed
