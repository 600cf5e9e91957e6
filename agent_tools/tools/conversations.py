"""`get_conversation` and `list_recent_conversations`: the turns around a result, and conversations by time."""

import re
from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Any
from zoneinfo import ZoneInfo

from django.db.models import Q
from pydantic import Field

from agent_tools.models import TokenScope
from agent_tools.registry import Readable, Tool
from agent_tools.tools.chat_history import OptionalProject
from agent_tools.tools.wording import (
    MaxTokens,
    as_one_line,
    counted,
    first_of,
    id_lines,
    known,
    link,
    without_our_lines,
)
from core.errors import InvalidInput, NotFound
from core.isolation.acting import Caller, binding_of, project_for
from core.paging import Position, page_of
from core.text import Sentence
from core.text import gettext_noop as _
from core.validation import LONGEST_REFERENCE, Input, Output
from intake.attachments.services import attachments_of
from intake.chats.reading import get_conversation as find
from intake.chats.reading import turns_near
from intake.chats.tree import conversation_path
from intake.llm.tokens import tokens_of
from intake.models import Conversation, Turn, User, local_time
from memory.left_out import staying
from memory.search.excerpts import fair_limit
from memory.short_ids import id_in, short_ids
from memory.sources_of_answers import AnswerSource, SourceOutput, sources_of

MOST_AROUND = 10
# The id of a result that is a turn.
A_TURN = re.compile(r"([^/]{1,100})/([1-9][0-9]{0,8})", re.ASCII)
# The characters of all texts of a response together: some 6,000 tokens, so that a model has room to think.
CHARACTERS = 24_000

ConversationId = Annotated[str, Field(description="The conversation's id.")]


class GetConversationInput(Input):
    conversation_id: Annotated[
        str,
        Field(
            alias="conversationId",
            description="The `conversationId` or `id` of a result.",
            max_length=LONGEST_REFERENCE,
        ),
    ]
    around: Annotated[
        int | None,
        Field(ge=1, description="A `turnNumber`, or the answer's `earlier` or `later`. Without it, the latest turns."),
    ] = None
    window: Annotated[int, Field(ge=0, le=MOST_AROUND, description="Turns on each side of it.")] = 3
    max_tokens: MaxTokens = None


class ConversationTurn(Output):
    turn_number: Annotated[int, Field(description="Which turn of the conversation, from 1.")]
    said_at: Annotated[datetime, Field(description="When it was said, in the person's time zone.")]
    person: Annotated[str, Field(description="What the person said.")]
    assistant: Annotated[str, Field(description="What was answered.")]
    files: Annotated[
        list[str] | None,
        Field(description="The files of the message: each its name, and in parentheses its id for `read_attachment`."),
    ] = None
    truncated: Annotated[
        bool | None,
        Field(
            description="True if a text was cut to fit. Ask for fewer turns, with `around` and `window`, to see more."
        ),
    ] = None

    sources: Annotated[
        list[SourceOutput] | None, Field(description="What the answer was given of the memory, the used ones first.")
    ] = None


class BranchedFrom(Output):
    conversation_id: ConversationId
    turn_number: Annotated[int, Field(description="Which turn of it: a value for `around`.")]


class ListedConversation(Output):
    conversation_id: ConversationId
    title: Annotated[str, Field(description="Its title: the beginning of the first message unless it was renamed.")]
    started_at: Annotated[datetime, Field(description="When it began, in the person's time zone.")]
    last_active_at: Annotated[datetime, Field(description="When its latest turn was said, in the person's time zone.")]
    turn_count: Annotated[
        int, Field(description="How many turns it has, all versions counted; they are numbered from 1 without gaps.")
    ]


class GetConversationOutput(ListedConversation, Readable):
    turns: Annotated[list[ConversationTurn], Field(description="Turns that follow each other, the earliest first.")]
    earlier: Annotated[
        int | None, Field(description="The turn before these, if there is one: a value for `around`.")
    ] = None
    later: Annotated[int | None, Field(description="The turn after these, if there is one: a value for `around`.")] = (
        None
    )
    branched_from: Annotated[
        BranchedFrom | None,
        Field(description="If it goes on from a turn of another conversation: that turn, what stands above its first."),
    ] = None


class ListRecentConversationsInput(Input):
    limit: Annotated[int, Field(ge=1, le=50, description="Conversations at most.")] = 10
    before: Annotated[
        str | None,
        Field(
            description="Last active before this date or date-time; or the answer's `more`, to go on.",
            max_length=LONGEST_REFERENCE,
            json_schema_extra={"format": "date-time"},
        ),
    ] = None
    after: Annotated[
        str | None,
        Field(
            description="Last active on or after this date or date-time.",
            max_length=LONGEST_REFERENCE,
            json_schema_extra={"format": "date-time"},
        ),
    ] = None
    project: OptionalProject = None


class ListRecentConversationsOutput(Readable):
    conversations: Annotated[list[ListedConversation], Field(description="The most recently active first.")]
    time_zone: Annotated[str, Field(description="The person's time zone, by its IANA name.")]
    more: Annotated[
        str | None, Field(description="If there are more: what to give as `before` to go on, with none left out.")
    ] = None


def get(requested: GetConversationInput, user: User | None) -> GetConversationOutput:
    """Raises the same `NotFound` for a malformed id, an unknown one and another user's."""
    user = known(user)
    conversation_id, around = requested.conversation_id, requested.around
    if around is None and (named := A_TURN.fullmatch(conversation_id)):
        conversation_id, around = named[1], int(named[2])
    pk = id_in(Conversation.objects.for_user(user), conversation_id)
    caller = Caller(user_id=user.pk, bound_to=binding_of(user))
    conversation = find(caller=caller, conversation_id=str(pk))
    if conversation.expires_at is not None:
        # A temporary chat is not part of the history.
        raise NotFound
    if around is not None and around > conversation.turn_count:
        raise InvalidInput(errors={"around": [f"The conversation has {conversation.turn_count} turns."]})
    zone, (short,) = user.zone, short_ids(user, [str(pk)]).values()
    characters, on_each_side = CHARACTERS, requested.window
    while True:
        window = turns_near(conversation=conversation, around=around, on_each_side=on_each_side)
        turns = staying(user, window.turns, lambda turn: [f"{pk}/{turn.turn_number}"])
        sources = sources_of(turns, caller)
        output = GetConversationOutput(
            **_in_words(conversation, zone),
            turns=_shown(turns, zone, characters, sources),
            earlier=window.earlier,
            later=window.later,
            branched_from=None
            if conversation.branched_from is None or conversation.branched_after is None
            else BranchedFrom(conversation_id=str(conversation.branched_from), turn_number=conversation.branched_after),
        )
        output.reading(turns_as_text(output, short))
        tokens = tokens_of(output.as_read)
        if requested.max_tokens is None or tokens <= requested.max_tokens:
            return output
        # Fewer turns where each would be a few words.
        on_each_side = min(on_each_side, requested.max_tokens // 200)
        characters = min(characters * 3 // 4, characters * requested.max_tokens // tokens)


def recent(requested: ListRecentConversationsInput, user: User | None) -> ListRecentConversationsOutput:
    user = known(user)
    zone = user.zone
    period = Q()
    if requested.after is not None:
        period &= Q(last_active_at__gte=_moment("after", requested.after, zone))
    if requested.before is not None:
        period &= _before(requested.before, zone)
    project = None if requested.project is None else project_for(user, requested.project)
    found = Conversation.objects.for_user(user).kept().of_project(user, project or None).filter(period)
    page = page_of(found, by="last_active_at", after=None, size=requested.limit)
    output = ListRecentConversationsOutput(
        conversations=[ListedConversation(**_in_words(conversation, zone)) for conversation in page.rows],
        time_zone=zone.key,
        more=None if page.more is None else str(page.more),
    )
    return output.reading(list_as_text(output))


def _before(text: str, zone: ZoneInfo) -> Q:
    """A date, a date-time, or the `more` of an earlier response, which distinguishes conversations of one moment."""
    try:
        return Position.parse(text).later_in_list(by="last_active_at")
    except ValueError:
        return Q(last_active_at__lt=_moment("before", text, zone))


def _shown(
    turns: list[Turn], zone: ZoneInfo, characters: int, sources: Mapping[int, list[AnswerSource]]
) -> list[ConversationTurn]:
    limit = fair_limit(
        [len(text) for turn in turns for text in (turn.user_message, turn.assistant_message)], budget=characters
    )
    files = attachments_of(turns)
    return [
        ConversationTurn(
            turn_number=turn.turn_number,
            said_at=local_time(turn.said_at, zone),
            person=turn.user_message[:limit],
            assistant=turn.assistant_message[:limit],
            files=[f"{each.name} ({each.pk})" for each in files[turn.pk]] or None,
            sources=[each.output for each in sources.get(turn.pk, ())] or None,
            truncated=max(len(turn.user_message), len(turn.assistant_message)) > limit or None,
        )
        for turn in turns
    ]


def _in_words(conversation: Conversation, zone: ZoneInfo) -> dict[str, Any]:
    return {
        "conversation_id": str(conversation.id),
        "title": conversation.title,
        "started_at": local_time(conversation.started_at, zone),
        "last_active_at": local_time(conversation.last_active_at, zone),
        "turn_count": conversation.turn_count,
    }


def _moment(field: str, text: str, zone: ZoneInfo) -> datetime:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        message = "Send a date (YYYY-MM-DD) or a date-time (YYYY-MM-DDTHH:MM:SS, with or without an offset)."
        raise InvalidInput(errors={field: [message]}) from None
    return moment if moment.tzinfo else moment.replace(tzinfo=zone)


def turns_as_text(output: GetConversationOutput, short: str) -> str:
    """Each turn under a header of one line; stored text has no line like these."""
    about = f"{counted(output.turn_count, 'turn')}, last active: {output.last_active_at:%Y-%m-%d}"
    lines = [f'[Conversation "{as_one_line(output.title)}" ({about})]', *id_lines(short)]
    if (origin := output.branched_from) is not None:
        lines.append(f"Note: it goes on from {origin.conversation_id}/{origin.turn_number}.")
    for turn in output.turns:
        cut = ", cut to fit" if turn.truncated else ""
        lines.append(f"\n--- Turn {turn.turn_number} ({turn.said_at:%Y-%m-%d %H:%M}{cut}) ---")
        lines.append(f"Person: {without_our_lines(turn.person)}")
        lines += [f"Assistant: {without_our_lines(turn.assistant)}"] if turn.assistant else []
    beside = [("earlier", output.earlier), ("later", output.later)]
    more = [f"{name} turns: around={number}" for name, number in beside if number is not None]
    return "\n".join([*lines, *([f"\nNote: {'; '.join(more)}."] if more else [])])


def list_as_text(output: ListRecentConversationsOutput) -> str:
    """A line for each conversation, and its id."""
    lines = [f"{counted(len(output.conversations), 'conversation')}, the latest first ({output.time_zone})."]
    for number, each in enumerate(output.conversations, start=1):
        about = f"{counted(each.turn_count, 'turn')}, last active: {each.last_active_at:%Y-%m-%d %H:%M}"
        lines += [f'{number}. "{as_one_line(each.title)}" ({about})', *id_lines(each.conversation_id)]
    return "\n".join([*lines, *([f"Note: for more, before={output.more}."] if output.more else [])])


def _say_turns(output: GetConversationOutput, user: User | None) -> str:
    number = output.turns[0].turn_number if output.turns else None
    path = conversation_path(output.conversation_id, turn_number=number)
    read = _("Read 1 turn of %(title)s") if len(output.turns) == 1 else _("Read %(count)s turns of %(title)s")
    return Sentence(read, count=len(output.turns), title=link(output.title, path))


def _say_list(output: ListRecentConversationsOutput, user: User | None) -> str:
    """The number of conversations, and links to the first of them."""
    links = [link(each.title, conversation_path(each.conversation_id)) for each in output.conversations]
    if not links:
        return Sentence(_("Listed %(count)s conversations"), count=0)
    one, many = _("Listed 1 conversation: %(places)s"), _("Listed %(count)s conversations: %(places)s")
    return Sentence(one if len(links) == 1 else many, count=len(links), places=first_of(links))


get_conversation = Tool(
    name="get_conversation",
    description="Read the turns around a result of a search, with their answers.",
    input_model=GetConversationInput,
    output_model=GetConversationOutput,
    is_read_only=True,
    named_scope=TokenScope.READ,
    run=get,
    in_text=frozenset({"title", "person", "assistant"}),
    summarise=_say_turns,
)

list_recent_conversations = Tool(
    name="list_recent_conversations",
    description=(
        "List conversations, the last active first: for questions about when, such as yesterday or last week; for a "
        "topic, search. Dates are in the person's time zone."
    ),
    input_model=ListRecentConversationsInput,
    output_model=ListRecentConversationsOutput,
    is_read_only=True,
    named_scope=TokenScope.READ,
    run=recent,
    in_text=frozenset({"title"}),
    summarise=_say_list,
)
