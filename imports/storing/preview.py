"""The preview: the contents of an export, and how much of it is here already, before anything is stored."""

import time
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any

from django.db.models import Count, Max, Min, Q, Sum
from django.template.defaultfilters import filesizeformat
from django.utils import timezone

from core.isolation.acting import Caller
from core.text import Sentence, pg_text
from core.text import gettext_noop as _
from imports.models import ENTRY_KINDS, MAX_TITLE, UNUSED_FOR, Import, ImportEntry, ImportJob, ItemKind
from imports.reading.items import ImportedConversation, Notice, Skipped
from imports.reading.products import recognise
from imports.storing import queue
from imports.storing.contents import SkippedCounts, id_of, kind_of, open_export, read
from imports.storing.conversations import ItemsByKey, TurnStretch, exported_here, item_of, known_items, says_more
from imports.storing.documents import KeptItem, statuses_of, title_of, written_at
from imports.storing.files import place_of, refusals_of, size_of
from imports.storing.turns import first_words, planned_turns
from intake.models import Conversation, Turn, User
from memory.quotas import room_for_files

# A worker reads the whole export once and writes a line for each conversation, document and record (`ImportEntry`). The
# user selects among these lines, and afterwards they are the report.

# The number that is looked up together.
BATCH = 100
NO_ROOM = _(
    "The files of this export have %(size)s, and there is room for %(room)s. The last ones stay out, and the "
    "report lists them."
)
LEFT_OUT_BEFORE = _(
    "Messages that were left out before, when these chats came in: %(count)s. They come in now, at their place in time."
)
_COMES_IN = (ImportEntry.Status.NEW, ImportEntry.Status.LONGER)
PREVIEW_STATES = (Import.State.READING,)


def preview(job: ImportJob, user: User) -> Iterator[None]:
    """Read the export and make it ready; yields after each batch. Raises `UnreadableExport` and `LeaseLost`."""
    with queue.step_of(job, user, PREVIEW_STATES) as batch:
        # The data of a worker that died.
        ImportEntry.objects.for_user(user).filter(batch=batch).delete()
    left_out, reported_at, account = SkippedCounts(), time.monotonic(), Counter(turns=0, characters=0)
    with open_export(batch) as export:
        product = batch.product or recognise(export).product
        with queue.step_of(job, user, PREVIEW_STATES) as batch:
            batch.product = product
            batch.save(update_fields=["product"])
        items = read(export, batch, left_out)
        while together := list(islice(items, BATCH)):
            with queue.step_of(job, user, PREVIEW_STATES) as batch:
                conversations = [item for item in together if isinstance(item, ImportedConversation)]
                others = [item for item in together if not isinstance(item, ImportedConversation)]
                entries = _conversation_entries(conversations, user, batch, account, left_out)
                # A second item with an id adds only its additional turns.
                ImportEntry.objects.bulk_create([*entries, *_other_entries(others, user, batch)], ignore_conflicts=True)
                # Counting takes longer with more data.
                if time.monotonic() - reported_at > 1:
                    _save(batch, left_out)
                    reported_at = time.monotonic()
            yield
    with queue.step_of(job, user, PREVIEW_STATES) as batch:
        room = room_for_files(Caller(user_id=user.pk)) if left_out.file_bytes else None
        if room is not None and left_out.file_bytes > room:
            # The report then lists those that had none.
            size, rest = (filesizeformat(each).replace("\xa0", " ") for each in (left_out.file_bytes, room))
            left_out.add(Notice(text=Sentence(NO_ROOM, size=size, room=rest)))
        if left_out.earlier:
            left_out.add(Notice(text=Sentence(LEFT_OUT_BEFORE, count=left_out.earlier)))
        batch.state = Import.State.READY
        batch.progress = 1.0
        batch.account = {"read": account}
        _save(batch, left_out)
        queue.due_at(batch, batch.updated_at + UNUSED_FOR)


def _conversation_entries(
    conversations: Sequence[ImportedConversation],
    user: User,
    batch: Import,
    account: Counter[str],
    left_out: SkippedCounts,
) -> Iterator[ImportEntry]:
    whole = [
        TurnStretch(conversation=each, turns=planned_turns(each, otherwise=batch.created_at)) for each in conversations
    ]
    known = known_items(user, whole)
    came_in = [item.conversation_id for item in known.values() if item.conversation_id]
    mine = Conversation.objects.for_user(user)
    here = dict(mine.filter(pk__in=came_in).values_list("pk", "last_active_at"))
    own = exported_here(user, [stretch for stretch in whole if stretch.key not in known])
    numbers = dict(mine.filter(pk__in=own.values()).values_list("pk", "turn_count"))
    longer = _longer(user, whole, known)
    for stretch in whole:
        account.update(turns=len(stretch.turns), characters=sum(len(turn.user_message) for turn in stretch.turns))
        item, conversation_id = known.get(stretch.key), own.get(stretch.key)
        new = [turn for turn in stretch.turns if item_of(turn, known) is None or turn.key in longer]
        if conversation_id is not None:
            last = numbers[conversation_id]
            new = [turn for turn in stretch.turns if turn.exported and turn.exported.turn_number > last]
        elif item is not None and item.conversation_id in here:
            conversation_id = item.conversation_id
        if item is None and conversation_id is None:
            status = ImportEntry.Status.NEW
        elif conversation_id is None:
            status, new = ImportEntry.Status.DELETED, []
        else:
            status = ImportEntry.Status.LONGER if new else ImportEntry.Status.HERE
        title = " ".join(pg_text((stretch.conversation.title or first_words(stretch.turns))[: 4 * MAX_TITLE]).split())
        until = here.get(conversation_id) if conversation_id else None
        for turn in new:
            left_out.earlier += until is not None and turn.said_at <= until and turn.key not in longer
            left_out.file_bytes += sum(map(size_of, turn.files))
            for file, why in refusals_of(turn.files):
                left_out.file_bytes -= size_of(file)
                where = place_of(file, title[:MAX_TITLE], turn.said_at)
                left_out.add(Skipped(where=where, reason=why, external_id=id_of(stretch.conversation)))
        # Of what hooks sent, an import also knows the calls and the work of subagents.
        items = [(turn, item_of(turn, known)) for turn in stretch.turns if turn.key != turn.key_unanswered]
        is_appended = any(each and bytes(each.key) == turn.key_unanswered for turn, each in items)
        is_here = status == ImportEntry.Status.HERE and is_appended
        times = [turn.said_at for turn in stretch.turns]
        yield ImportEntry(
            user=user,
            batch=batch,
            kind=ItemKind.CONVERSATION,
            external_id=id_of(stretch.conversation),
            title=title[:MAX_TITLE],
            first_at=min(times),
            last_at=max(times),
            turns=len(stretch.turns),
            new_turns=len(new),
            versions=sum(not turn.is_current for turn in stretch.turns),
            status=status,
            is_selected=(status in _COMES_IN or is_here) and not stretch.conversation.is_deleted,
            conversation_id=conversation_id,
        )


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
            title=" ".join(pg_text(title_of(item)[: 4 * MAX_TITLE]).split())[:MAX_TITLE],
            first_at=at,
            last_at=at,
            status=status,
            is_selected=status in _COMES_IN,
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
    return _counted(entries.filter(status__in=_COMES_IN), Sum("new_turns"))


def _counted(entries: Any, turns: Any, **others: Any) -> dict[str, int]:
    kinds = {f"{kind}s": Count("pk", filter=Q(kind=kind)) for kind in ENTRY_KINDS}
    found = entries.aggregate(turns_of_all=turns, **kinds, **others)
    counts = {("turns" if name == "turns_of_all" else name): number or 0 for name, number in found.items()}
    # Only Recollect's own exports have any.
    return {name: number for name, number in counts.items() if number or name != "projects"}
