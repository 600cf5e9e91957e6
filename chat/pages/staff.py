"""Who may open the pages of staff, and the record of what they did there.

Everybody else gets the page of an address that does not exist.
"""

from functools import wraps

from django.contrib.admin.models import CHANGE, LogEntry
from django.contrib.contenttypes.models import ContentType
from django.http import HttpRequest, HttpResponse
from django.utils.translation import gettext_lazy

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
    "invited": (Invitation, gettext_lazy("%(staff)s made an invitation.")),
    "settings": (InstallationSetting, gettext_lazy("%(staff)s changed settings.")),
    "models": (InstallationSetting, gettext_lazy("%(staff)s changed the language models.")),
    "retried": (InstallationSetting, gettext_lazy("%(staff)s had failed texts embedded again.")),
    "disabled": (User, gettext_lazy("%(staff)s disabled %(person)s.")),
    "enabled": (User, gettext_lazy("%(staff)s enabled %(person)s.")),
    "reset": (User, gettext_lazy("%(staff)s made a link for a new password of %(person)s.")),
    "quotas": (User, gettext_lazy("%(staff)s changed the quotas of %(person)s.")),
    "promoted": (User, gettext_lazy("%(staff)s made %(person)s an administrator.")),
    "demoted": (User, gettext_lazy("%(staff)s ended the administration of %(person)s.")),
}


def note_action(request: HttpRequest, action: str, *, user: User | None = None) -> None:
    """What staff did, and to whom; never what was entered."""
    model, _words = ACTIONS[action]
    with acting_as_staff():
        LogEntry.objects.create(
            user_id=person_of(request).pk,
            content_type=ContentType.objects.get_for_model(model),
            object_id=None if user is None else str(user.pk),
            object_repr="" if user is None else str(user)[:200],
            action_flag=CHANGE,
            change_message=action,
        )
