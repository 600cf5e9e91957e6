"""Registration: who may register, and how a visitor's chats move to the account.

Decides who may register: everybody, invited people, or nobody. The first person becomes the administrator.
"""

from datetime import datetime, timedelta
from enum import StrEnum
from itertools import chain
from typing import Any

from django.conf import settings
from django.core import checks
from django.db import connection, transaction
from django.http import HttpRequest
from django.http.request import split_domain_port
from django.utils import timezone
from django.utils.crypto import constant_time_compare
from django.utils.translation import gettext_noop as _

from core.errors import InvalidInput
from core.ids import first_code
from core.isolation.acting import acting_as, is_cluster
from intake import passwords
from intake.models import (
    Attachment,
    AttachmentPiece,
    AttachmentText,
    Conversation,
    IdempotentAnswer,
    Invitation,
    Turn,
    User,
)
from intake.models.users import REGISTRATION, kept_setting


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


def is_first_code(code: str) -> bool:
    sent = "".join(code.split()).replace("-", "").upper()
    return constant_time_compare(sent, first_code(settings.SECRET_KEY).replace("-", ""))


def _is_first(code: str) -> bool:
    """Within the transaction that creates the account. Raises `InvalidInput` for a wrong code."""
    if not is_new():
        return False
    with connection.cursor() as cursor:
        cursor.execute(_FIRST)
    # Another one may have been committed while this one waited for the lock.
    if not is_new():
        return False
    if settings.FIRST_PERSON_CODE and not is_first_code(code):
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
    return {
        # Called where a template names it: other pages need no database.
        "registration_is_open": lambda: policy() == Registration.OPEN,
        "is_plain_http": not request.is_secure() and not _is_this_machine(request),
    }


# Names for which a browser asks for no HTTPS.
LOOPBACK = ("localhost", "127.0.0.1", "[::1]")


def _is_this_machine(request: HttpRequest) -> bool:
    """Whether the browser takes the page for one of its own machine, where it asks for no HTTPS."""
    name, _port = split_domain_port(request.META.get("HTTP_HOST", ""))
    return name in LOOPBACK or name.endswith(".localhost")


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


# --- Visitors: users before registration. Moves their rows to an account, and removes inactive visitors ---
# A row's owner never changes, because the policies do not allow it. Registering completes the visitor's own user row,
# so all their rows stay. Logging in to another account deletes each row as the visitor and stores it again, with its
# id, as the account; both in one transaction.

# The limit of one run, so that no transaction grows without bounds. The database deletes their rows by cascade, and
# lets a worker delete no other user.
_REMOVE_SILENT = """
DELETE FROM users WHERE id IN (
    SELECT id FROM users AS visitor
     WHERE is_visitor AND joined_at < %(before)s
       AND NOT EXISTS (SELECT FROM intake_conversation_turns
                        WHERE user_id = visitor.id AND said_at >= %(before)s)
     ORDER BY joined_at LIMIT 1000
)
"""
# On a cluster, where a subquery cannot join a table on every node with a distributed one.
_REMOVE_SILENT_ON_NODES = """
DELETE FROM users WHERE id IN (
    SELECT id FROM users
     WHERE is_visitor AND joined_at < %(before)s
       AND id NOT IN (SELECT DISTINCT user_id FROM intake_conversation_turns WHERE said_at >= %(before)s)
     ORDER BY joined_at LIMIT 1000
)
"""


# In this order: an attachment has its content, and a text its attachment.
FILES: tuple[Any, ...] = (AttachmentPiece, Attachment, AttachmentText)


def register(
    *, visitor: User | None, email: str, password: str | None, time_zone: str, invitation: str = "", code: str = ""
) -> tuple[User, int]:
    """The account, and the number of the visitor's turns with which it begins.

    Without a password, another service logs them in.

    The first one may everything (`is_superuser`). Raises `IntegrityError` for a taken email, `InvalidInput` if
    registration is refused.
    """
    # Before the transaction, which holds a connection.
    encoded = passwords.NONE if password is None else passwords.encode(password)
    with transaction.atomic():
        admit(invitation)
        is_first = _is_first(code)
        visitors = User.objects.select_for_update().filter(is_visitor=True)
        user = visitors.filter(pk=visitor.pk).first() if visitor is not None else None
        if user is None:
            rights = {"is_staff": is_first, "is_superuser": is_first}
            return User.objects.create(email=email, password=encoded, time_zone=time_zone, **rights), 0
        user.email, user.password, user.time_zone = email, encoded, time_zone
        user.is_visitor, user.joined_at = False, timezone.now()
        user.is_staff = user.is_superuser = is_first
        user.save()
        with acting_as(user):
            # Saved one by one, so that the index gets a signal for each. The lock waits for an answer that is being
            # saved.
            turns = list(Turn.objects.for_user(user).select_for_update().order_by("pk"))
            for turn in turns:
                turn.save(update_fields=["updated_at"])
        return user, len(turns)


def move_to_account(*, visitor: User, user: User) -> int:
    """Move a visitor's chats to the account and remove the visitor; returns the number of turns.

    An idempotency key that both used keeps the account's response.
    """
    with transaction.atomic():
        with acting_as(visitor):
            # Locked in this order, as everywhere, so that no turn is added to the deleted ones.
            conversations = list(Conversation.objects.for_user(visitor).select_for_update())
            turns = list(Turn.objects.for_user(visitor).select_for_update().order_by("pk"))
            answers = list(IdempotentAnswer.objects.filter(user=visitor))
            # As large as a visitor's quota lets them be.
            files: list[list[Any]] = [list(model.objects.filter(user=visitor)) for model in FILES]
            Attachment.objects.filter(user=visitor).delete()
            IdempotentAnswer.objects.filter(user=visitor).delete()
            Conversation.objects.filter(user=visitor).delete()
        for row in (*conversations, *turns, *answers, *chain.from_iterable(files)):
            row.user = user
        with acting_as(user):
            Conversation.objects.bulk_create(conversations)
            for turn in turns:
                # One by one, so that the index gets a signal for each.
                turn.save(force_insert=True)
            IdempotentAnswer.objects.bulk_create(answers, ignore_conflicts=True)
            for model, of_model in zip(FILES, files, strict=True):
                # The account may have the same content already.
                model.objects.bulk_create(of_model, ignore_conflicts=True)
        User.objects.filter(pk=visitor.pk, is_visitor=True).delete()
    return len(turns)


def remove_silent(*, now: datetime, after: timedelta) -> int:
    """Remove visitors without a message for so long, with all their rows; returns their number."""
    with transaction.atomic(), connection.cursor() as cursor:
        if is_cluster(connection):
            # Tables on every node are changed after the shards that refer to them were read, on the same connections.
            cursor.execute("SET LOCAL citus.multi_shard_modify_mode = 'sequential'")
        statement = _REMOVE_SILENT_ON_NODES if is_cluster(connection) else _REMOVE_SILENT
        cursor.execute(statement, {"before": now - after})
        return int(cursor.rowcount)
