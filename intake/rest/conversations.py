"""`/api/v1/conversations/`: listing, reading, renaming and deleting what one said."""

from django.utils import timezone
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework.request import Request
from rest_framework.response import Response

from core.errors import InvalidInput
from core.pagination import position_in_address
from core.validation import LONGEST_REFERENCE, validate
from intake import deleting, undoing
from intake.identity import caller_of, person_of
from intake.reading import (
    TURNS_PER_ANSWER,
    as_conversation_id,
    as_turn_number,
    get_conversation,
    list_conversations,
    turns_to_show,
)
from intake.rest.acting import ActsAsCaller
from intake.rest.shapes import (
    ConversationListOutput,
    ConversationOutput,
    ConversationWithTurnsOutput,
    Rename,
    UndoneOutput,
)
from intake.schemas import problems

NOT_THERE = (401, 404, 429, 503)
NUMBER = {"type": "integer", "minimum": 1}
CURSOR = {"type": "string", "maxLength": LONGEST_REFERENCE}


class ConversationListView(ActsAsCaller):
    @extend_schema(
        operation_id="list_conversations",
        parameters=[OpenApiParameter("after", CURSOR, description="`more` of the page before.")],
        responses={200: ConversationListOutput, **problems(400, *NOT_THERE)},
    )
    def get(self, request: Request) -> Response:
        """The caller's conversations, the most recently active first, 30 at a time."""
        after = position_in_address(request.query_params.get("after"))
        page = list_conversations(caller=caller_of(request), after=after)
        return Response(ConversationListOutput.of(page).as_data())


class ConversationView(ActsAsCaller):
    @extend_schema(
        operation_id="read_conversation",
        parameters=[
            OpenApiParameter("before", NUMBER, description="The turns before this number instead of the latest."),
            OpenApiParameter("turn", NUMBER, description="The turns around this number instead of the latest."),
        ],
        responses={200: ConversationWithTurnsOutput, **problems(400, *NOT_THERE)},
    )
    def get(self, request: Request, conversation_id: str) -> Response:
        """A conversation with its latest turns."""
        found = get_conversation(caller=caller_of(request), conversation_id=conversation_id)
        window = turns_to_show(
            conversation=found,
            at_most=TURNS_PER_ANSWER,
            around=_turn_number(request, "turn"),
            before=_turn_number(request, "before"),
        )
        return Response(ConversationWithTurnsOutput.with_turns(found, window).as_data())

    @extend_schema(
        operation_id="rename_conversation",
        request=Rename,
        responses={200: ConversationOutput, **problems(400, 413, 415, *NOT_THERE)},
    )
    def patch(self, request: Request, conversation_id: str) -> Response:
        """Give a conversation another title."""
        wanted = validate(Rename, request.data)
        conversation = deleting.rename_conversation(
            caller=caller_of(request), conversation_id=as_conversation_id(conversation_id), title=wanted.title
        )
        return Response(ConversationOutput.of(conversation).as_data())

    @extend_schema(operation_id="delete_conversation", responses={204: None, **problems(*NOT_THERE)})
    def delete(self, request: Request, conversation_id: str) -> Response:
        """Remove a conversation with all its turns, for good."""
        deleting.delete_conversation(caller=caller_of(request), conversation_id=as_conversation_id(conversation_id))
        return Response(status=204)


class TurnView(ActsAsCaller):
    @extend_schema(operation_id="delete_turn", responses={204: None, **problems(*NOT_THERE)})
    def delete(self, request: Request, conversation_id: str, turn_number: str) -> Response:
        """Remove one turn, for good; a conversation goes with its last one."""
        deleting.delete_turn(
            caller=caller_of(request),
            conversation_id=as_conversation_id(conversation_id),
            turn_number=as_turn_number(turn_number) or 0,
        )
        return Response(status=204)


class ToolCallUndoView(ActsAsCaller):
    @extend_schema(
        operation_id="undo_tool_call",
        request=None,
        responses={200: UndoneOutput, **problems(409, 412, *NOT_THERE)},
    )
    def post(self, request: Request, conversation_id: str, turn_number: str, call_id: str) -> Response:
        """Take back what a tool call of the chat's model stored; a second time changes nothing."""
        call = undoing.undo_tool_call(
            user=person_of(request),
            conversation_id=as_conversation_id(conversation_id),
            turn_number=as_turn_number(turn_number) or 0,
            call_id=call_id,
            now=timezone.now(),
        )
        return Response(UndoneOutput(undone_at=call["undone_at"]).as_data())


def _turn_number(request: Request, name: str) -> int | None:
    """None if none is asked for; raises `InvalidInput` for what is no number, and for two."""
    given = request.query_params.getlist(name)
    if not given:
        return None
    number = as_turn_number(given[0]) if len(given) == 1 else None
    if number is None:
        raise InvalidInput(errors={name: ["Give the number of a turn, once."]})
    return number
