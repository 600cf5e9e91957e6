"""`/api/v1/projects/`: labels of chats, records, documents and tokens, with what the person says about each."""

from datetime import datetime
from typing import Annotated, Any, Self
from uuid import UUID

from django.db import transaction
from drf_spectacular.utils import OpenApiParameter
from pydantic import Field
from rest_framework.request import Request

from chat.rest.conversations import is_true
from core.isolation.acting import Caller
from core.text import LONGEST_PROJECT
from core.validation import Input, Output, text_limit
from intake.chats import temporary
from intake.models import Project, User
from intake.models.conversations import MAX_PROJECT_INSTRUCTIONS, PROJECT_COLOURS
from intake.operations import Operations
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
        list[UUID], Field(min_length=1, max_length=temporary.MOST_MOVED, description="The ids of chats.")
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
            **{name: getattr(project, name) for name in ("name", "colour", "instructions", "labels")},
            id=project.pk if project.has_row else None,
            closed=project.is_closed,
            created_at=project.created_at if project.has_row else None,
            chats=project.chats if is_listed else None,
            kept=project.kept if is_listed else None,
        )


PROJECT_LIST = {
    "type": "object",
    "properties": {"projects": {"type": "array", "items": {"$ref": "#/components/schemas/ProjectOutput"}}},
    "required": ["projects"],
}


api = Operations(is_bound=False)


@api("get", "projects/", PROJECT_LIST)
def list_projects(user: User) -> dict[str, Any]:
    """The projects by name, and the labels that are in use and have no project."""
    found = projects.list_projects(user=user)
    return {"projects": [ProjectOutput.of(each, is_listed=True).as_data() for each in found]}


@api("post", "projects/", ProjectOutput, status=201)
def create_project(user: User, body: ProjectBody) -> ProjectOutput:
    """Create a project, or describe a label that is in use."""
    return ProjectOutput.of(projects.save_project(user=user, name=body.name or "", is_new=True, **_about(body)))


@api("post", "projects/move/", status=204, fails=[404])
def move_conversations(caller: Caller, body: ChatsToMove) -> None:
    """Move chats to a project: all of them, or none."""
    temporary.move(caller=caller, conversation_ids=body.conversations, project=body.project)


@api("patch", "projects/<str:project_id>/", ProjectOutput, has_more=True)
def change_project(user: User, project_id: UUID, body: ProjectBody) -> ProjectOutput:
    """Change a project. With another name its chats, records, documents and tokens follow."""
    with transaction.atomic():
        changed = projects.by_id(user=user, project_id=project_id)
        if body.name is not None:
            changed = projects.rename_project(user=user, name=changed.name, new_name=body.name)
        changed = projects.save_project(user=user, name=changed.name, **_about(body))
    return ProjectOutput.of(changed)


@api(
    "delete",
    "projects/<str:project_id>/",
    status=204,
    fails=[400],
    parameters=[
        OpenApiParameter(
            "contents",
            bool,
            description="Whether its chats, files, records and documents go too, for good. Otherwise they are of no "
            "project afterwards.",
        )
    ],
)
def delete_project(request: Request, user: User, project_id: UUID) -> None:
    """Remove a project; tokens that are bound to it end."""
    with_contents = is_true(request, "contents")
    name = projects.by_id(user=user, project_id=project_id).name
    projects.delete_project(user=user, name=name, with_contents=with_contents)


def _about(body: ProjectBody) -> dict[str, Any]:
    return {**body.model_dump(include={"colour", "instructions", "labels"}), "is_closed": body.closed}
