"""Documents and records of an export: added to the person's own, once, with their own times.

What several write, MEMORY.md, a day's log and the page about the person, gets only the lines that it did not have and
that have not come in before: so lines that the person took out stay out, and an undoing finds what it has to take away.
A note is a document of its own, and goes by its id.
"""

from collections.abc import Iterable, Mapping, Sequence
from datetime import date, datetime

from django.db import transaction

from core.errors import RecollectError
from core.pg_text import storable_text
from imports.items import ImportedDocument, ImportedRecord
from imports.keys import hash_of, key_of
from imports.models import Import, ImportedItem, ImportEntry
from intake.models import User
from memory import documents, indexing
from memory.models import MemoryRecord
from memory.models.documents import MAX_LABEL_LENGTH, MAX_PROJECT_LENGTH, MAX_RECORD_LENGTH, MAX_TAGS
from memory.sources import record_entry

Kept = ImportedDocument | ImportedRecord
KnownKept = Mapping[bytes, ImportedItem]
Status = ImportEntry.Status


def known_kept(user: User, items: Iterable[Kept]) -> KnownKept:
    """What came in before, of these."""
    keys = [_key(item) for item in items]
    found = ImportedItem.objects.for_user(user).filter(key__in=keys) if keys else ()
    return {bytes(item.key): item for item in found}


def status_of(item: Kept, known: KnownKept) -> ImportEntry.Status:
    came_in = known.get(_key(item))
    if came_in is None:
        return Status.NEW
    return Status.HERE if bytes(came_in.content_hash) == _hash(item) else Status.LONGER


def keep_all(items: Sequence[Kept], *, user: User, brought_by: Import) -> list[Kept]:
    """Store what is not here yet, in the caller's transaction; returns what added something."""
    known = dict(known_kept(user, items))
    added = []
    for item in items:
        came_in = known.get(_key(item))
        if came_in is not None and bytes(came_in.content_hash) == _hash(item):
            continue
        if item_kept := _keep(item, came_in, user=user, brought_by=brought_by):
            known[_key(item)] = item_kept
            added.append(item)
    return added
