"""Who may open the pages of staff, and the record of what they did there.

Everybody else gets the page of an address that does not exist.
"""

from functools import wraps
from urllib.parse import urlsplit

from django import forms
from django.contrib.admin.models import CHANGE, LogEntry
from django.contrib.contenttypes.models import ContentType
from django.core.exceptions import ValidationError
from django.http import HttpRequest, HttpResponse
from django.utils.translation import gettext_lazy as _

from chat.pages.common import P, View, page_with_form
from core.errors import NotFound
from core.isolation.acting import acting_as_staff
from intake.accounts.identity import person_of
from intake.accounts.proofs import requires_recent_proof
from intake.models import InstallationSetting, Invitation, User


def staff_page(view: View[P]) -> View[P]:
    @wraps(view)
    def wrapper(request: HttpRequest, /, *args: P.args, **kwargs: P.kwargs) -> HttpResponse:
        if not person_of(request).is_staff:
            raise NotFound
        return view(request, *args, **kwargs)

    return page_with_form(wrapper)


def staff_form(view: View[P]) -> View[P]:
    """As `staff_page`; what is sent needs a recent proof."""
    return staff_page(requires_recent_proof(methods=("POST",))(view))


# The model and the words of each action in Django's own log of what staff did. The person concerned reads in their
# activity that staff changed their account (`intake.receivers.note_staff`).
ACTIONS = {
    "invited": (Invitation, _("%(staff)s made an invitation.")),
    "settings": (InstallationSetting, _("%(staff)s changed settings.")),
    "models": (InstallationSetting, _("%(staff)s changed the language models.")),
    "retried": (InstallationSetting, _("%(staff)s had failed texts embedded again.")),
    "disabled": (User, _("%(staff)s disabled %(person)s.")),
    "enabled": (User, _("%(staff)s enabled %(person)s.")),
    "reset": (User, _("%(staff)s made a link for a new password of %(person)s.")),
    "quotas": (User, _("%(staff)s changed the quotas of %(person)s.")),
    "promoted": (User, _("%(staff)s made %(person)s an administrator.")),
    "demoted": (User, _("%(staff)s ended the administration of %(person)s.")),
}


def note_action(request: HttpRequest, action: str, *, user: User | None = None) -> None:
    """What staff did, and to whom; never what was entered."""
    model = ACTIONS[action][0]
    with acting_as_staff():
        LogEntry.objects.create(
            user_id=person_of(request).pk,
            content_type=ContentType.objects.get_for_model(model),
            object_id=None if user is None else str(user.pk),
            object_repr="" if user is None else str(user)[:200],
            action_flag=CHANGE,
            change_message=action,
        )


LONGEST_KEY = 500
KEY_IS_KEPT = _("One is kept. Leave this empty to keep it; it is not shown again.")


def key_field() -> forms.CharField:
    """Of a key at a service, which is never sent to the browser."""
    widget = forms.PasswordInput(attrs={"autocomplete": "off"})
    return forms.CharField(required=False, max_length=LONGEST_KEY, label=_("Key"), widget=widget)


def server_address(text: str) -> str:
    """Without a slash at its end; may be empty. Raises `ValidationError`."""
    address = text.rstrip("/")
    if address and not (address.startswith(("http://", "https://")) and urlsplit(address).hostname):
        raise ValidationError(_("It begins with http:// or https://."), code="no_address")
    return address
