"""Memory records over REST: create, list, read, change, delete; the tool `search_memory` searches them. And what is
proposed to be kept: list, decide, undo.
"""

from datetime import date
from http import HTTPStatus
from typing import Annotated, Any, Literal
from uuid import UUID

from django.utils import timezone
from drf_spectacular.utils import OpenApiExample, OpenApiParameter, extend_schema
from pydantic import BaseModel, Field, create_model
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.viewsets import ViewSet

from core.errors import InvalidInput
from core.ids import parse_id
from core.isolation.views import ActsAsCaller
from core.responses import ETAG, IF_MATCH, as_etag, precondition_of, problems
from core.validation import LIMIT, LONGEST_REFERENCE, Input, PlainText, Position, validate, validate_query
from intake.accounts.identity import person_of
from memory import proposals, records
from memory.models.documents import (
    MAX_LABEL_LENGTH,
    MAX_PROJECT_LENGTH,
    MAX_RECORD_LENGTH,
    MAX_TAGS,
    PROPOSAL_STATES,
    WAITING,
)
from memory.proposals import ProposalOutput
from memory.records import CONTENT_LIMIT, LABEL_LIMIT, PROJECT_LIMIT, TAGS_LIMIT, RecordOutput, RecordTags

MAX_TURN = 2**31 - 1
LABEL = {"type": "string", "maxLength": MAX_LABEL_LENGTH}
PROJECT = {"type": "string", "maxLength": MAX_PROJECT_LENGTH}
CURSOR = {"type": "string", "maxLength": LONGEST_REFERENCE}
RECORD_ID = OpenApiParameter("record_id", UUID, OpenApiParameter.PATH)
PROPOSAL_ID = OpenApiParameter("proposal_id", UUID, OpenApiParameter.PATH)


class RecordFacts(Input):
    """What a record may say beside its text. In a change, null clears one."""

    replaces: Annotated[
        UUID | None,
        Field(description="An own record that this one takes the place of: searches leave that one out from now on."),
    ] = None
    valid_from: Annotated[
        date | None, Field(alias="validFrom", description="The first day on which it holds, YYYY-MM-DD.")
    ] = None
    valid_until: Annotated[
        date | None,
        Field(alias="validUntil", description="The last day on which it holds; later, searches leave it out."),
    ] = None
    done: Annotated[bool | None, Field(description="Of a to-do: whether it is done.")] = None
    source_conversation: Annotated[
        UUID | None, Field(alias="sourceConversation", description="The chat that it is kept from.")
    ] = None
    source_turn: Annotated[
        int | None, Field(alias="sourceTurn", ge=1, le=MAX_TURN, description="The turn of that chat.")
    ] = None

    @property
    def facts(self) -> records.Facts:
        """Those that the body has."""
        return self.model_dump(include=RecordFacts.model_fields.keys() & self.model_fields_set)

    @property
    def held(self) -> dict[str, Any]:
        """The other fields."""
        return self.model_dump(exclude=set(RecordFacts.model_fields))


class RecordBody(RecordFacts):
    """The body of a new record."""

    content: Annotated[str, CONTENT_LIMIT, Field(description=f"At most {MAX_RECORD_LENGTH:,} characters.")]
    type: Annotated[
        str,
        LABEL_LIMIT,
        Field(description=f"What kind of record it is, in at most {MAX_LABEL_LENGTH} characters."),
    ] = records.DEFAULT_TYPE
    project_id: Annotated[
        str,
        PROJECT_LIMIT,
        Field(description=f"The project it belongs to, in at most {MAX_PROJECT_LENGTH} characters; empty for none."),
    ] = ""
    tags: Annotated[
        RecordTags,
        TAGS_LIMIT,
        Field(description=f"At most {MAX_TAGS}, each of at most {MAX_LABEL_LENGTH} characters."),
    ] = []


class RecordChange(RecordFacts):
    """Fields to change. Omitted fields keep their value."""

    content: Annotated[str | None, CONTENT_LIMIT] = None
    type: Annotated[str | None, LABEL_LIMIT] = None
    project_id: Annotated[str | None, PROJECT_LIMIT] = None
    tags: Annotated[RecordTags | None, TAGS_LIMIT] = None


class RecordList(BaseModel):
    """Newest first."""

    records: list[RecordOutput]
    after: Annotated[
        str | None, Field(description="Ask again with this `after` for the records after these; null at the end.")
    ]


class RecordQuery(Input):
    type: Annotated[PlainText | None, Field(max_length=MAX_LABEL_LENGTH)] = None
    project_id: Annotated[PlainText | None, Field(max_length=MAX_PROJECT_LENGTH)] = None
    tag: Annotated[PlainText | None, Field(max_length=MAX_LABEL_LENGTH)] = None
    include_replaced: bool = False
    after: Annotated[str | None, Field(max_length=LONGEST_REFERENCE)] = None
    limit: Annotated[int, Field(ge=1, le=records.MAX_RECORDS)] = 50


Decision = Annotated[
    Literal["accepted", "rejected", "never"],
    Field(description="`rejected`: the same is not proposed again; `never`: nothing about this."),
]
ProposalState = Literal["waiting", "accepted", "rejected", "never"]
Reference = Annotated[str | None, Field(max_length=LONGEST_REFERENCE)]
PROPOSAL_CHANGE = create_model(
    "ProposalChange",
    __base__=Input,
    __doc__="A decision, and what to change in the record that accepting saves.",
    state=(Decision, ...),
    content=(Annotated[str | None, CONTENT_LIMIT], None),
    type=(Annotated[str | None, LABEL_LIMIT], None),
    project_id=(Annotated[str | None, PROJECT_LIMIT], None),
)
PROPOSAL_LIST = create_model(
    "ProposalList",
    __doc__="Newest first. `after`: ask again with it for those after these; null at the end.",
    proposals=(list[ProposalOutput], ...),
    after=(str | None, ...),
)
PROPOSAL_QUERY = create_model(
    "ProposalQuery",
    __base__=Input,
    state=(ProposalState, WAITING),
    conversation=(Reference, None),
    project=(Annotated[PlainText | None, Field(max_length=MAX_PROJECT_LENGTH)], None),
    after=(Reference, None),
    limit=(Annotated[int, Field(ge=1, le=records.MAX_RECORDS)], 50),
)

EXAMPLE = OpenApiExample(
    "A decision",
    value={
        "content": "We keep vectors in PostgreSQL: one database to back up, and its transactions cover the index.",
        "type": "ARCHITECTURAL_DECISION",
        "project_id": "recollect",
        "tags": ["database"],
    },
    request_only=True,
)


class RecordViewSet(ActsAsCaller, ViewSet):
    # A token that cannot read a record must not change it.
    answers_with = ("PATCH",)
    takes_bound = ("GET", "POST", "PATCH")

    @extend_schema(
        operation_id="list_records",
        summary="The memory records there are",
        parameters=[
            OpenApiParameter("type", LABEL, description="Only records of this type."),
            OpenApiParameter("project_id", PROJECT, description="Only records of this project; empty: of none."),
            OpenApiParameter("tag", LABEL, description="Only records with this tag."),
            OpenApiParameter(
                "include_replaced",
                bool,
                description="Also records that another one replaces, or whose last day is over.",
            ),
            OpenApiParameter("after", CURSOR, description="Where the last list was left."),
            LIMIT,
        ],
        responses={200: RecordList, **problems(400, 401, 503)},
    )
    # Not `list`: the schema would take it for an array.
    def look(self, request: Request) -> Response:
        requested = validate_query(RecordQuery, request)
        found = records.list_records(
            user=person_of(request),
            type=requested.type,
            project_id=requested.project_id,
            tag=requested.tag,
            include_replaced=requested.include_replaced,
            after=_position(requested.after),
            limit=requested.limit,
        )
        return Response({"records": [_data(row) for row in found.rows], "after": _as_text(found.more)})

    @extend_schema(
        operation_id="create_record",
        summary="Create a record",
        request=RecordBody,
        responses={201: RecordOutput, **problems(400, 401, 404, 413, 415, 503)},
        examples=[EXAMPLE],
    )
    def create(self, request: Request) -> Response:
        body = validate(RecordBody, request.data)
        user = person_of(request)
        made = records.create(user=user, now=timezone.now(), facts=body.facts, **body.held)
        return Response(_data(made), status=HTTPStatus.CREATED)

    @extend_schema(
        operation_id="read_record",
        summary="Read a memory record",
        parameters=[RECORD_ID, ETAG],
        responses={200: RecordOutput, **problems(401, 404, 503)},
    )
    def retrieve(self, request: Request, record_id: str) -> Response:
        return _response(records.read(user=person_of(request), record_id=parse_id(record_id)))

    @extend_schema(
        operation_id="change_record",
        summary="Change a memory record",
        description="Omitted fields keep their value; null clears `replaces`, `validFrom`, `validUntil` and `done`. "
        "With If-Match, only if the record still has that ETag.",
        parameters=[RECORD_ID, IF_MATCH, ETAG],
        request=RecordChange,
        responses={200: RecordOutput, **problems(400, 401, 404, 412, 413, 415, 503)},
    )
    def partial_update(self, request: Request, record_id: str) -> Response:
        body = validate(RecordChange, request.data)
        changed = records.rewrite(
            user=person_of(request),
            record_id=parse_id(record_id),
            expected=precondition_of(request, exists=False)[0],
            now=timezone.now(),
            facts=body.facts,
            **body.held,
        )
        return _response(changed)

    @extend_schema(
        operation_id="delete_record",
        summary="Delete a memory record",
        parameters=[RECORD_ID],
        responses={204: None, **problems(401, 404, 503)},
    )
    def destroy(self, request: Request, record_id: str) -> Response:
        records.delete(user=person_of(request), record_id=parse_id(record_id))
        return Response(status=HTTPStatus.NO_CONTENT)

    # --- What is proposed, and decided by its person ---

    @extend_schema(
        operation_id="list_proposals",
        summary="The proposals there are",
        description="Things that may be worth keeping. No search finds one before it is accepted.",
        parameters=[
            OpenApiParameter("state", enum=PROPOSAL_STATES, description="`waiting` by default."),
            OpenApiParameter("conversation", UUID, description="Only those from this chat."),
            OpenApiParameter("project", PROJECT, description="Only those of this project."),
            OpenApiParameter("after", CURSOR, description="Where the last list was left."),
            LIMIT,
        ],
        responses={200: PROPOSAL_LIST, **problems(400, 401, 404, 503)},
    )
    def look_at_proposals(self, request: Request) -> Response:
        requested = validate_query(PROPOSAL_QUERY, request).model_dump()
        chat = requested["conversation"]
        found = proposals.list_proposals(
            user=person_of(request),
            states=[requested["state"]],
            conversation=None if chat is None else parse_id(chat),
            project=requested["project"],
            after=_position(requested["after"]),
            limit=requested["limit"],
        )
        return Response({"proposals": [_data(row) for row in found.rows], "after": _as_text(found.more)})

    @extend_schema(
        operation_id="decide_proposal",
        summary="Accept or reject a proposal",
        description="Accepting saves a record, with the fields that are named here, and the response names it. 412 if "
        "another decision was made: undo that first.",
        parameters=[PROPOSAL_ID],
        request=PROPOSAL_CHANGE,
        responses={200: ProposalOutput, **problems(400, 401, 404, 412, 413, 415, 503)},
    )
    def decide(self, request: Request, proposal_id: str) -> Response:
        body = validate(PROPOSAL_CHANGE, request.data).model_dump()
        user, key = person_of(request), parse_id(proposal_id)
        decided = proposals.decide(user=user, proposal_id=key, now=timezone.now(), **body)
        return Response(_data(decided))

    @extend_schema(
        operation_id="undo_decision",
        summary="Undo a decision",
        description="It waits again. The record of an accepted one is deleted, and what that replaced holds again.",
        parameters=[PROPOSAL_ID],
        responses={204: None, **problems(401, 404, 503)},
    )
    def undecide(self, request: Request, proposal_id: str) -> Response:
        proposals.undo(user=person_of(request), proposal_id=parse_id(proposal_id))
        return Response(status=HTTPStatus.NO_CONTENT)


def _response(record: RecordOutput) -> Response:
    return Response(_data(record), headers={"ETag": as_etag(record.state)})


def _data(record: RecordOutput | ProposalOutput) -> dict[str, Any]:
    """Without the facts that the record does not have."""
    return record.model_dump(mode="json", by_alias=True, exclude_none=True)


def _position(text: str | None) -> Position | None:
    try:
        return None if text is None else Position.parse(text)
    except ValueError:
        raise InvalidInput(errors={"after": ["This is not where a list was left."]}) from None


def _as_text(position: Position | None) -> str | None:
    return None if position is None else str(position)
