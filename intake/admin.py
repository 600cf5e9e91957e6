"""The admin of accounts and rights. Chats are not registered here, and must never be."""

from datetime import timedelta
from typing import Any

from allauth.account.models import EmailAddress
from django import forms
from django.contrib import admin, messages
from django.contrib.auth.admin import UserAdmin as DjangoUserAdmin
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse
from django.urls import reverse
from django.utils import timezone

from core.responses import site_of
from intake.models import Invitation, User
from intake.models.invitations import (
    DEFAULT_DAYS,
    LONGEST_DAYS,
    digest_of,
    new_secret,
)


@admin.register(User)
class PersonAdmin(DjangoUserAdmin):  # type: ignore[type-arg]
    """Setting a user's password or address, or granting rights, gives full control of an account.

    Both therefore require a superuser. Other staff may add, activate and deactivate users who are not staff. Visitors
    are read-only. Deleting is not offered: it would list, and delete, everything the user ever wrote.
    """

    list_display = ("email", "is_active", "is_staff", "is_superuser", "is_visitor", "joined_at", "last_login")
    list_filter = ("is_visitor", "is_active", "is_staff", "is_superuser")
    list_per_page = 100
    search_fields = ("email",)
    show_full_result_count = False
    show_facets = admin.ShowFacets.NEVER
    ordering = ("-id",)
    readonly_fields = ("joined_at", "last_login")
    fieldsets = (
        (None, {"fields": ("email", "time_zone", "password")}),
        ("Rights", {"fields": ("is_active", "is_staff", "is_superuser", "groups", "user_permissions")}),
        ("Times", {"fields": ("joined_at", "last_login")}),
    )
    add_fieldsets = ((None, {"classes": ("wide",), "fields": ("email", "usable_password", "password1", "password2")}),)

    def save_model(self, request: HttpRequest, obj: User, form: Any, change: bool) -> None:
        """An earlier confirmation does not apply to an address that staff set."""
        if change and "email" in form.changed_data:
            EmailAddress.objects.filter(user=obj).delete()
        super().save_model(request, obj, form, change)

    def has_delete_permission(self, request: HttpRequest, obj: User | None = None) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: User | None = None) -> bool:
        if obj is not None and (obj.is_visitor or (obj.is_staff and not _is_superuser(request))):
            return False
        return super().has_change_permission(request, obj)

    def get_readonly_fields(self, request: HttpRequest, obj: User | None = None) -> tuple[str, ...]:
        if obj is None or _is_superuser(request):
            return self.readonly_fields
        return (*self.readonly_fields, "email", "is_staff", "is_superuser", "groups", "user_permissions")

    def get_fieldsets(self, request: HttpRequest, obj: User | None = None) -> Any:
        if obj is None or _is_superuser(request):
            return super().get_fieldsets(request, obj)
        return ((None, {"fields": ("email", "time_zone")}), *self.fieldsets[1:])

    def user_change_password(self, request: HttpRequest, id: str, form_url: str = "") -> HttpResponse:
        if not _is_superuser(request):
            raise PermissionDenied
        return super().user_change_password(request, id, form_url)


def _is_superuser(request: HttpRequest) -> bool:
    return isinstance(request.user, User) and request.user.is_superuser


class InvitationForm(forms.ModelForm):  # type: ignore[type-arg]
    days = forms.IntegerField(
        min_value=1, max_value=LONGEST_DAYS, initial=DEFAULT_DAYS, help_text="How long the link is good for."
    )


@admin.register(Invitation)
class InvitationAdmin(admin.ModelAdmin):  # type: ignore[type-arg]
    """The link is shown once, on creation. An invitation is never changed, only deleted."""

    form = InvitationForm
    fields = ("note", "uses", "days")
    list_display = ("__str__", "used", "uses", "expires_at", "created_at")
    ordering = ("-id",)

    def has_change_permission(self, request: HttpRequest, obj: Invitation | None = None) -> bool:
        return False

    def save_model(self, request: HttpRequest, obj: Invitation, form: Any, change: bool) -> None:
        secret = new_secret()
        obj.digest = digest_of(secret)
        obj.expires_at = timezone.now() + timedelta(days=form.cleaned_data["days"])
        super().save_model(request, obj, form, change)
        link = f"{site_of(request)}{reverse('intake:register')}?invitation={secret}"
        messages.success(request, f"Send this link; it is not shown again: {link}")
