"""Visitors: users before registration. Moves their rows to an account, and removes inactive visitors."""

from datetime import datetime, timedelta
from itertools import chain
from typing import Any

from django.db import connection, transaction
from django.utils import timezone

from core.isolation.acting import acting_as, is_cluster
from intake import passwords
from intake.accounts.registration import admit, claim_first_place
from intake.models import (
    Attachment,
    AttachmentPiece,
    AttachmentText,
    Conversation,
    IdempotentAnswer,
    Turn,
    User,
)

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
        is_first = claim_first_place(code)
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
