"""Documents: MEMORY.md, daily logs and notes, with their earlier versions; each write is indexed.

MEMORY.md, the page about the user and the daily logs: every read and write, each indexed in its own transaction.

A document is named by its day: None for MEMORY.md, which has none, and `ABOUT_ME` for the page about the user. A
project has a MEMORY.md and logs of its own, named by its label too; without one the general document is meant. An
overwrite names the state that was read, so that of two writers with the same state only one succeeds. An append needs
no state, because appends never conflict.
"""

from collections.abc import Collection, Iterator
from datetime import date, datetime
from difflib import Match, SequenceMatcher
from typing import Annotated, Any, Literal
from uuid import UUID

from django.db import IntegrityError, transaction
from django.db.models import Q
from django.db.models.functions import Left, Length
from pydantic import Field

from core.errors import Conflict, InvalidInput, TooLarge
from core.ids import required, uuid7
from core.paging import ListPage, Position, page_of
from core.text import Sentence, first_line
from core.text import gettext_noop as _
from core.validation import Shape, checked
from intake.accounts import activity
from intake.markdown.budget import check
from intake.models import Activity, User
from memory import index, quotas
from memory.index.sources import document_entry, document_place
from memory.models import MemoryDocument, MemoryDocumentQuerySet, MemoryDocumentVersion
from memory.models.documents import ABOUT_ME, MAX_DOCUMENT_LENGTH, MAX_PROJECT_LENGTH, DocumentDay

# The limit per document; the oldest are deleted first.
KEPT = 50
# Of two versions together; a longer list of changes is not readable either.
MOST_COMPARED = 2_000


# What happened to a line of a comparison; a gap stands for unchanged lines, and has no text.
Change = Literal["kept", "removed", "added", "gap"]


def keep(document: MemoryDocument) -> None:
    """Keep the contents of this row before it is overwritten; in the caller's transaction, which has locked the row."""
    MemoryDocumentVersion.objects.create(
        user_id=document.user_id,
        document_id=document.pk,
        version=document.version,
        content=document.content,
        written_at=document.updated_at,
    )
    mine = MemoryDocumentVersion.objects.filter(user_id=document.user_id, document_id=document.pk)
    kept = mine.order_by("-version").values("pk")[:KEPT]
    mine.exclude(pk__in=kept).delete()


def list_versions(*, user: User, document_id: UUID) -> list[dict[str, Any]]:
    """The `version`, `written_at` and `length` in characters of each; the latest first."""
    found = MemoryDocumentVersion.objects.for_user(user).filter(document_id=document_id).order_by("-version")
    rows = found.annotate(length=Length("content")).values("version", "written_at", "length")
    return [dict(row) for row in rows]


def read_version(*, user: User, document_id: UUID, version: int) -> MemoryDocumentVersion:
    """Raises `NotFound`."""
    mine = MemoryDocumentVersion.objects.for_user(user)
    return required(mine.filter(document_id=document_id, version=version).first())


class _Matcher(SequenceMatcher[str]):
    def find_longest_match(self, *where: Any, **choices: Any) -> Match:
        check()
        return super().find_longest_match(*where, **choices)


def difference(before: str, after: str) -> Iterator[tuple[Change, str]]:
    """The removed and added lines, each with some lines around it; empty if both are equal.

    Raises `TimeoutError` if more than `MOST_COMPARED` lines are between the common beginning and end, or if they take
    longer than the page's budget: the comparison is cubic in them.
    """
    old, new = before.splitlines(), after.splitlines()
    shorter = min(len(old), len(new))
    head = next((at for at in range(shorter) if old[at] != new[at]), shorter)
    tail = next((at for at in range(shorter - head) if old[-1 - at] != new[-1 - at]), shorter - head)
    if len(old) + len(new) - 2 * (head + tail) > MOST_COMPARED:
        raise TimeoutError
    # The lines around the changes are compared too, so that they are shown.
    first, tail = max(0, head - 3), max(0, tail - 3)
    end = 0
    # Two unchanged lines are shown around a change.
    for group in _Matcher(a=old[first : len(old) - tail], b=new[first : len(new) - tail]).get_grouped_opcodes(2):
        if group[0][1] > end:
            yield ("gap", "")
        end = group[-1][2]
        for tag, old_start, old_stop, new_start, new_stop in group:
            of_old = old[first + old_start : first + old_stop]
            if tag == "equal":
                yield from (("kept", line) for line in of_old)
                continue
            yield from (("removed", line) for line in of_old)
            yield from (("added", line) for line in new[first + new_start : first + new_stop])
    if 0 < end < len(old) - first:
        yield ("gap", "")


# Later days would have no noon in some time zones, or are typing errors.
YEARS = range(1900, 3000)

FULL = _("The document would have more than %(count)s characters, and so nothing was appended.")
EXISTS = "There is such a document already. Read it, and write with its ETag."
NO_PROJECT_OF_ABOUT = _("The page about you belongs to no project.")
CHANGED = _("These lines are not in the document any more as they were added, and so nothing was taken out.")


class DocumentOutput(Shape):
    """A document as it stands."""

    id: Annotated[UUID, Field(exclude=True)]
    date: Annotated[date | None, Field(description="The log's day; null for MEMORY.md.")]
    project: Annotated[str, Field(description="To which it belongs; empty for the general one.")]
    content: str
    version: Annotated[int, Field(description="Counts up with every write.")]
    created_at: datetime
    updated_at: datetime

    @property
    def state(self) -> str:
        """Changes with every write and never repeats, even if the document is deleted and created again."""
        return f"{self.version}-{self.id.hex[-12:]}"


class DailyLogOutput(Shape):
    """That there is a log for a day."""

    date: date
    version: int
    length: Annotated[int, Field(description="In characters.")]
    updated_at: datetime


class DailyLogList(Shape):
    """Latest day first."""

    logs: list[DailyLogOutput]
    before: Annotated[
        date | None, Field(description="Ask again with this `before` for the logs before these; null at the end.")
    ]


def read(*, user: User, day: DocumentDay, project: str = "") -> DocumentOutput:
    """Raises `NotFound`."""
    return DocumentOutput.model_validate(_get(user, day, project))


def beginning(*, user: User, day: DocumentDay, project: str = "", length: int) -> str:
    """The beginning of a document, at most this many characters; empty if it does not exist."""
    found = MemoryDocument.objects.for_user(user).on(day, project)
    text: str | None = found.values_list(Left("content", length), flat=True).first()
    return text or ""


def exists(*, user: User, day: DocumentDay, project: str = "") -> bool:
    return MemoryDocument.objects.for_user(user).on(day, project).exists()


def projects_with_memory(*, user: User) -> list[str]:
    """The projects that have a MEMORY.md with something in it, by name."""
    found = MemoryDocument.objects.for_user(user).memory().exclude(project="").exclude(content="")
    return list(found.order_by("project").values_list("project", flat=True))


def list_daily_logs(*, user: User, project: str = "", before: date | None = None, limit: int = 100) -> DailyLogList:
    """The `limit` (1 to 100) latest logs of days before `before`, without their content."""
    mine = MemoryDocument.objects.for_user(user).daily_logs().filter(project=project)
    found = mine.annotate(length=Length("content")).order_by("-date")
    if before is not None:
        found = found.filter(date__lt=before)
    rows = found.values("date", "version", "length", "updated_at")[: limit + 1]
    # Every log has a date: a constraint of the table says so.
    logs = [DailyLogOutput.model_validate(row) for row in rows]
    return DailyLogList(logs=logs[:limit], before=logs[limit - 1].date if len(logs) > limit else None)


def first_lines(*, user: User, project: str = "", days: Collection[date]) -> dict[date, str]:
    """The first line of each of these days' logs."""
    found = MemoryDocument.objects.for_user(user).daily_logs().filter(date__in=days, project=project)
    # The first line is looked for at the log's beginning.
    rows = found.values_list("date", Left("content", 400))
    return {day: first_line(text) for day, text in rows if day is not None}


def create(*, user: User, day: DocumentDay, project: str = "", content: str, now: datetime) -> DocumentOutput:
    """Create a document. Raises `Conflict` if it exists, also if another request was faster."""
    _check_name(day, project)
    checked(content, field="content", max_length=MAX_DOCUMENT_LENGTH, may_be_blank=True)
    quotas.take(user.pk, size=len(content.encode()))
    with transaction.atomic():
        try:
            with transaction.atomic():
                row = MemoryDocument.objects.create(
                    user=user,
                    kind=_kind(day),
                    date=_date(day),
                    project=project,
                    content=content,
                    created_at=now,
                    updated_at=now,
                )
        except IntegrityError:
            raise Conflict(EXISTS) from None
        index.index(document_entry(row))
    return DocumentOutput.model_validate(row)


def replace(
    *,
    user: User,
    day: DocumentDay,
    project: str = "",
    content: str,
    expected: Collection[str] | None,
    now: datetime,
) -> DocumentOutput:
    """Overwrite a document that is in one of the `expected` states; None allows any. Raises `Conflict` otherwise.

    The previous text is kept as an earlier version.
    """
    checked(content, field="content", max_length=MAX_DOCUMENT_LENGTH, may_be_blank=True)
    with transaction.atomic():
        # Of two writers with the same state, the second waits for the lock and then finds another version.
        row = _in_state(expected, MemoryDocument.objects.for_user(user).on(day, project).select_for_update())
        quotas.take_growth(user.pk, before=row.content, after=content)
        if content != row.content:
            keep(row)
        _write(row, content, now)
        return _indexed(user, day, project)


def move(
    *, user: User, day: date, project: str = "", to: date, expected: Collection[str] | None, now: datetime
) -> DocumentOutput:
    """Move a log to another day; if that day has a log of the same project, append it there.

    Raises `Conflict` if it is in none of the `expected` states, or if a log of that day was created at this moment;
    `TooLarge` if both together are too long. Then nothing is moved.
    """
    _check_name(to, project)
    with transaction.atomic():
        mine = MemoryDocument.objects.for_user(user).on(day, project)
        row = _in_state(expected, mine.select_for_update(of=("self",)))
        if to == day:
            return DocumentOutput.model_validate(row)
        if not exists(user=user, day=to, project=project):
            # Its rows in the index contain the day.
            index.forget(document_place(row))
            row.date, row.updated_at = to, now
            row.version += 1
            try:
                with transaction.atomic():
                    row.save(update_fields=["date", "version", "updated_at"])
            except IntegrityError:
                raise Conflict from None
            return _indexed(user, to, project)
        if row.content and not MemoryDocument.objects.append(
            user=user, kind=row.kind, day=to, project=project, lines=as_lines(row.content), now=now
        ):
            raise TooLarge(FULL, count=MAX_DOCUMENT_LENGTH)
        row.delete()
        return _indexed(user, to, project)


def append(*, user: User, day: DocumentDay, project: str = "", text: str, now: datetime) -> DocumentOutput:
    """Append lines to a document, creating it if necessary. Raises `TooLarge`, and then nothing is appended."""
    _check_name(day, project)
    checked(text, field="text", max_length=MAX_DOCUMENT_LENGTH)
    quotas.take(user.pk, size=len(text.encode()))
    with transaction.atomic():
        is_appended = MemoryDocument.objects.append(
            user=user, kind=_kind(day), day=_date(day), project=project, lines=as_lines(text), now=now
        )
        if not is_appended:
            raise TooLarge(FULL, count=MAX_DOCUMENT_LENGTH)
        return _indexed(user, day, project)


def take_back(
    *, user: User, day: DocumentDay, project: str = "", text: str, at: int | None, now: datetime
) -> DocumentOutput | None:
    """Undo an append: remove exactly its lines, even if the document has changed since.

    `at`: the position of the lines in characters, to select among equal lines; without it the last ones are removed. An
    empty document is deleted, and None returned. Raises `Conflict` if the lines do not exist any more.
    """
    with transaction.atomic():
        row = MemoryDocument.objects.for_user(user).on(day, project).select_for_update().first()
        left = None if row is None else _without(row.content, text, at)
        if row is None or left is None:
            raise Conflict(CHANGED)
        if not left:
            row.delete()
            return None
        _write(row, left, now)
        return _indexed(user, day, project)


def delete(*, user: User, day: DocumentDay, project: str = "", expected: Collection[str] | None) -> None:
    """Delete a document that is in one of the `expected` states; None allows any. Raises `Conflict` otherwise."""
    with transaction.atomic():
        document = MemoryDocument.objects.for_user(user).on(day, project)
        _in_state(expected, document.select_for_update()).delete()
        activity.note(user, Activity.MEMORY_DELETED)


def as_lines(text: str) -> str:
    """The lines that an append of this text adds."""
    return text if text.endswith("\n") else text + "\n"


def _get(user: User, day: DocumentDay, project: str) -> MemoryDocument:
    return required(MemoryDocument.objects.for_user(user).on(day, project).select_related("user").first())


def _write(row: MemoryDocument, content: str, now: datetime) -> None:
    row.content, row.updated_at = content, now
    row.version += 1
    row.save(update_fields=["content", "version", "updated_at"])


def _in_state(expected: Collection[str] | None, document: MemoryDocumentQuerySet) -> MemoryDocument:
    row = document.first()
    if row is None or (expected is not None and DocumentOutput.model_validate(row).state not in expected):
        raise Conflict
    return row


def _indexed(user: User, day: DocumentDay, project: str) -> DocumentOutput:
    row = _get(user, day, project)
    index.index(document_entry(row))
    return DocumentOutput.model_validate(row)


def _check_name(day: DocumentDay, project: str) -> None:
    if day == ABOUT_ME and project:
        raise InvalidInput(errors={"project": [NO_PROJECT_OF_ABOUT]})
    checked(project, field="project", max_length=MAX_PROJECT_LENGTH, may_be_blank=True)
    if isinstance(day, date) and day.year not in YEARS:
        message = _("A log's year lies between %(first)s and %(last)s.")
        raise InvalidInput(errors={"date": [Sentence(message, first=str(YEARS[0]), last=str(YEARS[-1]))]})


def _kind(day: DocumentDay) -> MemoryDocument.Kind:
    if day is None:
        return MemoryDocument.Kind.MEMORY
    return MemoryDocument.Kind.ABOUT if isinstance(day, str) else MemoryDocument.Kind.DAILY_LOG


def _date(day: DocumentDay) -> date | None:
    return None if isinstance(day, str) else day


def _without(content: str, text: str, at: int | None) -> str | None:
    """The text without the lines; None if they are not in it. A later append may have removed their last blanks."""
    for lines in (as_lines(text), text.rstrip("\n") + "\n"):
        is_there = at is not None and content.startswith(lines, at) and content[:at][-1:] in ("", "\n")
        start = at if at is not None and is_there else f"\n{content}".rfind(f"\n{lines}")
        if start >= 0:
            return content[:start] + content[start + len(lines) :]
    return None


def create_note(
    *,
    user: User,
    title: str,
    content: str,
    at: datetime,
    note_id: UUID | None = None,
    created_at: datetime | None = None,
    project: str = "",
) -> MemoryDocument:
    """`at`: the time of the last change, by which searches find it. `note_id`: for a note that is restored."""
    quotas.take(user.pk, size=len(content.encode()))
    with transaction.atomic():
        note = MemoryDocument.objects.create(
            id=note_id or uuid7(),
            user=user,
            kind=MemoryDocument.Kind.NOTE,
            title=title,
            project=project,
            content=content,
            created_at=created_at or at,
            updated_at=at,
        )
        index.index(document_entry(note))
    return note


def rewrite_note(*, user: User, note_id: UUID, title: str, content: str, at: datetime) -> None:
    """Raises `NotFound` and `QuotaExceeded`."""
    with transaction.atomic():
        note = _locked(user, note_id)
        quotas.take_growth(user.pk, before=note.content, after=content)
        note.title, note.content, note.updated_at = title, content, at
        note.version += 1
        note.save(update_fields=["title", "content", "updated_at", "version"])
        index.index(document_entry(note))


def list_notes(
    *, user: User, project: str = "", words: str = "", after: Position | None = None, limit: int = 50
) -> ListPage[MemoryDocument]:
    """The latest first, without their content. `project`: as `of_project` reads it; empty for all but closed ones.
    `words`: all of these are in the title or the content, in any case.
    """
    notes = MemoryDocument.objects.for_user(user).notes().of_project(user, project or None).defer("content")
    for word in words.split():
        notes = notes.filter(Q(title__icontains=word) | Q(content__icontains=word))
    return page_of(notes, by="updated_at", after=after, size=limit)


def read_note(*, user: User, note_id: UUID) -> MemoryDocument:
    """Raises `NotFound`."""
    return required(MemoryDocument.objects.for_user(user).notes().filter(pk=note_id).first())


def delete_note(*, user: User, note_id: UUID, is_noted: bool = True) -> None:
    """Raises `NotFound`. `is_noted`: whether it gets its own line in the user's activity."""
    with transaction.atomic():
        _locked(user, note_id).delete()
        if is_noted:
            activity.note(user, Activity.MEMORY_DELETED)


def _locked(user: User, note_id: UUID) -> MemoryDocument:
    notes = MemoryDocument.objects.for_user(user).notes()
    return required(notes.select_for_update(of=("self",)).filter(pk=note_id).first())


def move_label(*, user: User, old: str, new: str, now: datetime) -> None:
    """Give the documents of a project another label, empty for none. If the other project has a document of that kind
    and day, the text is appended there. Raises `TooLarge` if both together are too long.
    """
    mine = MemoryDocument.objects.for_user(user)
    for document in mine.filter(project=old).order_by("pk").select_for_update(of=("self",)):
        twin = mine.filter(project=new, kind=document.kind, date=document.date).exclude(kind=MemoryDocument.Kind.NOTE)
        other = twin.select_for_update(of=("self",)).first()
        if other is None:
            mine.filter(pk=document.pk).update(project=new)
        else:
            before = as_lines(other.content) if other.content else ""
            if len(before) + len(document.content) > MAX_DOCUMENT_LENGTH:
                raise TooLarge(FULL, count=MAX_DOCUMENT_LENGTH)
            keep(other)
            _write(other, before + document.content, now)
            document.delete()
            index.index(document_entry(other))
