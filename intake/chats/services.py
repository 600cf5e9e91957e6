"""Every write to conversations and turns, each in its own transaction."""

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from django.db import IntegrityError, connection, transaction
from django.db.models import Q

from core.errors import AuthenticationRequired, InvalidInput, NotFound
from core.isolation.acting import Caller, PersonalChange, change_for_each, project_for
from core.text import Sentence, shortened
from core.text import gettext_noop as _
from intake.attachments import services as files
from intake.chats.usage import together
from intake.models import Conversation, Turn
from intake.models.conversations import TITLE_LENGTH

MAX_MESSAGE_LENGTH = 32_000
# As the number of a parent: the turn is a first one.
NO_PARENT = 0
# How long a temporary chat is kept, at most, after its last message.
TEMPORARY_FOR = timedelta(days=1)


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


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatChoices:
    """How a chat is answered from now on; None keeps the present value, or the default of a new chat.

    `model`: a checked name, or empty for the user's default. `keeps_default_temperature` resets a temperature.
    `is_temporary`, `project`: only for a new chat.
    """

    model: str | None = None
    instructions: str | None = None
    temperature: float | None = None
    keeps_default_temperature: bool = False
    uses_memory: bool | None = None
    proposes: bool | None = None
    is_temporary: bool | None = None
    project: str = ""

    def applied_to(self, conversation: Conversation) -> list[str]:
        """Set them on a conversation whose row the caller has locked (or just created); returns the changed fields."""
        requested: dict[str, Any] = {
            "model": self.model,
            "instructions": None if self.instructions is None else without_nul(self.instructions).strip(),
            "temperature": self.temperature,
            "uses_memory": self.uses_memory,
            "proposes": self.proposes,
        }
        requested = {name: value for name, value in requested.items() if value is not None}
        if self.keeps_default_temperature:
            requested["temperature"] = None
        for name, value in requested.items():
            setattr(conversation, name, value)
        return list(requested)


NO_CHOICES = ChatChoices()


TakeRoom = Callable[[int | None, str], None]


def begin_turn(
    *,
    caller: Caller,
    message: str,
    conversation_id: UUID | None,
    now: datetime,
    parent: int | None = None,
    choices: ChatChoices = NO_CHOICES,
    attachments: Sequence[UUID] = (),
    take_room: TakeRoom | None = None,
) -> Turn:
    """Save the user's message before any model is asked.

    `parent`: the number of the turn that it follows, or `NO_PARENT`; without it, it follows the end of the chosen path.
    `attachments`: the files of the message, which may then be blank. `take_room`: checks the quota before the message
    is saved (`memory.quotas.take_message`). The same message sent again after a failure resumes the failed turn, so
    that a retry adds no turn. Raises `InvalidInput` for a blank or overlong message, `NotFound` for a conversation, a
    parent or a file that is not the caller's, `QuotaExceeded`.
    """
    message = clean_message(message, may_be_blank=bool(attachments))
    ids = files.clean_ids(attachments) if attachments else []
    try:
        with transaction.atomic(savepoint=False):
            conversation = _open_conversation(caller, conversation_id, message, now, choices)
            if not message and conversation._state.adding:
                conversation.title = title_from(files.first_name(caller, ids))
            return begin_in(conversation, message=message, parent=parent, now=now, attachments=ids, take_room=take_room)
    except IntegrityError:
        # The account was deleted after the caller was authenticated.
        raise AuthenticationRequired from None


def begin_in(
    conversation: Conversation,
    *,
    message: str,
    parent: int | None,
    now: datetime,
    attachments: Sequence[UUID] = (),
    version_of: Turn | None = None,
    take_room: TakeRoom | None = None,
) -> Turn:
    """`begin_turn` with a clean message, in a conversation whose row the caller has locked, or that is saved here.

    The new turn gets these files, or those of the turn of which it is a version.
    """
    follows = conversation.current_number if parent is None else parent
    is_new = conversation._state.adding or bool(attachments)
    failed = None if is_new else _failed_turn(conversation, message, follows)
    if failed is not None:
        return take_up(failed)
    if take_room is not None:
        take_room(conversation.user_id, message)
    count = version_of.attachment_count if version_of is not None else len(attachments)
    turn = _add_turn(conversation, user_message=message, said_at=now, follows=follows, attachment_count=count)
    if version_of is not None and count:
        files.copy(version_of, turn)
    elif attachments:
        files.claim(turn, attachments)
    # Check here that the user still exists, not at the end of the caller's transaction.
    connection.check_constraints()
    return turn


def take_up_turn(*, caller: Caller, turn_id: int, keeps_text: bool = False) -> Turn | None:
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
        return None if turn is None or has_children(turn) else take_up(turn, keeps_text=keeps_text)


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
        turn.error = answer.error
        turn.usage = answer.usage if turn.usage is None else together(turn.usage, answer.usage)
        changed = (
            "assistant_message",
            "reasoning",
            "status",
            "tool_calls",
            "is_recall",
            "error",
            "usage",
            "updated_at",
        )
        turn.save(update_fields=changed)
        return turn


def save_exchange(
    *,
    conversation: Conversation,
    user_message: str,
    assistant_message: str,
    said_at: datetime,
    parent: int | None = None,
) -> Turn:
    """Save a message and its answer at once, with their original time: for imported exchanges.

    `parent`: the number of the turn that it follows, or `NO_PARENT`; without it, it follows the end of the chosen path.
    Turns with the same parent are versions of each other. The chosen path ends with the new turn. Raises
    `Conversation.DoesNotExist`, `NotFound` for a missing parent. A failure aborts the enclosing transaction.
    """
    with transaction.atomic(savepoint=False):
        mine = Conversation.objects.filter(user=conversation.user_id)
        locked = mine.select_for_update().get(pk=conversation.pk)
        turn = _add_turn(
            locked,
            user_message=without_nul(user_message),
            assistant_message=without_nul(assistant_message),
            status=Turn.Status.COMPLETE,
            said_at=said_at,
            follows=locked.current_number if parent is None else parent,
        )
    conversation.turn_count = conversation.current_number = turn.turn_number
    return turn


def open_turns(*, silent_since: datetime) -> list[Turn]:
    """Turns that are being answered without a sign of life since: at most a thousand, the most silent first."""
    silent = Turn.objects.filter(status=Turn.Status.STREAMING, updated_at__lt=silent_since)
    return list(silent.order_by("updated_at").only("pk", "user_id", "attempt", "updated_at")[:1000])


def interrupt_turn(*, turn_id: int, attempt: int, unless_after: datetime | None = None) -> bool:
    """Close a running turn with its saved text; a writer that still runs learns it when it renews its lease.

    Changes only the status, because a worker may write nothing else of a turn. Returns whether it was still open, and
    without a renewal after `unless_after`.
    """
    with transaction.atomic():
        is_open = Q(pk=turn_id, status=Turn.Status.STREAMING, attempt=attempt)
        if unless_after is not None:
            is_open &= Q(updated_at__lte=unless_after)
        turn = Turn.objects.select_for_update().filter(is_open).first()
        if turn is None:
            return False
        turn.status = Turn.Status.INTERRUPTED
        turn.save(update_fields=["status", "updated_at"])
        return True


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


def _open_conversation(
    caller: Caller, conversation_id: UUID | None, message: str, now: datetime, choices: ChatChoices
) -> Conversation:
    if conversation_id is not None:
        return lock_conversation(caller, conversation_id, choices=choices)
    conversation = Conversation(
        user_id=caller.user_id,
        title=title_from(message),
        started_at=now,
        last_active_at=now,
        expires_at=now + TEMPORARY_FOR if choices.is_temporary else None,
        project=project_for(caller, choices.project),
    )
    choices.applied_to(conversation)
    return conversation


def lock_conversation(caller: Caller, conversation_id: UUID, *, choices: ChatChoices = NO_CHOICES) -> Conversation:
    """The caller's conversation with its row locked; sets how it is answered from now on.

    Raises `NotFound` if it is not the caller's.
    """
    try:
        conversation = Conversation.objects.for_caller(caller).select_for_update().get(pk=conversation_id)
    except Conversation.DoesNotExist:
        raise NotFound from None
    if changed := choices.applied_to(conversation):
        conversation.save(update_fields=changed)
    return conversation


def _failed_turn(conversation: Conversation, message: str, number: int | None) -> Turn | None:
    failed = Q(turn_number=number, status=Turn.Status.FAILED, user_message=message, attachment_count=0)
    turn = conversation.turns.filter(failed).first()
    return None if turn is None or has_children(turn) else turn


def has_children(turn: Turn) -> bool:
    """Whether another turn follows; call it under the conversation's lock."""
    after = Turn.objects.filter(user=turn.user_id, conversation=turn.conversation_id)
    return after.filter(parent_number=turn.turn_number).exists()


def take_up(turn: Turn, *, keeps_text: bool = False) -> Turn:
    """Reopen an ended turn, of a conversation whose row the caller has locked, to answer it again.

    `keeps_text`: the next text continues the existing answer.
    """
    turn.status, turn.error = Turn.Status.STREAMING, None
    turn.attempt += 1
    if not keeps_text:
        turn.assistant_message, turn.reasoning, turn.usage = "", "", None
        # Data that the earlier attempt stored stays stored, and can still be undone.
        turn.tool_calls = [call for call in turn.tool_calls if "place" in call]
    turn.save()
    return turn


def _add_turn(conversation: Conversation, *, said_at: datetime, follows: int | None, **fields: Any) -> Turn:
    """A new turn at the end of the chosen path, of a conversation whose row the caller has locked, or that is saved
    here.

    Raises `NotFound` if the turn to follow does not exist.
    """
    if (
        follows
        and follows != conversation.current_number
        and not conversation.turns.filter(turn_number=follows).exists()
    ):
        raise NotFound
    conversation.has_versions = conversation.has_versions or (follows or NO_PARENT) != conversation.turn_count
    conversation.turn_count += 1
    conversation.current_number = conversation.turn_count
    conversation.last_active_at = max(conversation.last_active_at, said_at)
    conversation.archived_at = None
    changed = ["turn_count", "current_number", "has_versions", "last_active_at", "archived_at"]
    is_temporary = conversation.expires_at is not None
    if is_temporary:
        conversation.expires_at = said_at + TEMPORARY_FOR
        changed.append("expires_at")
    if conversation._state.adding:
        conversation.save(force_insert=True)
    else:
        conversation.save(update_fields=changed)
    return Turn.objects.create(
        conversation=conversation,
        user_id=conversation.user_id,
        turn_number=conversation.turn_count,
        parent_number=follows or None,
        is_temporary=is_temporary,
        said_at=said_at,
        **fields,
    )
