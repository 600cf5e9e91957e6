"""The pages of staff about accounts: who is here, invitations, and one account at `/staff/people/ID/`.

The figures of each person are counted with that person's own access, because the database hides all personal rows from
staff. No text is read here.
"""

from typing import Any

from allauth.account.adapter import get_adapter
from allauth.account.forms import default_token_generator
from allauth.account.utils import user_pk_to_url_str
from django import forms
from django.conf import settings
from django.contrib import messages
from django.core.paginator import Paginator
from django.db import transaction
from django.db.models import Max
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils.translation import gettext_lazy as _
from django.views.decorators.http import require_POST, require_safe

from chat.pages.common import done
from chat.pages.installation import MEGABYTE, number_field
from chat.pages.staff import note_action, staff_form, staff_page
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
from intake.accounts.sessions import end_access, end_other_sessions
from intake.models import Conversation, Invitation, Session, User
from intake.models.installation import (
    QUOTAS_OF_USERS,
    keep_setting,
    own_quotas,
    quota_of_everybody,
)
from memory import quotas

PER_PAGE = 25


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


@staff_form
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


def _list_page(request: HttpRequest, form: InvitationForm, **of_link: Any) -> HttpResponse:
    words = pg_text(request.GET.get("q", ""))[:LONGEST_EMAIL].strip().lower()
    found = User.objects.filter(is_visitor=False, email__contains=words).order_by("-pk")
    page = Paginator(found, PER_PAGE).get_page(request.GET.get("page"))
    context = {
        "rows": account_rows(list(page.object_list)),
        "page": page,
        "words": words,
        "visitors": User.objects.filter(is_visitor=True).count(),
        "form": form,
        "may_invite": registration.policy() != Registration.CLOSED,
        "sends_mail": sends_mail(),
        "longest": LONGEST_EMAIL,
        "tab": "people",
        **of_link,
    }
    return render(request, "intake/staff/people.html", context)


def account_rows(users: list[User]) -> list[dict[str, Any]]:
    seen = dict(Session.objects.filter(user__in=users).values_list("user").annotate(at=Max("last_used_at")))
    return [{"user": user, "seen_at": seen.get(user.pk) or user.last_login, **account_figures(user)} for user in users]


def account_figures(user: User) -> dict[str, int]:
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


YOURSELF = gettext_noop("Do this with your own account on the account page, or let another administrator do it.")
ADMINISTRATORS_ONLY = gettext_noop("Only administrators with all rights may do this.")
LAST_ONE = gettext_noop("This is the last administrator: make another one first.")


class QuotasForm(forms.Form):
    """What this person may keep. Empty: as everybody."""

    text_megabytes = number_field(_("Megabytes of text"))
    file_megabytes = number_field(_("Megabytes of files"))


@staff_form
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
        return redirect("intake:staff_person", user.pk)
    return _user_page(request, user, _quotas_form(user))


def _user(user_id: str) -> User:
    """Raises `NotFound`; a visitor has no page."""
    is_number = user_id.isascii() and user_id.isdigit() and len(user_id) <= 18
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
    names = {"bytes": "text_megabytes", "file_bytes": "file_megabytes"}
    chosen = {name: size * MEGABYTE for name, field in names.items() if (size := form.cleaned_data[field]) is not None}

    def change(before: dict[str, dict[str, int]] | None) -> dict[str, dict[str, int]]:
        quotas = (before or {}) | {str(user.pk): chosen}
        # Those of deleted accounts go.
        present = User.objects.filter(pk__in=map(int, quotas)).values_list("pk", flat=True)
        return {str(pk): quotas[str(pk)] for pk in present if quotas[str(pk)]}

    keep_setting(QUOTAS_OF_USERS, change)
    note_action(request, "quotas", user=user)
    return done(request, _("Saved. It applies everywhere within seconds."), "intake:staff_person", user.pk)


def _quotas_form(user: User) -> QuotasForm:
    own = {name: value // MEGABYTE for name, value in own_quotas(user.pk).items()}
    return QuotasForm(initial={"text_megabytes": own.get("bytes"), "file_megabytes": own.get("file_bytes")})


def _user_page(request: HttpRequest, user: User, form: QuotasForm, **of_link: Any) -> HttpResponse:
    me = person_of(request)
    (row,) = account_rows([user])
    context = {
        "row": row,
        "person": user,
        "form": form,
        "of_everybody": [quota_of_everybody("bytes"), quota_of_everybody("file_bytes")],
        "is_me": user.pk == me.pk,
        "may_change": user.pk != me.pk and (me.is_superuser or not user.is_staff),
        "has_all_rights": me.is_superuser and user.pk != me.pk,
        "tab": "people",
        **of_link,
    }
    return render(request, "intake/staff/person.html", context)
