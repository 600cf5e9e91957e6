"""Memory records: create, change, list and delete them; `search_memory` finds them."""

from collections.abc import Collection, Mapping, Sequence
from datetime import date, datetime
from hashlib import sha256
from typing import Annotated, Any
from uuid import UUID

from django.contrib.postgres.expressions import ArraySubquery
from django.db import IntegrityError, transaction
from django.db.models import OuterRef, Subquery
from django.db.models.functions import JSONObject, Lower
from django.utils import timezone
from pydantic import AwareDatetime, Field

from core.errors import Conflict, InvalidInput, NotFound
from core.ids import required
from core.paging import ListPage, Position, page_of
from core.text import Sentence
from core.text import gettext_noop as _
from core.validation import Input, Shape, checked, text_limit
from intake.accounts import activity
from intake.chats.temporary import project_named
from intake.models import Activity, Turn, User
from memory import index, quotas
from memory.index.sources import record_entry
from memory.models import MemoryRecord
from memory.models.documents import MAX_LABEL_LENGTH, MAX_PROJECT_LENGTH, MAX_RECORD_LENGTH, MAX_TAGS

MAX_RECORDS = 100
# The type of a record without one.
DEFAULT_TYPE = "note"
# The types of records that are a to-do.
TODO_TYPES = ("todo", "to-do", "to_do", "task", "question", "open_question")

REPLACED_BEFORE = _("This record was already replaced by %(id)s. Replace that one instead.")
A_CIRCLE = _("A record cannot replace itself, or one that replaced it.")
ENDS_FIRST = _("The last day is before the first one.")
NO_TODO = _("Only a to-do can be done: a record of type %(type)s has no state.")

Facts = Mapping[str, Any]
"""Any of `FACTS` and `done`; None clears one."""
FACTS = ("replaces", "valid_from", "valid_until", "source_conversation", "source_turn")

# The limits as the API publishes them; `_checked` enforces them with its own sentences.
CONTENT_LIMIT = Field(json_schema_extra=text_limit(MAX_RECORD_LENGTH))
LABEL_LIMIT = Field(json_schema_extra=text_limit(MAX_LABEL_LENGTH))
PROJECT_LIMIT = Field(json_schema_extra=text_limit(MAX_PROJECT_LENGTH))
TAGS_LIMIT = Field(json_schema_extra={"maxItems": MAX_TAGS})
RecordTags = list[Annotated[str, LABEL_LIMIT]]


class RecordFacts(Input):
    """What a caller may say of a record beside its text. In a change, null clears one."""

    valid_from: Annotated[date | None, Field(alias="validFrom", description="First day it holds.")] = None
    valid_until: Annotated[date | None, Field(alias="validUntil", description="Last day it holds.")] = None
    done: Annotated[bool | None, Field(description="Of a todo; a saved one of the same text is marked.")] = None

    @property
    def facts(self) -> Facts:
        """Those that the input has."""
        return self.model_dump(include={*FACTS, "done"} & self.model_fields_set)


class RecordOutput(Shape):
    """A record as it was noted."""

    id: Annotated[UUID, Field(description="The record's id.")]
    type: Annotated[str, Field(description="What kind of record: a decision, a lesson, a note.")]
    project_id: Annotated[str, Field(description="The project it belongs to; empty for none.")]
    tags: Annotated[tuple[str, ...], Field(description="The labels it was given.")]
    content: Annotated[str, Field(description="What was noted, whole.")]
    created_at: Annotated[AwareDatetime, Field(description="When it was noted.")]
    replaces: Annotated[UUID | None, Field(description="The record that this one takes the place of.")] = None
    valid_from: Annotated[
        date | None, Field(serialization_alias="validFrom", description="The first day on which it holds.")
    ] = None
    valid_until: Annotated[
        date | None, Field(serialization_alias="validUntil", description="The last day on which it holds.")
    ] = None
    done_at: Annotated[
        AwareDatetime | None, Field(serialization_alias="doneAt", description="Of a to-do: when it was done.")
    ] = None
    source_conversation: Annotated[
        UUID | None, Field(serialization_alias="sourceConversation", description="The chat it was kept from.")
    ] = None
    source_turn: Annotated[
        int | None, Field(serialization_alias="sourceTurn", description="The turn of that chat.")
    ] = None
    replaced_by: Annotated[
        UUID | None, Field(serialization_alias="replacedBy", description="The record that replaces this one.")
    ] = None
    replaced_on: Annotated[
        date | None, Field(serialization_alias="replacedOn", description="The day since when it is replaced.")
    ] = None

    @property
    def is_todo(self) -> bool:
        return is_todo(self.type)

    def is_past(self, today: date) -> bool:
        """Whether searches leave it out: it is replaced already, or its last day is over."""
        is_replaced = self.replaced_on is not None and self.replaced_on <= today
        return is_replaced or (self.valid_until is not None and self.valid_until < today)

    @property
    def state(self) -> str:
        """Identifies the record's contents, so that of two writers with the same state only one succeeds."""
        held = repr((self.content, self.type, self.project_id, self.tags))
        if any(facts := (self.replaces, self.valid_from, self.valid_until, self.done_at)):
            held += repr(facts)
        return sha256(held.encode(errors="surrogatepass")).hexdigest()[:16]


def create(
    *,
    user: User,
    content: str,
    now: datetime,
    type: str = DEFAULT_TYPE,
    project_id: str = "",
    tags: Sequence[str] = (),
    facts: Facts | None = None,
) -> RecordOutput:
    """Save a record. Raises `InvalidInput` that names the wrong field, `NotFound` for a record to replace that is
    missing or another user's, `QuotaExceeded` and `RateLimited`.
    """
    project_id = project_named(project_id, user=user, field="project_id")
    held = checked_fields(content=content, type=type, project_id=project_id, tags=tags)
    row = MemoryRecord(user=user, created_at=now, **held)
    _set(row, facts or {}, now=now)
    with transaction.atomic():
        if row.replaces is not None:
            _check_replaced(user, row)
        if row.source_conversation is not None:
            _check_source(user, row)
        quotas.take(user.pk, size=len(content.encode()), fills_queue=True)
        _save(row)
        index.index(record_entry(row))
    return RecordOutput.model_validate(row)


def find_same(*, user: User, content: str, project_id: str) -> RecordOutput | None:
    """The record of the same project that holds and has this very content, if there is one. Raises `InvalidInput`."""
    held = checked_fields(content=content, type=DEFAULT_TYPE, project_id=project_id, tags=())
    present = MemoryRecord.objects.current(user, today=today_of(user))
    same = present.filter(content=held["content"], project_id=held["project_id"])
    row = same.order_by("created_at", "id").first()
    return None if row is None else RecordOutput.model_validate(row)


def rewrite(
    *,
    user: User,
    record_id: UUID,
    now: datetime,
    expected: Collection[str] | None = None,
    content: str | None = None,
    type: str | None = None,
    project_id: str | None = None,
    tags: Sequence[str] | None = None,
    facts: Facts | None = None,
) -> RecordOutput:
    """Change the given fields (not None) of a record in one of the `expected` states, and the `facts`; None allows any.

    It keeps its id and its creation time. Raises `NotFound`, also for a record to replace, `InvalidInput`,
    `QuotaExceeded`, or `Conflict` if it is in another state.
    """
    with transaction.atomic():
        row = _locked(user, record_id)
        if expected is not None and RecordOutput.model_validate(row).state not in expected:
            raise Conflict
        # A form sends the project of an earlier version with every change.
        if project_id not in (None, row.project_id):
            project_id = project_named(project_id, user=user, field="project_id")
        held = checked_fields(
            content=row.content if content is None else content,
            type=row.type if type is None else type,
            project_id=row.project_id if project_id is None else project_id,
            tags=row.tags if tags is None else tags,
        )
        quotas.take_growth(user.pk, before=row.content, after=held["content"])
        replaced = row.replaces
        for name, value in held.items():
            setattr(row, name, value)
        _set(row, facts or {}, now=now)
        if row.replaces not in (None, replaced):
            _check_replaced(user, row)
        if (facts or {}).get("source_conversation") is not None:
            _check_source(user, row)
        _save(row)
        index.index(record_entry(row))
    return read(user=user, record_id=record_id)


def list_records(
    *,
    user: User,
    type: str | None = None,
    project_id: str | None = None,
    tag: str | None = None,
    words: str = "",
    is_todo: bool = False,
    include_replaced: bool = False,
    after: Position | None = None,
    limit: int = MAX_RECORDS,
) -> ListPage[RecordOutput]:
    """The `limit` (1 to 100) newest records after `after` that match every filter; without those that are replaced or
    past their last day, unless `include_replaced`, and without a project also without those of closed ones. `words`:
    all of these are in its content, in any case. `is_todo`: only to-dos, open and done.
    """
    mine = MemoryRecord.objects.for_user(user)
    found = mine if include_replaced else MemoryRecord.objects.current(user, today=today_of(user))
    found = found.with_replacement(user)
    for word in words.split():
        found = found.filter(content__icontains=word)
    if is_todo:
        found = found.alias(lower=Lower("type")).filter(lower__in=TODO_TYPES)
    if type is not None:
        found = found.filter(type=type)
    found = found.of_project(user, project_id, field="project_id")
    if tag is not None:
        found = found.filter(tags__contains=[tag])
    page = page_of(found, by="created_at", after=after, size=limit)
    return ListPage([RecordOutput.model_validate(row) for row in page.rows], page.more)


def read(*, user: User, record_id: UUID) -> RecordOutput:
    """Raises `NotFound` alike for a missing record and another user's."""
    found = MemoryRecord.objects.for_user(user).with_replacement(user).filter(pk=record_id)
    return RecordOutput.model_validate(required(found.first()))


def bring_back(*, user: User, record_id: UUID, now: datetime) -> RecordOutput:
    """Undo a replacement: both records hold from now on. Raises `NotFound` like `read`."""
    record = read(user=user, record_id=record_id)
    if record.replaced_by is not None:
        rewrite(user=user, record_id=record.replaced_by, facts={"replaces": None}, now=now)
    return read(user=user, record_id=record_id)


def is_todo(type: str) -> bool:
    return type.lower() in TODO_TYPES


def today_of(user: User) -> date:
    """The day that decides which records hold."""
    return user.local_time(timezone.now()).date()


def delete(*, user: User, record_id: UUID) -> None:
    """Raises `NotFound` like `read`."""
    with transaction.atomic():
        _locked(user, record_id).delete()
        activity.note(user, Activity.MEMORY_DELETED)


def checked_fields(*, content: str, type: str, project_id: str, tags: Sequence[str] = ()) -> dict[str, Any]:
    """The fields of a record as they are stored. Raises `InvalidInput`."""
    if len(tags) > MAX_TAGS:
        message = _("At most %(most)s; these are %(count)s.")
        raise InvalidInput(errors={"tags": [Sentence(message, most=MAX_TAGS, count=len(tags))]})
    return {
        "content": checked(content, field="content", max_length=MAX_RECORD_LENGTH),
        "type": checked(type, field="type", max_length=MAX_LABEL_LENGTH),
        "project_id": checked(project_id, field="project_id", max_length=MAX_PROJECT_LENGTH, may_be_blank=True),
        "tags": [checked(tag, field="tags", max_length=MAX_LABEL_LENGTH) for tag in dict.fromkeys(tags)],
    }


def _set(row: MemoryRecord, facts: Facts, *, now: datetime) -> None:
    """Raises `InvalidInput`."""
    for name in FACTS:
        if name in facts:
            setattr(row, name, facts[name])
    if facts.get("done") and not is_todo(row.type):
        raise InvalidInput(errors={"done": [Sentence(NO_TODO, type=row.type)]})
    if "done" in facts:
        row.done_at = (row.done_at or now) if facts["done"] else None
    if row.valid_from and row.valid_until and row.valid_until < row.valid_from:
        raise InvalidInput(errors={"validUntil": [ENDS_FIRST]})


def _check_replaced(user: User, row: MemoryRecord) -> None:
    """Raises `NotFound`, or `InvalidInput` for a circle and for a record that another one replaces.

    Locks the record to replace, so that of two that replace each other one sees the other.
    """
    assert row.replaces is not None  # noqa: S101 - tells the types
    _locked(user, row.replaces)
    newer, earlier = _chain(user, row.replaces, by=row.pk)
    if row.pk in earlier:
        raise InvalidInput(errors={"replaces": [A_CIRCLE]})
    if newer is not None:
        raise InvalidInput(errors={"replaces": [Sentence(REPLACED_BEFORE, id=str(newer))]})


def _check_source(user: User, row: MemoryRecord) -> None:
    """Raises `NotFound` alike for a turn that is missing and for another user's."""
    named = [(row.source_conversation, row.source_turn or 0)] if row.source_conversation else []
    if not Turn.objects.for_user(user).with_keys(named).exists():
        raise NotFound


def can_replace(user: User, record_id: UUID | None, *, by: UUID) -> bool:
    """Whether no other record replaces it, and it came not after `by` itself; of an import, where it may be missing."""
    if record_id is None:
        return False
    newer, earlier = _chain(user, record_id, by=by)
    return newer is None and by not in earlier


def _chain(user: User, record_id: UUID, *, by: UUID) -> tuple[UUID | None, list[UUID]]:
    """The record other than `by` that replaces this one; and this one, followed by those that it replaced."""
    rows = MemoryRecord.objects.for_user(user).filter(replaces__isnull=False).exclude(pk=by)
    replaced = {pk: older for pk, older in rows.values_list("pk", "replaces") if older is not None}
    newer = next((pk for pk, older in replaced.items() if older == record_id), None)
    earlier = [record_id]
    while (older := replaced.get(earlier[-1])) is not None and older not in earlier:
        earlier.append(older)
    return newer, earlier


def _save(row: MemoryRecord) -> None:
    """The constraint decides between two that replace the same record at the same moment."""
    try:
        with transaction.atomic():
            row.save()
    except IntegrityError as error:
        if "memory_records_replaced_once" not in str(error):
            raise
        newer = MemoryRecord.objects.for_user(row.user).values_list("pk", flat=True).get(replaces=row.replaces)
        raise InvalidInput(errors={"replaces": [Sentence(REPLACED_BEFORE, id=str(newer))]}) from None


def _locked(user: User, record_id: UUID) -> MemoryRecord:
    return required(MemoryRecord.objects.for_user(user).select_for_update().filter(pk=record_id).first())


def kept_in_chat() -> Subquery:
    """Of a conversation: what was kept from its turns, as a list of `{"turn": number, "id": text}`."""
    kept = MemoryRecord.objects.filter(user_id=OuterRef("user_id"), source_conversation=OuterRef("pk"))
    return ArraySubquery(kept.order_by("created_at").values(each=JSONObject(turn="source_turn", id="id")))
