"""`/settings/account/`: time zone, export, preferences and the deletion of the account."""

from typing import Any

from allauth.account.models import EmailAddress
from django.conf import settings as django_settings
from django.contrib import messages
from django.contrib.auth import logout
from django.contrib.auth.decorators import login_not_required
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect, JsonResponse
from django.shortcuts import render
from django.urls import reverse
from django.utils.translation import gettext as _
from django.views.decorators.cache import never_cache
from django.views.decorators.debug import sensitive_post_parameters
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from core import rate_limits
from core.isolation.acting import acting_as
from intake import certificates, deleting, quotas
from intake.accounts import factors
from intake.accounts.adapters import other_services
from intake.accounts.proof import require_recent_proof
from intake.forms import AnswersForm, DeleteAccountForm, LanguageForm, TimeZoneForm, TitlesForm
from intake.identity import caller_of, person_of
from intake.language_models import is_recall_mode
from intake.models import ChatPreferences
from intake.views.failures import not_found


@never_cache
@require_http_methods(["GET", "HEAD", "POST"])
def account(request: HttpRequest) -> HttpResponse:
    user = person_of(request)
    form = TimeZoneForm(request.POST or None, initial={"time_zone": user.time_zone})
    if request.method == "POST" and form.is_valid():
        user.time_zone = form.cleaned_data["time_zone"]
        user.save(update_fields=["time_zone"])
        messages.success(request, _("Saved."))
        return HttpResponseRedirect(reverse("intake:account"))
    return _page(request, time_zone_form=form)


@never_cache
@require_POST
def titles(request: HttpRequest) -> HttpResponse:
    user = person_of(request)
    form = TitlesForm(request.POST)
    if form.is_valid():
        user.titles_by_model = form.cleaned_data["titles_by_model"]
        user.save(update_fields=["titles_by_model"])
        messages.success(request, _("Saved."))
    return HttpResponseRedirect(reverse("intake:account"))


@never_cache
@require_POST
def language(request: HttpRequest) -> HttpResponse:
    user = person_of(request)
    form = LanguageForm(request.POST)
    if not form.is_valid():
        return _page(request, language_form=form)
    user.language = form.cleaned_data["language"]
    user.save(update_fields=["language"])
    return HttpResponseRedirect(reverse("intake:account"))


@never_cache
@require_POST
def answers(request: HttpRequest) -> HttpResponse:
    """The user's default model and instructions."""
    user = person_of(request)
    form = AnswersForm(request.POST, caller=caller_of(request))
    if not form.is_valid():
        return _page(request, answers_form=form)
    with acting_as(user):
        ChatPreferences.objects.update_or_create(user=user, defaults=form.cleaned_data)
    messages.success(request, _("Saved."))
    return HttpResponseRedirect(reverse("intake:account"))


@never_cache
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
    certificate = deleting.delete_account(user=user)
    logout(request)
    response = HttpResponseRedirect(reverse("intake:account_deleted", args=[certificates.sign(certificate)]))
    # The browser's own store keeps drafts that were not sent.
    response["Clear-Site-Data"] = '"cache", "storage"'
    return response


@login_not_required
@never_cache
@require_safe
def account_deleted(request: HttpRequest, signed: str) -> HttpResponse:
    """The statement of a deleted account, for its former owner; `as` returns it as a file."""
    certificate = certificates.read(signed)
    if certificate is None:
        return not_found(request)
    name = f"recollect-deleted-{certificate.deleted_at:%Y-%m-%d}"
    match request.GET.get("as"):
        case "json":
            response: HttpResponse = JsonResponse(certificate.as_data(), json_dumps_params={"indent": 2})
            response["Content-Disposition"] = f'attachment; filename="{name}.json"'
        case "text":
            response = HttpResponse(certificate.as_text(), content_type="text/plain; charset=utf-8")
            response["Content-Disposition"] = f'attachment; filename="{name}.txt"'
        case _:
            rows = [(_(name), number) for name, number in certificate.deleted.items()]
            context = {"certificate": certificate, "rows": rows, "also": certificates.ALSO}
            response = render(request, "intake/account/deleted.html", context)
    return response


def _page(request: HttpRequest, **forms: Any) -> HttpResponse:
    user = person_of(request)
    context: dict[str, Any] = {
        "services": other_services(request),
        "retention_days": django_settings.RETENTION_DAYS,
        "usage": quotas.lines_of(user.pk),
        "factors_in_words": factors.in_words(user),
        "email_waits": EmailAddress.objects.filter(user=user, email=user.email, verified=False).exists(),
        "time_zone_form": TimeZoneForm(initial={"time_zone": user.time_zone}),
        "language_form": LanguageForm(initial={"language": user.language}),
        "delete_form": DeleteAccountForm(user=user),
        **forms,
    }
    if not is_recall_mode() and "answers_form" not in forms:
        with acting_as(user):
            preferences = ChatPreferences.objects.for_user(user).first() or ChatPreferences()
        initial = {"model": preferences.model, "how_to_answer": preferences.how_to_answer}
        context["answers_form"] = AnswersForm(initial=initial, caller=caller_of(request))
    if django_settings.CHAT_TITLES and not is_recall_mode():
        context["titles_form"] = TitlesForm(initial={"titles_by_model": user.titles_by_model})
    return render(request, "intake/account.html", context)
