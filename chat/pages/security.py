"""Pages below `/settings/account/`."""

from allauth.account.adapter import get_adapter
from allauth.account.signals import password_changed
from django.contrib.auth import update_session_auth_hash
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils.translation import gettext as _
from django.utils.translation import ngettext
from django.views.decorators.debug import sensitive_post_parameters
from django.views.decorators.http import require_POST, require_safe

from chat.pages.common import done, page_with_form
from core.paging import position_in_address
from intake.accounts import activity, sessions
from intake.accounts.forms import ChangePasswordForm
from intake.accounts.identity import person_of
from intake.accounts.proofs import is_recent, requires_recent_proof
from intake.models import User


@sensitive_post_parameters()
@page_with_form
def password(request: HttpRequest) -> HttpResponse:
    user = person_of(request)
    if not user.has_usable_password() and not is_recent(request):
        # Without the submitted form, which contains the new password.
        return redirect(reverse("account_reauthenticate", query={"next": request.path}))
    form = ChangePasswordForm(request.POST or None, user=user)
    if not form.is_valid():
        return render(request, "intake/account/password.html", {"form": form})
    user.set_password(form.cleaned_data["new_password"])
    user.save(update_fields=["password"])
    # This session gets a new key, and every other one ends.
    update_session_auth_hash(request, user)
    sessions.end_other_sessions(user=user, current=request.session.session_key)
    password_changed.send(User, request=request, user=user)
    get_adapter().send_notification_mail("account/email/password_changed", user)
    if form.cleaned_data["end_access"]:
        sessions.end_access(user=user)
    return done(request, _("Password changed. Your other sessions are ended."), "intake:account")


@require_safe
def list_sessions(request: HttpRequest) -> HttpResponse:
    shown = sessions.list_sessions(user=person_of(request), current=request.session.session_key)
    return render(request, "intake/account/sessions.html", {"sessions": shown})


@require_safe
def list_activity(request: HttpRequest) -> HttpResponse:
    after = position_in_address(request.GET.get("after"))
    page = activity.list_activity(person_of(request), after=after)
    return render(request, "intake/account/activity.html", {"page": page, "is_first": after is None})


@require_POST
def end_session(request: HttpRequest, name: str) -> HttpResponse:
    sessions.end_session(user=person_of(request), name=name)
    return done(request, _("Ended. That browser is logged out within seconds."), "intake:sessions")


@require_POST
def end_other_sessions(request: HttpRequest) -> HttpResponse:
    ended = sessions.end_other_sessions(user=person_of(request), current=request.session.session_key)
    words = ngettext("One other session is ended.", "%(count)s other sessions are ended.", ended)
    return done(request, words % {"count": ended}, "intake:sessions")


@require_safe
@requires_recent_proof()
def export(request: HttpRequest) -> HttpResponse:
    """Redirects to the API, which refuses a session without a recent proof."""
    query = {"as": request.GET.get("as", "json")}
    if project := request.GET.get("project"):
        query["project"] = project
    return redirect(reverse("download_account", query=query))
