"""Deletes turns that are older than the retention time, with all data derived from them."""

from datetime import datetime, timedelta

from django.db.models import Min

from core.isolation.acting import Caller, acting_as
from core.rounds import for_each
from intake.chats.deleting import delete_older
from intake.models import Turn, User
from intake.models.installation import retention_days

# `User.retention_due_at` is the queue: the user who has waited longest is next and gets a share of the step. They are
# due again when their oldest turn is too old, a day later at the latest, or after the others if the share was not
# enough.

STEP_SECONDS = 20.0
# Of one user; each conversation has its own transaction, so that no lock is held for long.
CONVERSATIONS_AT_ONCE = 50


def remove_old_turns(*, now: datetime) -> bool:
    """One step of some seconds, as the web role, acting as each user in turn; returns whether more users are due."""
    if retention_days() < 1:
        return False
    due = User.objects.filter(retention_due_at__lte=now).order_by("retention_due_at", "pk")
    for_each(
        "memory.remove_old_turns, users",
        list(due.values_list("pk", flat=True)[:1_000]),
        lambda user_id: _remove_some_of(user_id, now),
        seconds=STEP_SECONDS,
        # A user whose step failed is due again after this time, so that the others come first.
        postpone=lambda user_id: _set_due(user_id, now + timedelta(hours=1)),
    )
    return due.exists()


def _remove_some_of(user_id: int, now: datetime) -> None:
    caller, kept = Caller(user_id=user_id), timedelta(days=retention_days())
    mine = Turn.objects.for_caller(caller)
    with acting_as(caller):
        old = mine.filter(said_at__lt=now - kept).order_by("conversation_id")
        some = list(old.values_list("conversation_id", flat=True).distinct()[:CONVERSATIONS_AT_ONCE])
    for conversation_id in some:
        with acting_as(caller):
            delete_older(caller=caller, conversation_id=conversation_id, before=now - kept)
    with acting_as(caller):
        oldest = mine.aggregate(at=Min("said_at"))["at"]
        # Within a day for imported turns with an old date, and for a changed setting.
        tomorrow = now + timedelta(days=1)
        due_at = tomorrow if oldest is None else min(tomorrow, max(now, oldest + kept))
    _set_due(user_id, due_at)


def _set_due(user_id: int, at: datetime) -> None:
    with acting_as(Caller(user_id=user_id)):
        User.objects.filter(pk=user_id).update(retention_due_at=at)
