"""Digests of the answers that other programs have: by what a program sends back, its next request finds the turn.

The key is the account's and the token's, so that equal texts of two of them have nothing in common.
"""

from collections.abc import Collection, Iterable
from datetime import datetime, timedelta

from django.db import connection
from django.utils.crypto import salted_hmac

from core.isolation.acting import Caller
from intake.models import KnownAnswer

_GONE = """
UPDATE intake_known_answers AS known SET turn_id = NULL, gone_at = %(now)s
 WHERE user_id = %(user)s AND turn_id IS NOT NULL
   AND NOT EXISTS (SELECT FROM intake_conversation_turns AS turn
                    WHERE turn.user_id = %(user)s AND turn.id = known.turn_id)
"""


def digest_of(caller: Caller, token: str, *words: str) -> str:
    salt = f"recollect.known_answer:{caller.user_id}:{token}"
    return salted_hmac(salt, "\0".join(words), algorithm="sha256").hexdigest()


def remember(caller: Caller, digests: Iterable[str], turn_id: int) -> None:
    assert caller.user_id is not None, "who writes is known"  # noqa: S101 - tells the types
    rows = [KnownAnswer(user_id=caller.user_id, digest=digest, turn_id=turn_id) for digest in digests]
    KnownAnswer.objects.bulk_create(rows)


def turns_known_by(caller: Caller, digests: Collection[str]) -> list[tuple[str, int | None]]:
    """The digests that are known, each with its turn, the latest 5,000 first; None where that is gone."""
    mine = KnownAnswer.objects.for_caller(caller).filter(digest__in=digests)
    return list(mine.order_by("-pk").values_list("digest", "turn_id")[:5_000])


def forget_gone(user_id: int, *, now: datetime) -> None:
    """Nothing but the digest stays of a turn that is gone, and that for a while; for a worker."""
    with connection.cursor() as cursor:
        cursor.execute(_GONE, {"now": now, "user": user_id})
    # How long a program may bring back what was deleted here, and is not heard.
    KnownAnswer.objects.filter(user_id=user_id, gone_at__lt=now - timedelta(days=90)).delete()
