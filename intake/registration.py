"""Decides who may register, by `settings.REGISTRATION`: everybody, invited people, or nobody."""

from enum import StrEnum
from typing import Any

from django.conf import settings
from django.core.checks import Error, register
from django.http import HttpRequest
from django.utils import timezone
from django.utils.translation import gettext_noop as _

from core.errors import InvalidInput
from intake.models import Invitation


class Registration(StrEnum):
    OPEN = "open"
    INVITE = "invite"
    CLOSED = "closed"


BY_INVITATION = _(
    "To register here you need an invitation: a link that the administrator of this Recollect can send you."
)
NOT_OPEN = _("This invitation has been used up, has expired, or is incomplete. Ask for a new one.")
CLOSED = _("Nobody can register here. The administrator of this Recollect makes the accounts.")


def why_not(invitation: str) -> str | None:
    """The reason why registration with this invitation is refused (empty for no sentence); None if it is allowed."""
    match settings.REGISTRATION:
        case Registration.OPEN:
            return None
        case Registration.INVITE if not invitation:
            return BY_INVITATION
        case Registration.INVITE:
            return None if Invitation.objects.is_open(invitation, now=timezone.now()) else NOT_OPEN
        case _:
            return CLOSED


def admit(invitation: str) -> None:
    """Use up the invitation, if one is needed; raises `InvalidInput` if registration is refused.

    Runs in the transaction that creates the account, so that a failed attempt costs no use.
    """
    refusal = why_not(invitation)
    if refusal is None and settings.REGISTRATION == Registration.INVITE:
        refusal = None if Invitation.objects.take(invitation, now=timezone.now()) else NOT_OPEN
    if refusal is not None:
        raise InvalidInput(refusal)


def context(request: HttpRequest) -> dict[str, Any]:
    """For templates: whether to link to the registration page."""
    return {"registration_is_open": settings.REGISTRATION == Registration.OPEN}


@register
def check_registration(**options: Any) -> list[Error]:
    if settings.REGISTRATION in list(Registration):
        return []
    allowed = ", ".join(Registration)
    return [
        Error(
            f"REGISTRATION is {settings.REGISTRATION!r}.",
            hint=f"It is one of: {allowed}.",
            id="intake.E001",
        )
    ]
