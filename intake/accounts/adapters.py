"""Adapts django-allauth to this project: limits, proofs, mail, and turning a visitor into an account."""

import logging
from smtplib import SMTPException
from typing import Any
from urllib.parse import urlsplit

from allauth.account.adapter import DefaultAccountAdapter
from allauth.account.forms import default_token_generator
from allauth.account.models import EmailAddress
from allauth.account.utils import user_pk_to_url_str
from allauth.mfa.adapter import DefaultMFAAdapter
from allauth.socialaccount.adapter import DefaultSocialAccountAdapter
from allauth.socialaccount.models import SocialAccount
from cryptography.fernet import InvalidToken, MultiFernet
from django.conf import settings
from django.contrib import messages
from django.http import HttpRequest
from django.urls import reverse
from django.utils.http import url_has_allowed_host_and_scheme
from django.utils.translation import gettext_lazy as _

from core import rate_limits
from core.errors import Unavailable
from core.resilience import refuse_in_transaction
from core.responses import site_of
from core.text import gettext_noop
from intake import passwords
from intake.accounts import devices, proofs, registration, sessions, visitors
from intake.accounts.identity import VISITOR, tell_what_came_along, visitor_of
from intake.models import User
from intake.models.installation import cipher_for

logger = logging.getLogger(__name__)

NOT_SENT = _("The email could not be sent. Try again in a few minutes, or ask the administrator of this Recollect.")
ENDED = _("Other sessions, tokens and apps from before you confirmed this address have ended.")
TAKEN = _("This address belongs to another account by now. Your own stays as it was.")
# django-allauth's names for proofs, and this project's.
PROOFS = {
    "reauthenticate": _("Use your password"),
    "mfa_reauthenticate": _("Use a code"),
    "mfa_reauthenticate:webauthn": _("Use a passkey"),
}
# The session key for the invitation with which a registration through another service began.
INVITATION = "recollect.invitation"


def count_mail(request: HttpRequest, email: str) -> None:
    """Count an email that a page is about to send. Raises `RateLimited`."""
    rate_limits.take_for_mail(email, address=rate_limits.client_address(request))


class AccountAdapter(DefaultAccountAdapter):  # type: ignore[misc]  # without types
    def login(self, request: HttpRequest, user: User) -> None:
        """The last step of every log-in; moves the chats of this browser's visitor to the account."""
        request.META.setdefault(VISITOR, visitor_of(request))
        super().login(request, user)

    def is_open_for_signup(self, request: HttpRequest) -> bool:
        return registration.why_not(request.session.get(INVITATION, "")) is None

    def is_reauthentication_required(self, *, app: str, **kwargs: Any) -> bool:
        return not proofs.is_recent(self.request)

    def reauthenticate(self, user: User, password: str) -> bool:
        """Raises `RateLimited`."""
        rate_limits.take_for_password(user.get_username(), address=rate_limits.client_address(self.request))
        return user.check_password(password)

    def get_reauthentication_methods(self, user: User) -> list[dict[str, str]]:
        """An account without another method confirms by logging in through the other service again."""
        methods: list[dict[str, str]] = super().get_reauthentication_methods(user)
        if methods or not user.is_authenticated:
            return [
                {**method, "description": str(PROOFS.get(method["id"], method["description"]))} for method in methods
            ]
        connected = set(SocialAccount.objects.filter(user=user).values_list("provider", flat=True))
        return [
            {
                "id": "other_service",
                "description": str(_("Use %(name)s")) % {"name": service["name"]},
                "url": service["login_url"],
            }
            for service in other_services(self.request)
            if service["provider"] in connected
        ]

    def get_client_ip(self, request: HttpRequest) -> str:
        return rate_limits.client_address(request)

    def is_safe_url(self, url: str | None) -> bool:
        """Accepts only pages of this site."""
        here = {self.request.get_host()}
        return url_has_allowed_host_and_scheme(url, allowed_hosts=here, require_https=self.request.is_secure())

    def get_password_change_redirect_url(self, request: HttpRequest) -> str:
        return reverse("intake:account")

    def can_delete_email(self, email_address: EmailAddress) -> bool:
        """The account keeps its log-in address until another one is confirmed."""
        return bool(email_address.email != email_address.user.email and super().can_delete_email(email_address))

    def send_confirmation_mail(self, request: HttpRequest, emailconfirmation: Any, signup: bool) -> None:
        """Tells the owner of an address that it already has an account. Raises `RateLimited`."""
        address = emailconfirmation.email_address
        if not signup:
            count_mail(request, address.email)
        if User.objects.filter(email=address.email).exclude(pk=address.user_id).exists():
            self.send_account_already_exists_mail(address.email)
        else:
            super().send_confirmation_mail(request, emailconfirmation, signup)

    def confirm_email(self, request: HttpRequest, email_address: EmailAddress) -> bool:
        """Another account may have registered with the address since the email was sent.

        The first proof of the account's address ends what other sessions made. A link that is opened outside of the
        account's own session says nothing about who set the password, so this browser chooses a new one.
        """
        if User.objects.filter(email=email_address.email).exclude(pk=email_address.user_id).exists():
            self.add_message(request, messages.ERROR, message=TAKEN)
            return False
        user = email_address.user
        is_own, was_proved = sessions.is_session_of(request, user), sessions.has_proved_address(user)
        if not super().confirm_email(request, email_address):
            return False
        user.refresh_from_db()
        if not is_own:
            user.set_unusable_password()
            user.save(update_fields=["password"])
            sessions.end_what_came_before(request, user)
        elif not was_proved and sessions.end_what_came_before(request, user):
            self.add_message(request, messages.INFO, message=ENDED)
        return True

    def get_email_verification_redirect_url(self, email_address: EmailAddress) -> str:
        """To a new password, if the proof of the address ended the old one."""
        user = User.objects.get(pk=email_address.user_id)
        if user.has_usable_password() or sessions.is_session_of(self.request, user):
            return str(super().get_email_verification_redirect_url(email_address))
        key = default_token_generator.make_token(user)
        return reverse("account_reset_password_from_key", kwargs={"uidb36": user_pk_to_url_str(user), "key": key})

    def render_mail(self, template_prefix: str, email: str, context: dict[str, Any], headers: Any = None) -> Any:
        """Every link leads to this site's own address, and not to the port of the request's Host header."""
        asked, site = self.request.build_absolute_uri("/"), f"{site_of(self.request)}/"
        sent = {
            name: site + value.removeprefix(asked) if isinstance(value, str) and value.startswith(asked) else value
            for name, value in context.items()
        }
        # The host, and below it the path of PUBLIC_URL.
        place = (settings.PUBLIC_URL or site).partition("://")[2].rstrip("/")
        return super().render_mail(template_prefix, email, {**sent, "site": urlsplit(site), "place": place}, headers)

    def send_mail(self, template_prefix: str, email: str, context: dict[str, Any]) -> bool:
        """Send without holding a database connection. If it fails, the next page says so, and nothing is undone.

        Returns whether the mail server took it.
        """
        passwords.give_connections_back()
        refuse_in_transaction("The mail server")
        try:
            super().send_mail(template_prefix, email, context)
        except (SMTPException, OSError) as error:
            logger.warning("An email could not be sent (%s)", type(error).__name__)
            self.add_message(self.request, messages.ERROR, message=NOT_SENT)
            return False
        return True


class SecondFactorAdapter(DefaultMFAAdapter):  # type: ignore[misc]  # without types
    error_messages = {
        **DefaultMFAAdapter.error_messages,
        "unverified_email": _("Confirm your email address first. Your account page sends you the email again."),
        "incorrect_code": _("Wrong code. Wait for the next one."),
    }

    def encrypt(self, text: str) -> str:
        return _cipher().encrypt(text.encode()).decode()

    def decrypt(self, encrypted_text: str) -> str:
        """Raises `Unavailable` if neither SECRET_KEY nor a fallback decrypts it."""
        try:
            return _cipher().decrypt(encrypted_text.encode()).decode()
        except InvalidToken:
            raise Unavailable(
                gettext_noop("The second factor cannot be read: the server's own key has changed.")
            ) from None

    def generate_authenticator_name(self, user: User, type: Any) -> str:
        return devices.in_words(self.request.headers.get("User-Agent", ""))


class OtherServiceAdapter(DefaultSocialAccountAdapter):  # type: ignore[misc]  # without types
    """Log-in through another service: the first time it creates an account, if registration is allowed."""

    def get_requests_session(self) -> Any:
        """For requests to the other service, which may be slow: no database connection is held meanwhile."""
        passwords.give_connections_back()
        refuse_in_transaction("Another service's log-in")
        return super().get_requests_session()

    def is_open_for_signup(self, request: HttpRequest, sociallogin: Any) -> bool:
        """Nobody asks for the code of the first person here, so that person registers with a password."""
        return registration.why_not(request.session.get(INVITATION, "")) is None and not registration.needs_code()

    def save_user(self, request: HttpRequest, sociallogin: Any, form: Any = None) -> User:
        """Create the account, from the visitor's own row if there is one.

        Raises `InvalidInput` if the invitation has been used up.
        """
        email = form.cleaned_data["email"] if form else sociallogin.user.email
        user, turns = visitors.register(
            visitor=request.META.pop(VISITOR, None),
            email=User.objects.normalize_email(email),
            password=None,
            time_zone="UTC",
            invitation=request.session.pop(INVITATION, ""),
        )
        sociallogin.user = user
        request.session[sessions.REGISTERED] = user.pk
        sociallogin.save(request)
        tell_what_came_along(request, turns)
        return user


def other_services(request: HttpRequest) -> list[dict[str, str]]:
    """The configured services that offer a log-in button; `provider` is the name in connected accounts."""
    if not settings.SOCIALACCOUNT_PROVIDERS:
        return []
    return [
        {"provider": each.sub_id, "name": each.name, "login_url": each.get_login_url(request)}
        for each in OtherServiceAdapter().list_providers(request)
    ]


def is_readable(data: dict[str, Any]) -> bool:
    """Whether this SECRET_KEY, or a fallback, opens the secrets of an authenticator app or of recovery codes."""
    sealed = [data[name] for name in ("secret", "seed") if name in data] + list(data.get("migrated_codes", []))
    try:
        return all(_cipher().decrypt(str(one).encode()) for one in sealed)
    except InvalidToken:
        return False


def _cipher() -> MultiFernet:
    return cipher_for("second factors")
