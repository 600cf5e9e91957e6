"""The timeline and the map over REST, with the same data as their pages."""

from datetime import MAXYEAR, MINYEAR, date
from typing import Annotated
from uuid import UUID

from django.utils import timezone
from drf_spectacular.utils import OpenApiParameter, extend_schema
from pydantic import AwareDatetime, BaseModel, BeforeValidator, Field
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.viewsets import ViewSet

from core.errors import NotFound
from core.validation import Input, parse_day, validate_query
from intake.accounts.identity import person_of
from intake.rest.account import ActsAsCaller
from intake.rest.shapes import problems
from memory.models import Corpus
from memory.models.embeddings import SIDE
from memory.overview import reading
from memory.overview.reading import MapState

MONTH = OpenApiParameter("month", str, OpenApiParameter.PATH, description="As 2026-03.")
TEXT_ID = OpenApiParameter("text_id", int, OpenApiParameter.PATH)
MOST_SKIPPED = 1_000_000
SKIP = OpenApiParameter(
    "skip",
    {"type": "integer", "minimum": 0, "maximum": MOST_SKIPPED, "default": 0},
    description="How many to pass over: the `more` of the list before.",
)
ON_MAP = Annotated[int, Field(ge=0, le=SIDE)]
LARGEST_ID = 2**63 - 1


class WordOutput(BaseModel):
    """A word as a text has it, and how many of the month's texts have it, inflected or not."""

    word: str
    texts: int


class MonthOutput(BaseModel):
    """What there is of a month; `words` tell it from the other months, the most telling first."""

    month: Annotated[str, Field(validation_alias="first"), BeforeValidator(lambda first: f"{first:%Y-%m}")]
    turns: int
    daily_logs: Annotated[int, Field(validation_alias="logs")]
    records: int
    notes: int
    words: list[WordOutput]


class TimelineOutput(BaseModel):
    """Every month from the first with a text to the last, oldest first."""

    months: list[MonthOutput]
    drawing: Annotated[
        bool,
        Field(
            validation_alias="is_drawing", description="The words have not been looked for yet: ask again in a moment."
        ),
    ]


class PlaceOutput(BaseModel):
    """Where a text is read: a chat and a turn in it, a document, or a record."""

    conversation_id: UUID | None = None
    turn_number: int | None = None
    document_id: UUID | None = None
    record_id: UUID | None = None


SourceCorpus = Annotated[Corpus, Field(validation_alias="corpus")]
ReadAt = Annotated[PlaceOutput, Field(validation_alias="reference")]


class MonthEntryOutput(BaseModel):
    """A chat, document or record of a month; `turns` are those of a chat in this month."""

    source: SourceCorpus
    title: str
    at: AwareDatetime
    turns: int
    place: ReadAt


class MonthListOutput(BaseModel):
    """The latest first."""

    entries: list[MonthEntryOutput]
    more: Annotated[
        int | None, Field(description="Ask again with this `skip` for those behind these; null at the end.")
    ]


class MapTextOutput(BaseModel):
    """A text on the map; `snippet` is how it begins."""

    id: int
    source: SourceCorpus
    title: str
    said_at: AwareDatetime
    snippet: str
    place: ReadAt


class ClusterOutput(BaseModel):
    """Texts that are alike. `x` and `y`: its middle; `words` tell it from the others, the most telling first."""

    cluster: Annotated[int, Field(validation_alias="number")]
    name: str
    texts: int
    x: ON_MAP
    y: ON_MAP
    words: list[str]
    newest: list[MapTextOutput]


class MapOutput(BaseModel):
    """The clusters, the largest first. `texts` counts all that there are, `placed` those that are on the map."""

    state: MapState
    texts: int
    placed: int
    drawn_at: AwareDatetime | None
    side: Annotated[int, Field(description="Coordinates are whole numbers from 0 to this, `y` downwards.")] = SIDE
    clusters: list[ClusterOutput]


class PointsOutput(BaseModel):
    """Every point, the oldest first, a list for each thing: point k is `id[k]`, `x[k]`, `y[k]` and so on."""

    id: list[int]
    x: list[ON_MAP]
    y: list[ON_MAP]
    cluster: list[int]
    source: Annotated[list[int], Field(description="A place in `sources`.")]
    day: Annotated[list[int], Field(description="Days since 1970-01-01, in UTC.")]
    sources: list[Corpus]


class MonthQuery(Input):
    skip: Annotated[int, Field(ge=0, le=MOST_SKIPPED)] = 0


class OverviewViewSet(ActsAsCaller, ViewSet):
    """Everything of a user by time (the timeline) and by subject (the map)."""

    @extend_schema(
        operation_id="read_timeline",
        summary="What was talked about when",
        responses={200: TimelineOutput, **problems(401, 503)},
    )
    def timeline(self, request: Request) -> Response:
        return _response(TimelineOutput, reading.read_timeline(user=person_of(request), now=timezone.now()))

    @extend_schema(
        operation_id="read_month",
        summary="The chats, documents and records of a month",
        parameters=[MONTH, SKIP],
        responses={200: MonthListOutput, **problems(400, 401, 404, 503)},
    )
    def month(self, request: Request, month: str) -> Response:
        wanted = validate_query(MonthQuery, request)
        found = reading.read_month(user=person_of(request), first=month_of(month), skip=wanted.skip)
        return _response(MonthListOutput, found)

    @extend_schema(
        operation_id="read_map",
        summary="Everything there is, by what it is about",
        description="Asking has the map drawn, or brought up to date, in the background.",
        responses={200: MapOutput, **problems(401, 503)},
    )
    def map(self, request: Request) -> Response:
        return _response(MapOutput, reading.read_atlas(user=person_of(request), now=timezone.now()))

    @extend_schema(
        operation_id="read_map_points",
        summary="The points of the map",
        responses={200: PointsOutput, **problems(401, 503)},
    )
    def points(self, request: Request) -> Response:
        found = reading.read_points(user=person_of(request))
        # Unvalidated: validating hundreds of thousands of our own numbers would take longer than reading them.
        return Response({name: getattr(found, name) for name in PointsOutput.model_fields})

    @extend_schema(
        operation_id="read_map_text",
        summary="A text on the map",
        parameters=[TEXT_ID],
        responses={200: MapTextOutput, **problems(401, 404, 503)},
    )
    def text(self, request: Request, text_id: str) -> Response:
        return _response(MapTextOutput, reading.read_text(user=person_of(request), text_id=text_id_of(text_id)))


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


def _response(shape: type[BaseModel], found: object) -> Response:
    return Response(shape.model_validate(found, from_attributes=True).model_dump(mode="json"))
