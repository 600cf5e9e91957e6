"""Keeps what later imports changed in earlier imported items, so that imports can be undone in any order.

The changes of an item form a stack. Undoing the import on top restores the state below it. Undoing one further down
keeps its text, because the later imports contain it; these then restore the state before both.
"""

from typing import Any

from imports.models import Import, ImportedChange, ImportedChangeQuerySet, ImportedItem
from intake.models import User


def note(item: ImportedItem, *, brought_by: Import, before: dict[str, Any]) -> None:
    """Keep the item's state, once for each import, except for the one that created it."""
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
    """Remove the change; returns whether its item must be restored."""
    above = _of(change.item).filter(pk__gt=change.pk).first()
    change.delete()
    if above is not None:
        above.key, above.content_hash, above.before = change.key, change.content_hash, change.before
        above.save(update_fields=["key", "content_hash", "before"])
    return above is None


def hand_over(batch: Import, user: User, *, at_most: int) -> bool:
    """Assign the items that a later import made longer to that one; returns whether there were any."""
    lying_upon = ImportedChange.objects.for_user(user).values("item")
    items = ImportedItem.objects.for_user(user).filter(batch=batch, pk__in=lying_upon).order_by("pk")[:at_most]
    for item in items:
        lowest = _of(item)[0]
        ImportedItem.objects.for_user(user).filter(pk=item.pk).update(batch=lowest.batch_id)
        lowest.delete()
    return bool(items)


def settle(batch: Import, user: User) -> None:
    """Make this import's changes permanent: it is removed from the list, and cannot be undone any more."""
    for change in ImportedChange.objects.for_user(user).filter(batch=batch).select_related("item"):
        ImportedItem.objects.for_user(user).filter(pk=change.item_id).update(batch=None)
        _of(change.item).filter(pk__lte=change.pk).delete()


def _of(item: ImportedItem) -> ImportedChangeQuerySet:
    return ImportedChange.objects.filter(user=item.user_id, item=item).order_by("pk")
