"""The timeline and the map over REST, with the same data as their pages."""

from datetime import MAXYEAR, MINYEAR, date
from typing import Annotated, Any

from django.utils import timezone
from drf_spectacular.utils import OpenApiParameter
from pydantic import Field
from rest_framework.request import Request

from chat.rest.account import LABEL, LONGEST_LABEL, project_in
from core.errors import NotFound
from core.validation import Input, parse_day
from intake.models import User
from intake.operations import Operations
from memory.overview import atlas, reading
from memory.overview.atlas import MapOutput, MapTextOutput, PointsOutput
from memory.overview.reading import MonthListOutput, TimelineOutput

MONTH = OpenApiParameter("month", str, OpenApiParameter.PATH, description="As 2026-03.")
TEXT_ID = OpenApiParameter("text_id", int, OpenApiParameter.PATH)
MOST_SKIPPED = 1_000_000
PROJECT = OpenApiParameter(
    "project",
    LABEL,
    description="Only what belongs to this project; with a hyphen before the name everything but that. Closed projects "
    "are shown only by their own name.",
)
LARGEST_ID = 2**63 - 1


class MonthQuery(Input):
    skip: Annotated[
        int, Field(ge=0, le=MOST_SKIPPED, description="How many to pass over: the `more` of the list before.")
    ] = 0
    project: Annotated[str, Field(max_length=LONGEST_LABEL)] = ""


# Everything of a user by time (the timeline) and by subject (the map).
api = Operations(is_bound=False)


@api("get", "memory/timeline/", TimelineOutput, fails=[400], parameters=[PROJECT])
def read_timeline(user: User, request: Request) -> TimelineOutput:
    """What was talked about when"""
    return reading.read_timeline(user=user, now=timezone.now(), project=project_in(request))


@api("get", "memory/timeline/<str:month>/", MonthListOutput, parameters=[MONTH, PROJECT])
def read_month(user: User, request: Request, month: str, query: MonthQuery) -> MonthListOutput:
    """The chats, documents and records of a month"""
    return reading.read_month(user=user, first=month_of(month), skip=query.skip, project=project_in(request))


@api("get", "memory/map/", MapOutput, fails=[400], parameters=[PROJECT])
def read_map(user: User, request: Request) -> MapOutput:
    """Everything there is, by what it is about

    Asking has the map drawn, or brought up to date, in the background.
    """
    return atlas.read_atlas(user=user, now=timezone.now(), project=project_in(request))


@api("get", "memory/map/points/", PointsOutput, fails=[400], parameters=[PROJECT])
def read_map_points(user: User, request: Request) -> dict[str, Any]:
    """The points of the map"""
    return dict(atlas.read_points(user=user, project=project_in(request)))


@api("get", "memory/map/points/<str:text_id>/", MapTextOutput, parameters=[TEXT_ID])
def read_map_text(user: User, text_id: str) -> MapTextOutput:
    """A text on the map"""
    return atlas.read_text(user=user, text_id=text_id_of(text_id))


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
