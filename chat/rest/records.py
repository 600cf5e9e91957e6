"""Memory records over REST: create, list, read, change, delete; the tool `search_memory` searches them. And what is
proposed to be kept: list, decide, undo.
"""

from typing import Annotated, Any, Literal
from uuid import UUID

from django.utils import timezone
from pydantic import BaseModel, Field, create_model
from rest_framework.request import Request
from rest_framework.response import Response

from core.errors import InvalidInput
from core.ids import parse_id
from core.paging import Position
from core.preconditions import ETAG, IF_MATCH, as_etag, precondition_of
from core.validation import LONGEST_REFERENCE, Input, PlainText
from intake.models import User
from intake.operations import Operations
from memory import proposals, records
from memory.models.documents import (
    MAX_LABEL_LENGTH,
    MAX_PROJECT_LENGTH,
    MAX_RECORD_LENGTH,
    MAX_TAGS,
)
from memory.proposals import ProposalOutput
from memory.records import (
    CONTENT_LIMIT,
    LABEL_LIMIT,
    PROJECT_LIMIT,
    TAGS_LIMIT,
    RecordFacts,
    RecordOutput,
    RecordTags,
)

After = Annotated[str | None, Field(max_length=LONGEST_REFERENCE, description="Where the last list was left.")]
Limit = Annotated[int, Field(ge=1, le=records.MAX_RECORDS, description="How many at most.")]


class RecordFields(RecordFacts):
    done: Annotated[bool | None, Field(description="Of a to-do: whether it is done.")] = None
    replaces: Annotated[
        UUID | None,
        Field(description="An own record that this one takes the place of: searches leave that one out from now on."),
    ] = None
    source_conversation: Annotated[
        UUID | None, Field(alias="sourceConversation", description="The chat that it is kept from.")
    ] = None
    source_turn: Annotated[
        int | None, Field(alias="sourceTurn", ge=1, le=2**31 - 1, description="The turn of that chat.")
    ] = None

    @property
    def held(self) -> dict[str, Any]:
        """The fields that each record has."""
        return self.model_dump(exclude=set(RecordFields.model_fields))


class RecordBody(RecordFields):
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


class RecordChange(RecordFields):
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
    type: Annotated[PlainText | None, Field(max_length=MAX_LABEL_LENGTH, description="Only records of this type.")] = (
        None
    )
    project_id: Annotated[
        PlainText | None,
        Field(max_length=MAX_PROJECT_LENGTH, description="Only records of this project; empty: of none."),
    ] = None
    tag: Annotated[PlainText | None, Field(max_length=MAX_LABEL_LENGTH, description="Only records with this tag.")] = (
        None
    )
    include_replaced: Annotated[
        bool, Field(description="Also records that another one replaces, or whose last day is over.")
    ] = False
    after: After = None
    limit: Limit = 50


Decision = Annotated[
    Literal["accepted", "rejected", "never"],
    Field(description="`rejected`: the same is not proposed again; `never`: nothing about this."),
]
ProposalState = Literal["waiting", "accepted", "rejected", "never"]


class ProposalChange(Input):
    """A decision, and what to change in the record that accepting saves."""

    state: Decision
    content: Annotated[str | None, CONTENT_LIMIT] = None
    type: Annotated[str | None, LABEL_LIMIT] = None
    project_id: Annotated[str | None, PROJECT_LIMIT] = None


PROPOSAL_LIST = create_model(
    "ProposalList",
    __doc__="Newest first. `after`: ask again with it for those after these; null at the end.",
    proposals=(list[ProposalOutput], ...),
    after=(str | None, ...),
)


class ProposalQuery(Input):
    state: Annotated[ProposalState, Field(description="`waiting` by default.")] = "waiting"
    conversation: Annotated[
        str | None,
        Field(
            max_length=LONGEST_REFERENCE,
            description="Only those from this chat.",
            json_schema_extra={"format": "uuid"},
        ),
    ] = None
    project: Annotated[
        PlainText | None, Field(max_length=MAX_PROJECT_LENGTH, description="Only those of this project.")
    ] = None
    after: After = None
    limit: Limit = 50


api = Operations()


@api("get", "memory/records/", RecordList)
def list_records(user: User, query: RecordQuery) -> dict[str, Any]:
    """The memory records there are"""
    asked = query.model_dump() | {"after": _position(query.after)}
    found = records.list_records(user=user, **asked)
    return {"records": [_data(row) for row in found.rows], "after": found.more and str(found.more)}


@api("post", "memory/records/", RecordOutput, status=201, fails=[404])
def create_record(user: User, body: RecordBody) -> dict[str, Any]:
    """Create a record"""
    return _data(records.create(user=user, now=timezone.now(), facts=body.facts, **body.held))


@api("get", "memory/records/<str:record_id>/", RecordOutput, parameters=[ETAG])
def read_record(user: User, record_id: UUID) -> Response:
    """Read a memory record"""
    return _response(records.read(user=user, record_id=record_id))


# A token that cannot read a record must not change it.
@api(
    "patch",
    "memory/records/<str:record_id>/",
    RecordOutput,
    fails=[412],
    has_more=True,
    parameters=[IF_MATCH, ETAG],
)
def change_record(request: Request, user: User, record_id: UUID, body: RecordChange) -> Response:
    """Change a memory record

    Omitted fields keep their value; null clears `replaces`, `validFrom`, `validUntil` and `done`. With If-Match, only
    if the record still has that ETag.
    """
    expected = precondition_of(request, exists=False)[0]
    about: dict[str, Any] = {"record_id": record_id, "expected": expected, "facts": body.facts, **body.held}
    return _response(records.rewrite(user=user, now=timezone.now(), **about))


@api("delete", "memory/records/<str:record_id>/", status=204, is_bound=False)
def delete_record(user: User, record_id: UUID) -> None:
    """Delete a memory record"""
    records.delete(user=user, record_id=record_id)


@api("get", "memory/proposals/", PROPOSAL_LIST, fails=[404])
def list_proposals(user: User, query: ProposalQuery) -> dict[str, Any]:
    """The proposals there are

    Things that may be worth keeping. No search finds one before it is accepted.
    """
    found = proposals.list_proposals(
        user=user,
        states=[query.state],
        conversation=None if query.conversation is None else parse_id(query.conversation),
        project=query.project,
        after=_position(query.after),
        limit=query.limit,
    )
    return {"proposals": [_data(row) for row in found.rows], "after": found.more and str(found.more)}


@api("patch", "memory/proposals/<str:proposal_id>/decision/", ProposalOutput, fails=[412], has_more=True)
def decide_proposal(user: User, proposal_id: UUID, body: ProposalChange) -> dict[str, Any]:
    """Accept or reject a proposal

    Accepting saves a record, with the fields that are named here, and the response names it. 412 if another decision
    was made: undo that first.
    """
    return _data(proposals.decide(user=user, proposal_id=proposal_id, now=timezone.now(), **body.model_dump()))


@api("delete", "memory/proposals/<str:proposal_id>/decision/", status=204, is_bound=False)
def undo_decision(user: User, proposal_id: UUID) -> None:
    """Undo a decision

    It waits again. The record of an accepted one is deleted, and what that replaced holds again.
    """
    proposals.undo(user=user, proposal_id=proposal_id)


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
