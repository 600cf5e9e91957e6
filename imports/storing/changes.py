"""What later imports made of what an earlier one brought: kept, so that each can be undone by itself, in any order.

The changes of an item lie on each other like sheets. Who undoes the import on top goes back to the sheet below it. Of
one that others lie upon, what it added is in theirs too: it stays, and theirs go back further from then on.
"""

from typing import Any

from imports.models import Import, ImportedChange, ImportedChangeQuerySet, ImportedItem
from intake.models import User


def note(item: ImportedItem, *, brought_by: Import, before: dict[str, Any]) -> None:
    """Keep what the item was, once for each import and never for the one that brought it."""
    if item.batch_id == brought_by.pk:
        return
    ImportedChange.objects.get_or_create(
        user_id=brought_by.user_id,
        item=item,
        batch=brought_by,
        defaults={
            "turn_id": item.turn_id,
            "row_id": item.row_id,
            "key": item.key,
            "content_hash": item.content_hash,
            "before": before,
        },
    )


def was_so_before(item: ImportedItem, content_hash: bytes) -> bool:
    """Whether a later import has replaced just this text."""
    return _of(item).filter(content_hash=content_hash).exists()


def taken_back(change: ImportedChange) -> bool:
    """Remove the change; whether its item is to become as it was before."""
    above = _of(change.item).filter(pk__gt=change.pk).first()
    change.delete()
    if above is not None:
        above.key, above.content_hash, above.before = change.key, change.content_hash, change.before
        above.save(update_fields=["key", "content_hash", "before"])
    return above is None


def hand_over(batch: Import, user: User, *, at_most: int) -> bool:
    """Give what a later import made longer to that one; whether there was any."""
    lying_upon = ImportedChange.objects.for_user(user).values("item")
    items = ImportedItem.objects.for_user(user).filter(batch=batch, pk__in=lying_upon).order_by("pk")[:at_most]
    for item in items:
        lowest = _of(item)[0]
        ImportedItem.objects.for_user(user).filter(pk=item.pk).update(batch=lowest.batch_id)
        lowest.delete()
    return bool(items)


def settle(batch: Import, user: User) -> None:
    """What this import made longer stays so: it is taken off the list, and cannot be undone any more."""
    for change in ImportedChange.objects.for_user(user).filter(batch=batch).select_related("item"):
        ImportedItem.objects.for_user(user).filter(pk=change.item_id).update(batch=None)
        _of(change.item).filter(pk__lte=change.pk).delete()


def _of(item: ImportedItem) -> ImportedChangeQuerySet:
    return ImportedChange.objects.filter(user=item.user_id, item=item).order_by("pk")
