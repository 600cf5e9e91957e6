"""Account forms: django-allauth's forms with this product's texts, limits and counters."""

import time
from datetime import UTC, datetime
from typing import Any

from allauth.account import forms as of_accounts
from allauth.account.models import EmailAddress
from allauth.core import context
from allauth.mfa import app_settings as second_factor_settings
from allauth.mfa.base import forms as of_codes
from allauth.mfa.models import Authenticator
from allauth.mfa.totp.forms import ActivateTOTPForm
from allauth.mfa.webauthn import forms as of_passkeys
from allauth.socialaccount.forms import SignupForm
from django import forms
from django.contrib.auth.password_validation import validate_password
from django.core.exceptions import ValidationError
from django.db import transaction
from django.http import HttpRequest
from django.utils import timezone
from django.utils.translation import gettext_lazy as _

from core import rate_limits
from core.errors import Unavailable
from core.validation import LONGEST_EMAIL, LONGEST_PASSWORD
from intake.accounts import sessions
from intake.accounts.adapters import count_mail
from intake.accounts.methods import keep_digests, use_digest
from intake.models import User

LONGEST_CREDENTIAL = 20_000

PASSWORD = _("Password")
PASSWORD_HELP = _("At least 8 characters; not a common password, not only digits.")


def email_field() -> forms.EmailField:
    return forms.EmailField(
        max_length=LONGEST_EMAIL, label=_("Email"), widget=forms.EmailInput(attrs={"autocomplete": "email"})
    )


def code_field() -> forms.CharField:
    attributes = {"autocomplete": "one-time-code", "autofocus": True, "spellcheck": "false"}
    return forms.CharField(max_length=32, label=_("Code"), widget=forms.TextInput(attrs=attributes))


def password_field(*, label: Any = PASSWORD, is_new: bool = False, help_text: Any = "") -> forms.CharField:
    attributes = {"autocomplete": "new-password" if is_new else "current-password"}
    widget = forms.PasswordInput(attrs=attributes)
    return forms.CharField(max_length=LONGEST_PASSWORD, strip=False, label=label, help_text=help_text, widget=widget)


def end_access_field() -> forms.BooleanField:
    return forms.BooleanField(
        required=False,
        label=_("End my tokens and connected apps too"),
        help_text=_("Choose this if somebody else may have known the password. Agents then need new tokens."),
    )


# Email and password


class NewEmailForm(of_accounts.AddEmailForm):  # type: ignore[misc]  # without types
    email = email_field()

    def clean_email(self) -> str:
        """Only the owner of the address learns, by email, that it belongs to another account."""
        email: str = self.cleaned_data["email"].lower()
        if email == self.user.email:
            raise ValidationError(_("This is your address already."), code="same_email")
        return email

    def save(self, request: HttpRequest) -> EmailAddress:
        """Add it beside the account's address, which stays until this one is confirmed. Raises `RateLimited`."""
        with transaction.atomic():
            waiting = EmailAddress.objects.filter(user=self.user, verified=False)
            waiting.exclude(email=self.user.email).delete()
            address = EmailAddress.objects.create(user=self.user, email=self.cleaned_data["email"])
        address.send_confirmation(request)
        return address


class AskForResetForm(of_accounts.ResetPasswordForm):  # type: ignore[misc]
    email = email_field()
    users: list[User]

    def clean_email(self) -> str:
        """For the account that logs in with this address, not one with it as an unconfirmed or former address."""
        email: str = super().clean_email().lower()
        self.users = [user for user in self.users if user.email == email]
        return email

    def save(self, request: HttpRequest, **kwargs: Any) -> str:
        """Send an email whether or not there is an account, so that neither the response nor its time reveals it."""
        email: str = self.cleaned_data["email"].lower()
        count_mail(request, email)
        return str(super().save(request, **kwargs))


class ResetForm(of_accounts.ResetPasswordKeyForm):  # type: ignore[misc]
    password1 = password_field(label=_("New password"), is_new=True, help_text=PASSWORD_HELP)
    # One field is enough, because it can be shown.
    password2 = None
    end_access = end_access_field()

    def clean_password1(self) -> str:
        password: str = self.cleaned_data["password1"]
        validate_password(password, self.user)
        return password

    def save(self) -> None:
        """Every session ends when the password changes. The link came by email, so it proves the address."""
        super().save()
        if not EmailAddress.objects.filter(user=self.user, email=self.user.email, verified=True).exists():
            EmailAddress.objects.update_or_create(
                user=self.user, email=self.user.email, defaults={"verified": True, "primary": True}
            )
            sessions.end_what_came_before(context.request, self.user)
        sessions.end_other_sessions(user=self.user, current=None)
        if self.cleaned_data["end_access"]:
            sessions.end_access(user=self.user)


class PasswordAgainForm(of_accounts.ReauthenticateForm):  # type: ignore[misc]
    password = password_field()


class ChangePasswordForm(forms.Form):
    """Asks for the old password if there is one: an account of another service may have none."""

    old_password = password_field(label=_("Your current password"))
    new_password = password_field(label=_("New password"), is_new=True, help_text=PASSWORD_HELP)
    end_access = end_access_field()

    def __init__(self, *args: Any, user: User, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.user = user
        if not user.has_usable_password():
            del self.fields["old_password"]

    def clean_old_password(self) -> str:
        password: str = self.cleaned_data["old_password"]
        rate_limits.take_for_password(self.user.get_username(), address=rate_limits.client_address(context.request))
        if not self.user.check_password(password):
            raise ValidationError(_("This is not your password."), code="wrong_password")
        return password

    def clean_new_password(self) -> str:
        password: str = self.cleaned_data["new_password"]
        validate_password(password, self.user)
        return password


class OtherServiceEmailForm(SignupForm):  # type: ignore[misc]
    """Shown if the other service gave no email address, or one that already has an account."""

    email = email_field()
    # django-allauth removes it again: this product has no user names.
    username = forms.CharField(max_length=1, required=False)


# Codes

UNREADABLE = _(
    "Codes of an app cannot be checked here. The server's own key has changed since the app was set up. A "
    "recovery code works. The administrator can bring the former key back."
)


class _CountedCode:
    """Attempts are counted per account, from all addresses; an authenticator code works once."""

    user: User
    cleaned_data: dict[str, Any]
    authenticator: Authenticator

    def clean_code(self) -> str:
        """Raises `RateLimited`."""
        rate_limits.take_for_code(self.user.pk, address=rate_limits.client_address(context.request))
        try:
            code: str = super().clean_code()  # type: ignore[misc]
        except Unavailable:
            return self._by_digest(self.cleaned_data["code"])
        keep_digests(self.user)
        if not self._is_first_use():
            raise ValidationError(_("This code has been used. Wait for the next one."), code="used_code")
        return code

    def _by_digest(self, code: str) -> str:
        """SECRET_KEY does not open the second factor: only recovery codes, which have digests, can be compared."""
        codes = use_digest(self.user, code)
        if codes is None:
            raise ValidationError(UNREADABLE, code="unreadable")
        self.authenticator = codes
        return code

    def _is_first_use(self) -> bool:
        """One statement, so that of two requests with the same code one is refused, in any process."""
        if self.authenticator.type != Authenticator.Type.TOTP:
            return True
        period = second_factor_settings.TOTP_PERIOD
        began = datetime.fromtimestamp(time.time() // period * period, tz=UTC)
        unused = Authenticator.objects.filter(pk=self.authenticator.pk).exclude(last_used_at__gte=began)
        return bool(unused.update(last_used_at=timezone.now()))


class CodeForm(_CountedCode, of_codes.AuthenticateForm):  # type: ignore[misc]
    code = code_field()


class CodeAgainForm(_CountedCode, of_codes.ReauthenticateForm):  # type: ignore[misc]
    code = code_field()


class FirstCodeForm(ActivateTOTPForm):  # type: ignore[misc]
    code = code_field()

    def clean_code(self) -> str:
        rate_limits.take_for_code(self.user.pk, address=rate_limits.client_address(context.request))
        code: str = super().clean_code()
        return code


# Passkeys


class CredentialField(forms.JSONField):
    """The response of the browser's authenticator, as WebAuthn's JSON."""

    widget = forms.HiddenInput

    def __init__(self) -> None:
        super().__init__(max_length=LONGEST_CREDENTIAL)

    def to_python(self, value: Any) -> Any:
        if isinstance(value, str) and len(value) > LONGEST_CREDENTIAL:
            raise ValidationError(_("The passkey's answer is too long."), code="max_length")
        read = super().to_python(value)
        if not isinstance(read, dict):
            raise ValidationError(_("The passkey did not respond. Try again."), code="invalid")
        return read


def passkey_name_field(**options: Any) -> forms.CharField:
    return forms.CharField(max_length=80, label=_("Name"), **options)


class NewPasskeyForm(of_passkeys.AddWebAuthnForm):  # type: ignore[misc]
    name = passkey_name_field(required=False, help_text=_("So that you know it again."))
    credential = CredentialField()
    # Each of them can replace a password.
    passwordless = forms.BooleanField(initial=True, widget=forms.HiddenInput)


class PasskeyNameForm(of_passkeys.EditWebAuthnForm):  # type: ignore[misc]
    name = passkey_name_field()


class PasskeyForm(of_passkeys.AuthenticateWebAuthnForm):  # type: ignore[misc]
    credential = CredentialField()


class PasskeyAgainForm(of_passkeys.ReauthenticateWebAuthnForm):  # type: ignore[misc]
    credential = CredentialField()


class PasskeyLoginForm(of_passkeys.LoginWebAuthnForm):  # type: ignore[misc]
    credential = CredentialField()

    def clean_credential(self) -> Authenticator:
        rate_limits.take_all(("login_address", rate_limits.client_address(context.request)))
        return super().clean_credential()
