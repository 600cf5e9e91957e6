"""The preview: the contents of an export, and how much of it is here already, before anything is stored.

A worker reads the whole export once and writes a line for each conversation, document and record (`ImportEntry`). The
user selects among these lines, and afterwards they are the report.
"""

import time
from collections.abc import Iterator, Sequence
from typing import Any

from django.db.models import Count, Max, Min, Q, Sum
from django.utils import timezone

from core.isolation.acting import acting_as
from core.pg_text import storable_text
from imports.models import MAX_TITLE, EntryKind, Import, ImportEntry, ImportJob
from imports.reading.items import ImportedConversation
from imports.storing import jobs, uploads
from imports.storing.contents import LeftOut, TurnAccount, Wanted, batches_of, id_of, kind_of, product_of, read
from imports.storing.keeping import KeptItem, statuses_of, title_of, written_at
from imports.storing.turns import conversation_key, first_words, planned_turns
from imports.storing.writing import ItemsByKey, TurnStretch, exported_here, item_of, known_items, says_more
from intake.models import Conversation, Turn, User

# The number that is looked up together.
BATCH = 100
TELL_SECONDS = 1.0
STATES = (Import.State.READING,)


def preview(job: ImportJob, user: User) -> Iterator[None]:
    """Read the export and make it ready; yields after each batch. Raises `UnreadableExport` and `LeaseLost`."""
    with acting_as(user):
        batch = jobs.keep(job, user=user, states=STATES)
        # The data of a worker that died.
        ImportEntry.objects.for_user(user).filter(batch=batch).delete()
    product = product_of(batch)
    with acting_as(user):
        batch = jobs.keep(job, user=user, states=STATES)
        batch.product = product
        batch.save(update_fields=["product"])
    left_out, told_at, account = LeftOut(), time.monotonic(), TurnAccount()
    for items in batches_of(read(batch, left_out), size=BATCH):
        with acting_as(user):
            batch = jobs.keep(job, user=user, states=STATES)
            _add(items, user, batch, account)
            # Counting takes longer with more data.
            if time.monotonic() - told_at > TELL_SECONDS:
                _save(batch, left_out)
                told_at = time.monotonic()
        yield
    with acting_as(user):
        batch = jobs.keep(job, user=user, states=STATES)
        batch.state = Import.State.READY
        batch.progress = 1.0
        batch.account = account.as_data("read")
        _save(batch, left_out)
        uploads.keep_until_expiry(batch, now=batch.updated_at)


def _add(items: Sequence[Wanted], user: User, batch: Import, account: TurnAccount) -> None:
    conversations = [item for item in items if isinstance(item, ImportedConversation)]
    others = [item for item in items if not isinstance(item, ImportedConversation)]
    entries = [*_conversation_entries(conversations, user, batch, account), *_other_entries(others, user, batch)]
    # A second item with an id adds only its additional turns.
    ImportEntry.objects.bulk_create(entries, ignore_conflicts=True)


def _conversation_entries(
    conversations: Sequence[ImportedConversation], user: User, batch: Import, account: TurnAccount
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
    here = set(Conversation.objects.for_user(user).filter(pk__in=came_in).values_list("pk", flat=True))
    own = exported_here(user, [stretch for stretch in whole if stretch.key not in known])
    numbers = dict(Conversation.objects.for_user(user).filter(pk__in=own.values()).values_list("pk", "turn_count"))
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
        times = [turn.said_at for turn in stretch.turns]
        first = first_words(stretch.turns)
        yield ImportEntry(
            user=user,
            batch=batch,
            kind=EntryKind.CONVERSATION,
            external_id=id_of(stretch.conversation),
            title=_line(stretch.conversation.title or first),
            first_at=min(times),
            last_at=max(times),
            turns=len(stretch.turns),
            new_turns=new_turns,
            versions=sum(not turn.is_current for turn in stretch.turns),
            status=status,
            is_selected=status in (ImportEntry.Status.NEW, ImportEntry.Status.LONGER),
            conversation_id=item.conversation_id if item and item.conversation_id in here else own.get(stretch.key),
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
            title=_line(title_of(item)),
            first_at=at,
            last_at=at,
            status=status,
            is_selected=status in (ImportEntry.Status.NEW, ImportEntry.Status.LONGER),
        )


def _save(batch: Import, left_out: LeftOut) -> None:
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
    """Conversations, turns, documents and records among the entries, and how many are new, longer, here or deleted."""
    statuses = {status: Count("pk", filter=Q(status=status)) for status in ImportEntry.Status.values}
    return _counted(entries, Sum("turns"), **statuses)


def counted_new(entries: Any) -> dict[str, int]:
    """What a start would store of them: for an existing conversation, its new turns."""
    return _counted(entries.filter(status__in=(ImportEntry.Status.NEW, ImportEntry.Status.LONGER)), Sum("new_turns"))


def _counted(entries: Any, turns: Any, **others: Any) -> dict[str, int]:
    kinds = {f"{kind}s": Count("pk", filter=Q(kind=kind)) for kind in EntryKind.values}
    found = entries.aggregate(turns_of_all=turns, **kinds, **others)
    return {("turns" if name == "turns_of_all" else name): number or 0 for name, number in found.items()}


def _line(text: str) -> str:
    return " ".join(storable_text(text[: 4 * MAX_TITLE]).split())[:MAX_TITLE]
