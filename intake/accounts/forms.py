"""The forms of accounts, and the log-in methods beside the password.

Account forms: django-allauth's forms with this product's texts, limits and counters.
"""

import hashlib
import hmac
import secrets
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
from django.conf import settings
from django.contrib.auth.password_validation import validate_password
from django.core.exceptions import ValidationError
from django.db import transaction
from django.http import HttpRequest
from django.utils import timezone
from django.utils.translation import gettext, ngettext
from django.utils.translation import gettext_lazy as _

from core import rate_limits
from core.errors import Unavailable
from core.validation import LONGEST_EMAIL, LONGEST_PASSWORD
from intake.accounts import sessions
from intake.accounts.adapters import count_mail, is_readable
from intake.models import User

# --- The log-in methods of an account besides its password ---
# Recovery codes are encrypted with SECRET_KEY, so that their owner can see them again. Each also has a digest, with
# which it still lets its owner in when a backup was restored under another key.

# In the data of a set of recovery codes.
DIGESTS, SALT, USED = "digests", "salt", "used_mask"


def in_words(user: User) -> str:
    types = list(Authenticator.objects.filter(user=user).values_list("type", flat=True))
    passkeys = types.count(Authenticator.Type.WEBAUTHN)
    words = []
    if passkeys:
        words.append(ngettext("%d passkey", "%d passkeys", passkeys) % passkeys)
    if Authenticator.Type.TOTP in types:
        words.append(gettext("codes of an app"))
    return gettext(" and ").join(words) if words else gettext("None yet")


def add_digests(codes: Authenticator) -> None:
    """Add the digests of recovery codes that have none yet, before they are stored."""
    if codes.type != Authenticator.Type.RECOVERY_CODES or DIGESTS in codes.data or not is_readable(codes.data):
        return
    salt = secrets.token_hex(16)
    digests = [_digest(code, salt) for code in codes.wrap().generate_codes()]
    codes.data = {**codes.data, SALT: salt, DIGESTS: digests}


def keep_digests(user: User) -> None:
    """Add the digests of a set that was made before there were any."""
    for codes in Authenticator.objects.filter(user=user, type=Authenticator.Type.RECOVERY_CODES):
        if DIGESTS not in codes.data and is_readable(codes.data):
            codes.save()


def use_digest(user: User, code: str) -> Authenticator | None:
    """The recovery codes of which `code` is an unused one, by its digest; it is used up then."""
    digits = "".join(code.split())
    with transaction.atomic():
        codes = (
            Authenticator.objects.select_for_update().filter(user=user, type=Authenticator.Type.RECOVERY_CODES).first()
        )
        if codes is None or DIGESTS not in codes.data:
            return None
        requested = _digest(digits, codes.data[SALT])
        for number, digest in enumerate(codes.data[DIGESTS]):
            used = int(codes.data.get(USED, 0))
            if not used & 1 << number and hmac.compare_digest(digest, requested):
                codes.data = {**codes.data, USED: used | 1 << number}
                codes.save(update_fields=["data"])
                return codes
    return None


def _digest(code: str, salt: str) -> str:
    return hashlib.scrypt(code.encode(), salt=bytes.fromhex(salt), **settings.RECOVERY_CODE_SCRYPT).hex()


# --- Account forms ---

LONGEST_CODE = 32
LONGEST_PASSKEY_NAME = 80
LONGEST_CREDENTIAL = 20_000

PASSWORD = _("Password")
PASSWORD_HELP = _("At least 8 characters; not a common password, not only digits.")


def email_field() -> forms.EmailField:
    return forms.EmailField(
        max_length=LONGEST_EMAIL, label=_("Email"), widget=forms.EmailInput(attrs={"autocomplete": "email"})
    )


def code_field() -> forms.CharField:
    attributes = {"autocomplete": "one-time-code", "autofocus": True, "spellcheck": "false"}
    return forms.CharField(max_length=LONGEST_CODE, label=_("Code"), widget=forms.TextInput(attrs=attributes))


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

    old_password = password_field(label=_("Your password now"))
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
    "Codes of an app cannot be checked here. The server's SECRET_KEY has changed since the app was set up. A "
    "recovery code works. The administrator can put the former key into SECRET_KEY_FALLBACKS."
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
    return forms.CharField(max_length=LONGEST_PASSKEY_NAME, label=_("Name"), **options)


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
