"""The audit log of each account: records events with the names of devices, shows them to the owner, and removes them
after a year.

Each row is added in the transaction of its event, if there is one. Rows contain no user's text.
"""

from collections.abc import Collection
from datetime import datetime
from uuid import NAMESPACE_OID, uuid5

from allauth.core import context
from django.db import IntegrityError, connection

from core.isolation.acting import ActingAsAnother, Caller, acting_as
from core.paging import ListPage, Position, page_of
from intake.accounts.devices import in_words
from intake.models import User
from intake.models.activity import DEVICE_LENGTH, Activity, ActivityEntry

PAGE = 50


def note(user: User | int | None, what: Activity, *, count: int = 1) -> None:
    """Add to the log of a registered user; a visitor has none."""
    user_id = user.pk if isinstance(user, User) else user
    if user_id is None or not count or (isinstance(user, User) and user.is_visitor):
        return
    request = context.request
    device = "" if request is None else in_words(request.headers.get("User-Agent", ""))[:DEVICE_LENGTH]
    entry = ActivityEntry(user_id=user_id, what=what, count=count, device=device)
    try:
        with acting_as(Caller(user_id=user_id)):
            entry.save(force_insert=True)
    except ActingAsAnother:
        # On a page of staff, who may add to anyone's log.
        entry.save(force_insert=True)
    except IntegrityError:
        # The account was deleted in the meantime, and its log with it.
        return


def note_for_caller(caller: Caller, what: Activity, *, count: int = 1) -> None:
    if caller.is_registered:
        note(caller.user_id, what, count=count)


def note_look_by_staff(staff: User, user_ids: Collection[int], *, now: datetime) -> None:
    """Within `acting_as_staff`: once an hour for each pair of staff member and viewed user."""
    hour = f"{now.timestamp() // 3600:.0f}"
    # The id stays the same for an hour.
    entries = [
        ActivityEntry(
            id=uuid5(NAMESPACE_OID, f"{staff.pk} {user_id} {hour}"),
            user_id=user_id,
            at=now,
            what=Activity.STAFF_LOOKED,
        )
        for user_id in sorted(user_ids)
    ]
    ActivityEntry.objects.bulk_create(entries, ignore_conflicts=True)


def list_activity(user: User, *, after: Position | None) -> ListPage[ActivityEntry]:
    """The newest first."""
    with acting_as(user):
        return page_of(ActivityEntry.objects.for_user(user), by="at", after=after, size=PAGE)


def includes(user: User, what: Activity) -> bool:
    """Whether it happened in the past year."""
    with acting_as(user):
        return ActivityEntry.objects.for_user(user).filter(what=what).exists()


def remove_old() -> int:
    """As the worker role; returns how many were removed."""
    with connection.cursor() as cursor:
        # A policy lets a worker remove these and nothing else (intake/migrations/0004_isolation.py).
        cursor.execute("DELETE FROM intake_activity WHERE at < now() - interval '1 year'")
        return int(cursor.rowcount)
