"""Registering, logging in and out. What a visitor said becomes the account's: see `intake.visitors`."""

from http import HTTPStatus
from typing import Any

from django.contrib.auth import login
from django.contrib.auth import views as auth_views
from django.contrib.auth.decorators import login_not_required
from django.contrib.auth.forms import AuthenticationForm
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.http.response import HttpResponseBase
from django.shortcuts import render
from django.utils.decorators import method_decorator
from django.views.decorators.cache import never_cache
from django.views.decorators.debug import sensitive_post_parameters
from django.views.generic import FormView

from core import rate_limits
from core.problems import retry_after
from intake import passwords, registration
from intake.forms import LoginForm, RegisterForm
from intake.identity import is_registered, tell_what_came_along, visitor_of


@method_decorator(login_not_required, name="dispatch")
class LoginView(auth_views.LoginView):
    template_name = "intake/login.html"
    authentication_form = LoginForm

    def dispatch(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
        # Not a visitor, whom it is for.
        self.redirect_authenticated_user = is_registered(request)
        return super().dispatch(request, *args, **kwargs)

    def post(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        passwords.pool.refuse_when_full()
        return super().post(request, *args, **kwargs)

    def form_invalid(self, form: AuthenticationForm) -> HttpResponse:
        response = super().form_invalid(form)
        if isinstance(form, LoginForm) and form.limited is not None:
            response.status_code = HTTPStatus.TOO_MANY_REQUESTS
            response["Retry-After"] = retry_after(form.limited)
        return response


@method_decorator(login_not_required, name="dispatch")
class LogoutView(auth_views.LogoutView):
    """Takes POST only: a link on another site must not be able to log anybody out."""


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
        return super().dispatch(request, *args, **kwargs)

    def post(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        rate_limits.take_all(("register_address", rate_limits.client_address(request)))
        return super().post(request, *args, **kwargs)

    def form_valid(self, form: RegisterForm) -> HttpResponse:
        registered = form.save(visitor=visitor_of(self.request))
        if registered is None:
            return self.form_invalid(form)
        user, turns = registered
        login(self.request, user)
        tell_what_came_along(self.request, turns)
        return super().form_valid(form)

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        return super().get_context_data(next=self.get_redirect_url(), **kwargs)
