"""Stores documents, records and projects of an export: adds each once to the user's own, with its own time.

Documents with several writers (MEMORY.md, a day's log and the page about the user) get only lines that they do not
contain and that were not imported before. So lines that the user removed stay removed, and undoing finds the lines to
remove. A note is a separate document, identified by its id. A project that is here keeps what its person says of it.
"""

from collections.abc import Collection, Sequence
from dataclasses import replace
from datetime import date, datetime
from typing import Any
from uuid import UUID

from django.utils import timezone

from core.errors import Conflict, InvalidInput, NotFound, TooLarge
from core.text import Sentence, pg_text, project_label, sentence_of, stored_label
from core.text import gettext_noop as _
from imports.models import Import, ImportedItem, ImportEntry, ItemKind
from imports.reading.items import ImportedDocument, ImportedProject, ImportedRecord
from imports.storing.contents import hash_of, id_of, key_of
from intake.chats import exporting
from intake.models import Project, Turn, User
from intake.models.conversations import PROJECT_COLOURS, label_of
from memory import documents, index, proposals, records
from memory.index.sources import record_entry
from memory.models import MemoryDocument, MemoryRecord, Proposal
from memory.models.documents import (
    ABOUT_ME,
    MAX_DOCUMENT_LENGTH,
    MAX_LABEL_LENGTH,
    MAX_NOTE_TITLE,
    MAX_QUOTE_LENGTH,
    MAX_TAGS,
    WAITING,
    DocumentDay,
)
from memory.projects import list_projects, save_project

KeptItem = ImportedDocument | ImportedRecord | ImportedProject
NO_ROW = UUID(int=0)
LABELS_IN_USE = _("These labels are in use here, and so they do not belong to it: %(labels)s")


def known_kept(user: User, items: Sequence[KeptItem]) -> dict[bytes, ImportedItem]:
    """Those of them that were imported before."""
    keys = [_key(item) for item in items]
    found = ImportedItem.objects.for_user(user).filter(key__in=keys) if keys else ()
    known = {bytes(item.key): item for item in found}
    for item in items:
        if isinstance(item, ImportedDocument) and item.account and _key(item) not in known:
            mine = ImportedItem.objects.for_user(user).filter(key=_key(replace(item, account="")))
            if (came_in := mine.first()) and _is_alike(item, came_in, user):
                known[_key(item)] = came_in
    return known


def _is_alike(item: ImportedDocument, came_in: ImportedItem, user: User) -> bool:
    """Whether a memory that came in when its account was not looked at is of the same account, by its sentences."""
    if bytes(came_in.content_hash) == _hash(item):
        return True
    note = MemoryDocument.objects.for_user(user).filter(pk=came_in.row_id or NO_ROW).first()
    # Headings and short lines are the same for everybody.
    here = {line for line in (note.content if note else "").splitlines() if len(line) > 40}
    return not here.isdisjoint(pg_text(item.text).splitlines())


def statuses_of(items: Sequence[KeptItem], user: User) -> list[ImportEntry.Status]:
    """The status of each, compared with the data here: as `keep_all` would find it."""
    known = known_kept(user, items)
    ids = {item.id for item in items if item.id} | {each.row_id for each in known.values() if each.row_id}
    kinds: tuple[Any, ...] = (MemoryDocument, MemoryRecord, Proposal, Project)
    here = {pk for kind in kinds for (pk,) in kind.objects.for_user(user).filter(pk__in=ids).values_list("pk")}
    return [_status(item, known.get(_key(item)), here, user) for item in items]


def _status(item: KeptItem, came_in: ImportedItem | None, here: Collection[UUID], user: User) -> ImportEntry.Status:
    if came_in is None and isinstance(item, ImportedProject):
        is_here = Project.objects.for_user(user).filter(name=_name(item)).exists()
        return ImportEntry.Status.HERE if is_here else ImportEntry.Status.NEW
    if came_in is None:
        return ImportEntry.Status.HERE if item.id in here else ImportEntry.Status.NEW
    if came_in.row_id is not None and came_in.row_id not in here:
        return ImportEntry.Status.DELETED
    if not isinstance(item, ImportedDocument) or not _is_another(item, came_in):
        return ImportEntry.Status.HERE
    is_longer = _is_as_it_came(came_in, user) if item.kind == "note" else bool(_new_lines(item, came_in, user))
    return ImportEntry.Status.LONGER if is_longer else ImportEntry.Status.HERE


def _is_another(item: KeptItem, came_in: ImportedItem) -> bool:
    """Whether its text is neither what came in last, nor what that has replaced."""
    content_hash = _hash(item)
    return bytes(came_in.content_hash) != content_hash and not came_in.was_before(content_hash)


def keep_all(items: Sequence[KeptItem], *, user: User, brought_by: Import) -> tuple[list[KeptItem], dict[str, str]]:
    """Store the items that are not here yet, in the caller's transaction.

    Returns the items that added something, and by its id in the export why a document was not stored.
    """
    known = known_kept(user, items)
    added: list[KeptItem] = []
    refused: dict[str, str] = {}
    for item in items:
        came_in = known.get(_key(item))
        if came_in is not None and not _is_another(item, came_in):
            continue
        entry = came_in or ImportedItem(
            user=user, batch=brought_by, kind=ItemKind.DOCUMENT, key=_key(item), content_hash=b""
        )
        try:
            is_new = _keep(item, entry, user)
        except TooLarge as error:
            refused[id_of(item)] = sentence_of(error)
            continue
        except InvalidInput as error:
            refused[id_of(item)] = next(
                (each for found in (error.errors or {}).values() for each in found), error.detail
            )
            continue
        if is_new and isinstance(item, ImportedProject):
            named = Project.objects.for_user(user).filter(name=_name(item)).values_list("labels", flat=True)
            there = named.first() or []
            left = [label for label in map(project_label, item.labels) if label not in there]
            if left:
                refused[id_of(item)] = Sentence(LABELS_IN_USE, labels=", ".join(left))
        if is_new:
            if came_in is not None:
                entry.note_lengthened(by=brought_by)
            entry.key, entry.content_hash = _key(item), _hash(item)
            entry.save()
            known[_key(item)] = entry
            added.append(item)
    return added, refused


def undo_document(item: ImportedItem, user: User) -> None:
    """Undo: the imported lines are removed, other lines stay, and so does what was changed here."""
    if item.kind == ItemKind.RECORD:
        for record in MemoryRecord.objects.for_user(user).filter(pk=item.row_id or NO_ROW):
            record.delete()
        # One that was decided here belongs to the user.
        Proposal.objects.for_user(user).filter(pk=item.row_id or NO_ROW, state=WAITING).delete()
        return
    if item.kind == ItemKind.PROJECT:
        project = Project.objects.for_user(user).filter(pk=item.row_id or NO_ROW).first()
        if project is not None and _state_of(project) == item.lines:
            project.delete()
        return
    try:
        if item.lines:
            documents.take_back(**_named(item.place, user), text=item.lines, at=None, now=timezone.now())
        elif item.row_id is not None and _is_as_it_came(item, user):
            documents.delete_note(user=user, note_id=item.row_id, is_noted=False)
    except (Conflict, NotFound):
        # Changed or deleted here: the rest belongs to the user.
        return


def is_changed_here(item: ImportedItem, user: User) -> bool:
    """Whether a note has been changed since, and not deleted."""
    is_note = item.kind == ItemKind.DOCUMENT and not item.lines
    note = MemoryDocument.objects.for_user(user).notes().filter(pk=item.row_id or NO_ROW)
    return is_note and note.exists() and not _is_as_it_came(item, user)


def _keep(item: KeptItem, entry: ImportedItem, user: User) -> bool:
    if isinstance(item, ImportedRecord):
        entry.kind = ItemKind.RECORD
        return (_keep_proposal if item.is_proposed else _keep_record)(item, entry, user)
    if isinstance(item, ImportedProject):
        entry.kind = ItemKind.PROJECT
        return _keep_project(item, entry, user)
    if item.kind == "note":
        return _keep_note(item, entry, user)
    return _keep_lines(item, entry, user)


def _of_both(item: ImportedRecord, user: User) -> dict[str, Any]:
    """The fields that records and proposals share."""
    return {
        "id": item.id,
        "user": user,
        "content": pg_text(item.content),
        "type": pg_text(item.type)[:MAX_LABEL_LENGTH],
        "project_id": label_of(user=user, label=stored_label(item.project_id)),
        "created_at": item.created_at,
    }


def _keep_record(item: ImportedRecord, entry: ImportedItem, user: User) -> bool:
    """Records are not edited: one that was imported before stays as it is here, or deleted."""
    if entry.pk is not None or MemoryRecord.objects.for_user(user).filter(pk=item.id).exists():
        return False
    record = MemoryRecord.objects.create(
        **_of_both(item, user),
        tags=[pg_text(tag)[:MAX_LABEL_LENGTH] for tag in item.tags[:MAX_TAGS]],
        replaces=item.replaces if records.can_replace(user, item.replaces, by=item.id) else None,
        valid_from=item.valid_from,
        valid_until=item.valid_until,
        done_at=item.done_at,
        source_conversation=item.source_conversation,
        source_turn=item.source_turn,
    )
    index.index(record_entry(record))
    entry.row_id = record.pk
    return True


def _keep_proposal(item: ImportedRecord, entry: ImportedItem, user: User) -> bool:
    """It waits here as it waited there. Raises `InvalidInput` if too many wait already."""
    mine = Proposal.objects.for_user(user)
    if entry.pk is not None or mine.filter(pk=item.id).exists():
        return False
    if mine.filter(state=WAITING).count() >= proposals.MOST_WAITING:
        raise InvalidInput(proposals.TOO_MANY, count=proposals.MOST_WAITING)
    turns = Turn.objects.for_user(user).filter(conversation_id=item.source_conversation, turn_number=item.source_turn)
    has_turn = item.source_turn is not None and turns.exists()
    row = mine.create(
        **_of_both(item, user),
        quote=pg_text(item.quote)[:MAX_QUOTE_LENGTH],
        replaces=item.replaces,
        # It goes with its turn, so it names one that is here.
        source_conversation=item.source_conversation if has_turn else None,
        source_turn=item.source_turn if has_turn else None,
    )
    entry.row_id = row.pk
    return True


def _keep_project(item: ImportedProject, entry: ImportedItem, user: User) -> bool:
    """One that was imported before stays as it is here, or deleted. A stranger's instructions would be obeyed."""
    name = _name(item)
    if entry.pk is not None or Project.objects.for_user(user).filter(name=name).exists():
        return False
    # An import moves these to no other project.
    projects = list_projects(user=user)
    in_use = {each.name for each in projects}.union(*(each.labels for each in projects))
    is_own = exporting.is_own(user, item.id, item.instructions, proof=item.proof)
    project = save_project(
        user=user,
        name=name,
        colour=item.colour if item.colour in PROJECT_COLOURS else None,
        instructions=pg_text(item.instructions) if is_own else "",
        is_closed=item.is_closed,
        labels=[label for label in item.labels if project_label(label) not in in_use],
    )
    mine = Project.objects.for_user(user)
    entry.row_id = item.id if is_own and not mine.filter(pk=item.id).exists() else project.pk
    mine.filter(pk=project.pk).update(id=entry.row_id, created_at=item.created_at)
    entry.lines = _state_of(project)
    return True


def _state_of(project: Project) -> str:
    """A digest, so that no text of a deleted project is kept."""
    said = (project.name, project.colour, project.instructions, str(project.is_closed), *sorted(project.labels))
    return hash_of(*said).hex()


def _name(item: ImportedProject) -> str:
    return stored_label(item.name)


def _keep_note(item: ImportedDocument, entry: ImportedItem, user: User) -> bool:
    title, content = _title_and_text(item)
    at = _moment(item, user) or timezone.now()
    if entry.row_id is None:
        if item.id is not None and MemoryDocument.objects.for_user(user).filter(pk=item.id).exists():
            return False
        note = documents.create_note(
            user=user,
            title=title,
            content=content,
            at=at,
            note_id=item.id,
            created_at=item.created_at,
            project=_project_of(item, user),
        )
        entry.row_id = note.pk
        return True
    if not _is_as_it_came(entry, user):
        return False
    documents.rewrite_note(user=user, note_id=entry.row_id, title=title, content=content, at=at)
    return True


def _is_as_it_came(entry: ImportedItem, user: User) -> bool:
    """Neither changed nor deleted here."""
    try:
        note = documents.read_note(user=user, note_id=entry.row_id or NO_ROW)
    except NotFound:
        return False
    return hash_of(note.title, note.content) == bytes(entry.content_hash)


def _keep_lines(item: ImportedDocument, entry: ImportedItem, user: User) -> bool:
    at = _place_of(item, user)
    there, day, project = documents.beginning(**at, length=MAX_DOCUMENT_LENGTH), at["day"], at["project"]
    new = _new_lines(item, entry, user)
    place = "" if day is None else day.isoformat() if isinstance(day, date) else str(day)
    entry.place = f"{place} {project}" if project else place
    if not new:
        # So that existing lines are not added again once the user removes them.
        return True
    if not there and item.updated_at is not None:
        documents.create(**at, content=pg_text(item.text), now=item.updated_at)
        created = MemoryDocument.objects.for_user(user).on(day, project)
        created.update(created_at=item.created_at or item.updated_at)
    else:
        now = timezone.now() if there else _moment(item, user) or timezone.now()
        documents.append(**at, text="\n".join(new), now=now)
    entry.lines = "\n".join([*filter(None, [entry.lines]), *new])
    return True


def _new_lines(item: ImportedDocument, entry: ImportedItem, user: User) -> list[str]:
    """Lines that neither exist in the document nor were imported before; the whole text if there is none yet."""
    text = pg_text(item.text).strip("\n")
    there = documents.beginning(**_place_of(item, user), length=MAX_DOCUMENT_LENGTH)
    known = {line.strip() for text in (there, entry.lines) for line in text.splitlines()}
    lines = [line for line in text.splitlines() if line.strip() and line.strip() not in known] if known else [text]
    return lines if "".join(lines).strip() else []


def _place_of(item: ImportedDocument, user: User) -> dict[str, Any]:
    """The document that its lines belong to."""
    day: DocumentDay = ABOUT_ME if item.kind == "about" else None
    if item.kind == "daily_log" and item.at is not None:
        day = user.local_time(item.at).date() if isinstance(item.at, datetime) else item.at
    return {"user": user, "day": day, "project": _project_of(item, user)}


def _project_of(item: ImportedDocument, user: User) -> str:
    return label_of(user=user, label=stored_label(item.project))


def _named(place: str, user: User) -> dict[str, Any]:
    """The day and the project of a document as an item names it; the project may have another name since."""
    day, _blank, project = place.partition(" ")
    named: DocumentDay = ABOUT_ME if day == ABOUT_ME else date.fromisoformat(day) if day else None
    return {"user": user, "day": named, "project": label_of(user=user, label=project)}


def _key(item: KeptItem) -> bytes:
    if isinstance(item, ImportedRecord):
        return key_of(item.product, "proposal" if item.is_proposed else "record", str(item.id))
    if isinstance(item, ImportedProject):
        return key_of(item.product, "project", str(item.id))
    return key_of(item.product, "document", item.kind, item.external_id, *filter(None, [item.account]))


def _hash(item: KeptItem) -> bytes:
    if isinstance(item, ImportedRecord):
        return hash_of(item.content)
    if isinstance(item, ImportedProject):
        return hash_of(item.name)
    return hash_of(*_title_and_text(item))


def _title_and_text(item: ImportedDocument) -> tuple[str, str]:
    about = "\n".join(f"- {name}: {value}" for name, value in item.properties)
    return pg_text(item.title)[:MAX_NOTE_TITLE], pg_text("\n\n".join(filter(None, (item.text, about))))


def title_of(item: KeptItem) -> str:
    match item:
        case ImportedRecord():
            return item.content
        case ImportedProject():
            return item.name
    return item.title


def written_at(item: KeptItem, user: User) -> datetime | None:
    return _moment(item, user) if isinstance(item, ImportedDocument) else item.created_at


def _moment(item: ImportedDocument, user: User) -> datetime | None:
    """For a day alone its noon in the user's zone: the server's may show it as another day."""
    if item.at is None or isinstance(item.at, datetime):
        return item.at
    return datetime(item.at.year, item.at.month, item.at.day, 12, tzinfo=user.zone)
