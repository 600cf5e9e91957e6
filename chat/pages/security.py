"""Pages below `/settings/account/`."""

from urllib.parse import urlencode

from allauth.account.adapter import get_adapter
from allauth.account.signals import password_changed
from django.contrib import messages
from django.contrib.auth import update_session_auth_hash
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils.translation import gettext as _
from django.utils.translation import ngettext
from django.views.decorators.cache import never_cache
from django.views.decorators.debug import sensitive_post_parameters
from django.views.decorators.http import require_POST, require_safe

from chat.pages.common import page_with_form
from core.paging import position_in_address
from intake.accounts import activity, sessions
from intake.accounts.forms import ChangePasswordForm
from intake.accounts.identity import person_of
from intake.accounts.proofs import is_recent, requires_recent_proof
from intake.models import User


@never_cache
@sensitive_post_parameters()
@page_with_form
def password(request: HttpRequest) -> HttpResponse:
    user = person_of(request)
    if not user.has_usable_password() and not is_recent(request):
        # Without the submitted form, which contains the new password.
        query = urlencode({"next": request.path})
        return HttpResponseRedirect(f"{reverse('account_reauthenticate')}?{query}")
    form = ChangePasswordForm(request.POST or None, user=user)
    if request.method != "POST" or not form.is_valid():
        return render(request, "intake/account/password.html", {"form": form})
    _change_password(request, user, form.cleaned_data["new_password"])
    if form.cleaned_data["end_access"]:
        sessions.end_access(user=user)
    return redirect("intake:account")


def _change_password(request: HttpRequest, user: User, new: str) -> None:
    """Ends every other session, and gives this one a new key."""
    user.set_password(new)
    user.save(update_fields=["password"])
    update_session_auth_hash(request, user)
    sessions.end_other_sessions(user=user, current=request.session.session_key)
    password_changed.send(User, request=request, user=user)
    messages.success(request, _("Password changed. Your other sessions are ended."))
    get_adapter().send_notification_mail("account/email/password_changed", user)


@never_cache
@require_safe
def list_sessions(request: HttpRequest) -> HttpResponse:
    shown = sessions.list_sessions(user=person_of(request), current=request.session.session_key)
    return render(request, "intake/account/sessions.html", {"sessions": shown})


@never_cache
@require_safe
def list_activity(request: HttpRequest) -> HttpResponse:
    after = position_in_address(request.GET.get("after"))
    page = activity.list_activity(person_of(request), after=after)
    return render(request, "intake/account/activity.html", {"page": page, "is_first": after is None})


@never_cache
@require_POST
def end_session(request: HttpRequest, name: str) -> HttpResponse:
    sessions.end_session(user=person_of(request), name=name)
    messages.success(request, _("Ended. That browser is logged out within seconds."))
    return redirect("intake:sessions")


@never_cache
@require_POST
def end_other_sessions(request: HttpRequest) -> HttpResponse:
    ended = sessions.end_other_sessions(user=person_of(request), current=request.session.session_key)
    words = ngettext("One other session is ended.", "%(count)s other sessions are ended.", ended)
    messages.success(request, words % {"count": ended})
    return redirect("intake:sessions")


@never_cache
@require_safe
@requires_recent_proof()
def export(request: HttpRequest) -> HttpResponse:
    """Redirects to the API, which refuses a session without a recent proof."""
    project = request.GET.get("project", "")
    query = urlencode({"as": request.GET.get("as", "json"), **({"project": project} if project else {})})
    return HttpResponseRedirect(f"{reverse('download_account')}?{query}")
