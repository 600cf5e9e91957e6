"""The forms of an account, its settings and titles, with errors beside the fields."""

import zoneinfo
from typing import Any

from django import forms
from django.conf import settings
from django.contrib.auth.forms import AuthenticationForm, UsernameField
from django.contrib.auth.password_validation import validate_password
from django.core.exceptions import ValidationError
from django.db import IntegrityError
from django.utils.translation import gettext_lazy as _

from core.errors import InvalidInput, RateLimited
from core.isolation.acting import Caller
from core.validation import LONGEST_EMAIL
from intake.accounts import registration, visitors
from intake.accounts.forms import PASSWORD_HELP, password_field
from intake.chats.services import without_nul
from intake.llm.chat_options import MAX_INSTRUCTIONS
from intake.llm.language_models import offered
from intake.models import User
from intake.models.conversations import TITLE_LENGTH
from intake.models.installation import languages_offered
from intake.models.users import UserManager

EMAIL_TAKEN = _("There is an account with this email already. Log in instead, or use another email.")


class LoginForm(AuthenticationForm):
    username = UsernameField(
        max_length=LONGEST_EMAIL, widget=forms.EmailInput(attrs={"autocomplete": "username", "autofocus": True})
    )
    password = password_field()
    error_messages = {
        **AuthenticationForm.error_messages,
        "invalid_login": _("Wrong email or password."),
    }

    # Why the password was not checked, if it was not.
    limited: RateLimited | None = None

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fields["username"].label = _("Email")

    def clean(self) -> dict[str, Any]:
        try:
            return super().clean()
        except RateLimited as error:
            self.limited = error
            raise ValidationError(_(error.detail), code=error.code) from None


class RegisterForm(forms.Form):
    email = forms.EmailField(
        label=_("Email"),
        max_length=LONGEST_EMAIL,
        widget=forms.EmailInput(attrs={"autocomplete": "email", "autofocus": True}),
    )
    password = password_field(is_new=True, help_text=PASSWORD_HELP)
    # From the browser; dates in searches use it.
    time_zone = forms.CharField(required=False, max_length=64, widget=forms.HiddenInput)
    # If registration needs a confirmed email, only an email says so.
    is_taken = False

    # The secret of the invitation link, if there was one.
    invitation = forms.CharField(required=False, max_length=100, widget=forms.HiddenInput)

    # Only the first person of an installation is asked for it, and only where a stranger could be faster.
    code = forms.CharField(
        required=False,
        max_length=40,
        label=_("Code from the terminal"),
        help_text=_(
            "Nobody has registered yet, and the first account administers this Recollect. `make up` prints the code "
            "when it starts, and `manage.py invite --first` everywhere."
        ),
        widget=forms.TextInput(attrs={"autocomplete": "off", "spellcheck": "false"}),
    )

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if not registration.needs_code():
            del self.fields["code"]

    def clean_email(self) -> str:
        email = UserManager.normalize_email(self.cleaned_data["email"])
        self.is_taken = User.objects.filter(email=email).exists()
        if self.is_taken and settings.EMAIL_VERIFICATION != "mandatory":
            raise ValidationError(EMAIL_TAKEN, code="email_taken")
        return email

    def clean_time_zone(self) -> str:
        name: str = self.cleaned_data["time_zone"]
        return name if name in zoneinfo.available_timezones() else "UTC"

    def clean(self) -> None:
        if password := self.cleaned_data.get("password"):
            try:
                validate_password(password, User(email=self.cleaned_data.get("email", "")))
            except ValidationError as error:
                self.add_error("password", error)
        if {*self.errors} == {"password"}:
            del self.fields["email"].widget.attrs["autofocus"]
            self.fields["password"].widget.attrs["autofocus"] = True

    def save(self, *, visitor: User | None) -> tuple[User, int] | None:
        """See `visitors.register`; None, with the error on the form, if the email, or the last use of the invitation,
        was taken a moment ago.
        """
        try:
            return visitors.register(
                visitor=visitor,
                email=self.cleaned_data["email"],
                password=self.cleaned_data["password"],
                time_zone=self.cleaned_data["time_zone"],
                invitation=self.cleaned_data["invitation"],
                code=self.cleaned_data.get("code", ""),
            )
        except IntegrityError:
            self.add_error("email", ValidationError(EMAIL_TAKEN, code="email_taken"))
        except InvalidInput as error:
            self.add_error(None, ValidationError(_(error.detail), code="not_invited"))
        return None


class RenameForm(forms.Form):
    title = forms.CharField(
        label=_("Title"), max_length=TITLE_LENGTH, widget=forms.TextInput(attrs={"autofocus": True})
    )


class TimeZoneForm(forms.Form):
    time_zone = forms.CharField(
        label=_("Time zone"),
        max_length=64,
        widget=forms.TextInput(attrs={"list": "zones", "autocomplete": "off", "spellcheck": "false"}),
        help_text=_("Searches by date use this time zone. Type the name of a city."),
    )

    def clean_time_zone(self) -> str:
        """A zone by its name or by its city, however it is written."""
        typed = self.cleaned_data["time_zone"].replace(" ", "_").casefold()
        for zone in sorted(zoneinfo.available_timezones()):
            if typed in (zone.casefold(), zone.casefold().rpartition("/")[2]):
                return zone
        raise ValidationError(_("There is no such time zone: choose one of these."))


class LanguageForm(forms.Form):
    language = forms.ChoiceField(
        label=_("Language"),
        required=False,
        choices=lambda: [("", _("The browser's language")), *languages_offered()],
        error_messages={"invalid_choice": _("There is no such language: choose one of these.")},
        help_text=_("Of these pages. A chat is answered in the language in which you write."),
    )


class TitlesForm(forms.Form):
    """What the chat's model may do besides answering, as far as this installation has it do that."""

    titles_by_model = forms.BooleanField(
        required=False, label=_("The language model makes a title after the first answer")
    )
    proposes = forms.BooleanField(
        required=False, label=_("The language model reads chats that have ended, and proposes what to remember")
    )

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if not settings.CHAT_TITLES:
            del self.fields["titles_by_model"]
        if not settings.PROPOSAL_TOKENS_A_DAY:
            del self.fields["proposes"]


class AnswersForm(forms.Form):
    model = forms.ChoiceField(
        required=False,
        label=_("Model of new chats"),
        error_messages={"invalid_choice": _("There is no such model: choose one of these.")},
    )
    how_to_answer = forms.CharField(
        required=False,
        max_length=MAX_INSTRUCTIONS,
        label=_("How to answer"),
        widget=forms.Textarea(attrs={"rows": 5}),
        help_text=_("Every chat's model is told this: how long, in what tone, in which language."),
    )

    def __init__(self, *args: Any, caller: Caller, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        models = offered(caller)
        first = _("The first one (%(name)s)") % {"name": models[0].title} if models else _("The first one")
        field = self.fields["model"]
        if isinstance(field, forms.ChoiceField):
            field.choices = [("", first), *((model.name, model.title) for model in models)]

    def clean_how_to_answer(self) -> str:
        return without_nul(self.cleaned_data["how_to_answer"]).strip()


class DeleteAccountForm(forms.Form):
    password = password_field(help_text=_("To make sure that it is you."))

    def __init__(self, *args: Any, user: User, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.user = user
        if not user.has_usable_password():
            # The page asks for another proof.
            del self.fields["password"]

    def clean_password(self) -> str:
        password: str = self.cleaned_data["password"]
        if not self.user.check_password(password):
            raise ValidationError(_("This is not your password."), code="wrong_password")
        return password
