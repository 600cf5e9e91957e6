"""Decides who may register: everybody, invited people, or nobody. The first person becomes the administrator."""

from enum import StrEnum
from typing import Any

from django.conf import settings
from django.core import checks
from django.db import connection
from django.http import HttpRequest
from django.http.request import split_domain_port
from django.utils import timezone
from django.utils.crypto import constant_time_compare
from django.utils.translation import gettext_noop as _

from core.errors import InvalidInput
from core.ids import first_code
from intake.models import (
    Invitation,
    User,
)
from intake.models.installation import REGISTRATION, kept_setting


class Registration(StrEnum):
    OPEN = "open"
    INVITE = "invite"
    CLOSED = "closed"


BY_INVITATION = _(
    "To register here you need an invitation: a link that the administrator of this Recollect can send you."
)
NOT_OPEN = _("This invitation has been used up, has expired, or is incomplete. Ask for a new one.")
CLOSED = _("Nobody can register here. The administrator of this Recollect makes the accounts.")


WRONG_CODE = _(
    "Nobody has registered here yet, and the first account administers this Recollect. Enter the code that `make up` "
    "printed, or `manage.py invite --first`."
)
# Held until the first account is committed, so that of two at once one is first.
_FIRST = "SELECT pg_advisory_xact_lock(hashtextextended('recollect: first person', 0))"


def policy() -> str:
    """The environment's, or what staff have chosen."""
    return settings.REGISTRATION or str(kept_setting(REGISTRATION, default=Registration.OPEN))


def is_new() -> bool:
    """Whether nobody has registered yet; visitors have no address."""
    return not User.objects.filter(email__isnull=False).exists()


def needs_code() -> bool:
    """Whether the next to register is the first, at an address where a stranger could be faster."""
    return bool(settings.FIRST_PERSON_CODE) and is_new()


def claim_first_place(code: str) -> bool:
    """Whether an account is the first, while a transaction creates it. Raises `InvalidInput` for a wrong code."""
    if not is_new():
        return False
    with connection.cursor() as cursor:
        cursor.execute(_FIRST)
    # Another one may have been committed while this one waited for the lock.
    if not is_new():
        return False
    sent, wanted = "".join(code.split()).replace("-", "").upper(), first_code(settings.SECRET_KEY).replace("-", "")
    if settings.FIRST_PERSON_CODE and not constant_time_compare(sent, wanted):
        raise InvalidInput(WRONG_CODE)
    return True


def why_not(invitation: str) -> str | None:
    """The reason why registration with this invitation is refused (empty for no sentence); None if it is allowed."""
    match policy():
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
    if refusal is None and policy() == Registration.INVITE:
        refusal = None if Invitation.objects.take(invitation, now=timezone.now()) else NOT_OPEN
    if refusal is not None:
        raise InvalidInput(refusal)


def context(request: HttpRequest) -> dict[str, Any]:
    """For templates: whether to link to the registration page, and to say what does not work without HTTPS."""
    # A browser asks for no HTTPS on its own machine.
    name, _port = split_domain_port(request.META.get("HTTP_HOST", ""))
    is_this_machine = name in LOOPBACK or name.endswith(".localhost")
    return {
        # Called where a template names it: other pages need no database.
        "registration_is_open": lambda: policy() == Registration.OPEN,
        "is_plain_http": not request.is_secure() and not is_this_machine,
    }


# Names for which a browser asks for no HTTPS.
LOOPBACK = ("localhost", "127.0.0.1", "[::1]")


@checks.register
def check_registration(**options: Any) -> list[checks.Error]:
    if settings.REGISTRATION in ("", *Registration):
        return []
    allowed = ", ".join(Registration)
    return [
        checks.Error(
            f"REGISTRATION is {settings.REGISTRATION!r}.",
            hint=f"It is one of: {allowed}.",
            id="intake.E001",
        )
    ]
