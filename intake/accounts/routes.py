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
from intake.accounts.proofs import requires_recent_proof
from intake.accounts.sessions import is_session_of

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


def _routes(kind: Callable[[AccountPage], AccountPage], *rows: tuple[str, AccountPage, str]) -> list[URLPattern]:
    """A route for each path, view and name."""
    return [path(route, kind(view), name=name) for route, view, name in rows]


urlpatterns = [
    # Before and during a log-in
    *_routes(
        for_everybody,
        ("login/inactive/", account.account_inactive, "account_inactive"),
        ("login/code/", factors.authenticate, "mfa_authenticate"),
        ("login/passkey/", passkeys.login_webauthn, "mfa_login_webauthn"),
        ("login/password/", account.password_reset, "account_reset_password"),
        ("login/password/sent/", account.password_reset_done, "account_reset_password_done"),
        ("login/password/changed/", account.password_reset_from_key_done, "account_reset_password_from_key_done"),
        ("login/by/cancelled/", services.login_cancelled, "socialaccount_login_cancelled"),
        ("login/by/error/", services.login_error, "socialaccount_login_error"),
        ("register/by/", services.signup, "socialaccount_signup"),
        ("email/sent/", account.email_verification_sent, "account_email_verification_sent"),
    ),
    # Proofs, and the list of factors
    *_routes(
        for_registered,
        ("settings/account/confirm/", account.reauthenticate, "account_reauthenticate"),
        ("settings/account/confirm/code/", factors.reauthenticate, "mfa_reauthenticate"),
        ("settings/account/confirm/passkey/", passkeys.reauthenticate_webauthn, "mfa_reauthenticate_webauthn"),
        ("settings/account/factors/", factors.index, "mfa_index"),
        ("settings/account/factors/", factors.index, "mfa_list_webauthn"),
    ),
    # What asks for a recent proof: the address, second factors and passkeys, other services
    *_routes(
        sensitive,
        ("settings/account/email/", EmailView.as_view(), "account_email"),
        ("settings/account/factors/app/", totp.activate_totp, "mfa_activate_totp"),
        ("settings/account/factors/app/off/", totp.deactivate_totp, "mfa_deactivate_totp"),
        ("settings/account/factors/passkeys/add/", passkeys.add_webauthn, "mfa_add_webauthn"),
        ("settings/account/factors/passkeys/<int:pk>/", passkeys.edit_webauthn, "mfa_edit_webauthn"),
        ("settings/account/factors/passkeys/<int:pk>/remove/", passkeys.remove_webauthn, "mfa_remove_webauthn"),
        ("settings/account/factors/codes/", codes.view_recovery_codes, "mfa_view_recovery_codes"),
        ("settings/account/factors/codes/new/", codes.generate_recovery_codes, "mfa_generate_recovery_codes"),
        ("settings/account/factors/codes/file/", codes.download_recovery_codes, "mfa_download_recovery_codes"),
        ("settings/account/services/", services.connections, "socialaccount_connections"),
    ),
    re_path(
        r"^login/password/(?P<uidb36>[0-9A-Za-z]{1,20})-(?P<key>[-0-9A-Za-z]{1,100})/$",
        for_everybody(account.password_reset_from_key),
        name="account_reset_password_from_key",
    ),
    path("login/by/", include([_open(pattern) for pattern in build_provider_urlpatterns()])),
    re_path(
        r"^email/(?P<key>[-:\w]{1,200})/$", for_everybody(ConfirmEmailView.as_view()), name="account_confirm_email"
    ),
]
