"""Memory records: create, change, list and delete them; `search_memory` finds them."""

from collections.abc import Collection, Sequence
from datetime import datetime
from hashlib import sha256
from typing import Annotated, Any
from uuid import UUID

from django.db import transaction
from pydantic import AwareDatetime, Field

from core.errors import Conflict, InvalidInput, NotFound
from core.text import Sentence
from core.text import gettext_noop as _
from core.validation import ListPage, Position, Shape, checked, page_of, text_limit
from intake.accounts import activity
from intake.chats import quotas
from intake.models import Activity, User
from memory import index
from memory.index.sources import record_entry
from memory.models import MemoryRecord
from memory.models.documents import MAX_LABEL_LENGTH, MAX_PROJECT_LENGTH, MAX_RECORD_LENGTH, MAX_TAGS

MAX_RECORDS = 100
# The type of a record without one.
DEFAULT_TYPE = "note"


# The limits as the API publishes them; `_checked` enforces them with its own sentences.
CONTENT_LIMIT = Field(json_schema_extra=text_limit(MAX_RECORD_LENGTH))
LABEL_LIMIT = Field(json_schema_extra=text_limit(MAX_LABEL_LENGTH))
PROJECT_LIMIT = Field(json_schema_extra=text_limit(MAX_PROJECT_LENGTH))
TAGS_LIMIT = Field(json_schema_extra={"maxItems": MAX_TAGS})
RecordTags = list[Annotated[str, LABEL_LIMIT]]


class RecordOutput(Shape):
    """A record as it was noted."""

    id: Annotated[UUID, Field(description="The record's id.")]
    type: Annotated[str, Field(description="What kind of record: a decision, a lesson, a note.")]
    project_id: Annotated[str, Field(description="The project it belongs to; empty for none.")]
    tags: Annotated[tuple[str, ...], Field(description="The labels it was given.")]
    content: Annotated[str, Field(description="What was noted, whole.")]
    created_at: Annotated[AwareDatetime, Field(description="When it was noted.")]

    @property
    def state(self) -> str:
        """Identifies the record's contents, so that of two writers with the same state only one succeeds."""
        held = repr((self.content, self.type, self.project_id, self.tags))
        return sha256(held.encode(errors="surrogatepass")).hexdigest()[:16]


def create(
    *,
    user: User,
    content: str,
    now: datetime,
    type: str = DEFAULT_TYPE,
    project_id: str = "",
    tags: Sequence[str] = (),
) -> RecordOutput:
    """Save a record. Raises `InvalidInput` that names the wrong field, `QuotaExceeded` and `RateLimited`."""
    held = _checked(content=content, type=type, project_id=project_id, tags=tags)
    quotas.take(user.pk, size=len(content.encode()), fills_queue=True)
    with transaction.atomic():
        row = MemoryRecord.objects.create(user=user, created_at=now, **held)
        index.index(record_entry(row), now=now)
    return RecordOutput.model_validate(row)


def find_same(*, user: User, content: str, project_id: str) -> RecordOutput | None:
    """The record of the same project with this very content, if there is one. Raises `InvalidInput`."""
    held = _checked(content=content, type=DEFAULT_TYPE, project_id=project_id, tags=())
    same = MemoryRecord.objects.for_user(user).filter(content=held["content"], project_id=held["project_id"])
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
) -> RecordOutput:
    """Change the given fields (not None) of a record in one of the `expected` states; None allows any.

    It keeps its id and its creation time. Raises `NotFound`, `InvalidInput`, `QuotaExceeded`, or `Conflict` if it is in
    another state.
    """
    with transaction.atomic():
        row = _get(user, record_id, is_locked=True)
        if expected is not None and RecordOutput.model_validate(row).state not in expected:
            raise Conflict
        held = _checked(
            content=row.content if content is None else content,
            type=row.type if type is None else type,
            project_id=row.project_id if project_id is None else project_id,
            tags=row.tags if tags is None else tags,
        )
        quotas.take_growth(user.pk, before=row.content, after=held["content"])
        for name, value in held.items():
            setattr(row, name, value)
        row.save(update_fields=list(held))
        index.index(record_entry(row), now=now)
    return RecordOutput.model_validate(row)


def list_records(
    *,
    user: User,
    type: str | None = None,
    project_id: str | None = None,
    tag: str | None = None,
    after: Position | None = None,
    limit: int = MAX_RECORDS,
) -> ListPage[RecordOutput]:
    """The `limit` (1 to 100) newest records after `after` that match every filter."""
    found = MemoryRecord.objects.for_user(user)
    if type is not None:
        found = found.filter(type=type)
    if project_id is not None:
        found = found.filter(project_id=project_id)
    if tag is not None:
        found = found.filter(tags__contains=[tag])
    page = page_of(found, by="created_at", after=after, size=limit)
    return ListPage([RecordOutput.model_validate(row) for row in page.rows], page.more)


def read(*, user: User, record_id: UUID) -> RecordOutput:
    """Raises `NotFound` alike for a missing record and another user's."""
    return RecordOutput.model_validate(_get(user, record_id))


def delete(*, user: User, record_id: UUID) -> None:
    """Raises `NotFound` like `read`."""
    with transaction.atomic():
        _get(user, record_id).delete()
        activity.note(user, Activity.MEMORY_DELETED)


def _checked(*, content: str, type: str, project_id: str, tags: Sequence[str]) -> dict[str, Any]:
    if len(tags) > MAX_TAGS:
        message = _("At most %(most)s; these are %(count)s.")
        raise InvalidInput(errors={"tags": [Sentence(message, most=MAX_TAGS, count=len(tags))]})
    return {
        "content": checked(content, field="content", max_length=MAX_RECORD_LENGTH),
        "type": checked(type, field="type", max_length=MAX_LABEL_LENGTH),
        "project_id": checked(project_id, field="project_id", max_length=MAX_PROJECT_LENGTH, may_be_blank=True),
        "tags": [checked(tag, field="tags", max_length=MAX_LABEL_LENGTH) for tag in dict.fromkeys(tags)],
    }


def _get(user: User, record_id: UUID, *, is_locked: bool = False) -> MemoryRecord:
    mine = MemoryRecord.objects.for_user(user)
    try:
        return (mine.select_for_update() if is_locked else mine).get(pk=record_id)
    except MemoryRecord.DoesNotExist:
        raise NotFound from None
