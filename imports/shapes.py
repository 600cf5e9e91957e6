"""The JSON shapes of the imports' REST API."""

from datetime import datetime
from typing import Annotated, Any, Self
from uuid import UUID

from django.urls import reverse
from pydantic import BaseModel, ConfigDict, Field

from core.paging import ListPage
from core.text import in_language, restored
from core.validation import Input, PlainText, WrittenTime
from imports.models import Import, ImportEntry
from imports.reading.products import readers
from imports.services import CHUNK
from imports.storing.contents import LONGEST_ID
from imports.storing.waiting import VectorsOutput

Ids = Annotated[list[Annotated[PlainText, Field(max_length=LONGEST_ID)]], Field(max_length=10_000)]


class ImportWanted(Input):
    """The body that begins an import."""

    filename: Annotated[str, Field(min_length=1, max_length=1000, description="The file's name, for the person alone.")]
    bytes: Annotated[int, Field(ge=0, le=2**50, description="The whole file's, at least 1.")]
    product: Annotated[str, Field(max_length=32, description="Only where the content does not say it.")] = ""


class StartWanted(Input):
    """The choice: all three together must agree. Without any, what is new or longer comes in."""

    model_config = ConfigDict(populate_by_name=True)

    only: Annotated[Ids | None, Field(description="External ids; everything else stays out.")] = None
    leave_out: Annotated[Ids, Field(alias="except", description="External ids that stay out.")] = []
    since: Annotated[WrittenTime | None, Field(description="What ended before stays out.")] = None


class UndoWanted(Input):
    force: Annotated[bool, Field(description="Also where something was continued here since.")] = False


class SkippedOutput(BaseModel):
    where: Annotated[str, Field(description="The place in the export.")]
    reason: str
    external_id: str | None


class ImportOutput(BaseModel):
    """An import as it stands."""

    model_config = ConfigDict(populate_by_name=True)

    id: UUID
    filename: str
    product: str | None
    product_label: str | None
    state: str
    bytes: int
    bytes_received: int
    chunk_bytes: int
    content_url: str
    found: Annotated[dict[str, int] | None, Field(description="What the export holds.")]
    selected: Annotated[dict[str, int] | None, Field(description="What was chosen of it.")]
    stored: Annotated[dict[str, int] | None, Field(description="What came in so far.")]
    account: Annotated[
        dict[str, dict[str, int]] | None,
        Field(description="Where the turns and the person's characters went: `read` is the sum of the others."),
    ]
    progress: Annotated[float, Field(description="0 to 1 within the state.")]
    first_at: Annotated[datetime | None, Field(serialization_alias="from")]
    last_at: Annotated[datetime | None, Field(serialization_alias="to")]
    notices: list[str]
    skipped: Annotated[list[SkippedOutput], Field(description="The first hundred.")]
    vectors: VectorsOutput | None
    error: str | None
    can_undo: bool
    created_at: datetime
    started_at: datetime | None
    finished_at: datetime | None
    expires_at: Annotated[
        datetime | None, Field(description="When the upload is deleted, unless the import continues.")
    ]

    @classmethod
    def of(cls, batch: Import, vectors: VectorsOutput | None = None, *, language: str = "en") -> Self:
        """`language`: that of the page whose script asks."""
        labels = {reader.product: reader.label for reader in readers()}
        return cls(
            **{name: getattr(batch, name) for name in cls.model_fields if hasattr(batch, name)}
            | {
                "product": batch.product or None,
                "product_label": labels.get(batch.product),
                "chunk_bytes": CHUNK,
                "content_url": reverse("upload_import", args=[batch.pk]),
                "progress": round(batch.progress, 4),
                "notices": [in_language(each, language) for each in batch.notice_sentences],
                "skipped": [
                    {**each, "reason": in_language(restored(each, "reason"), language)} for each in batch.skipped
                ],
                "vectors": vectors,
                "error": in_language(batch.error_sentence, language) or None,
                "can_undo": batch.can_be_undone,
            }
        )

    def as_data(self) -> dict[str, Any]:
        return self.model_dump(mode="json", by_alias=True)


class ProductOutput(BaseModel):
    product: str
    label: str


class ImportListOutput(BaseModel):
    """Newest first."""

    imports: list[ImportOutput]
    more: Annotated[str | None, Field(description="For `?after=`: where the list goes on, if it does.")]
    products: Annotated[list[ProductOutput], Field(description="What can be read.")]

    @classmethod
    def of(cls, page: ListPage[Import], *, language: str = "en") -> Self:
        return cls(
            imports=[ImportOutput.of(batch, language=language) for batch in page.rows],
            more=str(page.more) if page.more else None,
            products=[ProductOutput(product=reader.product, label=reader.label) for reader in readers()],
        )


class EntryOutput(BaseModel):
    """A conversation, document or record of the export."""

    kind: str
    external_id: str
    title: str
    first_at: Annotated[datetime | None, Field(serialization_alias="from")]
    last_at: Annotated[datetime | None, Field(serialization_alias="to")]
    turns: int
    versions: int
    status: Annotated[str, Field(description="`new`, `longer`, `here` or `deleted`, which stays deleted.")]
    is_selected: bool
    stored: Annotated[int, Field(description="How many turns came in; 1 for a document or record.")]
    conversation_id: UUID | None

    @classmethod
    def of(cls, entry: ImportEntry) -> Self:
        return cls.model_validate(entry, from_attributes=True)


class PreviewOutput(BaseModel):
    """Newest first."""

    import_: Annotated[ImportOutput, Field(serialization_alias="import")]
    newest: Annotated[list[str], Field(description="The ten newest titles.")]
    comes_in: Annotated[dict[str, int], Field(description="What a start with the same `since` alone would store.")]
    items: list[EntryOutput]
    more: Annotated[str | None, Field(description="For `?after=`: where the list goes on, if it does.")]
