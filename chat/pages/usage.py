"""The last thirty days in figures, and what was done, at `/staff/`."""

import time
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from typing import Any

from django.conf import settings
from django.contrib.admin.models import LogEntry
from django.db.models import Count, IntegerField, Max, Sum
from django.db.models.fields.json import KeyTextTransform
from django.db.models.functions import Cast, TruncDate
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.utils import timezone
from django.utils.translation import gettext_lazy
from django.views.decorators.http import require_safe

from chat.pages.people import account_figures
from chat.pages.staff import ACTIONS, staff_page
from core.isolation.acting import acting_as, acting_as_staff
from intake.models import Activity, ActivityEntry, Conversation, Turn, User

DAYS = 30
MOST_COUNTED = 500
MOST_EVENTS = 50
# Of what people themselves did; the rest is theirs alone.
SHOWN_EVENTS = {
    Activity.LOGGED_IN: gettext_lazy("%(person)s logged in."),
    Activity.LOGIN_FAILED: gettext_lazy("Log-in as %(person)s with a wrong password."),
    Activity.CODE_FAILED: gettext_lazy("Wrong code of a second factor of %(person)s."),
    Activity.PASSWORD_RESET: gettext_lazy("%(person)s chose a new password by a link."),
}
FIGURES = ("chats", "turns", "imports", "read", "written")


@staff_page
@require_safe
def show_usage(request: HttpRequest) -> HttpResponse:
    """Of those who were here last, as many as can be counted in some seconds."""
    now = timezone.now()
    today = timezone.localdate(now)
    days = {today - timedelta(days=each): Counter[str]() for each in range(DAYS)}
    since, until = now - timedelta(days=DAYS), time.monotonic() + 8.0
    rows: list[dict[str, Any]] = []
    events: list[tuple[datetime, str]] = list(_done_by_staff())
    users = User.objects.filter(is_visitor=False)
    seen = users.annotate(seen_at=Max("session__last_used_at")).order_by("-seen_at", "-last_login", "-pk")
    for user in seen[:MOST_COUNTED]:
        if time.monotonic() > until:
            break
        used = _count_days(user, since)
        for day, figures in used.items():
            if day in days:
                days[day].update(figures)
        rows.append({"user": user, **account_figures(user), "used": sum(used.values(), Counter())})
        events += _done_by(user, since)
    most = max(figures["turns"] for figures in days.values()) or 1
    heights = [(day, max(1, round(96 * figures["turns"] / most))) for day, figures in reversed(days.items())]
    backups = [each.stat().st_mtime for each in settings.VAR_DIR.glob("backups/*-daily.backup")]
    context = {
        "days": [{"day": day, **{name: figures[name] for name in FIGURES}} for day, figures in days.items()],
        "most": most,
        # Of a picture of 100 by 600, the oldest day first: x, y, height, day.
        "bars": [(number * 20 + 2, 100 - height, height, day) for number, (day, height) in enumerate(heights)],
        "rows": sorted(rows, key=lambda row: -row["used"]["turns"]),
        "counted": len(rows),
        "all": users.count(),
        "turns": sum(figures["turns"] for figures in days.values()),
        "size": sum(row["size"] for row in rows),
        # None where `make up` keeps none: Compose has them in a volume that no web process sees.
        "backed_up_at": datetime.fromtimestamp(max(backups), UTC) if backups else None,
        "events": sorted(events, key=lambda event: event[0], reverse=True)[:MOST_EVENTS],
        "tab": "usage",
    }
    return render(request, "intake/staff/usage.html", context)


def _count_days(user: User, since: datetime) -> dict[date, Counter[str]]:
    """The figures of each day on which there are any, in the time zone of the page."""
    tokens = {
        name: Sum(Cast(KeyTextTransform(f"{kind}_tokens", "usage"), IntegerField()), default=0)
        for name, kind in (("read", "input"), ("written", "output"))
    }
    days: dict[date, Counter[str]] = {}
    with acting_as(user):
        turns = Turn.objects.for_user(user).filter(said_at__gte=since).annotate(day=TruncDate("said_at")).order_by()
        chats = Conversation.objects.for_user(user).filter(started_at__gte=since).annotate(day=TruncDate("started_at"))
        entries = ActivityEntry.objects.for_user(user).filter(at__gte=since, what=Activity.IMPORT_STARTED)
        imports = entries.annotate(day=TruncDate("at")).order_by()
        for counted in (
            turns.values("day").annotate(turns=Count("turn_number"), **tokens),
            chats.order_by().values("day").annotate(chats=Count("pk")),
            imports.values("day").annotate(imports=Count("at")),
        ):
            for row in counted:
                figures: dict[str, Any] = dict(row)
                days.setdefault(figures.pop("day"), Counter()).update(figures)
    return days


def _done_by(user: User, since: datetime) -> Iterator[tuple[datetime, str]]:
    with acting_as(user):
        entries = ActivityEntry.objects.for_user(user).filter(at__gte=since, what__in=list(SHOWN_EVENTS))
        found = list(entries.order_by("-at", "-id").values_list("at", "what")[:MOST_EVENTS])
    for at, what in found:
        yield at, SHOWN_EVENTS[Activity(what)] % {"person": user}


def _done_by_staff() -> Iterator[tuple[datetime, str]]:
    """Here and in Django's admin."""
    with acting_as_staff():
        entries = list(LogEntry.objects.select_related("user").order_by("-action_time")[:MOST_EVENTS])
    for entry in entries:
        known = ACTIONS.get(entry.change_message)
        words = known[1] if known is not None else gettext_lazy("%(staff)s changed something in the admin: %(person)s.")
        yield entry.action_time, words % {"staff": entry.user, "person": entry.object_repr}
