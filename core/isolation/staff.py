"""The admin site: every page runs with the staff role, which sees the index but no users' text."""

from collections.abc import Callable
from functools import wraps
from typing import Any

from allauth.mfa.utils import is_mfa_enabled
from django import forms
from django.contrib.admin import AdminSite
from django.contrib.admin.forms import AdminAuthenticationForm
from django.contrib.auth.forms import UsernameField
from django.core.exceptions import ValidationError
from django.http import HttpRequest, HttpResponse
from django.template.response import SimpleTemplateResponse

from core.isolation.acting import acting_as_staff
from core.validation import LONGEST_EMAIL, LONGEST_PASSWORD

SECOND_FACTOR = "You have a second factor. Log in at /login/ first, then come back to this page."


class StaffLoginForm(AdminAuthenticationForm):
    username = UsernameField(max_length=LONGEST_EMAIL, widget=forms.TextInput(attrs={"autofocus": True}))
    password = forms.CharField(
        strip=False,
        max_length=LONGEST_PASSWORD,
        widget=forms.PasswordInput(attrs={"autocomplete": "current-password"}),
    )

    def confirm_login_allowed(self, user: Any) -> None:
        """This page asks only for a password, so it refuses users who have a second factor."""
        super().confirm_login_allowed(user)
        if is_mfa_enabled(user):
            raise ValidationError(SECOND_FACTOR, code="second_factor")


class StaffSite(AdminSite):
    """Runs each page as the staff role, after checking that the user is staff."""

    login_form = StaffLoginForm

    def admin_view(self, view: Callable[..., Any], cacheable: bool = False) -> Any:
        return super().admin_view(_as_staff(view), cacheable)


def _as_staff(view: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(view)
    def wrapper(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        with acting_as_staff():
            response: HttpResponse = view(request, *args, **kwargs)
            # The admin's templates query the database too.
            return response.render() if isinstance(response, SimpleTemplateResponse) else response

    return wrapper
