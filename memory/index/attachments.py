"""The worker's side of files: reads those that wait, stores their texts, and indexes those that a message names.

1. `claim` takes a file under a lease and counts the attempt before it is made, so that a file which kills its worker is
   given up after some.
2. It is read in a process of its own, outside any transaction.
3. One transaction stores its texts and its state, and indexes it if a message has named it. If it was read before that,
   `index_read` indexes it; the message wakes the worker.
"""

import logging
import time
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from uuid import UUID

from django.db import connection, transaction
from django.db.models import Exists, F, OuterRef, QuerySet
from django.utils import timezone

from core.citus.routing import about
from core.errors import NotFound
from core.ids import first_id_of
from core.rate_limits import count_reading, seconds_of_reading
from core.text import Sentence, kept
from core.text import gettext_noop as _
from intake.attachments.reading.parts import FAILED, Part, Reading, Unreadable
from intake.attachments.reading.process import SECONDS, read_safely
from intake.attachments.services import TEXTS_AT_ONCE, bytes_of, keep_pictures
from intake.models import Attachment, AttachmentText, User
from memory.index.sources import READERS, REGISTERED, claimed
from memory.index.writer import forget, index_new
from memory.models import Corpus, IndexedText
from memory.models.documents import Place

logger = logging.getLogger(__name__)

# A file gets its message within a day, or is removed.
RECENT = timedelta(days=2)
_ONLY_BEGINNING = _("Only the first %(count)s characters were read.")

# Small files first, and users take turns, as for vectors: the first file of each before the second of one. Those that
# are being read count among the first.
_DUE = """
SELECT user_id, id
  FROM (SELECT user_id, id, size, next_attempt_at,
               row_number() OVER (PARTITION BY user_id ORDER BY next_attempt_at > %(now)s DESC, size, id) AS place
          FROM attachments
         WHERE state = 'waiting' AND user_id IN (SELECT id FROM users WHERE is_visitor = %(of_visitors)s)) AS file
 WHERE next_attempt_at <= %(now)s
 ORDER BY place, size, random()
 LIMIT %(limit)s
"""


def read_waiting(*, until: datetime) -> bool:
    """Read the files that wait, one after the other; returns whether the time was up before the last one."""
    while (attachment := claim(now=timezone.now())) is not None:
        _read(attachment)
        if timezone.now() >= until:
            return True
    return False


def claim(*, now: datetime) -> Attachment | None:
    """A due file, for the length of a lease; skips files that another worker holds."""
    for _try in range(5):
        due = _due(now)
        for user_id, pk in due:
            with transaction.atomic(), about(user_id):
                waiting = Attachment.objects.filter(
                    user=user_id, pk=pk, state=Attachment.State.WAITING, next_attempt_at__lte=now
                )
                found = waiting.select_for_update(no_key=True, skip_locked=True).first()
                if found is None:
                    continue
                if found.attempts < 3:
                    # A lease is longer than the reading and the storing of the largest file take.
                    waiting.update(attempts=F("attempts") + 1, next_attempt_at=now + timedelta(seconds=3 * SECONDS))
                    return found
                logger.error("The file %s was given up: its worker died %d times", pk, found.attempts)
                waiting.update(**_unreadable(Unreadable(FAILED).sentence, now))
        if not due:
            break
    return None


def _due(now: datetime) -> list[tuple[int, UUID]]:
    """The users and files that are next. Accounts come first, and all visitors together have one turn.

    Among visitors those come first whose address has cost the least time to read.
    """

    def found(*, of_visitors: bool, limit: int) -> list[tuple[int, UUID]]:
        with connection.cursor() as cursor:
            cursor.execute(_DUE, {"now": now, "of_visitors": of_visitors, "limit": limit})
            return [(user_id, pk) for user_id, pk in cursor.fetchall()]

    if due := found(of_visitors=False, limit=20):
        return due
    visitors = User.objects.filter(is_visitor=True).values("pk")
    waiting = Attachment.objects.filter(user__in=visitors, state=Attachment.State.WAITING)
    if waiting.filter(next_attempt_at__gt=now).exists():
        return []
    # Small files of strangers do not push a longer one out of these.
    of_visitors = found(of_visitors=True, limit=2_000)
    seconds = seconds_of_reading([pk for _user_id, pk in of_visitors])
    return sorted(of_visitors, key=lambda row: seconds[row[1]])


def _read(attachment: Attachment) -> None:
    try:
        data = bytes_of(attachment)
    except NotFound:
        # Deleted meanwhile.
        return
    began = time.monotonic()
    try:
        reading = read_safely(data, attachment.name, attachment.media_type)
    except Unreadable as error:
        with about(attachment.user_id):
            _mine(attachment).update(**_unreadable(error.sentence, timezone.now()))
        return
    finally:
        count_reading(attachment.pk, time.monotonic() - began)
    store(attachment, reading, now=timezone.now())


def _mine(attachment: Attachment) -> QuerySet[Attachment]:
    """The file, while it waits to be read."""
    return Attachment.objects.filter(user=attachment.user_id, pk=attachment.pk, state=Attachment.State.WAITING)


def store(attachment: Attachment, reading: Reading, *, now: datetime) -> None:
    """The texts, the state and the index, in one transaction; nothing if the file was deleted or read meanwhile."""
    with transaction.atomic(), about(attachment.user_id):
        if not _mine(attachment).select_for_update(no_key=True).exists():
            return
        old = AttachmentText.objects.filter(user=attachment.user_id, attachment=attachment.pk)
        old.delete()
        length = sum(len(each.text) for each in reading.parts)
        texts = [
            AttachmentText(user_id=attachment.user_id, attachment=attachment, number=number, place=place, text=text)
            for number, (place, text) in enumerate(reading.parts)
        ]
        AttachmentText.objects.bulk_create(texts, batch_size=TEXTS_AT_ONCE)
        keep_pictures(attachment, reading.pictures)
        notes = [*reading.notes, *([Sentence(_ONLY_BEGINNING, count=length)] if reading.is_cut else [])]
        note = (
            next(iter(notes), None) if len(notes) < 2 else Sentence("%(note)s %(more)s", note=notes[0], more=notes[1])
        )
        _mine(attachment).update(
            state=Attachment.State.READ,
            parts=len(texts),
            places=list(outline(reading.parts)),
            error=_in_words(note) if note else None,
            read_at=now,
        )
        _index(attachment)


def outline(parts: Sequence[Part]) -> Iterator[list[str | int]]:
    """Each place with the number of its first part."""
    before = None
    for number, (place, _text) in enumerate(parts):
        if place and place != before:
            yield [place, number]
        before = place


def _unreadable(sentence: Sentence, now: datetime) -> dict[str, object]:
    return {"state": Attachment.State.UNREADABLE, "error": _in_words(sentence), "read_at": now}


def _in_words(sentence: Sentence) -> dict[str, object]:
    return {"message": str(sentence), **kept(sentence)}


def index_read(*, since: datetime, until: datetime | None = None) -> int:
    """Index the files attached since then that were read before a message named them; returns their number."""
    is_indexed = IndexedText.objects.in_corpus(Corpus.ATTACHMENT).filter(
        user=OuterRef("user"), source_id=OuterRef("pk")
    )
    read = Attachment.objects.filter(
        ~Exists(is_indexed), pk__gte=first_id_of(since), state=Attachment.State.READ, parts__gt=0, user__in=REGISTERED
    )
    indexed = 0
    for attachment in claimed(read).only("pk", "user_id").order_by("pk"):
        with transaction.atomic(), about(attachment.user_id):
            # The lock keeps it from being deleted, and another worker from indexing it, meanwhile.
            locked = Attachment.objects.filter(user=attachment.user_id, pk=attachment.pk)
            if locked.select_for_update(no_key=True, skip_locked=True).exists():
                indexed += _index(attachment)
        if until is not None and timezone.now() >= until:
            break
    return indexed


def _index(attachment: Attachment) -> bool:
    """Index a file that is locked, unless it is indexed already or belongs to no message yet."""
    if IndexedText.objects.at(Place(attachment.user_id, Corpus.ATTACHMENT, attachment.pk)).exists():
        return False
    reader = READERS[Corpus.ATTACHMENT]
    rows = reader.rows().filter(user=attachment.user_id, attachment=attachment.pk).order_by("number")
    entries = [reader.entry(row) for row in rows]
    index_new(entries)
    return bool(entries)


def forget_lost(user_id: int) -> None:
    """Remove from the index the files of a user that were deleted in the database itself."""
    there = AttachmentText.objects.filter(
        user=OuterRef("user"), attachment=OuterRef("source_id"), number=OuterRef("chunk_index")
    )
    with about(user_id):
        lost = IndexedText.objects.in_corpus(Corpus.ATTACHMENT).filter(~Exists(there), user=user_id)
        for source_id in lost.values_list("source_id", flat=True).distinct():
            with transaction.atomic():
                forget(Place(user_id, Corpus.ATTACHMENT, source_id))
