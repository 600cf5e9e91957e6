"""Organises chats: pins, archives and deletes several at once, keeps and removes temporary ones, and sorts them into
projects.

A project is a label (`Conversation.project`); its row (`Project`) holds what its person says of it. These rules hold:
1. Writers of a person's projects wait for each other at the user's row, so that no name exists twice.
2. What other apps label follows in the same transaction: they receive `label_changed`.
3. After a new name the old one stays among the project's labels, so that agents that use it still find the project.
4. Deleting a project with all that is in it keeps the rules of `deleting.py`. Otherwise the texts lose their label.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable
from datetime import datetime
from typing import Any
from uuid import UUID

from django.db import connection, transaction
from django.db.models import Count
from django.dispatch import Signal

from core.errors import InvalidInput, NotFound
from core.isolation.acting import Caller, project_for
from core.text import LONGEST_PROJECT, Sentence, gettext_noop, project_label
from core.validation import checked
from intake.accounts import activity
from intake.attachments import services as attachments
from intake.chats import changes, deleting
from intake.chats.services import lock_conversation
from intake.models import Activity, Conversation, Project, Turn, User
from intake.models.conversations import MAX_PROJECT_INSTRUCTIONS, PROJECT_COLOURS, label_of
from intake.ports import memory

# The most chats that one request changes.
MOST_AT_ONCE = 100


def arrange(
    *,
    caller: Caller,
    conversation_ids: Collection[UUID],
    is_pinned: bool | None = None,
    is_archived: bool | None = None,
    now: datetime,
) -> None:
    """Pin, archive, or undo that; None changes nothing. Archiving unpins.

    Raises `NotFound`, and changes nothing, if one of them is not the caller's.
    """
    _check_number(conversation_ids)
    changed: dict[str, datetime | None] = {}
    if is_pinned is not None:
        changed["pinned_at"] = now if is_pinned else None
    if is_archived is not None:
        changed["archived_at"] = now if is_archived else None
        if is_archived:
            changed["pinned_at"] = None
    with transaction.atomic():
        mine = Conversation.objects.for_caller(caller).filter(pk__in=conversation_ids)
        # Even without a change, this checks their owner.
        count = mine.update(**changed) if changed else mine.count()
        if count != len(set(conversation_ids)):
            raise NotFound
        if changed:
            changes.tell(caller, *conversation_ids)


def delete_all(*, caller: Caller, conversation_ids: Collection[UUID]) -> None:
    """Delete all of them or, if one is not the caller's (`NotFound`), none."""
    _check_number(conversation_ids)
    with transaction.atomic():
        if deleting.delete_conversations(caller=caller, conversation_ids=conversation_ids) != len(
            set(conversation_ids)
        ):
            raise NotFound
        activity.note_for_caller(caller, Activity.CHAT_DELETED, count=len(set(conversation_ids)))


def _check_number(conversation_ids: Collection[UUID]) -> None:
    if not 1 <= len(conversation_ids) <= MOST_AT_ONCE:
        raise InvalidInput("Choose some chats.", errors={"id": [f"1 to {MOST_AT_ONCE} at once."]})


# --- Temporary chats: kept on request, otherwise removed when the user leaves or their time is over ---
# They are never indexed (`Turn.is_temporary`) and never listed (`ConversationQuerySet.kept`).

# The database deletes the turns by cascade; no index contains them. A worker sees no other conversations.
_REMOVE_EXPIRED = "DELETE FROM intake_conversations WHERE user_id = %s AND id = ANY(%s) AND expires_at < %s"
# The limit of one run.
EXPIRED_AT_ONCE = 1_000


def keep(*, caller: Caller, conversation_id: UUID) -> None:
    """Turn a temporary chat into a normal one; harmless if it is one. Raises `NotFound`."""
    with transaction.atomic():
        conversation = lock_conversation(caller, conversation_id)
        if conversation.expires_at is None:
            return
        conversation.expires_at = None
        conversation.save(update_fields=["expires_at"])
        # Saved one by one, so that the index gets a signal for each. The lock waits for an answer that is being saved.
        mine = Turn.objects.for_caller(caller).filter(conversation=conversation)
        for turn in mine.select_for_update().order_by("pk"):
            turn.is_temporary = False
            turn.save(update_fields=["is_temporary"])
        changes.tell(caller, conversation_id)


def leave(*, caller: Caller, conversation_id: UUID) -> None:
    """Remove a temporary chat. Raises `NotFound` for any other chat, so that no other can be removed this way."""
    with transaction.atomic():
        if lock_conversation(caller, conversation_id).expires_at is None:
            raise NotFound
        deleting.delete_conversation(caller=caller, conversation_id=conversation_id)


def remove_expired(*, now: datetime) -> int:
    """Remove them with their files, as a worker; returns the number of removed chats."""
    due = Conversation.objects.filter(expires_at__lt=now).order_by("expires_at")
    by_user: dict[int | None, list[UUID]] = defaultdict(list)
    for user_id, conversation_id in due.values_list("user_id", "id")[:EXPIRED_AT_ONCE]:
        by_user[user_id].append(conversation_id)
    removed = 0
    for owner, ids in by_user.items():
        with transaction.atomic(), connection.cursor() as cursor:
            contents = attachments.contents_of(owner, ids)
            cursor.execute(_REMOVE_EXPIRED, [owner, ids, now])
            removed += int(cursor.rowcount)
            attachments.release(owner, contents)
    return removed


# --- Projects of a person: lists, changes, renames and deletes them, and moves chats between them ---

MOST_PROJECTS = 500
MOST_LABELS = 100
# The most chats that one request moves.
MOST_MOVED = 100

TAKEN = gettext_noop("There is a project with this name already.")
LABEL_TAKEN = gettext_noop("%(label)s belongs to the project %(project)s already.")
NO_NAME = gettext_noop("Enter a name. It cannot begin with a hyphen.")

# Sent with `user`, `old`, `new` (empty: of no project) and `deletes` (whether what has the label goes) within the
# transaction that changes the chats.
label_changed = Signal()


def list_projects(*, user: User) -> list[Project]:
    """The person's projects by name, and the labels in use that have no row: unsaved, with `has_row` False.

    Each has the number of its `chats`, and of its records and documents as `kept`.
    """
    rows = {project.name: project for project in Project.objects.for_user(user)}
    in_use = Conversation.objects.for_user(user).kept().exclude(project="")
    chats = dict(in_use.values_list("project").annotate(number=Count("pk")))
    kept = memory.get().labels_in_use(user=user)
    for name in chats.keys() | kept.keys():
        rows.setdefault(name, _without_row(user, name))
    for name, project in rows.items():
        project.chats, project.kept = chats.get(name, 0), kept.get(name, 0)
    return sorted(rows.values(), key=lambda project: (project.name.casefold(), project.name))


def read_project(*, user: User, name: str) -> Project:
    """A project by its label, an unsaved one for a label without a row. Raises `NotFound` for a label of nothing."""
    found = next((project for project in list_projects(user=user) if project.name == name), None)
    if found is None:
        raise NotFound
    return found


def by_id(*, user: User, project_id: UUID) -> Project:
    """Raises `NotFound` for an unknown id and for another user's."""
    found = Project.objects.for_user(user).filter(pk=project_id).first()
    if found is None:
        raise NotFound
    return found


def save_project(
    *,
    user: User,
    name: str,
    colour: str | None = None,
    instructions: str | None = None,
    is_closed: bool | None = None,
    labels: Iterable[str] | None = None,
    is_new: bool = False,
) -> Project:
    """Create a project, or change one by its name; None keeps a value. What has one of the new labels moves to it.

    `is_new` refuses a name that has a row. Raises `InvalidInput` that names the wrong field.
    """
    name = _name(name)
    if colour is not None and colour not in PROJECT_COLOURS:
        raise InvalidInput(errors={"colour": [f"One of: {', '.join(PROJECT_COLOURS)}."]})
    if instructions is not None:
        checked(instructions, field="instructions", max_length=MAX_PROJECT_INSTRUCTIONS, may_be_blank=True)
    with transaction.atomic():
        rows = _locked(user)
        if is_new and name in rows:
            raise InvalidInput(errors={"name": [TAKEN]})
        if name not in rows and len(rows) >= MOST_PROJECTS:
            message = gettext_noop("There are %(count)s projects already. Delete one first.")
            raise InvalidInput(errors={"name": [Sentence(message, count=MOST_PROJECTS)]})
        project = rows.get(name) or Project(user=user, name=name)
        _refuse_label_of_another(rows, project, [name])
        project.colour = project.colour if colour is None else colour
        project.instructions = project.instructions if instructions is None else instructions
        project.is_closed = project.is_closed if is_closed is None else is_closed
        fresh = [] if labels is None else _labels(rows, project, labels)
        project.save()
        for label in fresh:
            _move_label(user, label, name)
    return project


def rename_project(*, user: User, name: str, new_name: str) -> Project:
    """Give a project, or a label without a row, another name; everything that has the label follows.

    Raises `NotFound` for a label of nothing, and `InvalidInput` for a name that is taken.
    """
    new_name = _name(new_name)
    with transaction.atomic():
        rows = _locked(user)
        project = read_project(user=user, name=name)
        if new_name == name:
            return project
        if new_name in {each.name for each in list_projects(user=user)}:
            raise InvalidInput(errors={"name": [TAKEN]})
        _refuse_label_of_another(rows, project, [new_name])
        project.name = new_name
        project.labels = [label for label in dict.fromkeys([*project.labels, name]) if label != new_name]
        project.save()
        _move_label(user, name, new_name)
    return project


def delete_project(*, user: User, name: str, with_contents: bool) -> None:
    """Delete a project with its chats, files, records and documents; or without: they are of no project afterwards.

    Tokens that are bound to it end. Raises `NotFound` for a label of nothing.
    """
    caller = Caller(user_id=user.pk)
    with transaction.atomic():
        _locked(user)
        read_project(user=user, name=name)
        mine = Conversation.objects.for_user(user).filter(project=name)
        if with_contents:
            gone = deleting.delete_conversations(
                caller=caller, conversation_ids=list(mine.order_by("pk").values_list("pk", flat=True))
            )
            if gone:
                activity.note_for_caller(caller, Activity.CHAT_DELETED, count=gone)
        _move_label(user, name, "", deletes=with_contents)
        Project.objects.for_user(user).filter(name=name).delete()


def move(*, caller: Caller, conversation_ids: Collection[UUID], project: str) -> None:
    """Move chats to a project, which needs no row; empty: to none.

    Raises `NotFound`, and changes nothing, if one of them is not the caller's.
    """
    label = project and _name(project)
    if not 1 <= len(conversation_ids) <= MOST_MOVED:
        raise InvalidInput("Choose some chats.", errors={"conversations": [f"1 to {MOST_MOVED} at once."]})
    with transaction.atomic():
        mine = Conversation.objects.for_caller(caller).filter(pk__in=conversation_ids)
        if mine.update(project=label) != len(set(conversation_ids)):
            raise NotFound
        changes.tell(caller, *conversation_ids)


def project_named(name: str, *, user: User, field: str = "project") -> str:
    """The label of the project that a caller names, maybe by a folder or repository that belongs to it.

    Raises `InvalidInput` for what can be no name.
    """
    named = checked(name, field=field, max_length=LONGEST_PROJECT, may_be_blank=True)
    # A name such as a backslash alone is no folder, and is not dropped.
    label = project_label(named) or named.strip()
    if label.startswith("-"):
        raise InvalidInput(errors={field: [NO_NAME]})
    return project_for(user, label_of(user=user, label=label))


def _name(name: str) -> str:
    label = project_label(name)
    # A hyphen in front means "everything but it" in searches.
    if not label or label.startswith("-"):
        raise InvalidInput(errors={"name": [NO_NAME]})
    if len(" ".join(name.split())) > LONGEST_PROJECT and len(label) == LONGEST_PROJECT:
        message = gettext_noop("At most %(count)s characters.")
        raise InvalidInput(errors={"name": [Sentence(message, count=LONGEST_PROJECT)]})
    return label


def _locked(user: User) -> dict[str, Project]:
    User.objects.select_for_update().only("pk").get(pk=user.pk)
    return {project.name: project for project in Project.objects.for_user(user)}


def _without_row(user: User, name: str) -> Project:
    project = Project(user=user, name=name)
    project.has_row = False
    return project


def _labels(rows: dict[str, Project], project: Project, labels: Iterable[str]) -> list[str]:
    """Sets the project's labels; returns those that are new to it."""
    requested = [label for label in dict.fromkeys(map(project_label, labels)) if label and label != project.name]
    if len(requested) > MOST_LABELS:
        message = gettext_noop("At most %(most)s; these are %(count)s.")
        raise InvalidInput(errors={"labels": [Sentence(message, most=MOST_LABELS, count=len(requested))]})
    _refuse_label_of_another(rows, project, requested)
    fresh = [label for label in requested if label not in project.labels]
    project.labels = requested
    return fresh


def _refuse_label_of_another(rows: dict[str, Project], project: Project, labels: Iterable[str]) -> None:
    for label in labels:
        for other in rows.values():
            if other.pk != project.pk and (label in other.labels or label == other.name):
                taken = Sentence(LABEL_TAKEN, label=label, project=other.name)
                raise InvalidInput(errors={"labels": [taken]})


def _move_label(user: User, old: str, new: str, *, deletes: bool = False) -> None:
    mine = Conversation.objects.for_user(user).filter(project=old)
    moved: list[Any] = list(mine.order_by("pk").select_for_update().values_list("pk", flat=True))
    Conversation.objects.for_user(user).filter(pk__in=moved).update(project=new)
    label_changed.send(Project, user=user, old=old, new=new, deletes=deletes)
    changes.tell(Caller(user_id=user.pk), *moved)
