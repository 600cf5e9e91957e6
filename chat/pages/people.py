"""The pages of staff about accounts: who is here, and invitations.

The figures of each person are counted with that person's own access, because the database hides all personal rows from
staff. No text is read here.
"""

from typing import Any

from allauth.account.adapter import get_adapter
from django import forms
from django.conf import settings
from django.core.paginator import Paginator
from django.db.models import Max
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.urls import reverse
from django.views.decorators.http import require_POST, require_safe

from chat.pages.staff import note_action, staff_form, staff_page
from core.isolation.acting import acting_as, acting_as_staff
from core.responses import site_of
from core.text import pg_text
from core.validation import LONGEST_EMAIL
from intake.accounts import registration
from intake.accounts.adapters import count_mail
from intake.accounts.forms import email_field
from intake.accounts.registration import Registration
from intake.models import Conversation, Invitation, Session, User
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


def _list_page(request: HttpRequest, form: InvitationForm, *, link: str = "", mailed_to: str = "") -> HttpResponse:
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
        "link": link,
        "mailed_to": mailed_to,
        "longest": LONGEST_EMAIL,
        "tab": "people",
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
