"""The audit log of each account: records events with the names of devices, shows them to the owner, and removes them
after a year.

Each row is added in the transaction of its event, if there is one. Rows contain no user's text.
"""

from collections.abc import Collection
from datetime import datetime
from uuid import NAMESPACE_OID, UUID, uuid5

from allauth.core import context
from django.db import IntegrityError, connection
from django.utils.translation import gettext
from django.utils.translation import gettext_noop as _

from core.isolation.acting import ActingAsAnother, Caller, acting_as
from core.validation import ListPage, Position, page_of
from intake.models import User
from intake.models.activity import DEVICE_LENGTH, Activity, ActivityEntry

# --- Describes a browser by its User-Agent, so that users can recognise their own devices ---
# The description is kept with the session, in English; a page translates it.

UNKNOWN = _("An unknown device")
SOME_BROWSER = _("A browser")

# The first one that a User-Agent contains wins. Browsers name their ancestors, so the order matters.
BROWSERS = {
    "Edg": "Edge",
    "OPR/": "Opera",
    "SamsungBrowser": "Samsung Internet",
    "Firefox": "Firefox",
    "FxiOS": "Firefox",
    "CriOS": "Chrome",
    "HeadlessChrome": "Chrome",
    "Chrome": "Chrome",
    "Safari": "Safari",
    "curl": "curl",
    "python": _("A Python program"),
}
SYSTEMS = {
    "iPhone": _("an iPhone"),
    "iPad": _("an iPad"),
    "Android": "Android",
    "CrOS": "ChromeOS",
    "Windows": "Windows",
    "Macintosh": _("a Mac"),
    "Linux": "Linux",
}


def in_words(user_agent: str) -> str:
    """For example "Firefox on Linux"."""
    browser = _first(BROWSERS, user_agent)
    if system := _first(SYSTEMS, user_agent):
        return f"{browser or SOME_BROWSER} on {system}"
    return browser or UNKNOWN


def in_page_language(words: str) -> str:
    """Translates the result of `in_words`."""
    browser, on, system = words.partition(" on ")
    if not on:
        return gettext(words)
    return gettext("%(browser)s on %(system)s") % {"browser": gettext(browser), "system": gettext(system)}


def _first(names: dict[str, str], text: str) -> str | None:
    return next((name for mark, name in names.items() if mark.lower() in text.lower()), None)


# --- The audit log of each account ---

PAGE = 50
# A policy lets a worker remove what is older than a year, and nothing else (intake/migrations/0004_isolation.py).
_REMOVE_OLD = "DELETE FROM intake_activity WHERE at < now() - interval '1 year'"


def note(user: User | int | None, what: Activity, *, count: int = 1) -> None:
    """Add to the log of a registered user; a visitor has none."""
    user_id = user.pk if isinstance(user, User) else user
    if user_id is None or not count or (isinstance(user, User) and user.is_visitor):
        return
    entry = ActivityEntry(user_id=user_id, what=what, count=count, device=_device())
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


def note_change_by_staff(user_id: int) -> None:
    """Within `acting_as_staff`."""
    ActivityEntry.objects.create(user_id=user_id, what=Activity.STAFF_CHANGED)


def note_look_by_staff(staff: User, user_ids: Collection[int], *, now: datetime) -> None:
    """Within `acting_as_staff`: once an hour for each pair of staff member and viewed user."""
    ActivityEntry.objects.bulk_create(
        [
            ActivityEntry(
                id=_id_in_this_hour(staff.pk, user_id, now), user_id=user_id, at=now, what=Activity.STAFF_LOOKED
            )
            for user_id in sorted(user_ids)
        ],
        ignore_conflicts=True,
    )


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
        cursor.execute(_REMOVE_OLD)
        return int(cursor.rowcount)


def _device() -> str:
    """The device of the current request, if there is one."""
    request = context.request
    return "" if request is None else in_words(request.headers.get("User-Agent", ""))[:DEVICE_LENGTH]


def _id_in_this_hour(staff_id: int, user_id: int, now: datetime) -> UUID:
    """An id that stays the same for an hour."""
    return uuid5(NAMESPACE_OID, f"{staff_id} {user_id} {now.timestamp() // 3600:.0f}")
