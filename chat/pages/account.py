"""The pages of an account: registration, log-in and log-out, the password and the sessions, the settings.

At log-in a visitor's chats move to the account: see `intake.accounts.registration`.
After a correct password, django-allauth decides on further steps: confirming the email address, a second factor.
"""

from http import HTTPStatus
from typing import Any
from urllib.parse import urlencode, urlsplit

import qrcode
from allauth.account.adapter import get_adapter
from allauth.account.models import EmailAddress
from allauth.account.signals import password_changed
from allauth.account.utils import perform_login, setup_user_email
from django.conf import settings as django_settings
from django.contrib import messages
from django.contrib.auth import logout, update_session_auth_hash
from django.contrib.auth import views as auth_views
from django.contrib.auth.decorators import login_not_required
from django.contrib.auth.forms import AuthenticationForm
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.http.response import HttpResponseBase
from django.shortcuts import render
from django.urls import reverse
from django.utils import timezone
from django.utils.decorators import method_decorator
from django.utils.safestring import mark_safe
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, ngettext
from django.views.decorators.cache import never_cache
from django.views.decorators.debug import sensitive_post_parameters
from django.views.decorators.http import require_http_methods, require_POST, require_safe
from django.views.generic import FormView
from qrcode.image.svg import SvgPathImage

from chat.pages.forms import (
    AnswersForm,
    DeleteAccountForm,
    LanguageForm,
    LoginForm,
    RegisterForm,
    TimeZoneForm,
    TitlesForm,
)
from core import rate_limits
from core.errors import InvalidInput
from core.isolation.acting import acting_as
from core.responses import retry_after
from core.validation import position_in_address
from intake import passwords
from intake.accounts import activity, registration, sessions
from intake.accounts import forms as factors
from intake.accounts.adapters import INVITATION, other_services
from intake.accounts.forms import ChangePasswordForm
from intake.accounts.identity import caller_of, is_registered, person_of, tell_what_came_along, visitor_of
from intake.accounts.sessions import REGISTERED, is_recent, require_recent_proof, requires_recent_proof
from intake.chats import deleting
from intake.llm.language_models import is_recall_mode
from intake.models import ChatPreferences, User
from intake.models.users import retention_days
from memory import quotas

# Of the home page: the length of a name, and how many are kept.
LONGEST_PART, MOST_PARTS = 20, 4
FIRST = gettext_lazy("You are the first person here, so your account administers this Recollect.")


@never_cache
@require_safe
def phone(request: HttpRequest) -> HttpResponse:
    """Where another device on the network opens this installation: as a link, and as a code for its camera.

    `ALLOWED_HOSTS` has the machine's own addresses if `make up` was told to listen beyond this machine.
    """
    within = urlsplit(request.build_absolute_uri("/"))
    # Numbers before names, which not every phone resolves.
    named = sorted(django_settings.ALLOWED_HOSTS, key=lambda host: not host.replace(".", "").isdecimal())
    port = f":{within.port}" if within.port else ""
    tried = [django_settings.PUBLIC_URL, within.geturl(), *(f"{within.scheme}://{host}{port}/" for host in named)]
    local = {"", "localhost", "127.0.0.1", "::1", "*"}
    address = next((each for each in tried if (urlsplit(each).hostname or "") not in local), "")
    code = qrcode.make(address, image_factory=SvgPathImage, border=1).to_string().decode() if address else ""
    drawn = mark_safe(code)  # noqa: S308 - the library draws it, of an address alone
    context = {"address": address, "code": drawn, "is_open": registration.why_not("") is None}
    return render(request, "intake/account/phone.html", context)


@method_decorator(login_not_required, name="dispatch")
class LoginView(auth_views.LoginView):
    template_name = "intake/login.html"
    authentication_form = LoginForm

    def dispatch(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
        # Not for a visitor, who may register.
        self.redirect_authenticated_user = is_registered(request)
        return super().dispatch(request, *args, **kwargs)

    def form_valid(self, form: AuthenticationForm) -> HttpResponse:
        response: HttpResponse = perform_login(self.request, form.get_user(), redirect_url=self.get_success_url())
        return response

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        return super().get_context_data(services=other_services(self.request), **kwargs)

    def form_invalid(self, form: AuthenticationForm) -> HttpResponse:
        response = super().form_invalid(form)
        if isinstance(form, LoginForm) and form.limited is not None:
            response.status_code = HTTPStatus.TOO_MANY_REQUESTS
            response["Retry-After"] = retry_after(form.limited)
        return response


# Accepts only POST: a link on another site must not log a user out.
log_out = login_not_required(auth_views.LogoutView.as_view())


@method_decorator([sensitive_post_parameters("password"), never_cache, login_not_required], name="dispatch")
class RegisterView(auth_views.RedirectURLMixin, FormView):  # type: ignore[type-arg]
    template_name = "intake/register.html"
    form_class = RegisterForm
    next_page = "intake:home"

    def dispatch(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
        if is_registered(request):
            return HttpResponseRedirect(self.get_success_url())
        invitation = request.POST.get("invitation") or request.GET.get("invitation") or ""
        if (refusal := registration.why_not(invitation)) is not None:
            context = {"refusal": refusal, "next": self.get_redirect_url()}
            return render(request, "intake/no_registration.html", context, status=HTTPStatus.FORBIDDEN)
        self.initial = {"invitation": invitation}
        if registration.policy() == registration.Registration.INVITE:
            # For a registration through another service. It is one of ours here, and so as long as ours are.
            request.session[INVITATION] = invitation
        return super().dispatch(request, *args, **kwargs)

    def post(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        rate_limits.take_all(("register_address", rate_limits.client_address(request)))
        return super().post(request, *args, **kwargs)

    def form_valid(self, form: RegisterForm) -> HttpResponse:
        if form.is_taken:
            return self._as_if_registered(form)
        registered = form.save(visitor=visitor_of(self.request))
        if registered is None:
            return self.form_invalid(form)
        user, turns = registered
        # The visitor's session ends with the visitor.
        logout(self.request)
        setup_user_email(self.request, user, [])
        # Also where the address is confirmed first: the link that is opened here belongs to this registration.
        self.request.session[REGISTERED] = user.pk
        response: HttpResponse = perform_login(self.request, user, redirect_url=self.get_success_url(), signup=True)
        tell_what_came_along(self.request, turns)
        if user.is_staff:
            messages.success(self.request, FIRST)
        return response

    def _as_if_registered(self, form: RegisterForm) -> HttpResponse:
        """The page and the work of a registration that waits for its email; the email says that there is an account."""
        passwords.encode(form.cleaned_data["password"])
        logout(self.request)
        response: HttpResponse = perform_login(self.request, None, email=form.cleaned_data["email"], signup=True)
        return response

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        services = other_services(self.request)
        return super().get_context_data(next=self.get_redirect_url(), services=services, **kwargs)


# --- Pages below `/settings/account/`: the password, the sessions, and the export after a proof ---


@never_cache
@sensitive_post_parameters()
@require_http_methods(["GET", "HEAD", "POST"])
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
    return HttpResponseRedirect(reverse("intake:account"))


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
    return HttpResponseRedirect(reverse("intake:sessions"))


@never_cache
@require_POST
def end_other_sessions(request: HttpRequest) -> HttpResponse:
    ended = sessions.end_other_sessions(user=person_of(request), current=request.session.session_key)
    words = ngettext("One other session is ended.", "%(count)s other sessions are ended.", ended)
    messages.success(request, words % {"count": ended})
    return HttpResponseRedirect(reverse("intake:sessions"))


@never_cache
@require_safe
@requires_recent_proof()
def export(request: HttpRequest) -> HttpResponse:
    """Redirects to the API, which refuses a session without a recent proof."""
    project = request.GET.get("project", "")
    query = urlencode({"as": request.GET.get("as", "json"), **({"project": project} if project else {})})
    return HttpResponseRedirect(f"{reverse('download_account')}?{query}")


# --- `/settings/account/`: time zone, export, preferences and the deletion of the account ---


@never_cache
@require_http_methods(["GET", "HEAD", "POST"])
def account(request: HttpRequest) -> HttpResponse:
    user = person_of(request)
    form = TimeZoneForm(request.POST or None, initial={"time_zone": user.time_zone})
    if request.method == "POST" and form.is_valid():
        user.time_zone = form.cleaned_data["time_zone"]
        user.save(update_fields=["time_zone"])
        return _saved(request)
    return _page(request, time_zone_form=form)


@never_cache
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


@never_cache
@require_POST
def language(request: HttpRequest) -> HttpResponse:
    user = person_of(request)
    form = LanguageForm(request.POST)
    if not form.is_valid():
        return _page(request, language_form=form)
    user.language = form.cleaned_data["language"]
    user.save(update_fields=["language"])
    return _saved(request)


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
    return _saved(request)


def _saved(request: HttpRequest) -> HttpResponse:
    """The page again; the sentence alone for a script that saves a choice when it changes."""
    if request.headers.get("X-Recollect-Part") == "saved":
        return HttpResponse(_("Saved."), content_type="text/plain; charset=utf-8")
    messages.success(request, _("Saved."))
    return HttpResponseRedirect(reverse("intake:account"))


@never_cache
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
    return HttpResponseRedirect(reverse("intake:home"))


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
    deleted = deleting.delete_account(user=user)
    logout(request)
    context = {
        "deleted_at": timezone.now(),
        "rows": [(_(name), number) for name, number in deleted.items()],
        "also": deleting.ALSO,
    }
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
    if not is_recall_mode():
        chosen = {"titles_by_model": user.titles_by_model, "proposes": user.proposes_since is not None}
        context["titles_form"] = TitlesForm(initial=chosen)
    return render(request, "intake/account.html", context)
