"""MEMORY.md, the page about the person and the daily logs over REST: read, overwrite with `If-Match`, append."""

from collections.abc import Callable, Sequence
from datetime import date
from http import HTTPStatus
from typing import Annotated, Any
from uuid import UUID

from django.utils import timezone
from drf_spectacular.utils import OpenApiParameter
from pydantic import BaseModel, Field, RootModel
from rest_framework.request import Request
from rest_framework.response import Response

from core.errors import InvalidInput, NotFound
from core.preconditions import ETAG, IF_KNOWN, IF_MATCH, IF_NONE_MATCH, as_etag, is_known, precondition_of
from core.validation import NO_DAY, Day, Input, PlainText, parse_day, text_limit
from intake.accounts.identity import may_read, person_of
from intake.chats.temporary import project_named
from intake.models import User
from intake.operations import Operations
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
    before: Annotated[Day | None, Field(description="Only logs of days before this one.")] = None
    limit: Annotated[int, Field(ge=1, le=100, description="How many at most.")] = 50


DAILY_LOGS = "memory/documents/daily-logs/"
api = Operations()


@api("get", DAILY_LOGS, DailyLogList, parameters=[PROJECT])
def list_daily_logs(user: User, query: DailyLogQuery) -> DailyLogList:
    """The daily logs there are"""
    project = project_named(query.project, user=user)
    return documents.list_daily_logs(user=user, project=project, before=query.before, limit=query.limit)


def _offer(route: str, name: str, what: str, is_: str, parameters: Sequence[OpenApiParameter], *, noun: str) -> None:
    """The operations of a kind of document. `noun`: what an append begins; the page about the person takes none."""

    def where(request: Request, date: str, *, writes: bool = False) -> dict[str, Any]:
        day: DocumentDay = _day(date, writes=writes) if noun else ABOUT_ME
        project = _project(request)
        if project and not noun:
            raise InvalidInput(errors={"project": [NO_PROJECT_OF_ABOUT]})
        return {"user": person_of(request), "day": day, "project": project}

    def read(request: Request, date: str = "") -> Response:
        document = documents.read(**where(request, date))
        etag = as_etag(document.state)
        return Response(status=304, headers={"ETag": etag}) if is_known(request, etag) else _response(document)

    def write(request: Request, body: DocumentBody, date: str = "") -> Response:
        place = where(request, date, writes=True)
        about: dict[str, Any] = {**place, "content": body.content, "now": timezone.now()}
        expected, is_new = precondition_of(request, exists=documents.exists(**place))
        if is_new:
            return _response(documents.create(**about), status=HTTPStatus.CREATED)
        return _response(documents.replace(**about, expected=expected))

    def delete(request: Request, date: str = "") -> None:
        place = where(request, date)
        if not documents.exists(**place):
            raise NotFound
        documents.delete(**place, expected=precondition_of(request, exists=True)[0])

    def append(request: Request, body: AppendBody, date: str = "") -> Response | AppendedOutput:
        document = documents.append(**where(request, date, writes=True), text=body.text, now=timezone.now())
        return _response(document) if may_read(request) else AppendedOutput(id=document.id, text=body.text)

    def offer(function: Callable[..., Any], verb: str, method: str, says: str, **about: Any) -> None:
        function.__name__ = f"{verb}_{name}"
        function.__doc__ = f"{verb.replace('_', ' ').capitalize()} {what}\n\n{says}"
        about["parameters"] += parameters
        api(method, about.pop("route", route), about.pop("output", DocumentOutput), **about)(function)

    has_no_project = {} if noun else {"is_bound": False}
    seen: dict[str, Any] = {"parameters": [IF_KNOWN, ETAG], "also": {304: None}, "fails": [400, 404]}
    offer(read, "read", "get", is_, **seen, **has_no_project)
    instead = "; append to leave the rest alone" if noun else ""
    says = f"Whole. Where it exists, If-Match must say what has been read{instead}."
    written = {"parameters": [IF_MATCH, IF_NONE_MATCH, ETAG], "also": {201: DocumentOutput}, "fails": [412, 428]}
    # A token that cannot read a document must not replace it.
    offer(write, "write", "put", says, has_more=True, **written, **has_no_project)
    gone: dict[str, Any] = {"output": None, "status": 204, "fails": [400, 404, 412, 428], "is_bound": False}
    offer(delete, "delete", "delete", is_, parameters=[IF_MATCH], **gone)
    if noun:
        says = "Appends whole lines in one step and keeps concurrent appends. Needs no If-Match. "
        says += f"Creates the {noun} if it does not exist."
        appended = {"route": f"{route}append/", "output": AppendAnswer, "parameters": [ETAG]}
        offer(append, "append_to", "post", says, **appended)


of_memory = "MEMORY.md: what a person, or their agent, keeps in mind always."
_offer("memory/documents/memory/", "memory", "MEMORY.md", of_memory, [PROJECT], noun="document")
beside_it = "The page about the person, beside MEMORY.md."
_offer("memory/documents/about/", "about", "the page about the person", beside_it, [], noun="")
_offer(f"{DAILY_LOGS}<str:date>/", "daily_log", "a day's log", "The log of a day.", [DATE, PROJECT], noun="log")


@api(
    "post",
    f"{DAILY_LOGS}<str:date>/take-back/",
    DocumentOutput,
    also={204: None},
    fails=[412],
    has_more=True,
    is_bound=False,
    required_scope="delete",
    parameters=[DATE, PROJECT, ETAG],
)
def take_back_from_daily_log(request: Request, user: User, date: str, body: TakeBackBody) -> Response:
    """Undo an append to a day's log

    The operation removes exactly the lines that were added. What anybody has written since stays, so the request needs
    no If-Match. The answer is 412 if the lines are no longer there as they were added, and 204 if nothing is left.
    """
    about: dict[str, Any] = {"day": _day(date, writes=True), "project": _project(request), **body.model_dump()}
    left = documents.take_back(user=user, now=timezone.now(), **about)
    return Response(status=HTTPStatus.NO_CONTENT) if left is None else _response(left)


def _day(text: str, *, writes: bool) -> date | None:
    """None for MEMORY.md, which has no day. For a reader an invalid day has no log; a writer gets an error."""
    try:
        return parse_day(text) if text else None
    except ValueError:
        raise (InvalidInput(errors={"date": [NO_DAY]}) if writes else NotFound()) from None


def _project(request: Request) -> str:
    """The label of the project that the address names; empty for the general document. Raises `InvalidInput`."""
    return project_named(request.query_params.get("project", ""), user=person_of(request))


def _response(document: DocumentOutput, *, status: int = HTTPStatus.OK) -> Response:
    return Response(document.model_dump(mode="json"), status=status, headers={"ETag": as_etag(document.state)})
