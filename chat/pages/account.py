"""Registration, log-in and log-out, and the address to open on a phone.

At log-in a visitor's chats move to the account: see `intake.accounts.registration`.
After a correct password, django-allauth decides on further steps: confirming the email address, a second factor.
"""

from http import HTTPStatus
from typing import Any
from urllib.parse import urlsplit

import qrcode
from allauth.account.utils import perform_login, setup_user_email
from django.conf import settings as django_settings
from django.contrib.auth import logout
from django.contrib.auth import views as auth_views
from django.contrib.auth.decorators import login_not_required
from django.contrib.auth.forms import AuthenticationForm
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.http.response import HttpResponseBase
from django.shortcuts import render
from django.utils.decorators import method_decorator
from django.utils.safestring import mark_safe
from django.views.decorators.debug import sensitive_post_parameters
from django.views.decorators.http import require_safe
from django.views.generic import FormView
from qrcode.image.svg import SvgPathImage

from chat.pages.forms import (
    LoginForm,
    RegisterForm,
)
from core import rate_limits
from core.responses import retry_after
from intake import passwords
from intake.accounts import registration
from intake.accounts.adapters import INVITATION, other_services
from intake.accounts.identity import is_registered, tell_what_came_along, visitor_of
from intake.accounts.sessions import REGISTERED


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


@login_not_required
def log_out(request: HttpRequest) -> HttpResponse:
    """Accepts only POST: a link on another site must not log a user out."""
    response: HttpResponse = auth_views.LogoutView.as_view()(request)
    response["Clear-Site-Data"] = '"cache"'
    return response


@method_decorator([sensitive_post_parameters("password"), login_not_required], name="dispatch")
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
