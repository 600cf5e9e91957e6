"""Idempotent writes: the same request with the same key is stored once and gets the same response.

1. A row claims the key, in the transaction that does the work and keeps the response: all of it is committed, or none.
2. A second request with the key waits for a while at that row until the first ends.
3. Then it returns the kept response; or, if the first request failed, does the work itself.
4. When the stored data is deleted, so is the kept response. The key stays, so that a late repeat stores nothing again.

The header is the one of the IETF draft "The Idempotency-Key HTTP Header Field".
"""

import hashlib
import json
import re
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

from django.conf import settings
from django.db import IntegrityError, OperationalError, connection, transaction
from psycopg.errors import LockNotAvailable

from core.errors import IdempotencyKeyReused, InvalidInput, NotFound, StillRunning
from core.isolation.acting import Caller, binding_of
from intake.models import IdempotentAnswer

HEADER = "Idempotency-Key"
# Marks a replayed response.
REPLAYED = "Idempotency-Replayed"
WAIT_SECONDS = 5
KEY = re.compile(r"[\x21-\x7e]{1,255}")


def clean_key(key: str) -> str:
    """The key as it was sent; raises `InvalidInput`."""
    if not KEY.fullmatch(key):
        raise InvalidInput(
            f"The {HEADER} is not valid.", errors={HEADER: ["1 to 255 visible ASCII characters, without spaces."]}
        )
    return key


def once(
    *, caller: Caller, key: str, operation: str, data: Any, run: Callable[[], dict[str, Any]], now: datetime
) -> tuple[dict[str, Any], bool]:
    """Call `run`, unless this request of `caller` (an operation and its data) already has a response.

    Returns the response, and whether it is the kept one.

    Raises `IdempotencyKeyReused` if the key was used for another request, `StillRunning` if the first one has not
    ended, `NotFound` if its data has been deleted. An error of `run` leaves no trace, so the key may be used again.
    """
    with transaction.atomic():
        row = claim(caller=caller, key=key, operation=operation, data=data, now=now)
        if row.answer:
            return json.loads(row.answer), True
        answer = run()
        keep(row, answer)
        return answer, False


def claim(*, caller: Caller, key: str, operation: str, data: Any, now: datetime) -> IdempotentAnswer:
    """The row of this key, in the caller's transaction: with the kept answer if the request was sent before.

    Raises the errors of `once`.
    """
    assert caller.user_id is not None, "who writes is known"  # noqa: S101 - tells the types what the code around has seen to
    canonical = json.dumps([operation, data], sort_keys=True, separators=(",", ":")).encode("utf-8", "surrogatepass")
    digest = hashlib.blake2b(canonical, key=settings.SECRET_KEY.encode()[:64], digest_size=32).hexdigest()
    if project := binding_of(caller):
        # By it the database keeps the answers of each project apart. No client's key has a blank.
        named = hashlib.md5(project.encode(), usedforsecurity=False).hexdigest()
        key = f"bound {named} {hashlib.sha256(key.encode()).hexdigest()}"
    mine = IdempotentAnswer.objects.for_caller(caller)
    mine.filter(created_at__lt=now - timedelta(hours=24)).delete()
    try:
        with transaction.atomic(), connection.cursor() as cursor:
            # How long the INSERT waits for another transaction that has inserted the same key.
            cursor.execute("SELECT set_config('lock_timeout', %s, true)", [f"{WAIT_SECONDS}s"])
            row = mine.create(user_id=caller.user_id, key=key, request_digest=digest, created_at=now)
            cursor.execute("SELECT set_config('lock_timeout', '0', true)")
            return row
    except IntegrityError:
        row = mine.get(key=key)
    except OperationalError as error:
        if isinstance(error.__cause__, LockNotAvailable):
            raise StillRunning("A request with this Idempotency-Key is still running. Try again shortly.") from None
        raise
    if row.request_digest != digest:
        raise IdempotencyKeyReused
    if not row.answer:
        raise NotFound("What this request stored has been deleted.")
    return row


def keep(row: IdempotentAnswer, answer: dict[str, Any]) -> None:
    row.answer = json.dumps(answer)
    row.save(update_fields=["answer"])


def withdraw(*, user_id: int, about: str) -> None:
    """Empty the kept responses that contain this id."""
    IdempotentAnswer.objects.filter(user_id=user_id, answer__contains=about).update(answer="")
