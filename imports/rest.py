"""`/api/v1/imports/`: creates, uploads, previews, starts and undoes imports, for a session or a token with `import`."""

import hashlib
import re
from collections.abc import Mapping
from typing import IO, Any

from django.utils import timezone
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter
from rest_framework.parsers import BaseParser
from rest_framework.request import Request
from rest_framework.response import Response

from core.errors import InsufficientScope, InvalidInput, NotFound, TooLarge
from core.isolation.acting import acting_as
from core.isolation.views import ActsAsCaller
from core.paging import position_in_address
from core.text import page_language
from core.validation import LONGEST_REFERENCE
from imports import services
from imports.models import BEGUN_BY_LENGTH, Import
from imports.services import MAX_CHUNK, EntryQuestion
from imports.shapes import (
    EntryOutput,
    ImportListOutput,
    ImportOutput,
    ImportWanted,
    PreviewOutput,
    StartWanted,
    UndoWanted,
)
from imports.storing.appending import AppendedSession, AppendOutput, append
from imports.storing.waiting import waiting_vectors
from intake.accounts.identity import person_of
from intake.models import User
from intake.operations import Operations

# The scopes by their names, because tokens belong to an app above this one.
IMPORT_SCOPE = "import"
CAPTURE_SCOPE = "capture"
RANGE = re.compile(r"bytes (\d{1,16})-(\d{1,16})/(\d{1,16})", re.ASCII)
RANGE_SCHEMA = {"type": "string", "maxLength": 60}
CURSOR = {"type": "string", "maxLength": LONGEST_REFERENCE}
IMPORT_ID = OpenApiParameter("import_id", OpenApiTypes.UUID, OpenApiParameter.PATH)


class ChunkParser(BaseParser):
    """A chunk of a file, unparsed."""

    media_type = "application/octet-stream"

    def parse(  # type: ignore[override]  # the stubs know of forms alone
        self, stream: IO[bytes], media_type: str | None = None, parser_context: Mapping[str, Any] | None = None
    ) -> bytes:
        return stream.read()


def _digest_of(token: Any) -> str:
    """A digest of the request's token; empty for a session."""
    digest = getattr(token, "digest", "")
    return hashlib.sha256(digest.encode()).hexdigest()[:BEGUN_BY_LENGTH] if digest else ""


def _began(token: Any) -> str:
    """The digest by which a token that may neither search nor read finds what it began; empty for other callers."""
    return "" if {"search", "read"} & set(getattr(token, "scopes", ())) else _digest_of(token)


def refuse_others(user: User, token: Any, import_id: str) -> None:
    """Raises `NotFound`: a title says what somebody talked about."""
    if began := _began(token):
        with acting_as(user):
            if services.get(user=user, import_id=import_id).begun_by != began:
                raise NotFound


def _refuse_to_remove(request: Request, batch: Import) -> None:
    """A token that may import removes what it brought itself; all else needs `delete`. Raises `InsufficientScope`."""
    token = _digest_of(request.auth)
    if token and "delete" not in getattr(request.auth, "scopes", ()) and batch.begun_by != token:
        raise InsufficientScope("This token lacks the scope `delete`, and has not begun this import.")


class ImportView(ActsAsCaller):
    required_scope = IMPORT_SCOPE
    # Whether an agent that is connected by OAuth may call it.
    takes_agents = False

    def initial(self, request: Request, *args: Any, **kwargs: Any) -> None:
        super().initial(request, *args, **kwargs)
        if "import_id" in kwargs:
            refuse_others(person_of(request), request.auth, kwargs["import_id"])


api = Operations(ImportView, is_bound=False)
AFTER = OpenApiParameter("after", CURSOR, description="`more` of the page before.")
ONE = "imports/<str:import_id>/"


@api("get", "imports/", ImportListOutput, fails=[400, 404], parameters=[AFTER])
def list_imports(request: Request, user: User) -> ImportListOutput:
    """Imports, and what can be imported"""
    after = position_in_address(request.query_params.get("after"))
    page = services.list_imports(user=user, after=after, begun_by=_began(request.auth))
    return ImportListOutput.of(page, language=page_language(request.headers))


@api("post", "imports/", ImportOutput, status=201, fails=[409, 507])
def begin_import(request: Request, user: User, body: ImportWanted) -> ImportOutput:
    """Begin an import

    Announces a file, whose bytes are then put to `content_url` in chunks.
    """
    now, token = timezone.now(), _digest_of(request.auth)
    wanted = {"filename": body.filename, "product": body.product, "begun_by": token}
    return _shown(request, services.begin(user=user, size=body.bytes, now=now, **wanted))


@api("get", ONE, ImportOutput, parameters=[IMPORT_ID])
def read_import(request: Request, user: User, import_id: str) -> Response:
    """An import as it stands"""
    batch = services.get(user=user, import_id=import_id)
    data = data_of(batch, language=page_language(request.headers))
    return Response(data, headers={"Upload-Offset": str(batch.bytes_received)})


@api("delete", ONE, status=204, parameters=[IMPORT_ID])
def delete_import(request: Request, user: User, import_id: str) -> None:
    """Take an import off the list

    Ends it if it runs, and deletes its upload. What it brought stays, and cannot be undone any more.
    """
    _refuse_to_remove(request, services.get(user=user, import_id=import_id))
    services.remove(user=user, import_id=import_id)


@api(
    "put",
    f"{ONE}content/",
    ImportOutput,
    fails=[400, 408, 409, 413, 415, 507],
    request={"application/octet-stream": OpenApiTypes.BINARY},
    parameters=[
        IMPORT_ID,
        OpenApiParameter("Content-Range", RANGE_SCHEMA, OpenApiParameter.HEADER, required=True),
    ],
    parser_classes=[ChunkParser],
)
def upload_import(request: Request, user: User, import_id: str) -> ImportOutput:
    """Upload a chunk

    In order, each with its `Content-Range: bytes FIRST-LAST/TOTAL`. The last one begins the reading.
    """
    data = request.data
    if not isinstance(data, bytes) or not data:
        raise InvalidInput("Send the bytes of the chunk as application/octet-stream.")
    if len(data) > MAX_CHUNK:
        raise TooLarge(f"A chunk has at most {MAX_CHUNK:,} bytes.")
    first, total = _range(request.headers.get("Content-Range", ""), len(data))
    about: dict[str, Any] = {"data": data, "first": first, "total": total}
    return _shown(request, services.receive(user=user, import_id=import_id, **about, now=timezone.now()))


@api("get", f"{ONE}preview/", PreviewOutput, fails=[409], parameters=[IMPORT_ID])
def preview_import(request: Request, user: User, import_id: str, query: EntryQuestion) -> PreviewOutput:
    """What the export holds"""
    batch = services.get(user=user, import_id=import_id)
    entries, more = services.entries_of(batch, query)
    return PreviewOutput(
        import_=_shown(request, batch),
        newest=services.newest_titles(batch, query.since),
        comes_in=services.comes_in(batch, query.since),
        items=[EntryOutput.of(entry) for entry in entries],
        more=None if more is None else str(more),
    )


@api("post", f"{ONE}start/", ImportOutput, status=202, fails=[409], parameters=[IMPORT_ID])
def start_import(request: Request, user: User, import_id: str, body: StartWanted) -> ImportOutput:
    """Store what the export holds, or what was chosen of it"""
    batch = services.start(user=user, import_id=import_id, **body.model_dump(), now=timezone.now())
    return _shown(request, batch)


@api("post", f"{ONE}cancel/", ImportOutput, status=202, fails=[409], parameters=[IMPORT_ID])
def cancel_import(request: Request, user: User, import_id: str) -> ImportOutput:
    """Stop an import

    What has been stored stays, and can be undone.
    """
    _refuse_to_remove(request, services.get(user=user, import_id=import_id))
    return _shown(request, services.cancel(user=user, import_id=import_id))


@api("post", f"{ONE}undo/", ImportOutput, status=202, fails=[409], parameters=[IMPORT_ID])
def undo_import(request: Request, user: User, import_id: str, body: UndoWanted) -> ImportOutput:
    """Take back what an import brought

    409 `continued_since` where something was continued here; with `force` what was said here stays.
    """
    _refuse_to_remove(request, services.get(user=user, import_id=import_id))
    return _shown(request, services.undo(user=user, import_id=import_id, force=body.force, now=timezone.now()))


@api(
    "post",
    "sessions/append/",
    AppendOutput,
    fails=[400, 409, 413, 415, 429],
    is_bound=True,
    request=AppendedSession,
    required_scope=CAPTURE_SCOPE,
    takes_agents=True,
)
def append_session(request: Request, user: User) -> AppendOutput:
    """Append turns to an agent's session

    For hooks that send what was said to an agent while it runs. Needs the scope `capture`. A turn has the identity that
    an import of the session gives it: sent again, synced or imported later, it is stored once. What a product appends
    on one day is one import in the list of imports, and is undone there.
    """
    return append(request.data, user=user, project=getattr(request.auth, "project", ""), now=timezone.now())


def data_of(batch: Import, *, counts_vectors: bool = True, language: str = "en") -> dict[str, Any]:
    """An import with its owner's waiting vectors; call it while acting as that user."""
    vectors = waiting_vectors(batch.user, now=timezone.now()) if batch.stored and counts_vectors else None
    return ImportOutput.of(batch, vectors, language=language).as_data()


def _shown(request: Request, batch: Import) -> ImportOutput:
    return ImportOutput.of(batch, language=page_language(request.headers))


def _range(header: str, length: int) -> tuple[int, int]:
    """The first byte and the size of the whole. Raises `InvalidInput`."""
    found = RANGE.fullmatch(header.strip())
    if found is None:
        raise InvalidInput("Say which bytes these are: `Content-Range: bytes FIRST-LAST/TOTAL`.")
    first, last, total = (int(number) for number in found.groups())
    if last - first + 1 != length:
        raise InvalidInput(f"The Content-Range speaks of {last - first + 1:,} bytes, and {length:,} came.")
    return first, total
