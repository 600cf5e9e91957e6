"""Projects of a person: lists, changes, renames and deletes them.

A project is a label (`Conversation.project`); its row (`Project`) holds what its person says of it. These rules hold:
1. Writers of a person's projects wait for each other at the user's row, so that no name exists twice.
2. What other apps label follows in the same transaction: they receive `label_changed`.
3. After a new name the old one stays among the project's labels, so that agents that use it still find the project.
4. Deleting a project with all that is in it keeps the rules of `intake/chats/deleting.py`. Otherwise the texts lose
   their label.
"""

from collections import Counter
from collections.abc import Iterable
from typing import Any
from uuid import UUID

from django.db import transaction
from django.db.models import Count
from django.dispatch import Signal

from core.errors import InvalidInput
from core.ids import required
from core.isolation.acting import Caller
from core.text import Sentence, gettext_noop, project_label
from core.validation import checked
from intake.accounts import activity
from intake.chats import changes, deleting
from intake.chats.temporary import project_name
from intake.models import Activity, Conversation, Project, User
from intake.models.conversations import MAX_PROJECT_INSTRUCTIONS, PROJECT_COLOURS
from memory.models import MemoryDocument, MemoryRecord

MOST_LABELS = 100
TAKEN = gettext_noop("There is a project with this name already.")
LABEL_TAKEN = gettext_noop("%(label)s belongs to the project %(project)s already.")

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
    records = MemoryRecord.objects.for_user(user).exclude(project_id="").values_list("project_id")
    mine = MemoryDocument.objects.for_user(user).exclude(project="").values_list("project")
    kept = Counter(dict(records.annotate(number=Count("pk"))))
    kept.update(dict(mine.annotate(number=Count("pk"))))
    for name in (chats.keys() | kept.keys()) - rows.keys():
        rows[name] = Project(user=user, name=name)
        rows[name].has_row = False
    for name, project in rows.items():
        project.chats, project.kept = chats.get(name, 0), kept[name]
    return sorted(rows.values(), key=lambda project: (project.name.casefold(), project.name))


def read_project(*, user: User, name: str) -> Project:
    """A project by its label, an unsaved one for a label without a row. Raises `NotFound` for a label of nothing."""
    return required(next((project for project in list_projects(user=user) if project.name == name), None))


def by_id(*, user: User, project_id: UUID) -> Project:
    """Raises `NotFound` for an unknown id and for another user's."""
    return required(Project.objects.for_user(user).filter(pk=project_id).first())


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
    name = project_name(name)
    if colour is not None and colour not in PROJECT_COLOURS:
        raise InvalidInput(
            errors={"colour": [Sentence(gettext_noop("One of: %(choices)s."), choices=", ".join(PROJECT_COLOURS))]}
        )
    if instructions is not None:
        checked(instructions, field="instructions", max_length=MAX_PROJECT_INSTRUCTIONS, may_be_blank=True)
    with transaction.atomic():
        rows = _locked(user)
        if is_new and name in rows:
            raise InvalidInput(errors={"name": [TAKEN]})
        if name not in rows and len(rows) >= 500:
            message = gettext_noop("There are %(count)s projects already. Delete one first.")
            raise InvalidInput(errors={"name": [Sentence(message, count=500)]})
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
    new_name = project_name(new_name)
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


def _locked(user: User) -> dict[str, Project]:
    User.objects.select_for_update().only("pk").get(pk=user.pk)
    return {project.name: project for project in Project.objects.for_user(user)}


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
