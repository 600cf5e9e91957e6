"""Every write to conversations and turns, each in its own transaction."""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Annotated, Any, Self
from uuid import UUID

from django.db import IntegrityError, connection, transaction
from django.db.models import Q
from django.utils import timezone
from pydantic import AfterValidator, BeforeValidator, ConfigDict, Field, WithJsonSchema, model_validator
from pydantic_core import PydanticKnownError

from core.errors import AuthenticationRequired, InvalidInput, NotFound, StillRunning, Unavailable
from core.ids import parse_id
from core.isolation.acting import Caller, PersonalChange, change_for_each, project_for
from core.text import LONGEST_PROJECT, Sentence, project_label, shortened
from core.text import gettext_noop as _
from core.validation import LONGEST_REFERENCE, checked, stated, text_limit
from intake.attachments import services as files
from intake.chats.idempotency import claim, keep
from intake.chats.tree import turns_of
from intake.chats.usage import together
from intake.llm.chat_options import ChatOptions
from intake.models import Conversation, PausedTurn, Turn
from intake.models.conversations import OPEN, TITLE_LENGTH
from intake.models.tools import WAITS_FOR, Pause

MAX_MESSAGE_LENGTH = 32_000
# As the number of a parent: the turn is a first one.
NO_PARENT = 0
# No turn has a higher number, and the database has no larger integer.
LARGEST_NUMBER = 2**31 - 1
CHANGED_BY_A_TURN = ["turn_count", "current_number", "has_versions", "last_active_at", "archived_at", "expires_at"]
NO_NAME = _("Enter a name. It cannot begin with a hyphen.")
SERVER_RESTARTED = _("Interrupted: the server was restarted.")
IS_WHOLE = _("This answer is complete. There is nothing to continue.")


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """The end of an answer, with the text to keep."""

    text: str
    status: Turn.Status
    tool_calls: list[dict[str, Any]] = field(default_factory=list)
    reasoning: str = ""
    is_recall: bool = False
    error: dict[str, Any] | None = None
    # In the format of `intake.chats.usage`.
    usage: dict[str, Any] | None = None
    # In the format of `intake.chats.prompts`.
    prompt: str = ""
    # Of an answer whose calls wait for the person.
    pause: Pause | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """The present state of a running answer."""

    turn_id: int
    user_id: int
    attempt: int = 1
    text: str
    reasoning: str = ""
    tool_calls: list[dict[str, Any]] = field(default_factory=list)

    def columns(self) -> tuple[str, str, str]:
        return without_nul(self.text), without_nul(self.reasoning), json.dumps(self.tool_calls)


# A turn that another transaction has locked is skipped, so that the other answers do not wait for it.
_SAVE_PROGRESS = """
UPDATE intake_conversation_turns SET assistant_message = %s, reasoning = %s, tool_calls = %s::jsonb, updated_at = %s
 WHERE user_id = %s
   AND id = (SELECT id FROM intake_conversation_turns
              WHERE user_id = %s AND id = %s AND attempt = %s AND status = 'streaming'
                FOR NO KEY UPDATE SKIP LOCKED)"""


def _as_id(value: object) -> object:
    if not isinstance(value, str):
        return value
    if len(value) > LONGEST_REFERENCE:
        raise PydanticKnownError("string_too_long", {"max_length": LONGEST_REFERENCE})
    return parse_id(value)


def _few(value: object) -> object:
    """Before any id of them is looked at, which may be an id of nothing. A tuple, as the strict model takes no list."""
    if not isinstance(value, list):
        return value
    if len(value) > files.MOST_OF_A_MESSAGE:
        sizes = {"field_type": "List", "max_length": files.MOST_OF_A_MESSAGE, "actual_length": len(value)}
        raise PydanticKnownError("too_long", sizes)
    return tuple(value)


def _as_project(name: str) -> str:
    label = project_label(checked(name, field="project", max_length=LONGEST_PROJECT, may_be_blank=True))
    # In searches it would mean everything but the project.
    if label.startswith("-"):
        raise InvalidInput(errors={"project": [NO_NAME]})
    return label


Id = Annotated[UUID, BeforeValidator(_as_id), WithJsonSchema({"type": "string", "maxLength": LONGEST_REFERENCE})]
TurnNumber = Annotated[int, Field(ge=1, le=LARGEST_NUMBER)]


class TurnRequest(ChatOptions):
    """The request's body: a message, or what to do with a turn of the conversation, which is named by its number.

    What it says of the model and so on holds for the chat from now on.
    """

    model_config = ConfigDict(frozen=True)

    message: Annotated[
        str | None,
        Field(
            description=f"What the person says: 1 to {MAX_MESSAGE_LENGTH:,} characters, or none with files. Not with "
            "`regenerate` or `continue`.",
            json_schema_extra=text_limit(MAX_MESSAGE_LENGTH),
        ),
    ] = None
    attachments: Annotated[
        tuple[Id, ...],
        Field(
            max_length=files.MOST_OF_A_MESSAGE,
            description="The ids of files that were uploaded for this message, in its order. Another version of a "
            "message keeps its files.",
        ),
        BeforeValidator(_few),
    ] = ()
    conversation_id: Annotated[Id | None, Field(description="The conversation to go on with, if any.")] = None
    parent: Annotated[
        int | None,
        Field(
            ge=0,
            le=LARGEST_NUMBER,
            description="The turn that the message follows, 0 for none. By default the end of the chosen path.",
        ),
    ] = None
    edit: Annotated[
        TurnNumber | None, Field(description="The turn of which the message is another version, answered anew.")
    ] = None
    regenerate: Annotated[
        TurnNumber | None, Field(description="The turn whose message is answered once more, as another version.")
    ] = None
    resume: Annotated[
        TurnNumber | None,
        Field(
            alias="continue",
            description="The turn whose answer goes on where it broke off or was cut at the model's limit.",
        ),
    ] = None
    project: Annotated[
        str | None,
        AfterValidator(lambda name: name and _as_project(name)),
        Field(
            description="The project of a new conversation, if it belongs to one.",
            json_schema_extra=text_limit(LONGEST_PROJECT),
        ),
    ] = None
    newest_only: Annotated[
        bool,
        Field(
            description="The model gets only the newer half of the earlier messages that would fit: for a conversation "
            "that was longer than its window."
        ),
    ] = False

    @model_validator(mode="after")
    def _is_one_request(self) -> Self:
        about = [self.parent, self.edit, self.regenerate, self.resume]
        if sum(number is not None for number in about) > 1:
            raise stated("Give at most one of `parent`, `edit`, `regenerate` and `continue`.")
        if self.conversation_id is None and any(about):
            raise stated("A turn is named by its conversation: give `conversation_id`.")
        if self.attachments and any(about[1:]):
            raise stated("Files belong to a new message: not with `edit`, `regenerate` or `continue`.")
        if len(set(self.attachments)) < len(self.attachments):
            raise InvalidInput(errors={"attachments": [_("Each file once.")]})
        if self.project and self.conversation_id is not None:
            raise stated("Only a new conversation takes `project`; a present one is moved.")
        return self

    def check(self, caller: Caller, *, is_new: bool = False) -> None:
        """Also raises `InvalidInput` for a message too many or too few, and for a visitor's project."""
        needs_message = self.regenerate is None and self.resume is None
        if needs_message != (self.message is not None) and not self.attachments:
            requested = "Field required" if needs_message else "Not with `regenerate` or `continue`."
            raise InvalidInput(errors={"message": [requested]})
        super().check(caller, is_new=is_new or self.conversation_id is None)
        if self.project and not caller.is_registered:
            raise InvalidInput(errors={"project": [_("Register to use projects.")]})

    def as_data(self) -> dict[str, Any]:
        """As JSON, by which a repeated request is recognised."""
        data = self.model_dump(mode="json", exclude_none=True, exclude_defaults=True)
        return data | ({"temperature": None} if self.resets_temperature else {})


def create_turn(request: TurnRequest, *, caller: Caller, now: datetime, key: str | None = None) -> Turn:
    """Saves what the person says before any model is asked; returns the turn to answer, or to show as it is.

    Raises `InvalidInput` for a blank or overlong message and for a whole answer that is to be continued, `NotFound` for
    a conversation, turn or file that is not the caller's, `StillRunning` while the turn or the key is in use,
    `IdempotencyKeyReused`, `QuotaExceeded`.
    """
    ids, number = request.attachments, request.edit or request.regenerate or request.resume
    try:
        with transaction.atomic(savepoint=False):
            # 1. Idempotency. A key that was sent before stands for its turn, and adds no other.
            claimed = claim(caller=caller, key=key, operation="chat", data=request.as_data(), now=now) if key else None
            if claimed is not None and claimed.answer:
                return _sent_before(json.loads(claimed.answer)["turn"], caller, keeps_text=request.resume is not None)
            # 2. Numbering. The conversation's row is locked until the commit, so its turns are numbered one by one.
            if request.conversation_id is None:
                conversation = Conversation(user_id=caller.user_id, started_at=now, last_active_at=now)
                conversation.project = project_for(caller, request.project or "")
                conversation.expires_at = now if request.temporary else None
                request.apply_to(conversation)
            else:
                conversation = lock_conversation(caller, request.conversation_id, options=request)
            # 3. Branches. A version follows what its turn follows; a message follows `parent`, or the chosen path.
            before, count, message = None, len(ids), request.message
            follows = conversation.current_number if request.parent is None else request.parent
            if number is not None:
                before = ended_turn(conversation, number)
                count, follows = before.attachment_count, before.parent_number
                message = before.user_message if message is None else clean_message(message, may_be_blank=count > 0)
            else:
                message = clean_message(message or "", may_be_blank=count > 0)
                before = close_waiting(conversation.turns.filter(turn_number=follows).first()) if follows else None
                if request.parent and before is None:
                    raise NotFound
            # 4. Retries. The same message reopens the turn whose answer failed, unless another turn follows it.
            is_retry = (
                before is not None
                and (before.status, before.user_message) == (Turn.Status.FAILED, message)
                and before.attachment_count == count
                and not (ids or has_children(before))
            )
            if before is not None and (is_retry or request.resume is not None):
                if request.resume is not None and not before.can_be_continued:
                    raise InvalidInput(IS_WHOLE, errors={"resume": [IS_WHOLE]})
                turn = reopen(before, keeps_text=request.resume is not None)
            else:
                turn = conversation.next_turn(
                    follows=follows, said_at=now, user_message=message, attachment_count=count
                )
                conversation.current_number, conversation.archived_at = turn.turn_number, None
                conversation.expires_at = conversation.expires_at and now + timedelta(days=1)  # of a temporary chat
                if request.conversation_id is None:
                    conversation.title = title_from(message or files.first_name(caller, ids))
                conversation.save(update_fields=None if conversation._state.adding else CHANGED_BY_A_TURN)
                # 5. Quotas. Memory's receiver counts the message before its row is inserted, and may refuse it.
                turn.save(force_insert=True)
                if ids:
                    files.claim(turn, ids)
                elif count and before is not None:
                    files.copy(before, turn)
                # Here and not at the commit: the account may have been deleted since the caller was authenticated.
                connection.check_constraints()
            if claimed is not None:
                keep(claimed, {"turn": turn.pk})
            return turn
    except IntegrityError:
        raise AuthenticationRequired from None


def _sent_before(turn_id: int, caller: Caller, *, keeps_text: bool) -> Turn:
    """Answered again if its answer is incomplete and nothing follows it; otherwise followed, or shown as it is."""
    again = reopen_turn(caller=caller, turn_id=turn_id, keeps_text=keeps_text)
    turn = again or Turn.objects.for_caller(caller).filter(pk=turn_id).first()
    if turn is None:
        raise NotFound(_("The message was sent before, and has been deleted since."))
    turn.is_replay = again is None
    return turn


def ended_turn(conversation: Conversation, turn_number: int) -> Turn:
    """Raises `NotFound`, and `StillRunning` while it is being answered."""
    turn = turns_of(conversation).filter(turn_number=turn_number).first()
    if turn is None:
        raise NotFound
    close_waiting(turn)
    if not turn.has_ended:
        raise StillRunning(_("This answer is still being written. Stop it first, or try again when it is done."))
    return turn


def reopen_turn(*, caller: Caller, turn_id: int, keeps_text: bool = False) -> Turn | None:
    """Reopen a turn of the caller to answer it again; None if its answer is complete or running, or if a turn follows
    it.
    """
    with transaction.atomic():
        # The conversation is locked before its turns, as everywhere.
        holding = Conversation.objects.for_caller(caller).filter(turns__pk=turn_id)
        conversation = holding.select_for_update(of=("self",)).first()
        if conversation is None:
            return None
        unanswered = Q(pk=turn_id, status__in=(Turn.Status.FAILED, Turn.Status.INTERRUPTED))
        turn = conversation.turns.filter(unanswered).first()
        return None if turn is None or has_children(turn) else reopen(turn, keeps_text=keeps_text)


def save_progress(parts: Sequence[Progress], *, now: datetime) -> set[int]:
    """Save the present text and calls of all these answers, so that a killed server loses only a moment of them.

    Returns the saved turns: those that are still open for their attempts, and not locked by another transaction.
    """
    changes: list[PersonalChange] = [
        (
            part.user_id,
            _SAVE_PROGRESS,
            [*part.columns(), now, part.user_id, part.user_id, part.turn_id, part.attempt],
        )
        for part in parts
    ]
    return {part.turn_id for part, count in zip(parts, change_for_each(changes), strict=True) if count}


def finish_turn(*, turn_id: int, answer: Answer, attempt: int = 1) -> Turn | None:
    """Close a turn with its answer. A turn that was deleted, restarted or saved meanwhile stays unchanged; returns
    None.

    A turn that another process has interrupted stays so, and gets what was written since the last save.
    """
    with transaction.atomic(savepoint=False):
        is_mine = Q(pk=turn_id, attempt=attempt, status__in=(Turn.Status.STREAMING, Turn.Status.INTERRUPTED))
        turn = Turn.objects.select_for_update().filter(is_mine).first()
        if turn is None:
            return None
        before = turn.assistant_message, turn.reasoning, turn.tool_calls
        written = without_nul(answer.text), without_nul(answer.reasoning), answer.tool_calls
        if turn.status == Turn.Status.STREAMING:
            turn.status = answer.status
        elif written == before:
            return None
        turn.assistant_message, turn.reasoning, turn.tool_calls = written
        turn.is_recall = answer.is_recall
        turn.error, turn.prompt = answer.error, answer.prompt
        turn.usage = answer.usage if turn.usage is None else together(turn.usage, answer.usage)
        changed = (
            "assistant_message",
            "reasoning",
            "status",
            "tool_calls",
            "is_recall",
            "error",
            "usage",
            "prompt",
            "updated_at",
        )
        turn.save(update_fields=changed)
        if turn.status == Turn.Status.WAITING and answer.pause is not None:
            about = {"user_id": turn.user_id, "turn_id": turn.pk}
            calls, state = answer.pause.calls, answer.pause.state
            PausedTurn.objects.create(**about, calls=calls, state=state, until=timezone.now() + WAITS_FOR)
        return turn


def save_exchange(
    *,
    conversation: Conversation,
    user_message: str,
    assistant_message: str,
    said_at: datetime,
    parent: int | None = None,
) -> Turn:
    """Save a message and its answer at once, with their original time, for data sets and tests.

    `parent`: the number of the turn that it follows, 0 for none; without it, it follows the end of the chosen path,
    which ends with the new turn.
    """
    with transaction.atomic(savepoint=False):
        mine = Conversation.objects.filter(user=conversation.user_id)
        locked = mine.select_for_update().get(pk=conversation.pk)
        turn = locked.next_turn(
            follows=locked.current_number if parent is None else parent,
            said_at=said_at,
            user_message=without_nul(user_message),
            assistant_message=without_nul(assistant_message),
            status=Turn.Status.COMPLETE,
        )
        locked.current_number = turn.turn_number
        locked.save(update_fields=CHANGED_BY_A_TURN)
        turn.save(force_insert=True)
    conversation.turn_count = conversation.current_number = turn.turn_number
    return turn


def open_turns(*, silent_since: datetime) -> list[Turn]:
    """Turns that are being answered without a sign of life since: at most a thousand, the most silent first."""
    silent = Turn.objects.filter(status=Turn.Status.STREAMING, updated_at__lt=silent_since)
    return list(silent.order_by("updated_at").only("pk", "user_id", "attempt", "updated_at")[:1000])


def interrupt_turn(*, turn_id: int, attempt: int, renewed_at: datetime | None = None) -> bool:
    """Close a running or waiting turn with its saved text; a writer that still runs learns it when it renews its lease.

    `renewed_at`: when its dead writer renewed the lease; a later renewal keeps the turn open, and otherwise the
    turn says why it ended. Without it, a person has stopped the answer. A worker may write no other column of a turn
    than the status, the error and the time. Returns whether the turn was open.
    """
    with transaction.atomic():
        is_open = Q(pk=turn_id, status__in=OPEN, attempt=attempt)
        if renewed_at is not None:
            is_open &= Q(updated_at__lte=renewed_at)
        turn = Turn.objects.select_for_update().filter(is_open).first()
        if turn is None:
            return False
        if turn.status == Turn.Status.WAITING:
            close_waiting(turn)
            return True
        turn.status = Turn.Status.INTERRUPTED
        if renewed_at is not None:
            turn.error = {"code": Unavailable.code, "detail": SERVER_RESTARTED, "retryable": Unavailable.retryable}
        turn.save(update_fields=["status", "error", "updated_at"])
        return True


def close_waiting(turn: Turn | None) -> Turn | None:
    """End a turn that waits, because its conversation goes on without an answer, or nobody gave one."""
    if turn is not None and turn.status == Turn.Status.WAITING:
        PausedTurn.objects.filter(user=turn.user_id, turn_id=turn.pk).delete()
        turn.status = Turn.Status.INTERRUPTED
        turn.save(update_fields=["status", "updated_at"])
    return turn


def clean_message(message: str, *, may_be_blank: bool = False) -> str:
    """The message as it is stored; raises `InvalidInput` naming the field. A message with files may be blank."""
    message = without_nul(message).strip()
    if not message and not may_be_blank:
        raise InvalidInput(_("The message is empty."), errors={"message": [_("Enter some text.")]})
    if len(message) > MAX_MESSAGE_LENGTH:
        message_of_limit = _("At most %(count)s characters; this has %(length)s.")
        limit: str = Sentence(message_of_limit, count=MAX_MESSAGE_LENGTH, length=len(message))
        raise InvalidInput(_("The message is too long."), errors={"message": [limit]})
    return message


def without_nul(text: str) -> str:
    """PostgreSQL can store every character except this one."""
    return text.replace("\x00", "")


def title_from(message: str) -> str:
    """A title from the first message: its first line, cut at a word."""
    return shortened(" ".join(message.split("\n", 1)[0].split()), TITLE_LENGTH)


# The Markdown that models write titles in: signs before all of it and a heading's closing sign; links; pairs in it.
_SIGNS_BEFORE = re.compile(r"(?:#{1,6}\s+|>\s*|[-*•+]\s+)+")
_LINK = re.compile(r"!?\[([^\[\]]*)\]\([^()\s]*\)")
_PAIR = re.compile(r"(?<![\w*])(\*{1,3}|~~)(?=\S)([^*~]+)(?<=\S)\1(?!\w)|(?<!`)(`{1,3})(?!`)([^`]+)\3(?!`)")
_UNDERLINES = re.compile(r"(_{1,3})(?=[^\s_])(.*[^\s_])\1")
_SIGNS_AFTER = re.compile(r"(?:\s+#+|[\s:\uff1a-]+)$")
_QUOTES = ('""', "''", "“”", "„“", "„”", "«»", "»«", "「」", "『』")
_DOUBLE_QUOTES = frozenset('"“”„«»')


def without_markup(title: str) -> str:
    """A title that a model wrote, as plain text: without Markdown, and without quotation marks around all of it."""
    title, before = _LINK.sub(r"\1", title.strip()), ""
    while title != before:
        before = title
        if signs := _SIGNS_BEFORE.match(title):
            title = title[signs.end() :]
        title = _PAIR.sub(lambda pair: pair[2] or pair[4], title)
        if underlined := _UNDERLINES.fullmatch(title):
            title = underlined[2]
        title = _SIGNS_AFTER.sub("", _unquoted(title.strip()))
    return title


def _unquoted(title: str) -> str:
    inner = title[1:-1]
    if title[:1] + title[-1:] in _QUOTES and not {title[0], title[-1]} & {*inner}:
        return inner.strip()
    marks = [character for character in title if character in _DOUBLE_QUOTES]
    # The other one was cut off.
    return title.strip(marks[0]).strip() if len(marks) == 1 else title


def lock_conversation(caller: Caller, conversation_id: UUID, *, options: ChatOptions | None = None) -> Conversation:
    """The caller's conversation with its row locked; sets how it is answered from now on.

    Raises `NotFound` if it is not the caller's.
    """
    try:
        conversation = Conversation.objects.for_caller(caller).select_for_update().get(pk=conversation_id)
    except Conversation.DoesNotExist:
        raise NotFound from None
    if options is not None and (changed := options.apply_to(conversation)):
        conversation.save(update_fields=changed)
    return conversation


def has_children(turn: Turn) -> bool:
    """Whether another turn follows; call it under the conversation's lock."""
    after = Turn.objects.filter(user=turn.user_id, conversation=turn.conversation_id)
    return after.filter(parent_number=turn.turn_number).exists()


def reopen(turn: Turn, *, keeps_text: bool = False) -> Turn:
    """Reopen an ended turn, of a conversation whose row the caller has locked, to answer it again.

    `keeps_text`: the next text continues the existing answer.
    """
    turn.status, turn.error = Turn.Status.STREAMING, None
    turn.attempt += 1
    # A call that nobody answered before a stop is over, and waits no more when the answer waits for another one.
    turn.tool_calls = [each for each in turn.tool_calls if "decision" in each.get("approval", {"decision": ""})]
    if not keeps_text:
        turn.assistant_message, turn.reasoning, turn.usage, turn.prompt = "", "", None, ""
        # Data that the earlier attempt stored stays stored, and can still be undone.
        turn.tool_calls = [call for call in turn.tool_calls if "place" in call]
    turn.save()
    return turn
