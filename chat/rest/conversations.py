"""`/api/v1/conversations/`: lists, reads, changes, exports and deletes conversations and their turns."""

from uuid import UUID

from django.db import transaction
from django.http import StreamingHttpResponse
from django.utils import timezone
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter
from rest_framework.request import Request
from rest_framework.views import APIView

from chat import undoing
from chat.rest.downloads import choice, download
from chat.rest.shapes import (
    ChangeOfConversation,
    ChosenOutput,
    ConversationListOutput,
    ConversationOutput,
    ConversationWithTurnsOutput,
    OneTurnOutput,
    UndoneOutput,
)
from core.errors import InvalidInput, NotFound
from core.isolation.acting import Caller, acting_as
from core.paging import position_in_address
from core.validation import LONGEST_REFERENCE, checked, text_limit
from intake.chats import arranging, deleting, exporting, lists, reading, temporary, versions
from intake.chats.markdown_files import conversation_as_markdown
from intake.chats.services import lock_conversation
from intake.chats.tree import Tree
from intake.models import User
from intake.models.conversations import TITLE_LENGTH
from intake.operations import Operations

NUMBER = {"type": "integer", "minimum": 1}
CURSOR = {"type": "string", "maxLength": LONGEST_REFERENCE}


api = Operations()


@api(
    "get",
    "conversations/",
    ConversationListOutput,
    fails=[400, 404],
    parameters=[
        OpenApiParameter("after", CURSOR, description="`more` of the page before."),
        OpenApiParameter(
            "q",
            {"type": "string", **text_limit(TITLE_LENGTH)},
            description="Those whose title contains each of these words.",
        ),
        OpenApiParameter("archived", bool, description="Those that are archived instead of those that are not."),
    ],
)
def list_conversations(request: Request, caller: Caller) -> ConversationListOutput:
    """The caller's conversations, the most recently active first, 30 at a time."""
    page = lists.list_conversations(
        caller=caller,
        after=position_in_address(request.query_params.get("after")),
        words=checked(request.query_params.get("q", ""), field="q", max_length=TITLE_LENGTH, may_be_blank=True),
        is_archived=is_true(request, "archived"),
    )
    return ConversationListOutput.of(page)


@api(
    "get",
    "conversations/<str:conversation_id>/",
    ConversationWithTurnsOutput,
    fails=[400],
    parameters=[
        OpenApiParameter("before", NUMBER, description="The turns before this number instead of the latest."),
        OpenApiParameter("turn", NUMBER, description="The turns around this number instead of the latest."),
    ],
)
def read_conversation(request: Request, caller: Caller, conversation_id: str) -> ConversationWithTurnsOutput:
    """A conversation with its latest turns."""
    found = reading.get_conversation(caller=caller, conversation_id=conversation_id)
    window = reading.turns_to_show(
        conversation=found,
        at_most=50,
        around=_number(request, "turn"),
        before=_number(request, "before"),
    )
    return ConversationWithTurnsOutput.with_turns(found, window, caller)


@api("patch", "conversations/<str:conversation_id>/", ConversationOutput, has_more=True)
def change_conversation(caller: Caller, conversation_id: UUID, body: ChangeOfConversation) -> ConversationOutput:
    """Give a conversation another title, pin it, archive it, or take that back; say how it is answered from now on;
    keep a temporary one. Omitted fields keep their value."""
    values = body.model_fields_set
    if not values:
        raise InvalidInput("Nothing to change: give `title`, `pinned` or `archived`, or how it is answered.")
    body.check(caller)
    if "title" in values:
        deleting.rename_conversation(caller=caller, conversation_id=conversation_id, title=body.title)
    arranging.arrange(
        caller=caller,
        conversation_ids=[conversation_id],
        is_pinned=body.pinned if "pinned" in values else None,
        is_archived=body.archived if "archived" in values else None,
        now=timezone.now(),
    )
    with transaction.atomic():
        lock_conversation(caller, conversation_id, options=body)
    if body.temporary is False:
        temporary.keep(caller=caller, conversation_id=conversation_id)
    changed = reading.get_conversation(caller=caller, conversation_id=str(conversation_id))
    return ConversationOutput.of(changed)


@api("delete", "conversations/<str:conversation_id>/", status=204, is_bound=False)
def delete_conversation(caller: Caller, conversation_id: UUID) -> None:
    """Remove a conversation with all its turns, for good."""
    deleting.delete_conversation(caller=caller, conversation_id=conversation_id)


# Each piece of a download is read in a transaction of its own.
downloads = Operations(APIView)


@downloads(
    "get",
    "conversations/<str:conversation_id>/export/",
    fails=[400],
    parameters=[OpenApiParameter("as", str, enum=["markdown", "json"])],
    also={(200, "text/markdown"): OpenApiTypes.STR, (200, "application/json"): OpenApiTypes.OBJECT},
)
def export_conversation(request: Request, user: User, caller: Caller, conversation_id: str) -> StreamingHttpResponse:
    """The whole conversation as a file: Markdown to read, or JSON like the whole export, which can be imported."""
    form = choice(request.query_params.getlist("as"), ("markdown", "json"))
    with acting_as(user):
        found = reading.get_conversation(caller=caller, conversation_id=conversation_id)
    if found.expires_at is not None:
        raise NotFound
    if form == "json":
        pieces = exporting.chats_as_json(user=user, chosen=[found.pk], now=timezone.now())
        name, content_type = f"{exporting.file_name(found)}.json", "application/json"
    else:
        pieces = conversation_as_markdown(conversation=found, user=user)
        name, content_type = f"{exporting.file_name(found)}.md", "text/markdown; charset=utf-8"
    return download(request=request, user=user, pieces=pieces, name=name, content_type=content_type)


TURN = "conversations/<str:conversation_id>/turns/<str:turn_number>/"


@api("get", TURN, OneTurnOutput)
def read_turn(caller: Caller, conversation_id: UUID, turn_number: int) -> OneTurnOutput:
    """One turn, with the numbers of its versions and how many turns it is with all that follow it."""
    turn = reading.get_turn(caller=caller, conversation_id=conversation_id, turn_number=turn_number)
    return OneTurnOutput.with_count(turn, Tree.of(turn.conversation), caller)


@api(
    "delete",
    TURN,
    status=204,
    fails=[400, 412],
    is_bound=False,
    parameters=[
        OpenApiParameter(
            "from_here",
            NUMBER,
            description="Remove the turn with all that follow it, in every version, if they are so many: "
            "`turnsFromHere`. Otherwise nothing is removed (412).",
        )
    ],
)
def delete_turn(request: Request, caller: Caller, conversation_id: UUID, turn_number: int) -> None:
    """Remove one turn, for good; what follows it moves up. A conversation goes with its last one."""
    expected = _number(request, "from_here")
    if expected is None:
        deleting.delete_turn(caller=caller, conversation_id=conversation_id, turn_number=turn_number)
    else:
        deleting.delete_from(caller=caller, conversation_id=conversation_id, turn_number=turn_number, expected=expected)


@api("post", f"{TURN}choose/", ChosenOutput, has_more=True)
def choose_version(caller: Caller, conversation_id: UUID, turn_number: int) -> ChosenOutput:
    """Choose the path on which a turn lies, to the newest turn below it; the next message goes on from there."""
    end = versions.choose_version(caller=caller, conversation_id=conversation_id, turn_number=turn_number)
    return ChosenOutput(current_turn_number=end)


@api("post", f"{TURN}branch/", ConversationOutput, status=201, fails=[400, 409], has_more=True)
def branch_conversation(caller: Caller, conversation_id: UUID, turn_number: int) -> ConversationOutput:
    """Begin a new conversation that goes on from a turn; the turns up to it are shared, not copied."""
    made = versions.branch(caller=caller, conversation_id=conversation_id, turn_number=turn_number, now=timezone.now())
    return ConversationOutput.of(made)


# It needs no scope `read`, which every other answer to a change requires.
@api(
    "post",
    f"{TURN}tool-calls/<str:call_id>/undo/",
    UndoneOutput,
    fails=[409, 412],
    is_bound=False,
    required_scope="delete",
)
def undo_tool_call(user: User, conversation_id: UUID, turn_number: int, call_id: str) -> UndoneOutput:
    """Take back what a tool call of the chat's model stored; a second time changes nothing."""
    call = undoing.undo_tool_call(
        user=user,
        conversation_id=conversation_id,
        turn_number=turn_number,
        call_id=call_id,
        now=timezone.now(),
    )
    return UndoneOutput(undone_at=call["undone_at"])


def is_true(request: Request, name: str) -> bool:
    """A parameter that is `true` or `false`, at most once; `false` by default. Raises `InvalidInput`."""
    values = request.query_params.getlist(name) or ["false"]
    if values not in (["true"], ["false"]):
        raise InvalidInput("The query is not valid.", errors={name: ["It is true or false."]})
    return values == ["true"]


def _number(request: Request, name: str) -> int | None:
    """None without the parameter; raises `InvalidInput` if it is not a number, or occurs twice."""
    values = request.query_params.getlist(name)
    if not values:
        return None
    number = reading.as_turn_number(values[0]) if len(values) == 1 else None
    if number is None:
        raise InvalidInput(errors={name: ["Give a number from 1, once."]})
    return number
