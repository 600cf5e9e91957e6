"""The importing worker: claims the job that has waited longest and does the step of its import's state, such as the
preview.

Steps of different users take turns.

Every failure becomes a sentence that the user reads in the import; a bug is logged and retried.
"""

import logging
import time
import traceback
from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from django.db import DatabaseError
from django.db.models import Count, Max, Min, Q, Sum
from django.template.defaultfilters import filesizeformat
from django.utils import timezone

from core.isolation.acting import Caller, acting_as
from core.text import Sentence, pg_text, sentence_of
from core.text import gettext_noop as _
from imports.models import ENTRY_KINDS, MAX_TITLE, Import, ImportEntry, ImportJob, ItemKind
from imports.reading.items import ImportedConversation, Notice, Skipped, UnreadableExport
from imports.storing import job as store
from imports.storing import queue
from imports.storing.contents import (
    PlannedTurn,
    SkippedCounts,
    TurnAccount,
    Wanted,
    batches_of,
    conversation_key,
    first_words,
    id_of,
    kind_of,
    open_export,
    planned_turns,
    product_of,
    read,
)
from imports.storing.conversations import ItemsByKey, TurnStretch, exported_here, item_of, known_items, says_more
from imports.storing.documents import KeptItem, statuses_of, title_of, written_at
from imports.storing.files import place_of, refusals_of, size_of
from imports.storing.queue import LeaseLost
from intake.models import Conversation, Turn, User
from memory.quotas import room_for_files

# --- The preview: the contents of an export, and how much of it is here already, before anything is stored ---
# A worker reads the whole export once and writes a line for each conversation, document and record (`ImportEntry`). The
# user selects among these lines, and afterwards they are the report.

# The number that is looked up together.
BATCH = 100
# Reading or storing one export may take so long; one user's import runs for some seconds before another's has its turn.
LONGEST_SECONDS, TURN_SECONDS = 6 * 3600, 20.0
AT_ONCE = 4
NO_ROOM = _(
    "The files of this export have %(size)s, and there is room for %(room)s. The last ones stay out, and the "
    "report lists them."
)
LEFT_OUT_BEFORE = _(
    "Messages that were left out before, when these chats came in: %(count)s. They come in now, at their place in time."
)
TELL_SECONDS = 1.0
PREVIEW_STATES = (Import.State.READING,)


def preview(job: ImportJob, user: User) -> Iterator[None]:
    """Read the export and make it ready; yields after each batch. Raises `UnreadableExport` and `LeaseLost`."""
    with acting_as(user):
        batch = queue.keep(job, user=user, states=PREVIEW_STATES)
        # The data of a worker that died.
        ImportEntry.objects.for_user(user).filter(batch=batch).delete()
    product = product_of(batch)
    with acting_as(user):
        batch = queue.keep(job, user=user, states=PREVIEW_STATES)
        batch.product = product
        batch.save(update_fields=["product"])
    left_out, reported_at, account = SkippedCounts(), time.monotonic(), TurnAccount()
    with open_export(batch) as export:
        for items in batches_of(read(export, batch, left_out), size=BATCH):
            with acting_as(user):
                batch = queue.keep(job, user=user, states=PREVIEW_STATES)
                _add(items, user, batch, account, left_out)
                # Counting takes longer with more data.
                if time.monotonic() - reported_at > TELL_SECONDS:
                    _save(batch, left_out)
                    reported_at = time.monotonic()
            yield
    with acting_as(user):
        batch = queue.keep(job, user=user, states=PREVIEW_STATES)
        _note_quota(user, left_out)
        if left_out.earlier:
            left_out.add(Notice(text=Sentence(LEFT_OUT_BEFORE, count=left_out.earlier)))
        batch.state = Import.State.READY
        batch.progress = 1.0
        batch.account = account.as_data("read")
        _save(batch, left_out)
        queue.keep_until_expiry(batch, now=batch.updated_at)


def _add(items: Sequence[Wanted], user: User, batch: Import, account: TurnAccount, left_out: SkippedCounts) -> None:
    conversations = [item for item in items if isinstance(item, ImportedConversation)]
    others = [item for item in items if not isinstance(item, ImportedConversation)]
    entries = [
        *_conversation_entries(conversations, user, batch, account, left_out),
        *_other_entries(others, user, batch),
    ]
    # A second item with an id adds only its additional turns.
    ImportEntry.objects.bulk_create(entries, ignore_conflicts=True)


def _conversation_entries(
    conversations: Sequence[ImportedConversation],
    user: User,
    batch: Import,
    account: TurnAccount,
    left_out: SkippedCounts,
) -> Iterator[ImportEntry]:
    whole = [
        TurnStretch(
            conversation=conversation,
            key=conversation_key(conversation),
            turns=planned_turns(conversation, otherwise=batch.created_at),
        )
        for conversation in conversations
    ]
    for turn in (turn for stretch in whole for turn in stretch.turns):
        account.add("read", turn)
    known = known_items(user, whole)
    came_in = [item.conversation_id for item in known.values() if item.conversation_id]
    mine = Conversation.objects.for_user(user)
    here = dict(mine.filter(pk__in=came_in).values_list("pk", "last_active_at"))
    own = exported_here(user, [stretch for stretch in whole if stretch.key not in known])
    numbers = dict(mine.filter(pk__in=own.values()).values_list("pk", "turn_count"))
    longer = _longer(user, whole, known)
    for stretch in whole:
        item = known.get(stretch.key)
        if item is None and stretch.key in own:
            last = numbers[own[stretch.key]]
            new_turns = sum(turn.exported.turn_number > last for turn in stretch.turns if turn.exported)
        else:
            new_turns = sum(item_of(turn, known) is None or turn.key in longer for turn in stretch.turns)
        if item is None and stretch.key not in own:
            status = ImportEntry.Status.NEW
        elif item is not None and item.conversation_id not in here:
            status, new_turns = ImportEntry.Status.DELETED, 0
        else:
            status = ImportEntry.Status.LONGER if new_turns else ImportEntry.Status.HERE
        if status in (ImportEntry.Status.NEW, ImportEntry.Status.LONGER):
            new = [turn for turn in stretch.turns if item_of(turn, known) is None or turn.key in longer]
            until = here.get(item.conversation_id) if item and item.conversation_id else None
            left_out.earlier += sum(
                until is not None and turn.said_at <= until for turn in new if turn.key not in longer
            )
            _list_files(new, stretch.conversation, left_out)
        times = [turn.said_at for turn in stretch.turns]
        first = first_words(stretch.turns)
        yield ImportEntry(
            user=user,
            batch=batch,
            kind=ItemKind.CONVERSATION,
            external_id=id_of(stretch.conversation),
            title=_line(stretch.conversation.title or first),
            first_at=min(times),
            last_at=max(times),
            turns=len(stretch.turns),
            new_turns=new_turns,
            versions=sum(not turn.is_current for turn in stretch.turns),
            status=status,
            is_selected=status in (ImportEntry.Status.NEW, ImportEntry.Status.LONGER)
            and not stretch.conversation.is_deleted,
            conversation_id=item.conversation_id if item and item.conversation_id in here else own.get(stretch.key),
        )


def _list_files(turns: Sequence[PlannedTurn], conversation: ImportedConversation, left_out: SkippedCounts) -> None:
    """Adds up the files of these turns, and lists those that cannot come in."""
    title = _title_of(conversation, turns)
    for turn in turns:
        left_out.file_bytes += sum(map(size_of, turn.files))
        for file, why in refusals_of(turn.files):
            left_out.file_bytes -= size_of(file)
            where = place_of(file, title, turn.said_at)
            left_out.add(Skipped(where=where, reason=why, external_id=id_of(conversation)))


def _title_of(conversation: ImportedConversation, turns: Sequence[PlannedTurn]) -> str:
    return _line(conversation.title or first_words(turns))


def _note_quota(user: User, left_out: SkippedCounts) -> None:
    """Says before the import that not all its files will have room; its report then lists those that had none."""
    room = room_for_files(Caller(user_id=user.pk)) if left_out.file_bytes else None
    if room is not None and left_out.file_bytes > room:
        size, rest = (filesizeformat(each).replace("\xa0", " ") for each in (left_out.file_bytes, room))
        left_out.add(Notice(text=Sentence(NO_ROOM, size=size, room=rest)))


def _longer(user: User, whole: Sequence[TurnStretch], known: ItemsByKey) -> set[bytes]:
    """The keys of the turns that are here and would become longer."""
    came_in = [(turn, item) for stretch in whole for turn in stretch.turns if (item := item_of(turn, known))]
    changed = [(turn, item) for turn, item in came_in if bytes(item.content_hash) != turn.content_hash]
    turns = Turn.objects.for_user(user).in_bulk([item.turn_id for _, item in changed if item.turn_id])
    return {turn.key for turn, item in changed if item.turn_id in turns and says_more(turn, item, turns[item.turn_id])}


def _other_entries(items: Sequence[KeptItem], user: User, batch: Import) -> Iterator[ImportEntry]:
    for item, status in zip(items, statuses_of(items, user), strict=True):
        at = written_at(item, user)
        yield ImportEntry(
            user=user,
            batch=batch,
            kind=kind_of(item),
            external_id=id_of(item),
            title=_line(title_of(item)),
            first_at=at,
            last_at=at,
            status=status,
            is_selected=status in (ImportEntry.Status.NEW, ImportEntry.Status.LONGER),
        )


def _save(batch: Import, left_out: SkippedCounts) -> None:
    """Save the present counts."""
    entries = ImportEntry.objects.filter(user=batch.user_id, batch=batch)
    batch.found = counted(entries) | {"skipped": left_out.count}
    batch.selected = counted_new(entries.filter(is_selected=True))
    batch.notices, batch.skipped = left_out.notices, left_out.listed
    span = entries.aggregate(first=Min("first_at"), last=Max("last_at"))
    batch.first_at, batch.last_at = span["first"], span["last"]
    batch.updated_at = timezone.now()
    batch.save()


def counted(entries: Any) -> dict[str, int]:
    """Conversations, turns, documents, records and projects among the entries; how many are new, longer, here or
    deleted.
    """
    statuses = {status: Count("pk", filter=Q(status=status)) for status in ImportEntry.Status.values}
    return _counted(entries, Sum("turns"), **statuses)


def counted_new(entries: Any) -> dict[str, int]:
    """The part of them that a start would store: for an existing conversation, its new turns."""
    return _counted(entries.filter(status__in=(ImportEntry.Status.NEW, ImportEntry.Status.LONGER)), Sum("new_turns"))


def _counted(entries: Any, turns: Any, **others: Any) -> dict[str, int]:
    kinds = {f"{kind}s": Count("pk", filter=Q(kind=kind)) for kind in ENTRY_KINDS}
    found = entries.aggregate(turns_of_all=turns, **kinds, **others)
    counts = {("turns" if name == "turns_of_all" else name): number or 0 for name, number in found.items()}
    # Only Recollect's own exports have any.
    return {name: number for name, number in counts.items() if number or name != "projects"}


def _line(text: str) -> str:
    return " ".join(pg_text(text[: 4 * MAX_TITLE]).split())[:MAX_TITLE]


# --- Runs the importing worker ---

logger = logging.getLogger(__name__)

STEPS: Mapping[str, Callable[[ImportJob, User], Iterator[None]]] = {
    Import.State.UPLOADING: store.expire,
    Import.State.READY: store.expire,
    Import.State.READING: preview,
    Import.State.WAITING: store.store,
    Import.State.RUNNING: store.store,
    Import.State.UNDOING: store.undo,
}
STATES = tuple(STEPS)
BROKEN = "Something went wrong. The error has been logged. What was imported so far stays, and can be undone."
TOO_LONG = "This export takes longer to read than this server allows. Unpack it, and import it in parts."
TOO_LARGE = "This export needs more memory than this server allows. Unpack it, and import it in parts."


class TookTooLong(Exception):
    """A batch did not end: raised into it by the clock of its process."""


def work() -> bool:
    """Claim a job and run it, in turns with those of other users that fall due; returns whether there was one.

    Each runs for some seconds, then the next: a user with a large export holds up nobody. An import that waits for its
    turn keeps its place in the export, its lease and its thread for reading, so no work is done twice.
    """
    first = _claimed()
    if first is None:
        return False
    until = time.monotonic() + LONGEST_SECONDS
    under_way = deque([first])
    try:
        while under_way:
            if not under_way[0].go_on(TURN_SECONDS):
                under_way.popleft()
                continue
            under_way.rotate(-1)
            if len(under_way) < AT_ONCE and time.monotonic() < until:
                another = _claimed(besides=[each.job.user_id for each in under_way])
                under_way.extendleft([] if another is None else [another])
    finally:
        # A worker that is stopped leaves each to another one, once its lease has run out.
        for each in under_way:
            each.end()
    return True


def _claimed(*, besides: Collection[int] = ()) -> "_Running | None":
    job = queue.claim(now=timezone.now(), besides=besides)
    if job is None:
        return None
    return _Running(job, User.objects.filter(pk=job.user_id).first())


class _Running:
    """A claimed job and the rest of its step. Its lease is renewed until the step has ended."""

    def __init__(self, job: ImportJob, user: User | None) -> None:
        self.job = job
        self._user = user
        self._seconds = 0.0
        self._lease = ExitStack()
        self._lease.enter_context(queue.kept_alive(job))
        self._step: Iterator[None] = iter(()) if user is None else _step(job, user)

    def go_on(self, seconds: float) -> bool:
        """Run for about so long; returns whether there is more to do."""
        began = time.monotonic()
        while (is_unfinished := self._advance()) and time.monotonic() - began < seconds:
            pass
        self._seconds += time.monotonic() - began
        if is_unfinished and self._seconds > LONGEST_SECONDS and self._user is not None:
            _fail(self.job, self._user, TOO_LONG)
            is_unfinished = False
        if not is_unfinished:
            self.end()
        return is_unfinished

    def _advance(self) -> bool:
        """One batch. Every failure ends the step."""
        job = self.job
        try:
            next(self._step)
            return True
        except StopIteration:
            return False
        except LeaseLost:
            logger.info("Import %s is not this worker's any more", job.import_id)
        except UnreadableExport as error:
            self._fail(sentence_of(error))
        except TookTooLong:
            self._fail(TOO_LONG)
        except MemoryError:
            self._fail(TOO_LARGE)
        except Exception as error:
            # It is retried from its last batch. The message is not logged: a database's may quote users' text.
            logger.error("Import %s failed in attempt %s: %s", job.import_id, job.attempts, _place_of(error))
            queue.release(job, now=timezone.now())
        return False

    def _fail(self, sentence: str) -> None:
        if self._user is not None:
            _fail(self.job, self._user, sentence)

    def end(self) -> None:
        # Closes its files and ends its thread, also where the step was left in the middle.
        self._step = iter(())
        self._lease.close()
        logger.info("Import %s: a step of %.1f s", self.job.import_id, self._seconds)


def _step(job: ImportJob, user: User) -> Iterator[None]:
    if job.attempts > queue.MAX_ATTEMPTS:
        _fail(job, user, BROKEN)
        return
    with acting_as(user):
        batch = Import.objects.for_user(user).filter(pk=job.import_id).first()
        step = None if batch is None else STEPS.get(batch.state)
        if step is None:
            ImportJob.objects.filter(user_id=job.user_id, pk=job.pk, lease=job.lease).delete()
            return
    yield from step(job, user)


def _fail(job: ImportJob, user: User, sentence: str) -> None:
    try:
        with acting_as(user):
            store.finish(queue.keep(job, user=user, states=STATES), Import.State.FAILED, error=sentence)
    except LeaseLost:
        return
    except DatabaseError as error:
        logger.error("Import %s could not be ended: %s", job.import_id, _place_of(error))


def _place_of(error: Exception) -> str:
    frames = traceback.extract_tb(error.__traceback__)
    return (
        f"{type(error).__name__} at {Path(frames[-1].filename).name}:{frames[-1].lineno}"
        if frames
        else type(error).__name__
    )
