"""`/api/v1/imports/`: creates, uploads, previews, starts and undoes imports, for a session or a token with `import`."""

import hashlib
import re
from collections.abc import Mapping
from http import HTTPStatus
from typing import IO, Annotated, Any

from django.utils import timezone
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, extend_schema
from pydantic import Field
from rest_framework.parsers import BaseParser
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.viewsets import ViewSet

from core.errors import InsufficientScope, InvalidInput, TooLarge
from core.pagination import position_in_address
from core.validation import LONGEST_REFERENCE, Input, validate
from imports import services
from imports.models import BEGUN_BY_LENGTH, EntryKind, Import, ImportEntry
from imports.rest.shapes import (
    EntryOutput,
    ImportListOutput,
    ImportOutput,
    ImportWanted,
    PreviewOutput,
    StartWanted,
    UndoWanted,
    WrittenTime,
)
from imports.services import MAX_CHUNK, EntryQuestion
from imports.storing.waiting import waiting_vectors
from intake.identity import person_of
from intake.rest.acting import ActsAsCaller
from intake.schemas import problems
from memory.rest.queries import PlainText, validate_query

# The scope by its name, because tokens belong to an app above this one.
IMPORT_SCOPE = "import"
RANGE = re.compile(r"bytes (\d{1,16})-(\d{1,16})/(\d{1,16})", re.ASCII)
LONGEST_RANGE = 60
LONGEST_TITLE = 200
RANGE_SCHEMA = {"type": "string", "maxLength": LONGEST_RANGE}
TITLE_SCHEMA = {"type": "string", "maxLength": LONGEST_TITLE}
CURSOR = {"type": "string", "maxLength": LONGEST_REFERENCE}
IMPORT_ID = OpenApiParameter("import_id", OpenApiTypes.UUID, OpenApiParameter.PATH)
CHANGING = problems(400, 401, 404, 409, 413, 415, 503)
"""The failures of changes that need no body."""


class ChunkParser(BaseParser):
    """A chunk of a file, unparsed."""

    media_type = "application/octet-stream"

    def parse(  # type: ignore[override]  # the stubs know of forms alone
        self, stream: IO[bytes], media_type: str | None = None, parser_context: Mapping[str, Any] | None = None
    ) -> bytes:
        return stream.read()


class ImportsViewSet(ActsAsCaller, ViewSet):
    required_scope = IMPORT_SCOPE


def _token_of(request: Request) -> str:
    """A digest of the request's token; empty for a session."""
    digest = getattr(request.auth, "digest", "")
    return hashlib.sha256(digest.encode()).hexdigest()[:BEGUN_BY_LENGTH] if digest else ""


def _refuse_to_remove(request: Request, batch: Import) -> None:
    """A token that may import removes what it brought itself; all else needs `delete`. Raises `InsufficientScope`."""
    token = _token_of(request)
    if token and "delete" not in getattr(request.auth, "scopes", ()) and batch.begun_by != token:
        raise InsufficientScope("This token lacks the scope `delete`, and has not begun this import.")


class ImportListViewSet(ImportsViewSet):
    @extend_schema(
        operation_id="list_imports",
        summary="Imports, and what can be imported",
        parameters=[OpenApiParameter("after", CURSOR, description="`more` of the page before.")],
        responses={200: ImportListOutput, **problems(400, 401, 404, 503)},
    )
    # Not `list`: the schema would take it for an array.
    def look(self, request: Request) -> Response:
        after = position_in_address(request.query_params.get("after"))
        page = services.list_imports(user=person_of(request), after=after)
        return Response(ImportListOutput.of(page).model_dump(mode="json", by_alias=True))

    @extend_schema(
        operation_id="begin_import",
        summary="Begin an import",
        description="Announces a file, whose bytes are then put to `content_url` in chunks.",
        request=ImportWanted,
        responses={201: ImportOutput, **problems(400, 401, 409, 413, 415, 503, 507)},
    )
    def create(self, request: Request) -> Response:
        wanted = validate(ImportWanted, request.data)
        batch = services.begin(
            user=person_of(request),
            filename=wanted.filename,
            size=wanted.bytes,
            product=wanted.product,
            now=timezone.now(),
            begun_by=_token_of(request),
        )
        return _answer(batch, status=HTTPStatus.CREATED)


class ImportViewSet(ImportsViewSet):
    @extend_schema(
        operation_id="read_import",
        summary="An import as it stands",
        parameters=[IMPORT_ID],
        responses={200: ImportOutput, **problems(401, 404, 503)},
    )
    def retrieve(self, request: Request, import_id: str) -> Response:
        user = person_of(request)
        batch = services.get(user=user, import_id=import_id)
        return Response(data_of(batch), headers={"Upload-Offset": str(batch.bytes_received)})

    @extend_schema(
        operation_id="delete_import",
        summary="Take an import off the list",
        description="Ends it if it runs, and deletes its upload. What it brought stays, and cannot be undone any more.",
        parameters=[IMPORT_ID],
        responses={204: None, **problems(401, 404, 503)},
    )
    def destroy(self, request: Request, import_id: str) -> Response:
        user = person_of(request)
        _refuse_to_remove(request, services.get(user=user, import_id=import_id))
        services.remove(user=user, import_id=import_id)
        return Response(status=HTTPStatus.NO_CONTENT)


class ImportContentViewSet(ImportsViewSet):
    parser_classes = [ChunkParser]

    @extend_schema(
        operation_id="upload_import",
        summary="Upload a chunk",
        description="In order, each with its `Content-Range: bytes FIRST-LAST/TOTAL`. The last one begins the reading.",
        parameters=[
            IMPORT_ID,
            OpenApiParameter("Content-Range", RANGE_SCHEMA, OpenApiParameter.HEADER, required=True),
        ],
        request={"application/octet-stream": OpenApiTypes.BINARY},
        responses={200: ImportOutput, **problems(400, 401, 404, 408, 409, 413, 415, 503, 507)},
    )
    def put(self, request: Request, import_id: str) -> Response:
        data = request.data
        if not isinstance(data, bytes) or not data:
            raise InvalidInput("Send the bytes of the chunk as application/octet-stream.")
        if len(data) > MAX_CHUNK:
            raise TooLarge(f"A chunk has at most {MAX_CHUNK:,} bytes.")
        first, total = _range(request.headers.get("Content-Range", ""), len(data))
        batch = services.receive(
            user=person_of(request), import_id=import_id, data=data, first=first, total=total, now=timezone.now()
        )
        return _answer(batch)


class PreviewQuery(Input):
    q: Annotated[PlainText, Field(max_length=LONGEST_TITLE)] = ""
    status: Annotated[PlainText, Field(pattern=f"^({'|'.join([*ImportEntry.Status.values, 'stored'])})?$")] = ""
    kind: Annotated[PlainText, Field(pattern=f"^({'|'.join(EntryKind.values)})?$")] = ""
    since: WrittenTime | None = None
    after: Annotated[int | None, Field(ge=0, le=2**31)] = None
    limit: Annotated[int, Field(ge=1, le=500)] = 100


class ImportPreviewViewSet(ImportsViewSet):
    @extend_schema(
        operation_id="preview_import",
        summary="What the export holds",
        parameters=[
            IMPORT_ID,
            OpenApiParameter("q", TITLE_SCHEMA, description="Only titles that contain this."),
            OpenApiParameter("status", str, enum=[*ImportEntry.Status.values, "stored"]),
            OpenApiParameter("kind", str, enum=EntryKind.values),
            OpenApiParameter("since", OpenApiTypes.DATETIME, description="Only what did not end before."),
            OpenApiParameter("after", {"type": "integer", "minimum": 0}, description="`more` of the page before."),
            OpenApiParameter("limit", {"type": "integer", "minimum": 1, "maximum": 500, "default": 100}),
        ],
        responses={200: PreviewOutput, **problems(400, 401, 404, 409, 503)},
    )
    def look(self, request: Request, import_id: str) -> Response:
        batch = services.get(user=person_of(request), import_id=import_id)
        page = services.entries_of(batch, EntryQuestion(**validate_query(PreviewQuery, request).model_dump()))
        shown = PreviewOutput(
            import_=ImportOutput.of(batch),
            newest=page.newest,
            comes_in=page.comes_in,
            items=[EntryOutput.of(entry) for entry in page.entries],
            more=None if page.more is None else str(page.more),
        )
        return Response(shown.model_dump(mode="json", by_alias=True))


class ImportStartViewSet(ImportsViewSet):
    @extend_schema(
        operation_id="start_import",
        summary="Store what the export holds, or what was chosen of it",
        parameters=[IMPORT_ID],
        request=StartWanted,
        responses={202: ImportOutput, **CHANGING},
    )
    def start(self, request: Request, import_id: str) -> Response:
        wanted = validate(StartWanted, request.data)
        batch = services.start(
            user=person_of(request),
            import_id=import_id,
            only=wanted.only,
            leave_out=wanted.leave_out,
            since=wanted.since,
            now=timezone.now(),
        )
        return _answer(batch, status=HTTPStatus.ACCEPTED)


class ImportCancelViewSet(ImportsViewSet):
    @extend_schema(
        operation_id="cancel_import",
        summary="Stop an import",
        description="What has been stored stays, and can be undone.",
        parameters=[IMPORT_ID],
        request=None,
        responses={202: ImportOutput, **CHANGING},
    )
    def cancel(self, request: Request, import_id: str) -> Response:
        user = person_of(request)
        _refuse_to_remove(request, services.get(user=user, import_id=import_id))
        return _answer(services.cancel(user=user, import_id=import_id), status=HTTPStatus.ACCEPTED)


class ImportUndoViewSet(ImportsViewSet):
    @extend_schema(
        operation_id="undo_import",
        summary="Take back what an import brought",
        description="409 `continued_since` where something was continued here; with `force` what was said here stays.",
        parameters=[IMPORT_ID],
        request=UndoWanted,
        responses={202: ImportOutput, **CHANGING},
    )
    def undo(self, request: Request, import_id: str) -> Response:
        wanted = validate(UndoWanted, request.data)
        user = person_of(request)
        _refuse_to_remove(request, services.get(user=user, import_id=import_id))
        batch = services.undo(user=user, import_id=import_id, force=wanted.force, now=timezone.now())
        return _answer(batch, status=HTTPStatus.ACCEPTED)


def data_of(batch: Import, *, counts_vectors: bool = True) -> dict[str, Any]:
    """An import with its owner's waiting vectors; call it while acting as that user."""
    waiting = waiting_vectors(batch.user, now=timezone.now()) if batch.stored and counts_vectors else None
    return ImportOutput.of(batch, waiting).as_data()


def _answer(batch: Import, *, status: int = HTTPStatus.OK) -> Response:
    return Response(ImportOutput.of(batch).as_data(), status=status)


def _range(header: str, length: int) -> tuple[int, int]:
    """The first byte and the size of the whole. Raises `InvalidInput`."""
    found = RANGE.fullmatch(header.strip())
    if found is None:
        raise InvalidInput("Say which bytes these are: `Content-Range: bytes FIRST-LAST/TOTAL`.")
    first, last, total = (int(number) for number in found.groups())
    if last - first + 1 != length:
        raise InvalidInput(f"The Content-Range speaks of {last - first + 1:,} bytes, and {length:,} came.")
    return first, total
