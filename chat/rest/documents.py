"""MEMORY.md and the daily logs over REST: read, overwrite with `If-Match`, append."""

from collections.abc import Callable, Sequence
from datetime import date
from http import HTTPStatus
from typing import Annotated, Any
from uuid import UUID

from django.utils import timezone
from drf_spectacular.utils import OpenApiParameter, extend_schema, extend_schema_view
from pydantic import BaseModel, Field, RootModel
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.viewsets import ViewSet

from core.errors import InvalidInput, NotFound
from core.isolation.views import ActsAsCaller
from core.preconditions import ETAG, IF_KNOWN, IF_MATCH, IF_NONE_MATCH, as_etag, is_known, precondition_of
from core.responses import problems
from core.validation import (
    LIMIT,
    NO_DAY,
    Day,
    Input,
    PlainText,
    parse_day,
    text_limit,
    validate,
    validate_query,
)
from intake.accounts.identity import may_read, person_of
from intake.chats.temporary import project_named
from memory import documents
from memory.documents import NO_PROJECT_OF_ABOUT, DailyLogList, DocumentOutput
from memory.models.documents import ABOUT_ME, MAX_DOCUMENT_LENGTH, MAX_PROJECT_LENGTH, DocumentDay

PROJECT = OpenApiParameter(
    "project",
    {"type": "string", "maxLength": MAX_PROJECT_LENGTH},
    description="The document of this project (`me/app`, or a folder's name). Without: the general one.",
)
DATE = OpenApiParameter("date", date, OpenApiParameter.PATH, description="The log's day, YYYY-MM-DD.")


class DocumentBody(Input):
    """The body of a PUT: the whole document."""

    content: Annotated[
        str,
        Field(
            description=f"Markdown, at most {MAX_DOCUMENT_LENGTH:,} characters.",
            json_schema_extra=text_limit(MAX_DOCUMENT_LENGTH),
        ),
    ]


class AppendBody(Input):
    """The body of an append: whole lines."""

    text: Annotated[
        str,
        Field(
            description="Markdown. It begins on a line of its own.", json_schema_extra=text_limit(MAX_DOCUMENT_LENGTH)
        ),
    ]


class TakeBackBody(Input):
    """The lines that were added, as they were sent."""

    text: Annotated[str, Field(description="The text that was appended.", max_length=MAX_DOCUMENT_LENGTH)]
    at: Annotated[
        int | None,
        Field(ge=0, description="Where it began, in characters; it tells equal lines apart. Without it: the last."),
    ] = None


class AppendedOutput(BaseModel):
    """The response for a token that may write and not read: nothing that was stored before."""

    id: UUID
    text: Annotated[str, Field(description="What was appended.")]


class AppendAnswer(RootModel[DocumentOutput | AppendedOutput]):
    """The document as it stands; for a token that may not read, what was appended."""


class DailyLogQuery(Input):
    project: Annotated[PlainText, Field(max_length=MAX_PROJECT_LENGTH)] = ""
    before: Day | None = None
    limit: Annotated[int, Field(ge=1, le=100)] = 50


class DocumentViewSet(ActsAsCaller, ViewSet):
    """The endpoints that all documents share; a log's `date` comes from the address."""

    # A token that cannot read a document must not replace it.
    answers_with = ("PUT",)
    # Without a date.
    document: DocumentDay = None

    def retrieve(self, request: Request, date: str | None = None) -> Response:
        document = documents.read(user=person_of(request), day=self._day(date), project=self._project(request))
        if is_known(request, as_etag(document.state)):
            return Response(status=HTTPStatus.NOT_MODIFIED, headers=_headers(document))
        return _response(document)

    def update(self, request: Request, date: str | None = None) -> Response:
        user, day, project = person_of(request), self._day(date, or_complain=True), self._project(request)
        body, now = validate(DocumentBody, request.data), timezone.now()
        expected, is_new = precondition_of(request, exists=documents.exists(user=user, day=day, project=project))
        if is_new:
            made = documents.create(user=user, day=day, project=project, content=body.content, now=now)
            return _response(made, status=HTTPStatus.CREATED)
        return _response(
            documents.replace(user=user, day=day, project=project, content=body.content, expected=expected, now=now)
        )

    def destroy(self, request: Request, date: str | None = None) -> Response:
        user, day, project = person_of(request), self._day(date), self._project(request)
        if not documents.exists(user=user, day=day, project=project):
            raise NotFound
        expected, _ = precondition_of(request, exists=True)
        documents.delete(user=user, day=day, project=project, expected=expected)
        return Response(status=HTTPStatus.NO_CONTENT)

    def _day(self, date: str | None, *, or_complain: bool = False) -> DocumentDay:
        return self.document if date is None else _day(date, or_complain=or_complain)

    def _project(self, request: Request) -> str:
        project = _project(request)
        if project and self.document == ABOUT_ME:
            raise InvalidInput(errors={"project": [NO_PROJECT_OF_ABOUT]})
        return project


def _document_schema(
    name: str,
    what: str,
    *,
    can_append: bool,
    parameters: Sequence[OpenApiParameter] = (),
) -> Callable[[type[DocumentViewSet]], type[DocumentViewSet]]:
    """Describes the three endpoints of a kind of document."""
    append = "; append to leave the rest alone" if can_append else ""
    return extend_schema_view(
        retrieve=extend_schema(
            operation_id=f"read_{name}",
            summary=f"Read {what}",
            parameters=[*parameters, IF_KNOWN, ETAG],
            responses={200: DocumentOutput, 304: None, **problems(400, 401, 404, 503)},
        ),
        update=extend_schema(
            operation_id=f"write_{name}",
            summary=f"Write {what}",
            description=f"Whole. Where it exists, If-Match must say what has been read{append}.",
            parameters=[*parameters, IF_MATCH, IF_NONE_MATCH, ETAG],
            request=DocumentBody,
            responses={
                200: DocumentOutput,
                201: DocumentOutput,
                **problems(400, 401, 412, 413, 415, 428, 503),
            },
        ),
        destroy=extend_schema(
            operation_id=f"delete_{name}",
            summary=f"Delete {what}",
            parameters=[*parameters, IF_MATCH],
            responses={204: None, **problems(400, 401, 404, 412, 428, 503)},
        ),
    )


@_document_schema("memory", "MEMORY.md", can_append=True, parameters=[PROJECT])
class MemoryViewSet(DocumentViewSet):
    """MEMORY.md: what a person, or their agent, keeps in mind always."""

    takes_bound = ("GET", "PUT", "POST")

    @extend_schema(
        operation_id="append_to_memory",
        summary="Append to MEMORY.md",
        description="Appends whole lines in one step and keeps concurrent appends. Needs no If-Match. Creates the "
        "document if it does not exist.",
        parameters=[PROJECT, ETAG],
        request=AppendBody,
        responses={200: AppendAnswer, **problems(400, 401, 413, 415, 503)},
    )
    def append(self, request: Request) -> Response:
        return _append(request, day=None)


@_document_schema("about", "the page about the person", can_append=False)
class AboutViewSet(DocumentViewSet):
    """The page about the person, beside MEMORY.md."""

    document: DocumentDay = ABOUT_ME


@_document_schema("daily_log", "a day's log", can_append=True, parameters=[DATE, PROJECT])
class DailyLogViewSet(DocumentViewSet):
    """The log of a day."""

    takes_bound = ("GET", "PUT", "POST")

    @extend_schema(
        operation_id="list_daily_logs",
        summary="The daily logs there are",
        parameters=[
            PROJECT,
            OpenApiParameter("before", date, description="Only logs of days before this one."),
            LIMIT,
        ],
        responses={200: DailyLogList, **problems(400, 401, 503)},
    )
    # Not `list`: the schema would take it for an array.
    def look(self, request: Request) -> Response:
        requested = validate_query(DailyLogQuery, request)
        found = documents.list_daily_logs(
            user=person_of(request),
            project=project_named(requested.project, user=person_of(request)),
            before=requested.before,
            limit=requested.limit,
        )
        return Response(found.model_dump(mode="json"))

    @extend_schema(
        operation_id="append_to_daily_log",
        summary="Append to a day's log",
        description="Appends whole lines in one step and keeps concurrent appends. Needs no If-Match. Creates the log "
        "if it does not exist.",
        parameters=[DATE, PROJECT, ETAG],
        request=AppendBody,
        responses={200: AppendAnswer, **problems(400, 401, 413, 415, 503)},
    )
    def append(self, request: Request, date: str) -> Response:
        return _append(request, day=_day(date, or_complain=True))


class DailyLogTakeBackViewSet(ActsAsCaller, ViewSet):
    required_scope = "delete"
    answers_with = ("POST",)

    @extend_schema(
        operation_id="take_back_from_daily_log",
        summary="Undo an append to a day's log",
        description="Takes out exactly the lines that were added, and leaves the rest alone, whoever wrote since: it "
        "needs no If-Match. 412 if they are not there any more as they were added; 204 if nothing is left of the log.",
        parameters=[DATE, PROJECT, ETAG],
        request=TakeBackBody,
        responses={200: DocumentOutput, 204: None, **problems(400, 401, 412, 413, 415, 503)},
    )
    def take_back(self, request: Request, date: str) -> Response:
        day = _day(date, or_complain=True)
        body = validate(TakeBackBody, request.data)
        left = documents.take_back(
            user=person_of(request),
            day=day,
            project=_project(request),
            text=body.text,
            at=body.at,
            now=timezone.now(),
        )
        return Response(status=HTTPStatus.NO_CONTENT) if left is None else _response(left)


def _append(request: Request, *, day: date | None) -> Response:
    body = validate(AppendBody, request.data)
    document = documents.append(
        user=person_of(request), day=day, project=_project(request), text=body.text, now=timezone.now()
    )
    if not may_read(request):
        return Response(AppendedOutput(id=document.id, text=body.text).model_dump(mode="json"))
    return _response(document)


def _day(text: str | None, *, or_complain: bool = False) -> date | None:
    """None for MEMORY.md, which has no day. For a reader an invalid day has no log; a writer gets an error."""
    if text is None:
        return None
    try:
        return parse_day(text)
    except ValueError:
        raise (InvalidInput(errors={"date": [NO_DAY]}) if or_complain else NotFound()) from None


def _project(request: Request) -> str:
    """The label of the project that the address names; empty for the general document. Raises `InvalidInput`."""
    return project_named(request.query_params.get("project", ""), user=person_of(request))


def _response(document: DocumentOutput, *, status: int = HTTPStatus.OK) -> Response:
    return Response(document.model_dump(mode="json"), status=status, headers=_headers(document))


def _headers(document: DocumentOutput) -> dict[str, Any]:
    return {"ETag": as_etag(document.state)}
