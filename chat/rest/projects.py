"""`/api/v1/projects/`: labels of chats, records, documents and tokens, with what the person says about each."""

from datetime import datetime
from typing import Annotated, Any, Self
from uuid import UUID

from django.db import transaction
from drf_spectacular.utils import OpenApiParameter, extend_schema
from pydantic import Field
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.viewsets import ViewSet

from chat.rest.conversations import NOT_THERE, is_true
from core.ids import parse_id
from core.isolation.views import ActsAsCaller
from core.responses import problems
from core.text import LONGEST_PROJECT
from core.validation import Input, Output, text_limit, validate
from intake.accounts.identity import caller_of, person_of
from intake.chats import arranging
from intake.models import Project
from intake.models.conversations import MAX_PROJECT_INSTRUCTIONS, PROJECT_COLOURS
from memory import projects

PROJECT_NAME = text_limit(LONGEST_PROJECT)


class ProjectBody(Input):
    """A project. Omitted fields keep their value."""

    name: Annotated[
        str | None, Field(description="The label. A new one is a new name.", json_schema_extra=PROJECT_NAME)
    ] = None
    colour: Annotated[
        str | None, Field(max_length=20, description="One of: " + ", ".join(PROJECT_COLOURS), examples=["blue"])
    ] = None
    instructions: Annotated[
        str | None,
        Field(
            description="What the person asks of the model in the chats of this project, at most "
            f"{MAX_PROJECT_INSTRUCTIONS:,} characters.",
            json_schema_extra=text_limit(MAX_PROJECT_INSTRUCTIONS),
        ),
    ] = None
    closed: Annotated[bool | None, Field(description="Found only by searches of this project.")] = None
    labels: Annotated[
        list[Annotated[str, Field(max_length=LONGEST_PROJECT)]] | None,
        Field(
            max_length=projects.MOST_LABELS,
            description="Repositories (`me/app`) and folders that belong to it. What has one of them moves to it.",
        ),
    ] = None


class ChatsToMove(Input):
    conversations: Annotated[
        list[UUID], Field(min_length=1, max_length=arranging.MOST_MOVED, description="The ids of chats.")
    ]
    project: Annotated[
        str,
        Field(description="The name of a project, which needs no row; empty: of none.", json_schema_extra=PROJECT_NAME),
    ]


class ProjectOutput(Output):
    id: Annotated[UUID | None, Field(description="Missing for a label in use that has no row.")] = None
    name: str
    colour: str
    instructions: str
    closed: bool
    labels: list[str]
    created_at: datetime | None = None
    chats: Annotated[int | None, Field(description="In a list: how many chats it has.")] = None
    kept: Annotated[int | None, Field(description="In a list: how many records and documents it has.")] = None

    @classmethod
    def of(cls, project: Project, *, is_listed: bool = False) -> Self:
        return cls(
            id=project.pk if project.has_row else None,
            name=project.name,
            colour=project.colour,
            instructions=project.instructions,
            closed=project.is_closed,
            labels=project.labels,
            created_at=project.created_at if project.has_row else None,
            chats=project.chats if is_listed else None,
            kept=project.kept if is_listed else None,
        )


PROJECT_LIST = {
    "type": "object",
    "properties": {"projects": {"type": "array", "items": {"$ref": "#/components/schemas/ProjectOutput"}}},
    "required": ["projects"],
}


class ProjectViewSet(ActsAsCaller, ViewSet):
    answers_with = ("PATCH",)

    @extend_schema(operation_id="list_projects", responses={200: PROJECT_LIST, **problems(401, 503)})
    # Not `list`: the schema would take it for an array.
    def look(self, request: Request) -> Response:
        """The projects by name, and the labels that are in use and have no project."""
        found = projects.list_projects(user=person_of(request))
        return Response({"projects": [ProjectOutput.of(each, is_listed=True).as_data() for each in found]})

    @extend_schema(
        operation_id="create_project",
        request=ProjectBody,
        responses={201: ProjectOutput, **problems(400, 401, 413, 415, 503)},
    )
    def create(self, request: Request) -> Response:
        """Create a project, or describe a label that is in use."""
        body = validate(ProjectBody, request.data)
        made = projects.save_project(user=person_of(request), name=body.name or "", is_new=True, **_about(body))
        return Response(ProjectOutput.of(made).as_data(), status=201)

    @extend_schema(
        operation_id="change_project",
        request=ProjectBody,
        responses={200: ProjectOutput, **problems(400, 413, 415, *NOT_THERE)},
    )
    def partial_update(self, request: Request, project_id: str) -> Response:
        """Change a project. With another name its chats, records, documents and tokens follow."""
        body, user = validate(ProjectBody, request.data), person_of(request)
        with transaction.atomic():
            changed = projects.by_id(user=user, project_id=parse_id(project_id))
            if body.name is not None:
                changed = projects.rename_project(user=user, name=changed.name, new_name=body.name)
            changed = projects.save_project(user=user, name=changed.name, **_about(body))
        return Response(ProjectOutput.of(changed).as_data())

    @extend_schema(
        operation_id="delete_project",
        parameters=[
            OpenApiParameter(
                "contents",
                bool,
                description="Whether its chats, files, records and documents go too, for good. Otherwise they are of "
                "no project afterwards.",
            )
        ],
        responses={204: None, **problems(400, *NOT_THERE)},
    )
    def destroy(self, request: Request, project_id: str) -> Response:
        """Remove a project; tokens that are bound to it end."""
        user, with_contents = person_of(request), is_true(request, "contents")
        name = projects.by_id(user=user, project_id=parse_id(project_id)).name
        projects.delete_project(user=user, name=name, with_contents=with_contents)
        return Response(status=204)

    @extend_schema(
        operation_id="move_conversations",
        request=ChatsToMove,
        responses={204: None, **problems(400, 413, 415, *NOT_THERE)},
    )
    def move(self, request: Request) -> Response:
        """Move chats to a project: all of them, or none."""
        body = validate(ChatsToMove, request.data)
        arranging.move(caller=caller_of(request), conversation_ids=body.conversations, project=body.project)
        return Response(status=204)


def _about(body: ProjectBody) -> dict[str, Any]:
    return {
        "colour": body.colour,
        "instructions": body.instructions,
        "is_closed": body.closed,
        "labels": body.labels,
    }
