"""The API of imports, and the stream of an import's progress.

`/api/v1/imports/`: creates, uploads, previews, starts and undoes imports, for a session or a token with `import`.
"""

import asyncio
import hashlib
import json
import re
from collections.abc import AsyncIterator, Mapping
from http import HTTPStatus
from typing import IO, Any

from asgiref.sync import sync_to_async
from django.db import connections
from django.http import HttpRequest
from django.http.response import HttpResponseBase
from django.utils import timezone
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework.parsers import BaseParser
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.viewsets import ViewSet

from core import rate_limits
from core.errors import AuthenticationRequired, InsufficientScope, InvalidInput, NotFound, RecollectError, TooLarge
from core.isolation.acting import acting_as
from core.isolation.views import ActsAsCaller
from core.responses import KEEP_ALIVE, as_recollect_error, event_stream, problems, streaming, user_by_token
from core.text import page_language, pg_value
from core.validation import LONGEST_REFERENCE, position_in_address, validate, validate_query
from imports import services
from imports.models import BEGUN_BY_LENGTH, ENTRY_KINDS, Import, ImportEntry
from imports.services import LONGEST_TITLE, MAX_CHUNK, EntryQuestion
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
from imports.storing.queue import waiting_vectors
from intake.accounts.identity import is_registered, person_of
from intake.models import User
from intake.revocation import IsAuthorized, SessionCheck, TokenCheck, while_authorized

# The scopes by their names, because tokens belong to an app above this one.
IMPORT_SCOPE = "import"
CAPTURE_SCOPE = "capture"
RANGE = re.compile(r"bytes (\d{1,16})-(\d{1,16})/(\d{1,16})", re.ASCII)
LONGEST_RANGE = 60
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


def _digest_of(token: Any) -> str:
    """A digest of the request's token; empty for a session."""
    digest = getattr(token, "digest", "")
    return hashlib.sha256(digest.encode()).hexdigest()[:BEGUN_BY_LENGTH] if digest else ""


def _began(token: Any) -> str:
    """The digest by which a token that may neither search nor read finds what it began; empty for other callers."""
    return "" if {"search", "read"} & set(getattr(token, "scopes", ())) else _digest_of(token)


def _refuse_others(user: User, token: Any, import_id: str) -> None:
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


class ImportsViewSet(ActsAsCaller, ViewSet):
    """The imports of a user; `imports.urls` gives the upload its own parser."""

    required_scope = IMPORT_SCOPE
    # Whether an agent that is connected by OAuth may call it.
    takes_agents = False
    takes_bound: tuple[str, ...] = ()

    def initial(self, request: Request, *args: Any, **kwargs: Any) -> None:
        super().initial(request, *args, **kwargs)
        if "import_id" in kwargs:
            _refuse_others(person_of(request), request.auth, kwargs["import_id"])

    @extend_schema(
        operation_id="list_imports",
        summary="Imports, and what can be imported",
        parameters=[OpenApiParameter("after", CURSOR, description="`more` of the page before.")],
        responses={200: ImportListOutput, **problems(400, 401, 404, 503)},
    )
    # Not `list`: the schema would take it for an array.
    def look(self, request: Request) -> Response:
        after = position_in_address(request.query_params.get("after"))
        page = services.list_imports(user=person_of(request), after=after, begun_by=_began(request.auth))
        return Response(
            ImportListOutput.of(page, language=page_language(request.headers)).model_dump(mode="json", by_alias=True)
        )

    @extend_schema(
        operation_id="begin_import",
        summary="Begin an import",
        description="Announces a file, whose bytes are then put to `content_url` in chunks.",
        request=ImportWanted,
        responses={201: ImportOutput, **problems(400, 401, 409, 413, 415, 503, 507)},
    )
    def create(self, request: Request) -> Response:
        requested = validate(ImportWanted, pg_value(request.data))
        batch = services.begin(
            user=person_of(request),
            filename=requested.filename,
            size=requested.bytes,
            product=requested.product,
            now=timezone.now(),
            begun_by=_digest_of(request.auth),
        )
        return _answer(request, batch, status=HTTPStatus.CREATED)

    @extend_schema(
        operation_id="read_import",
        summary="An import as it stands",
        parameters=[IMPORT_ID],
        responses={200: ImportOutput, **problems(401, 404, 503)},
    )
    def retrieve(self, request: Request, import_id: str) -> Response:
        user = person_of(request)
        batch = services.get(user=user, import_id=import_id)
        return Response(
            data_of(batch, language=page_language(request.headers)),
            headers={"Upload-Offset": str(batch.bytes_received)},
        )

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
    def upload(self, request: Request, import_id: str) -> Response:
        data = request.data
        if not isinstance(data, bytes) or not data:
            raise InvalidInput("Send the bytes of the chunk as application/octet-stream.")
        if len(data) > MAX_CHUNK:
            raise TooLarge(f"A chunk has at most {MAX_CHUNK:,} bytes.")
        first, total = _range(request.headers.get("Content-Range", ""), len(data))
        batch = services.receive(
            user=person_of(request), import_id=import_id, data=data, first=first, total=total, now=timezone.now()
        )
        return _answer(request, batch)

    @extend_schema(
        operation_id="preview_import",
        summary="What the export holds",
        parameters=[
            IMPORT_ID,
            OpenApiParameter("q", TITLE_SCHEMA, description="Only titles that contain this."),
            OpenApiParameter("status", str, enum=[*ImportEntry.Status.values, "stored"]),
            OpenApiParameter("kind", str, enum=list(ENTRY_KINDS)),
            OpenApiParameter("since", OpenApiTypes.DATETIME, description="Only what did not end before."),
            OpenApiParameter("after", {"type": "integer", "minimum": 0}, description="`more` of the page before."),
            OpenApiParameter("limit", {"type": "integer", "minimum": 1, "maximum": 500, "default": 100}),
        ],
        responses={200: PreviewOutput, **problems(400, 401, 404, 409, 503)},
    )
    def preview(self, request: Request, import_id: str) -> Response:
        batch = services.get(user=person_of(request), import_id=import_id)
        asked = validate_query(EntryQuestion, request)
        entries, more = services.entries_of(batch, asked)
        shown = PreviewOutput(
            import_=ImportOutput.of(batch, language=page_language(request.headers)),
            newest=services.newest_titles(batch, asked.since),
            comes_in=services.comes_in(batch, asked.since),
            items=[EntryOutput.of(entry) for entry in entries],
            more=None if more is None else str(more),
        )
        return Response(shown.model_dump(mode="json", by_alias=True))

    @extend_schema(
        operation_id="start_import",
        summary="Store what the export holds, or what was chosen of it",
        parameters=[IMPORT_ID],
        request=StartWanted,
        responses={202: ImportOutput, **CHANGING},
    )
    def start(self, request: Request, import_id: str) -> Response:
        requested = validate(StartWanted, request.data)
        batch = services.start(
            user=person_of(request),
            import_id=import_id,
            only=requested.only,
            leave_out=requested.leave_out,
            since=requested.since,
            now=timezone.now(),
        )
        return _answer(request, batch, status=HTTPStatus.ACCEPTED)

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
        return _answer(request, services.cancel(user=user, import_id=import_id), status=HTTPStatus.ACCEPTED)

    @extend_schema(
        operation_id="undo_import",
        summary="Take back what an import brought",
        description="409 `continued_since` where something was continued here; with `force` what was said here stays.",
        parameters=[IMPORT_ID],
        request=UndoWanted,
        responses={202: ImportOutput, **CHANGING},
    )
    def undo(self, request: Request, import_id: str) -> Response:
        requested = validate(UndoWanted, request.data)
        user = person_of(request)
        _refuse_to_remove(request, services.get(user=user, import_id=import_id))
        batch = services.undo(user=user, import_id=import_id, force=requested.force, now=timezone.now())
        return _answer(request, batch, status=HTTPStatus.ACCEPTED)

    @extend_schema(
        operation_id="append_session",
        summary="Append turns to an agent's session",
        description="For hooks that send what was said to an agent while it runs. Needs the scope `capture`. A turn "
        "has the identity that an import of the session gives it: sent again, synced or imported later, it is stored "
        "once. What a product appends on one day is one import in the list of imports, and is undone there.",
        request=AppendedSession,
        responses={200: AppendOutput, **problems(400, 401, 403, 409, 413, 415, 429, 503)},
    )
    def append(self, request: Request) -> Response:
        project = getattr(request.auth, "project", "")
        return Response(append(request.data, user=person_of(request), project=project, now=timezone.now()).as_data())


def data_of(batch: Import, *, counts_vectors: bool = True, language: str = "en") -> dict[str, Any]:
    """An import with its owner's waiting vectors; call it while acting as that user."""
    vectors = waiting_vectors(batch.user, now=timezone.now()) if batch.stored and counts_vectors else None
    return ImportOutput.of(batch, vectors, language=language).as_data()


def _answer(request: Request, batch: Import, *, status: int = HTTPStatus.OK) -> Response:
    return Response(ImportOutput.of(batch, language=page_language(request.headers)).as_data(), status=status)


def _range(header: str, length: int) -> tuple[int, int]:
    """The first byte and the size of the whole. Raises `InvalidInput`."""
    found = RANGE.fullmatch(header.strip())
    if found is None:
        raise InvalidInput("Say which bytes these are: `Content-Range: bytes FIRST-LAST/TOTAL`.")
    first, last, total = (int(number) for number in found.groups())
    if last - first + 1 != length:
        raise InvalidInput(f"The Content-Range speaks of {last - first + 1:,} bytes, and {length:,} came.")
    return first, total


# --- `GET /api/v1/imports/{id}/events/`: streams the import as server-sent events while it changes ---
# The row is read twice a second, in a thread that returns its connection at once: a stream lasts longer than a pool can
# wait.

LOOK_SECONDS = 0.5
# The number of reads between two counts of the waiting vectors, which may be a hundred thousand rows.
LOOKS_PER_COUNT = 20
KEEP_ALIVE_SECONDS = 15


@streaming("GET")
async def import_events(request: HttpRequest, import_id: str) -> HttpResponseBase:
    """For a token with the scope `import`, or a session."""
    user, is_authorized = await sync_to_async(_admit)(request, import_id)
    lease = await sync_to_async(rate_limits.begin_stream)(request, user_id=user.pk)
    first = await sync_to_async(_look, thread_sensitive=False)(user, import_id)
    return event_stream(while_authorized(_events(user, import_id, first), is_authorized), lease)


def _admit(request: HttpRequest, import_id: str) -> tuple[User, IsAuthorized]:
    if request.headers.get("Authorization"):
        lacking = f"This token lacks the scope `{IMPORT_SCOPE}`."
        user, token = user_by_token(request, scopes={IMPORT_SCOPE}, lacking=lacking)
        _refuse_others(user, token, import_id)
        is_authorized: IsAuthorized = TokenCheck(token)
    elif is_registered(request) and isinstance(request.user, User):
        user = request.user
        is_authorized = SessionCheck(request.session.session_key, user.pk)
    else:
        raise AuthenticationRequired
    rate_limits.take_for("api", user_id=user.pk, address=rate_limits.client_address(request))
    return user, is_authorized


async def _events(user: User, import_id: str, first: dict[str, Any]) -> AsyncIterator[bytes]:
    number, silent, looks, shown = 1, 0.0, 0, first
    yield _encode(number, first)
    while not shown["is_at_rest"]:
        await asyncio.sleep(LOOK_SECONDS)
        try:
            looks += 1
            before = None if looks % LOOKS_PER_COUNT == 0 else shown["import"]
            now = await sync_to_async(_look, thread_sensitive=False)(user, import_id, before)
        except NotFound:
            return
        except Exception as error:
            if not isinstance(as_recollect_error(error), RecollectError):
                raise
            # The database is unavailable for the moment.
            continue
        if now != shown:
            shown, silent, number = now, 0.0, number + 1
            yield _encode(number, shown)
        elif (silent := silent + LOOK_SECONDS) >= KEEP_ALIVE_SECONDS:
            silent = 0.0
            yield KEEP_ALIVE


def _look(user: User, import_id: str, before: dict[str, Any] | None = None) -> dict[str, Any]:
    """The import as it is now; its waiting vectors are those of `before`, if it is not at rest."""
    try:
        with acting_as(user):
            batch = services.get(user=user, import_id=import_id)
            data = data_of(batch, counts_vectors=before is None or batch.is_at_rest)
            if before is not None and not batch.is_at_rest:
                data["vectors"] = before["vectors"]
            return {"import": data, "is_at_rest": batch.is_at_rest}
    finally:
        connections.close_all()


def _encode(number: int, shown: dict[str, Any]) -> bytes:
    body = json.dumps(shown["import"], ensure_ascii=False, separators=(",", ":"))
    return f"id: {number}\nevent: import\ndata: {body}\n\n".encode(errors="replace")
