"""`/api/v1/conversations/`: lists, reads, renames and deletes conversations. `/api/v1/projects/`: their projects."""

from typing import Any

from django.db import transaction
from django.http import StreamingHttpResponse
from django.utils import timezone
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView
from rest_framework.viewsets import ViewSet

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
from chat.undoing import undo_tool_call
from core.errors import InvalidInput, NotFound
from core.ids import parse_id
from core.isolation.acting import acting_as
from core.isolation.views import ActsAsCaller
from core.responses import problems
from core.validation import LONGEST_REFERENCE, checked, position_in_address, text_limit, validate
from intake.accounts.identity import caller_of, person_of
from intake.chats import arranging, deleting, exporting, versions
from intake.chats.markdown_files import conversation_as_markdown
from intake.chats.reading import (
    TURNS_PER_ANSWER,
    as_turn_number,
    get_conversation,
    get_turn,
    list_conversations,
    turns_to_show,
)
from intake.chats.services import lock_conversation
from intake.chats.tree import Tree
from intake.models.conversations import TITLE_LENGTH

NOT_THERE = (401, 404, 429, 503)
NUMBER = {"type": "integer", "minimum": 1}
CURSOR = {"type": "string", "maxLength": LONGEST_REFERENCE}


class ConversationViewSet(ActsAsCaller, ViewSet):
    answers_with = ("PATCH",)
    takes_bound = ("GET", "PATCH")

    @extend_schema(
        operation_id="list_conversations",
        parameters=[
            OpenApiParameter("after", CURSOR, description="`more` of the page before."),
            OpenApiParameter(
                "q",
                {"type": "string", **text_limit(TITLE_LENGTH)},
                description="Those whose title contains each of these words.",
            ),
            OpenApiParameter("archived", bool, description="Those that are archived instead of those that are not."),
        ],
        responses={200: ConversationListOutput, **problems(400, *NOT_THERE)},
    )
    # Not `list`: the schema would take it for an array.
    def look(self, request: Request) -> Response:
        """The caller's conversations, the most recently active first, 30 at a time."""
        after = position_in_address(request.query_params.get("after"))
        page = list_conversations(
            caller=caller_of(request),
            after=after,
            words=checked(request.query_params.get("q", ""), field="q", max_length=TITLE_LENGTH, may_be_blank=True),
            is_archived=is_true(request, "archived"),
        )
        return Response(ConversationListOutput.of(page).as_data())

    @extend_schema(
        operation_id="read_conversation",
        parameters=[
            OpenApiParameter("before", NUMBER, description="The turns before this number instead of the latest."),
            OpenApiParameter("turn", NUMBER, description="The turns around this number instead of the latest."),
        ],
        responses={200: ConversationWithTurnsOutput, **problems(400, *NOT_THERE)},
    )
    def retrieve(self, request: Request, conversation_id: str) -> Response:
        """A conversation with its latest turns."""
        found = get_conversation(caller=caller_of(request), conversation_id=conversation_id)
        window = turns_to_show(
            conversation=found,
            at_most=TURNS_PER_ANSWER,
            around=_number(request, "turn"),
            before=_number(request, "before"),
        )
        return Response(ConversationWithTurnsOutput.with_turns(found, window).as_data())

    @extend_schema(
        operation_id="change_conversation",
        request=ChangeOfConversation,
        responses={200: ConversationOutput, **problems(400, 413, 415, *NOT_THERE)},
    )
    def partial_update(self, request: Request, conversation_id: str) -> Response:
        """Give a conversation another title, pin it, archive it, or take that back; say how it is answered from now on;
        keep a temporary one. Omitted fields keep their value."""
        requested = validate(ChangeOfConversation, request.data)
        caller, key = caller_of(request), parse_id(conversation_id)
        values = requested.model_fields_set
        if not values:
            raise InvalidInput("Nothing to change: give `title`, `pinned` or `archived`, or how it is answered.")
        requested.check(caller)
        if "title" in values:
            deleting.rename_conversation(caller=caller, conversation_id=key, title=requested.title)
        arranging.arrange(
            caller=caller,
            conversation_ids=[key],
            is_pinned=requested.pinned if "pinned" in values else None,
            is_archived=requested.archived if "archived" in values else None,
            now=timezone.now(),
        )
        with transaction.atomic():
            lock_conversation(caller, key, options=requested)
        if requested.temporary is False:
            arranging.keep(caller=caller, conversation_id=key)
        changed = get_conversation(caller=caller, conversation_id=conversation_id)
        return Response(ConversationOutput.of(changed).as_data())

    @extend_schema(operation_id="delete_conversation", responses={204: None, **problems(*NOT_THERE)})
    def destroy(self, request: Request, conversation_id: str) -> Response:
        """Remove a conversation with all its turns, for good."""
        deleting.delete_conversation(caller=caller_of(request), conversation_id=parse_id(conversation_id))
        return Response(status=204)


class ConversationExportView(APIView):
    takes_bound = ("GET",)

    @extend_schema(
        operation_id="export_conversation",
        parameters=[OpenApiParameter("as", str, enum=["markdown", "json"])],
        responses={
            (200, "text/markdown"): OpenApiTypes.STR,
            (200, "application/json"): OpenApiTypes.OBJECT,
            **problems(400, *NOT_THERE),
        },
    )
    def get(self, request: Request, conversation_id: str) -> StreamingHttpResponse:
        """The whole conversation as a file: Markdown to read, or JSON like the whole export, which can be imported."""
        form = choice(request.query_params.getlist("as"), ("markdown", "json"))
        user = person_of(request)
        with acting_as(user):
            found = get_conversation(caller=caller_of(request), conversation_id=conversation_id)
        if found.expires_at is not None:
            raise NotFound
        if form == "json":
            pieces = exporting.conversation_as_json(conversation=found, user=user, now=timezone.now())
            name, content_type = f"{exporting.file_name(found)}.json", "application/json"
        else:
            pieces = conversation_as_markdown(conversation=found, user=user)
            name, content_type = f"{exporting.file_name(found)}.md", "text/markdown; charset=utf-8"
        return download(request=request, user=user, pieces=pieces, name=name, content_type=content_type)


class TurnViewSet(ActsAsCaller, ViewSet):
    answers_with = ("POST",)
    takes_bound = ("GET", "POST")

    @extend_schema(operation_id="read_turn", responses={200: OneTurnOutput, **problems(*NOT_THERE)})
    def retrieve(self, request: Request, conversation_id: str, turn_number: str) -> Response:
        """One turn, with the numbers of its versions and how many turns it is with all that follow it."""
        turn = get_turn(caller=caller_of(request), **_named(conversation_id, turn_number))
        return Response(OneTurnOutput.with_count(turn, Tree.of(turn.conversation)).as_data())

    @extend_schema(
        operation_id="delete_turn",
        parameters=[
            OpenApiParameter(
                "from_here",
                NUMBER,
                description="Remove the turn with all that follow it, in every version, if they are so many: "
                "`turnsFromHere`. Otherwise nothing is removed (412).",
            )
        ],
        responses={204: None, **problems(400, 412, *NOT_THERE)},
    )
    def destroy(self, request: Request, conversation_id: str, turn_number: str) -> Response:
        """Remove one turn, for good; what follows it moves up. A conversation goes with its last one."""
        expected = _number(request, "from_here")
        where = {"caller": caller_of(request), **_named(conversation_id, turn_number)}
        if expected is None:
            deleting.delete_turn(**where)
        else:
            deleting.delete_from(**where, expected=expected)
        return Response(status=204)

    @extend_schema(operation_id="choose_version", request=None, responses={200: ChosenOutput, **problems(*NOT_THERE)})
    def choose(self, request: Request, conversation_id: str, turn_number: str) -> Response:
        """Choose the path on which a turn lies, to the newest turn below it; the next message goes on from there."""
        end = versions.choose_version(caller=caller_of(request), **_named(conversation_id, turn_number))
        return Response(ChosenOutput(current_turn_number=end).as_data())

    @extend_schema(
        operation_id="branch_conversation",
        request=None,
        responses={201: ConversationOutput, **problems(400, 409, *NOT_THERE)},
    )
    def branch(self, request: Request, conversation_id: str, turn_number: str) -> Response:
        """Begin a new conversation that goes on from a turn; the turns up to it are shared, not copied."""
        made = versions.branch(caller=caller_of(request), **_named(conversation_id, turn_number), now=timezone.now())
        return Response(ConversationOutput.of(made).as_data(), status=201)


class ToolCallViewSet(ActsAsCaller, ViewSet):
    # And not `read`, which every other answer to a change requires.
    required_scope = "delete"

    @extend_schema(
        operation_id="undo_tool_call",
        request=None,
        responses={200: UndoneOutput, **problems(409, 412, *NOT_THERE)},
    )
    def undo(self, request: Request, conversation_id: str, turn_number: str, call_id: str) -> Response:
        """Take back what a tool call of the chat's model stored; a second time changes nothing."""
        call = undo_tool_call(
            user=person_of(request),
            **_named(conversation_id, turn_number),
            call_id=call_id,
            now=timezone.now(),
        )
        return Response(UndoneOutput(undone_at=call["undone_at"]).as_data())


def _named(conversation_id: str, turn_number: str) -> dict[str, Any]:
    """A turn by its address; raises `NotFound` for a malformed one."""
    return {"conversation_id": parse_id(conversation_id), "turn_number": as_turn_number(turn_number) or 0}


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
    number = as_turn_number(values[0]) if len(values) == 1 else None
    if number is None:
        raise InvalidInput(errors={name: ["Give a number from 1, once."]})
    return number
