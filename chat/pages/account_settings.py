"""The page `/settings/account/` and those below it: choices, the password, sessions, what happened, and the export."""

import zoneinfo
from typing import Any

from allauth.account.adapter import get_adapter
from allauth.account.models import EmailAddress
from allauth.account.signals import password_changed
from django.conf import settings as django_settings
from django.contrib.auth import logout, update_session_auth_hash
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils import timezone
from django.utils.translation import gettext as _
from django.utils.translation import ngettext
from django.views.decorators.debug import sensitive_post_parameters
from django.views.decorators.http import require_POST, require_safe

from chat.agent.search_engines import chosen_engine
from chat.pages.common import done, page_with_form
from chat.pages.forms import AnswersForm, DeleteAccountForm, LanguageForm, TimeZoneForm, TitlesForm
from core import rate_limits
from core.errors import InvalidInput
from core.isolation.acting import acting_as
from core.paging import position_in_address
from intake.accounts import activity, methods, sessions
from intake.accounts.adapters import other_services
from intake.accounts.forms import ChangePasswordForm
from intake.accounts.identity import caller_of, person_of
from intake.accounts.proofs import is_recent, require_recent_proof, requires_recent_proof
from intake.chats import deleting
from intake.llm.language_models import is_recall_mode
from intake.models import ChatPreferences, User
from intake.models.installation import retention_days
from memory import quotas

# Of the home page: the length of a name, and how many are kept.
LONGEST_PART, MOST_PARTS = 20, 4


@page_with_form
def account(request: HttpRequest) -> HttpResponse:
    user = person_of(request)
    form = TimeZoneForm(request.POST or None, initial={"time_zone": user.time_zone})
    if form.is_valid():
        user.time_zone = form.cleaned_data["time_zone"]
        user.save(update_fields=["time_zone"])
        return _saved(request)
    return _page(request, time_zone_form=form)


@require_POST
def titles(request: HttpRequest) -> HttpResponse:
    user = person_of(request)
    form = TitlesForm(request.POST)
    if form.is_valid():
        user.titles_by_model = form.cleaned_data.get("titles_by_model", user.titles_by_model)
        # Chats that ended before are not read.
        agreed_at = user.proposes_since or timezone.now()
        user.proposes_since = agreed_at if form.cleaned_data.get("proposes") else None
        user.save(update_fields=["titles_by_model", "proposes_since"])
    return _saved(request)


@require_POST
def pages(request: HttpRequest) -> HttpResponse:
    """Whether the pages that answers read on the web are kept."""
    user = person_of(request)
    with acting_as(user):
        ChatPreferences.objects.update_or_create(user=user, defaults={"keeps_pages": "keeps_not" not in request.POST})
    return _saved(request)


@require_POST
def language(request: HttpRequest) -> HttpResponse:
    user = person_of(request)
    form = LanguageForm(request.POST)
    if not form.is_valid():
        return _page(request, language_form=form)
    user.language = form.cleaned_data["language"]
    user.save(update_fields=["language"])
    return _saved(request)


@require_POST
def answers(request: HttpRequest) -> HttpResponse:
    """The user's default model and instructions."""
    user = person_of(request)
    form = AnswersForm(request.POST, caller=caller_of(request))
    if not form.is_valid():
        return _page(request, answers_form=form)
    with acting_as(user):
        ChatPreferences.objects.update_or_create(user=user, defaults=form.cleaned_data)
    return _saved(request)


def _saved(request: HttpRequest) -> HttpResponse:
    """The page again; the sentence alone for a script that saves a choice when it changes."""
    if request.headers.get("X-Recollect-Part") == "saved":
        return HttpResponse(_("Saved."), content_type="text/plain; charset=utf-8")
    return done(request, _("Saved."), "intake:account")


@require_POST
def home_parts(request: HttpRequest) -> HttpResponse:
    """Hide a part of the home page, by its name in `hide`, or show all again. Raises `InvalidInput`."""
    user, name = person_of(request), request.POST.get("hide", "")
    if name and not (name.isascii() and name.isalpha() and len(name) <= LONGEST_PART):
        raise InvalidInput(errors={"hide": [_("There is no such part.")]})
    with acting_as(user):
        mine = ChatPreferences.objects.for_user(user).values_list("hidden_at_home", flat=True).first() or ""
        hidden = " ".join(dict.fromkeys([*mine.split(), name][-MOST_PARTS:])) if name else ""
        ChatPreferences.objects.update_or_create(user=user, defaults={"hidden_at_home": hidden})
    return redirect("intake:home")


@sensitive_post_parameters("password")
@require_POST
def delete_account(request: HttpRequest) -> HttpResponse:
    user = person_of(request)
    if not user.has_usable_password():
        require_recent_proof(request)
    rate_limits.take_for_password(user.get_username(), address=rate_limits.client_address(request))
    form = DeleteAccountForm(request.POST, user=user)
    if not form.is_valid():
        return _page(request, delete_form=form)
    deleted = deleting.delete_account(user=user)
    logout(request)
    rows = [(_(name), number) for name, number in deleted.items()]
    context = {"deleted_at": timezone.now(), "rows": rows, "also": deleting.ALSO}
    response = render(request, "intake/account/deleted.html", context)
    # The browser's own store keeps drafts that were not sent.
    response["Clear-Site-Data"] = '"cache", "storage"'
    return response


def _page(request: HttpRequest, **forms: Any) -> HttpResponse:
    user = person_of(request)
    context: dict[str, Any] = {
        "version": django_settings.VERSION,
        "services": other_services(request),
        "retention_days": retention_days(),
        "usage": quotas.lines_of(user.pk),
        "factors_in_words": methods.in_words(user),
        "email_waits": EmailAddress.objects.filter(user=user, email=user.email, verified=False).exists(),
        "time_zone_form": TimeZoneForm(initial={"time_zone": user.time_zone}),
        "zones": sorted(zoneinfo.available_timezones()),
        "language_form": LanguageForm(initial={"language": user.language}),
        "delete_form": DeleteAccountForm(user=user),
        **forms,
    }
    with acting_as(user):
        preferences = ChatPreferences.objects.for_user(user).first() or ChatPreferences()
    # Also where the search was switched off again.
    context["keeps_pages"] = preferences.keeps_pages if chosen_engine() or not preferences.keeps_pages else None
    if not is_recall_mode():
        initial = {"model": preferences.model, "how_to_answer": preferences.how_to_answer}
        context.setdefault("answers_form", AnswersForm(initial=initial, caller=caller_of(request)))
        chosen = {"titles_by_model": user.titles_by_model, "proposes": user.proposes_since is not None}
        context["titles_form"] = TitlesForm(initial=chosen)
    return render(request, "intake/account.html", context)


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
    return redirect(reverse("export_account", query=query))
