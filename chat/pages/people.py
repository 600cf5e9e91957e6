"""The pages of staff about accounts: who is here, invitations, what is used in figures, and what staff and others did.

The figures of each person are counted with that person's own access, because the database hides all personal rows from
staff. No text is read here.
"""

import time
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from typing import Any

from allauth.account.adapter import get_adapter
from allauth.account.forms import default_token_generator
from allauth.account.utils import user_pk_to_url_str
from django import forms
from django.conf import settings
from django.contrib import messages
from django.contrib.admin.models import LogEntry
from django.core.paginator import Paginator
from django.db import transaction
from django.db.models import Count, IntegerField, Max, QuerySet, Sum
from django.db.models.fields.json import KeyTextTransform
from django.db.models.functions import Cast, TruncDate
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.shortcuts import render
from django.urls import reverse
from django.utils import timezone
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from chat.pages.installation import MEGABYTE, megabytes_field
from chat.pages.staff import ACTIONS, note_action, staff_page
from core.errors import InvalidInput, NotFound
from core.isolation.acting import acting_as, acting_as_staff
from core.responses import site_of
from core.text import gettext_noop, pg_text
from core.validation import LONGEST_EMAIL
from intake.accounts import registration
from intake.accounts.adapters import count_mail
from intake.accounts.forms import email_field
from intake.accounts.identity import person_of
from intake.accounts.registration import Registration
from intake.accounts.sessions import end_access, end_other_sessions, requires_recent_proof
from intake.models import Activity, ActivityEntry, Conversation, Invitation, Session, Turn, User
from intake.models.users import QUOTAS_OF_USERS, keep_setting, own_quotas, quota_of_everybody
from memory import quotas

PER_PAGE = 25
LONGEST_ID = 18

# --- `/staff/people/`: the list, and invitations ---


class InvitationForm(forms.Form):
    email = email_field()

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fields["email"].required = False


@staff_page
@require_safe
def list_users(request: HttpRequest) -> HttpResponse:
    """`?q=`: those whose address contains it."""
    return _list_page(request, InvitationForm())


@staff_page
@requires_recent_proof(methods=("POST",))
@require_POST
def invite(request: HttpRequest) -> HttpResponse:
    """The link is shown once: only a digest of its secret is kept. It is mailed to an address, if mail is set up."""
    form = InvitationForm(request.POST)
    if not form.is_valid():
        return _list_page(request, form)
    email = form.cleaned_data["email"] if sends_mail() else ""
    if email:
        count_mail(request, email)
    with acting_as_staff():
        _made, secret = Invitation.objects.issue()
    note_action(request, "invited")
    link = f"{site_of(request)}{reverse('intake:register')}?invitation={secret}"
    is_sent = bool(email) and get_adapter().send_mail("account/email/invitation", email, {"link": link})
    return _list_page(request, InvitationForm(), link=link, mailed_to=email if is_sent else "")


def sends_mail() -> bool:
    """Whether a mail server is set: without one, mail goes to the log of the server, where no link belongs."""
    return bool(settings.EMAIL_HOST)


def _list_page(request: HttpRequest, form: InvitationForm, *, link: str = "", mailed_to: str = "") -> HttpResponse:
    words = pg_text(request.GET.get("q", ""))[:LONGEST_EMAIL].strip().lower()
    found = User.objects.filter(is_visitor=False, email__contains=words).order_by("-pk")
    page = Paginator(found, PER_PAGE).get_page(request.GET.get("page"))
    context = {
        "rows": _rows(list(page.object_list)),
        "page": page,
        "words": words,
        "visitors": User.objects.filter(is_visitor=True).count(),
        "form": form,
        "may_invite": registration.policy() != Registration.CLOSED,
        "sends_mail": sends_mail(),
        "link": link,
        "mailed_to": mailed_to,
        "longest": LONGEST_EMAIL,
        "tab": "people",
    }
    return render(request, "intake/staff/people.html", context)


def _rows(users: list[User]) -> list[dict[str, Any]]:
    seen = dict(Session.objects.filter(user__in=users).values_list("user").annotate(at=Max("last_used_at")))
    return [{"user": user, "seen_at": seen.get(user.pk) or user.last_login, **_figures(user)} for user in users]


def _figures(user: User) -> dict[str, int]:
    stored = quotas.measure(user.pk)
    with acting_as(user):
        chats = Conversation.objects.for_user(user).count()
    return {
        "chats": chats,
        "turns": stored.turns,
        "size": stored.bytes + stored.file_bytes,
        "text_size": stored.bytes,
        "file_size": stored.file_bytes,
        "waiting": stored.vectors_waiting,
    }


# --- `/staff/people/ID/`: one account ---

YOURSELF = gettext_noop("Do this with your own account on the account page, or let another administrator do it.")
ADMINISTRATORS_ONLY = gettext_noop("Only administrators with all rights may do this.")
LAST_ONE = gettext_noop("This is the last administrator: make another one first.")


class QuotasForm(forms.Form):
    """What this person may keep. Empty: as everybody."""

    text_megabytes = megabytes_field(gettext_lazy("Megabytes of text"))
    file_megabytes = megabytes_field(gettext_lazy("Megabytes of files"))

    def as_quotas(self) -> dict[str, int]:
        chosen = {"bytes": self.cleaned_data["text_megabytes"], "file_bytes": self.cleaned_data["file_megabytes"]}
        return {name: value * MEGABYTE for name, value in chosen.items() if value is not None}


@staff_page
@requires_recent_proof(methods=("POST",))
@require_http_methods(["GET", "HEAD", "POST"])
def show_user(request: HttpRequest, user_id: str) -> HttpResponse:
    """A form disables or enables the account, makes a link for a new password, sets quotas or rights."""
    user = _user(user_id)
    action = request.POST.get("do", "") if request.method == "POST" else ""
    if action == "quotas":
        return _set_quotas(request, user)
    if action == "reset":
        return _make_reset_link(request, user)
    if action in ("disable", "enable"):
        _set_active(request, user, is_active=action == "enable")
    elif action in ("promote", "demote"):
        _set_staff(request, user, is_staff=action == "promote")
    if action:
        return HttpResponseRedirect(reverse("intake:staff_person", args=[user.pk]))
    return _user_page(request, user, _quotas_form(user))


def _user(user_id: str) -> User:
    """Raises `NotFound`; a visitor has no page."""
    is_number = user_id.isascii() and user_id.isdigit() and len(user_id) <= LONGEST_ID
    user = User.objects.filter(pk=int(user_id), is_visitor=False).first() if is_number else None
    if user is None:
        raise NotFound
    return user


def _refuse_unless_allowed(request: HttpRequest, user: User, *, is_for_all_rights: bool) -> None:
    """As in the admin: an account is taken over, or administered, by administrators with all rights alone."""
    if user.pk == person_of(request).pk:
        raise InvalidInput(YOURSELF)
    if (is_for_all_rights or user.is_staff) and not person_of(request).is_superuser:
        raise InvalidInput(ADMINISTRATORS_ONLY)


def _refuse_for_the_last(user: User) -> None:
    """Within a transaction: the rows are locked, so that two administrators cannot remove each other."""
    administrators = User.objects.select_for_update().filter(is_superuser=True, is_staff=True, is_active=True)
    if [each.pk for each in administrators.order_by("pk")] == [user.pk]:
        raise InvalidInput(LAST_ONE)


def _set_active(request: HttpRequest, user: User, *, is_active: bool) -> None:
    """A disabled account loses its sessions, tokens and agents; open streams end within five seconds."""
    _refuse_unless_allowed(request, user, is_for_all_rights=False)
    with transaction.atomic():
        if not is_active:
            _refuse_for_the_last(user)
        User.objects.filter(pk=user.pk).update(is_active=is_active)
    if not is_active:
        end_other_sessions(user=user, current=None)
        end_access(user=user)
    note_action(request, "enabled" if is_active else "disabled", user=user)
    ended = _("%(name)s is disabled. Sessions, tokens and agents have ended.")
    messages.success(request, (_("%(name)s can log in again.") if is_active else ended) % {"name": user})


def _set_staff(request: HttpRequest, user: User, *, is_staff: bool) -> None:
    _refuse_unless_allowed(request, user, is_for_all_rights=True)
    with transaction.atomic():
        if not is_staff:
            _refuse_for_the_last(user)
        User.objects.filter(pk=user.pk).update(is_staff=is_staff, is_superuser=is_staff)
    note_action(request, "promoted" if is_staff else "demoted", user=user)
    done = _("%(name)s is an administrator now.") if is_staff else _("%(name)s is no administrator any more.")
    messages.success(request, done % {"name": user})


def _make_reset_link(request: HttpRequest, user: User) -> HttpResponse:
    """It works once, until the password is another one."""
    _refuse_unless_allowed(request, user, is_for_all_rights=True)
    email = str(user.email)
    if sends_mail():
        count_mail(request, email)
    key = {"uidb36": user_pk_to_url_str(user), "key": default_token_generator.make_token(user)}
    link = f"{site_of(request)}{reverse('account_reset_password_from_key', kwargs=key)}"
    note_action(request, "reset", user=user)
    mail = {"password_reset_url": link, "user": user}
    is_sent = sends_mail() and get_adapter().send_mail("account/email/password_reset_key", email, mail)
    return _user_page(request, user, _quotas_form(user), link=link, is_sent=is_sent)


def _set_quotas(request: HttpRequest, user: User) -> HttpResponse:
    form = QuotasForm(request.POST)
    if not form.is_valid():
        return _user_page(request, user, form)
    chosen = form.as_quotas()

    def change(before: dict[str, dict[str, int]] | None) -> dict[str, dict[str, int]]:
        others = {each: value for each, value in (before or {}).items() if each != str(user.pk)}
        # Those of deleted accounts go.
        present = {str(pk) for pk in User.objects.filter(pk__in=map(int, others)).values_list("pk", flat=True)}
        kept = {each: value for each, value in others.items() if each in present}
        return kept | ({str(user.pk): chosen} if chosen else {})

    keep_setting(QUOTAS_OF_USERS, change)
    note_action(request, "quotas", user=user)
    messages.success(request, _("Saved. It applies everywhere within seconds."))
    return HttpResponseRedirect(reverse("intake:staff_person", args=[user.pk]))


def _quotas_form(user: User) -> QuotasForm:
    own = {name: value // MEGABYTE for name, value in own_quotas(user.pk).items()}
    return QuotasForm(initial={"text_megabytes": own.get("bytes"), "file_megabytes": own.get("file_bytes")})


def _user_page(
    request: HttpRequest, user: User, form: QuotasForm, *, link: str = "", is_sent: bool = False
) -> HttpResponse:
    me = person_of(request)
    (row,) = _rows([user])
    context = {
        "row": row,
        "person": user,
        "form": form,
        "of_everybody": [quota_of_everybody("bytes"), quota_of_everybody("file_bytes")],
        "is_me": user.pk == me.pk,
        "may_change": user.pk != me.pk and (me.is_superuser or not user.is_staff),
        "has_all_rights": me.is_superuser and user.pk != me.pk,
        "is_sent": is_sent,
        "link": link,
        "tab": "people",
    }
    return render(request, "intake/staff/person.html", context)


# --- `/staff/`: the last thirty days in figures, and what was done ---

DAYS = 30
MOST_COUNTED = 500
COUNTING_SECONDS = 8.0
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
    since, until = now - timedelta(days=DAYS), time.monotonic() + COUNTING_SECONDS
    rows: list[dict[str, Any]] = []
    events: list[tuple[datetime, str]] = list(_done_by_staff())
    users = User.objects.filter(is_visitor=False)
    for user in _seen_last(users):
        if time.monotonic() > until:
            break
        used = _count_days(user, since)
        for day, figures in used.items():
            if day in days:
                days[day].update(figures)
        rows.append({"user": user, **_figures(user), "used": sum(used.values(), Counter())})
        events += _done_by(user, since)
    backups = [each.stat().st_mtime for each in settings.VAR_DIR.glob("backups/*-daily.backup")]
    context = {
        "days": [{"day": day, **{name: figures[name] for name in FIGURES}} for day, figures in days.items()],
        "most": max((figures["turns"] for figures in days.values()), default=0) or 1,
        "bars": _bars(days),
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


def _seen_last(users: "QuerySet[User]") -> list[User]:
    seen = users.annotate(seen_at=Max("session__last_used_at"))
    return list(seen.order_by("-seen_at", "-last_login", "-pk")[:MOST_COUNTED])


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


def _bars(days: dict[date, Counter[str]]) -> list[tuple[int, int, int, date]]:
    """Of a picture of 100 by 600, the oldest day first: x, y, height, day."""
    most = max((figures["turns"] for figures in days.values()), default=0) or 1
    bars = enumerate(reversed(days.items()))
    heights = [(number, day, round(96 * figures["turns"] / most)) for number, (day, figures) in bars]
    return [(number * 20 + 2, 100 - max(height, 1), max(height, 1), day) for number, day, height in heights]


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
