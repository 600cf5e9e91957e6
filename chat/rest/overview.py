"""The timeline and the map over REST, with the same data as their pages."""

from datetime import MAXYEAR, MINYEAR, date
from typing import Annotated

from django.utils import timezone
from drf_spectacular.utils import OpenApiParameter, extend_schema
from pydantic import BaseModel, Field
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.viewsets import ViewSet

from chat.rest.account import LABEL, LONGEST_LABEL, project_in
from core.errors import NotFound
from core.isolation.views import ActsAsCaller
from core.responses import problems
from core.validation import Input, parse_day, validate_query
from intake.accounts.identity import person_of
from memory.overview import atlas, reading
from memory.overview.atlas import MapOutput, MapTextOutput, PointsOutput
from memory.overview.reading import MonthListOutput, TimelineOutput

MONTH = OpenApiParameter("month", str, OpenApiParameter.PATH, description="As 2026-03.")
TEXT_ID = OpenApiParameter("text_id", int, OpenApiParameter.PATH)
MOST_SKIPPED = 1_000_000
SKIP = OpenApiParameter(
    "skip",
    {"type": "integer", "minimum": 0, "maximum": MOST_SKIPPED, "default": 0},
    description="How many to pass over: the `more` of the list before.",
)
PROJECT = OpenApiParameter(
    "project",
    LABEL,
    description="Only what belongs to this project; with a hyphen before the name everything but that. Closed projects "
    "are shown only by their own name.",
)
LARGEST_ID = 2**63 - 1


class MonthQuery(Input):
    skip: Annotated[int, Field(ge=0, le=MOST_SKIPPED)] = 0
    project: Annotated[str, Field(max_length=LONGEST_LABEL)] = ""


class OverviewViewSet(ActsAsCaller, ViewSet):
    """Everything of a user by time (the timeline) and by subject (the map)."""

    @extend_schema(
        operation_id="read_timeline",
        summary="What was talked about when",
        parameters=[PROJECT],
        responses={200: TimelineOutput, **problems(400, 401, 503)},
    )
    def timeline(self, request: Request) -> Response:
        project = project_in(request)
        return _response(reading.read_timeline(user=person_of(request), now=timezone.now(), project=project))

    @extend_schema(
        operation_id="read_month",
        summary="The chats, documents and records of a month",
        parameters=[MONTH, SKIP, PROJECT],
        responses={200: MonthListOutput, **problems(400, 401, 404, 503)},
    )
    def month(self, request: Request, month: str) -> Response:
        requested = validate_query(MonthQuery, request)
        first, project = month_of(month), project_in(request)
        return _response(reading.read_month(user=person_of(request), first=first, skip=requested.skip, project=project))

    @extend_schema(
        operation_id="read_map",
        summary="Everything there is, by what it is about",
        description="Asking has the map drawn, or brought up to date, in the background.",
        parameters=[PROJECT],
        responses={200: MapOutput, **problems(400, 401, 503)},
    )
    def map(self, request: Request) -> Response:
        project = project_in(request)
        return _response(atlas.read_atlas(user=person_of(request), now=timezone.now(), project=project))

    @extend_schema(
        operation_id="read_map_points",
        summary="The points of the map",
        parameters=[PROJECT],
        responses={200: PointsOutput, **problems(400, 401, 503)},
    )
    def points(self, request: Request) -> Response:
        found = atlas.read_points(user=person_of(request), project=project_in(request))
        return Response(dict(found))

    @extend_schema(
        operation_id="read_map_text",
        summary="A text on the map",
        parameters=[TEXT_ID],
        responses={200: MapTextOutput, **problems(401, 404, 503)},
    )
    def text(self, request: Request, text_id: str) -> Response:
        return _response(atlas.read_text(user=person_of(request), text_id=text_id_of(text_id)))


def month_of(text: str) -> date:
    """The first day of a month in the form 2026-03. Raises `NotFound` for anything else."""
    try:
        first = parse_day(f"{text}-01")
    except ValueError:
        raise NotFound from None
    # A zone cannot tell the moment at which the first or the last year begins or ends.
    if not MINYEAR < first.year < MAXYEAR:
        raise NotFound
    return first


def text_id_of(text: str) -> int:
    """Raises `NotFound` for an invalid id, like for one that does not exist."""
    if not (text.isascii() and text.isdecimal()) or len(text) > len(str(LARGEST_ID)) or int(text) > LARGEST_ID:
        raise NotFound
    return int(text)


def _response(found: BaseModel) -> Response:
    return Response(found.model_dump(mode="json", by_alias=True))
