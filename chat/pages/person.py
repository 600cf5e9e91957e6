"""One account, at `/staff/people/ID/`."""

from allauth.account.adapter import get_adapter
from allauth.account.forms import default_token_generator
from allauth.account.utils import user_pk_to_url_str
from django import forms
from django.contrib import messages
from django.db import transaction
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from chat.pages.installation import MEGABYTE, number_field
from chat.pages.people import account_rows, sends_mail
from chat.pages.staff import note_action, staff_form
from core.errors import InvalidInput, NotFound
from core.responses import site_of
from core.text import gettext_noop
from intake.accounts.adapters import count_mail
from intake.accounts.identity import person_of
from intake.accounts.sessions import end_access, end_other_sessions
from intake.models import User
from intake.models.installation import (
    QUOTAS_OF_USERS,
    keep_setting,
    own_quotas,
    quota_of_everybody,
)

YOURSELF = gettext_noop("Do this with your own account on the account page, or let another administrator do it.")
ADMINISTRATORS_ONLY = gettext_noop("Only administrators with all rights may do this.")
LAST_ONE = gettext_noop("This is the last administrator: make another one first.")


class QuotasForm(forms.Form):
    """What this person may keep. Empty: as everybody."""

    text_megabytes = number_field(gettext_lazy("Megabytes of text"))
    file_megabytes = number_field(gettext_lazy("Megabytes of files"))


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
        others = {each: value for each, value in (before or {}).items() if each != str(user.pk)}
        # Those of deleted accounts go.
        present = {str(pk) for pk in User.objects.filter(pk__in=map(int, others)).values_list("pk", flat=True)}
        kept = {each: value for each, value in others.items() if each in present}
        return kept | ({str(user.pk): chosen} if chosen else {})

    keep_setting(QUOTAS_OF_USERS, change)
    note_action(request, "quotas", user=user)
    messages.success(request, _("Saved. It applies everywhere within seconds."))
    return redirect("intake:staff_person", user.pk)


def _quotas_form(user: User) -> QuotasForm:
    own = {name: value // MEGABYTE for name, value in own_quotas(user.pk).items()}
    return QuotasForm(initial={"text_megabytes": own.get("bytes"), "file_megabytes": own.get("file_bytes")})


def _user_page(
    request: HttpRequest, user: User, form: QuotasForm, *, link: str = "", is_sent: bool = False
) -> HttpResponse:
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
        "is_sent": is_sent,
        "link": link,
        "tab": "people",
    }
    return render(request, "intake/staff/person.html", context)
