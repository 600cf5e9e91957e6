"""The URLs of django-allauth's pages that this product uses.

Their names have no namespace, because django-allauth expects none. Each page requires a registered user, unless it is a
step of the log-in. Pages that change log-in methods require a recent proof.
"""

import logging
from collections.abc import Callable
from functools import wraps
from typing import Any

from allauth.account import views as account
from allauth.mfa.base import views as factors
from allauth.mfa.recovery_codes import views as codes
from allauth.mfa.totp import views as totp
from allauth.mfa.webauthn import views as passkeys
from allauth.socialaccount import views as services
from allauth.urls import build_provider_urlpatterns
from django.contrib import messages
from django.contrib.auth.decorators import login_not_required
from django.contrib.auth.models import AnonymousUser
from django.db import transaction
from django.http import HttpRequest, HttpResponse, HttpResponseBadRequest, HttpResponseRedirect
from django.urls import URLPattern, URLResolver, include, path, re_path, reverse
from django.utils.translation import gettext_lazy as _
from django.views.decorators.cache import never_cache
from django.views.decorators.debug import sensitive_post_parameters
from django.views.decorators.http import require_http_methods
from requests import RequestException

from intake.accounts.identity import VISITOR, visitor_of
from intake.accounts.sessions import is_session_of, requires_recent_proof

logger = logging.getLogger(__name__)

AccountPage = Callable[..., Any]

AWAY = _("The other service is not responding. Try again shortly, or log in another way.")


class EmailView(account.EmailView):  # type: ignore[misc]  # without types
    """An account logs in with one address. Only the confirmation of another address replaces it.

    The library enters the account's address in its table whenever the page is opened; who only looks changes nothing.
    """

    def dispatch(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        if request.method == "POST":
            answer: HttpResponse = super().dispatch(request, *args, **kwargs)
            return answer
        with transaction.atomic():
            page = super().dispatch(request, *args, **kwargs)
            looked_at: HttpResponse = page.render() if hasattr(page, "render") else page
            transaction.set_rollback(True)
        return looked_at

    def post(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        if "action_primary" in request.POST:
            return HttpResponseBadRequest()
        response: HttpResponse = super().post(request, *args, **kwargs)
        return response


class ConfirmEmailView(account.ConfirmEmailView):  # type: ignore[misc]  # without types
    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        """A person who opens the link elsewhere learns first that it ends what acts for the account."""
        is_own = self.object is not None and is_session_of(self.request, self.object.email_address.user)
        return {**super().get_context_data(**kwargs), "is_own_session": is_own}


def for_everybody(view: AccountPage) -> AccountPage:
    """Treats a visitor as logged out on these pages; their chats move to the account after the log-in."""

    @wraps(view)
    def wrapper(request: HttpRequest, *args: Any, **kwargs: Any) -> Any:
        visitor = visitor_of(request)
        if visitor is not None:
            request.META[VISITOR] = visitor
            request.user = AnonymousUser()
        return view(request, *args, **kwargs)

    return login_not_required(for_registered(wrapper))


def for_registered(view: AccountPage) -> AccountPage:
    return never_cache(sensitive_post_parameters()(require_http_methods(["GET", "HEAD", "POST"])(view)))


def sensitive(view: AccountPage) -> AccountPage:
    return for_registered(requires_recent_proof()(view))


def _notified_of_failures(view: AccountPage) -> AccountPage:
    @wraps(view)
    def wrapper(request: HttpRequest, *args: Any, **kwargs: Any) -> Any:
        try:
            return view(request, *args, **kwargs)
        except RequestException as error:
            logger.warning("A service to log in by does not answer (%s)", type(error).__name__)
            messages.error(request, AWAY)
            return HttpResponseRedirect(reverse("intake:login"))

    return wrapper


def _open(pattern: URLPattern | URLResolver) -> URLPattern | URLResolver:
    """The same route, open during a log-in through another service."""
    if isinstance(pattern, URLPattern):
        pattern.callback = for_everybody(_notified_of_failures(pattern.callback))
    else:
        for each in pattern.url_patterns:
            _open(each)
    return pattern


urlpatterns = [
    # Logging in
    path("login/inactive/", for_everybody(account.account_inactive), name="account_inactive"),
    path("login/code/", for_everybody(factors.authenticate), name="mfa_authenticate"),
    path("login/passkey/", for_everybody(passkeys.login_webauthn), name="mfa_login_webauthn"),
    path("login/password/", for_everybody(account.password_reset), name="account_reset_password"),
    path("login/password/sent/", for_everybody(account.password_reset_done), name="account_reset_password_done"),
    path(
        "login/password/changed/",
        for_everybody(account.password_reset_from_key_done),
        name="account_reset_password_from_key_done",
    ),
    re_path(
        r"^login/password/(?P<uidb36>[0-9A-Za-z]{1,20})-(?P<key>[-0-9A-Za-z]{1,100})/$",
        for_everybody(account.password_reset_from_key),
        name="account_reset_password_from_key",
    ),
    path("login/by/cancelled/", for_everybody(services.login_cancelled), name="socialaccount_login_cancelled"),
    path("login/by/error/", for_everybody(services.login_error), name="socialaccount_login_error"),
    path("login/by/", include([_open(pattern) for pattern in build_provider_urlpatterns()])),
    path("register/by/", for_everybody(services.signup), name="socialaccount_signup"),
    # The email address
    path(
        "email/sent/",
        for_everybody(account.email_verification_sent),
        name="account_email_verification_sent",
    ),
    re_path(
        r"^email/(?P<key>[-:\w]{1,200})/$", for_everybody(ConfirmEmailView.as_view()), name="account_confirm_email"
    ),
    path("settings/account/email/", sensitive(EmailView.as_view()), name="account_email"),
    # Proofs
    path("settings/account/confirm/", for_registered(account.reauthenticate), name="account_reauthenticate"),
    path("settings/account/confirm/code/", for_registered(factors.reauthenticate), name="mfa_reauthenticate"),
    path(
        "settings/account/confirm/passkey/",
        for_registered(passkeys.reauthenticate_webauthn),
        name="mfa_reauthenticate_webauthn",
    ),
    # Second factors and passkeys
    path("settings/account/factors/", for_registered(factors.index), name="mfa_index"),
    path("settings/account/factors/", for_registered(factors.index), name="mfa_list_webauthn"),
    path("settings/account/factors/app/", sensitive(totp.activate_totp), name="mfa_activate_totp"),
    path("settings/account/factors/app/off/", sensitive(totp.deactivate_totp), name="mfa_deactivate_totp"),
    path("settings/account/factors/passkeys/add/", sensitive(passkeys.add_webauthn), name="mfa_add_webauthn"),
    path("settings/account/factors/passkeys/<int:pk>/", sensitive(passkeys.edit_webauthn), name="mfa_edit_webauthn"),
    path(
        "settings/account/factors/passkeys/<int:pk>/remove/",
        sensitive(passkeys.remove_webauthn),
        name="mfa_remove_webauthn",
    ),
    path("settings/account/factors/codes/", sensitive(codes.view_recovery_codes), name="mfa_view_recovery_codes"),
    path(
        "settings/account/factors/codes/new/",
        sensitive(codes.generate_recovery_codes),
        name="mfa_generate_recovery_codes",
    ),
    path(
        "settings/account/factors/codes/file/",
        sensitive(codes.download_recovery_codes),
        name="mfa_download_recovery_codes",
    ),
    # Other services
    path("settings/account/services/", sensitive(services.connections), name="socialaccount_connections"),
]
