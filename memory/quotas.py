"""Enforces quotas: measures a user's data before more is added, and for the account page.

Without a quota nothing is measured. Otherwise each process measures a user once a minute and adds the data that it
accepts in between. It measures again before it refuses, so that deleted data counts at once. Two processes may
therefore accept slightly more than a quota.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from threading import Lock

from django.conf import settings
from django.db import connection
from django.db.models import Count, Sum
from django.template.defaultfilters import filesizeformat
from django.utils.translation import gettext as _

from core.errors import QuotaExceeded, RateLimited
from core.isolation.acting import Caller, acting_as, counting
from core.text import gettext_noop
from intake.models import Attachment, Turn
from intake.models.installation import quota_for

MEASURED_EVERY_SECONDS = 60.0
# The bytes of files of one visitor, who has no account.
VISITOR_FILE_BYTES = 25 * 1024**2

_STORED = """
SELECT (SELECT coalesce(sum(octet_length(content)), 0) FROM memory_documents WHERE user_id = %(user_id)s)
     + (SELECT coalesce(sum(octet_length(content)), 0) FROM memory_document_versions WHERE user_id = %(user_id)s)
     + (SELECT coalesce(sum(octet_length(content)), 0) FROM memory_records WHERE user_id = %(user_id)s)
     + (SELECT coalesce(sum(octet_length(text)), 0) FROM attachment_texts WHERE user_id = %(user_id)s),
       (SELECT count(*) FROM embeddings
         WHERE user_id = %(user_id)s AND vector IS NULL AND quarantined_at IS NULL)
"""


@dataclass(frozen=True, slots=True)
class Holdings:
    """The size of one user's data. `bytes`: of text in UTF-8. `vectors_waiting`: passages without a vector.

    `file_bytes`: of attached files, each content once.
    """

    turns: int = 0
    bytes: int = 0
    vectors_waiting: int = 0
    file_bytes: int = 0

    def __add__(self, other: "Holdings") -> "Holdings":
        return Holdings(
            self.turns + other.turns,
            self.bytes + other.bytes,
            self.vectors_waiting + other.vectors_waiting,
            self.file_bytes + other.file_bytes,
        )


_known: dict[int, tuple[float, Holdings]] = {}
_lock = Lock()


def take(user_id: int | None, *, turns: int = 0, size: int = 0, fills_queue: bool = False) -> None:
    """Check the quota before turns and bytes are added. `fills_queue`: whether waiting vectors count too.

    Raises `QuotaExceeded`, or `RateLimited` if waiting helps.
    """
    if settings.QUOTA_VECTORS_WAITING or _has_quota_of_text(user_id):
        _take(user_id, Holdings(turns=turns, bytes=size, vectors_waiting=int(fills_queue)), fills_queue=fills_queue)


def take_message(user_id: int | None, message: str) -> None:
    """Check the quota before a message is saved. Raises `QuotaExceeded`."""
    if _has_quota_of_text(user_id):
        take(user_id, turns=1, size=len(message.encode()))


def _has_quota_of_text(user_id: int | None) -> bool:
    return bool(quota_for(user_id, "turns") or quota_for(user_id, "bytes"))


def quota_of_files(caller: Caller) -> int:
    """0 is no quota."""
    return VISITOR_FILE_BYTES if caller.is_visitor else quota_for(caller.user_id, "file_bytes")


def take_file(caller: Caller, size: int) -> None:
    """Check the quotas before the bytes of a file are added, from which text will be read. Raises `QuotaExceeded`."""
    take(caller.user_id)
    if most := quota_of_files(caller):
        _take(caller.user_id, Holdings(file_bytes=size), most_of_files=most)


def room_for_files(caller: Caller) -> int | None:
    """How many bytes of new files fit the quota; None without one."""
    most = quota_of_files(caller)
    if not most or caller.user_id is None:
        return None
    return max(0, most - measure(caller.user_id).file_bytes)


def _take(user_id: int | None, added: Holdings, *, fills_queue: bool = False, most_of_files: int = 0) -> None:
    if user_id is None:
        return
    add = partial(_add, user_id, added, fills_queue=fills_queue, most_of_files=most_of_files)
    with _lock:
        known = _known.get(user_id)
    is_recent = known is not None and time.monotonic() - known[0] < MEASURED_EVERY_SECONDS
    if is_recent and add() is None:
        return
    measure(user_id)
    if refusal := add():
        raise refusal


def take_growth(user_id: int | None, *, before: str, after: str) -> None:
    """Check the quota before a text is replaced by a longer one. Raises `QuotaExceeded`."""
    if (growth := len(after.encode()) - len(before.encode())) > 0:
        take(user_id, size=growth)


def measure(user_id: int) -> Holdings:
    """The present size of the user's chats and memory."""
    with counting(), acting_as(Caller(user_id=user_id)):
        stored = chats(user_id) + files(user_id) + memory(user_id)
    with _lock:
        if len(_known) >= 10_000:
            _known.clear()
        _known[user_id] = time.monotonic(), stored
    return stored


def lines_of(user_id: int) -> list[tuple[str, str, str]]:
    """For the account page: the name, what is used, and the quota, which is empty if there is none."""
    stored = measure(user_id)
    waiting, count = _("Passages waiting for search by meaning"), "{:,}".format
    lines: list[tuple[str, Callable[[int], str], int, int]] = [
        (_("Messages with their answers"), count, stored.turns, quota_for(user_id, "turns")),
        (_("Text"), filesizeformat, stored.bytes, quota_for(user_id, "bytes")),
        (_("Files"), filesizeformat, stored.file_bytes, quota_for(user_id, "file_bytes")),
        (waiting, count, stored.vectors_waiting, settings.QUOTA_VECTORS_WAITING),
    ]
    return [(name, shown(used), shown(most) if most else "") for name, shown, used, most in lines]


def chats(user_id: int) -> Holdings:
    """Turns, from their index alone."""
    found = Turn.objects.filter(user_id=user_id).aggregate(turns=Count("user"), size=Sum("text_bytes", default=0))
    return Holdings(turns=found["turns"], bytes=found["size"])


def files(user_id: int) -> Holdings:
    """Attached files, each content once, from their index alone."""
    contents = Attachment.objects.filter(user=user_id).values("sha256", "size").distinct()
    return Holdings(file_bytes=sum(each["size"] for each in contents))


def memory(user_id: int) -> Holdings:
    """Documents with their earlier versions, records, texts of files, and waiting vectors."""
    with connection.cursor() as cursor:
        cursor.execute(_STORED, {"user_id": user_id})
        size, waiting = cursor.fetchone()
    return Holdings(bytes=int(size), vectors_waiting=waiting)


def _add(user_id: int, added: Holdings, *, fills_queue: bool, most_of_files: int) -> QuotaExceeded | RateLimited | None:
    """Count it, unless it is refused: under the lock, so that two threads do not both take the last of a quota.

    Another thread may have forgotten the measure since (a full table is cleared); then the next request measures.
    """
    with _lock:
        measured_at, stored = _known.get(user_id, (-MEASURED_EVERY_SECONDS, Holdings()))
        requested = stored + added
        refusal: QuotaExceeded | RateLimited | None = None
        if not most_of_files:
            refusal = _refusal(user_id, requested, fills_queue=fills_queue)
        elif requested.file_bytes > most_of_files:
            message = gettext_noop("You may keep %(size)s of files here, and this would be more. Delete some first.")
            refusal = QuotaExceeded(message, size=filesizeformat(most_of_files))
        if refusal is None and user_id in _known:
            _known[user_id] = measured_at, requested
        return refusal


def _refusal(user_id: int, requested: Holdings, *, fills_queue: bool) -> QuotaExceeded | RateLimited | None:
    most_turns, most_bytes = quota_for(user_id, "turns"), quota_for(user_id, "bytes")
    if most_turns and requested.turns > most_turns:
        message = gettext_noop("You may keep %(count)s messages with their answers here. Delete some first.")
        return QuotaExceeded(message, count=most_turns)
    if most_bytes and requested.bytes > most_bytes:
        most = filesizeformat(most_bytes)
        message = gettext_noop("You may keep %(size)s of text here, and this would be more. Delete something first.")
        return QuotaExceeded(message, size=most)
    waiting = settings.QUOTA_VECTORS_WAITING
    if fills_queue and waiting and requested.vectors_waiting > waiting:
        message = gettext_noop("%(count)s passages of yours wait to be embedded. Try again when there are fewer.")
        return RateLimited(message, count=requested.vectors_waiting - 1, retry_after=60)
    return None
