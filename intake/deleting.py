"""Forgetting on request: a turn, a conversation or a whole account, with everything that was made of them.

What must hold, whoever else is writing at the same moment:
1. a conversation's row is locked before its turns are touched, as everywhere, so that no turn is added to what goes;
2. a turn's number is never given again: links lead to the turn they were made for, or to nothing; so a branch whose
   origin is gone still knows that it is one;
3. an answer that is still being written is told to stop, finds its turn gone, and is dropped (`services.finish_turn`);
4. what Redis has of the answers goes with them, once the deletion is committed (`forget_answers`).
"""

import logging
import re
from collections import Counter
from collections.abc import Collection, Iterable
from datetime import datetime, timedelta
from os.path import commonprefix
from uuid import UUID

from django.contrib.admin.models import LogEntry
from django.contrib.contenttypes.models import ContentType
from django.db import IntegrityError, connection, transaction
from django.db.models import Q, TextField
from django.db.models.functions import Cast
from django.dispatch import Signal
from django.utils import timezone

from core.errors import Conflict, InvalidInput, NotFound
from core.isolation.acting import acting_as
from core.isolation.caller import Caller
from intake import certificates, changes
from intake.accounts import activity
from intake.answers import streams
from intake.certificates import DeletionCertificate
from intake.links import conversation_path
from intake.models import Activity, Conversation, Turn, User
from intake.models.conversations import TITLE_LENGTH, TitledBy
from intake.paths import Tree, turns_of
from intake.services import lock_conversation, title_from, without_nul

logger = logging.getLogger(__name__)

# Sent with `user_id`, `conversation_id` and `numbers` in the transaction that removes turns, before it does.
turns_deleted = Signal()

# Returns those of whose answers Redis may still have something.
_DELETE_TURNS = """
WITH gone AS (DELETE FROM intake_conversation_turns WHERE user_id = %s RETURNING id, updated_at)
SELECT id FROM gone WHERE updated_at > now() - make_interval(secs => %s)
"""
_DELETE_SOME_TURNS = """
WITH gone AS (
    DELETE FROM intake_conversation_turns
     WHERE user_id = %(user_id)s AND conversation_id = %(conversation_id)s AND turn_number = ANY(%(numbers)s)
    RETURNING id, updated_at
)
SELECT id FROM gone WHERE updated_at > now() - make_interval(secs => %(recent)s)
"""
# How often an account's deletion begins anew when the person was still writing somewhere else.
TRIES = 3


def rename_conversation(*, caller: Caller, conversation_id: UUID, title: str) -> Conversation:
    """Raises `InvalidInput` for a blank or overlong title, `NotFound` for what is not the caller's."""
    title = " ".join(without_nul(title).split())
    if not 1 <= len(title) <= TITLE_LENGTH:
        raise InvalidInput("The title is not valid.", errors={"title": [f"1 to {TITLE_LENGTH} characters."]})
    with transaction.atomic():
        conversation = lock_conversation(caller, conversation_id)
        conversation.title, conversation.titled_by = title, TitledBy.PERSON
        conversation.save(update_fields=["title", "titled_by"])
        changes.tell(caller, conversation_id)
    return conversation


def delete_turn(*, caller: Caller, conversation_id: UUID, turn_number: int, is_noted: bool = True) -> bool:
    """Remove one exchange; what follows it moves up to what it followed.

    `is_noted`: whether the person's activity has a line of its own for it.
    Returns whether the conversation is still there: its last turn takes it along.
    """
    with transaction.atomic():
        conversation = lock_conversation(caller, conversation_id)
        turn = turns_of(conversation).filter(turn_number=turn_number).first()
        if turn is None:
            raise NotFound
        turns_of(conversation).filter(parent_number=turn_number).update(parent_number=turn.parent_number)
        if is_noted:
            activity.note_for_caller(caller, Activity.TURN_DELETED)
        return _delete_turns(conversation, turn, [turn_number], caller)


def delete_from(*, caller: Caller, conversation_id: UUID, turn_number: int, expected: int) -> bool:
    """Remove an exchange with all that follow it, in every version.

    `expected`: how many turns the person was told that go; raises `Conflict` if they are not so many any more, so that
    nothing goes unannounced. Returns whether the conversation is still there: its last turn takes it along.
    """
    with transaction.atomic():
        conversation = lock_conversation(caller, conversation_id)
        tree = Tree.of(conversation)
        if turn_number not in tree:
            raise NotFound
        numbers = tree.below(turn_number)
        if len(numbers) != expected:
            raise Conflict(
                f"The turn and what follows it are {len(numbers)} turns, not {expected}. Nothing was deleted."
            )
        turn = turns_of(conversation).get(turn_number=turn_number)
        activity.note_for_caller(caller, Activity.TURN_DELETED, count=len(numbers))
        return _delete_turns(conversation, turn, numbers, caller)


def delete_older(*, caller: Caller, conversation_id: UUID, before: datetime) -> int:
    """Remove the turns of a conversation that were said before a moment, and the conversation if none is left.

    What was said later moves up. Returns how many turns went; none where the conversation is gone or not the caller's.
    """
    try:
        with transaction.atomic():
            conversation = lock_conversation(caller, conversation_id)
            said = turns_of(conversation).filter(said_at__lt=before)
            old = sorted(said.values_list("turn_number", flat=True))
            if old:
                _move_up(conversation, past=old)
                _delete_turns(conversation, turns_of(conversation).get(turn_number=old[0]), old, caller)
            return len(old)
    except NotFound:
        return 0


def delete_conversation(*, caller: Caller, conversation_id: UUID, is_noted: bool = True) -> None:
    """Remove a conversation with all its turns. Raises `NotFound` for what is not the caller's.

    `is_noted`: as for a turn.
    """
    with transaction.atomic():
        conversation = lock_conversation(caller, conversation_id)
        _delete(conversation, caller)
        if is_noted and conversation.expires_at is None:
            activity.note_for_caller(caller, Activity.CHAT_DELETED)


def delete_conversations(*, caller: Caller, conversation_ids: Collection[UUID]) -> None:
    """Remove those of the caller's conversations with all their turns; what quotes them is looked for once."""
    with transaction.atomic():
        wanted = Conversation.objects.for_caller(caller).filter(pk__in=conversation_ids).order_by("pk")
        gone = list(wanted.select_for_update())
        for conversation in gone:
            conversation.delete()
        if gone:
            _withdraw_quotes(caller, *(conversation_path(pk) for pk in conversation_ids))


def delete_account(*, user: User) -> DeletionCertificate:
    """Remove a person and everything they ever said or stored here, in one transaction: all of it or nothing.

    Returns what went.
    """
    user_id = user.pk
    for attempt in range(1, TRIES + 1):
        try:
            with acting_as(user), transaction.atomic():
                rows = _delete_account(user_id)
            break
        except IntegrityError:
            # Something of theirs was written while the rest was being removed.
            if attempt == TRIES:
                raise
    logger.info("The account %d was deleted", user_id)
    return certificates.certify(user_id=user_id, at=timezone.now(), rows=rows)


def forget_answers(turn_ids: Iterable[int]) -> None:
    """Once the deletion is committed."""
    ids = list(turn_ids)
    if ids:
        transaction.on_commit(lambda: streams.forget(ids), robust=True)


def _delete_turns(conversation: Conversation, top: Turn, numbers: list[int], caller: Caller) -> bool:
    """Remove these turns, `top` above the others. They are not loaded one by one: there may be ten thousand."""
    where = {"user_id": conversation.user_id, "conversation_id": conversation.pk, "numbers": numbers}
    turns_deleted.send(Turn, **where)
    with connection.cursor() as cursor:
        cursor.execute(_DELETE_SOME_TURNS, {**where, "recent": streams.KEPT_SECONDS})
        forget_answers([turn_id for (turn_id,) in cursor.fetchall()])
    if top.parent_number is not None:
        branches = Conversation.objects.filter(user=conversation.user_id, branched_from=conversation.pk)
        branches.filter(branched_after__in=numbers).update(branched_after=top.parent_number)
    _withdraw_quotes(caller, *(conversation_path(conversation.pk, turn_number=number) for number in numbers))
    tree = Tree.of(conversation)
    if not tree.parents:
        _delete(conversation, caller)
        return False
    if _is_titled_by(top, conversation):
        first = turns_of(conversation).get(turn_number=min(tree.parents))
        conversation.title, conversation.titled_by = title_from(first.user_message), TitledBy.LINE
    if conversation.current_number not in tree:
        conversation.current_number = tree.newest_end(top.parent_number)
    conversation.save(update_fields=["title", "titled_by", "current_number"])
    changes.tell(caller, conversation.pk)
    return True


def _is_titled_by(turn: Turn, conversation: Conversation) -> bool:
    """Whether the title was made of this turn, and so goes with it. A model makes one of the first turn."""
    if conversation.titled_by == TitledBy.MODEL:
        return turn.turn_number == 1
    return conversation.titled_by == TitledBy.LINE and conversation.title == title_from(turn.user_message)


def _delete(conversation: Conversation, caller: Caller) -> None:
    path = conversation_path(conversation.pk)
    recent = timezone.now() - timedelta(seconds=streams.KEPT_SECONDS)
    answered = Turn.objects.filter(conversation=conversation, user=conversation.user_id, updated_at__gt=recent)
    forget_answers(answered.values_list("pk", flat=True))
    changes.tell(caller, conversation.pk)
    conversation.delete()
    _withdraw_quotes(caller, path)


def _delete_account(user_id: int) -> Counter[str]:
    """Returns how many rows of each model went; those that the database takes along are counted before."""
    rows = certificates.count_rows(user_id)
    with connection.cursor() as cursor:
        # Turns come first, and are not loaded one by one: there may be a hundred thousand. An answer being saved at
        # this moment holds its turn, then asks for the person; taken in the same order, neither waits for ever.
        cursor.execute(_DELETE_TURNS, [user_id, streams.KEPT_SECONDS])
        forget_answers([turn_id for (turn_id,) in cursor.fetchall()])
    # What staff did to the account is logged under the person's address.
    people = ContentType.objects.get_for_model(User)
    LogEntry.objects.filter(content_type=people, object_id=str(user_id)).delete()
    _, deleted = User.objects.filter(pk=user_id).delete()
    with connection.cursor() as cursor:
        # Foreign keys are checked here rather than at the very end, where nobody could begin anew.
        cursor.execute("SET CONSTRAINTS ALL IMMEDIATE")
    return rows | Counter(deleted)


def _move_up(conversation: Conversation, *, past: Collection[int]) -> None:
    """What follows one of these turns, and is none of them, follows the nearest above that is none of them."""
    tree, gone = Tree.of(conversation), set(past)
    for number, parent in tree.parents.items():
        if number not in gone and parent in gone:
            above = next((each for each in tree.upward(parent) if each not in gone), None)
            turns_of(conversation).filter(turn_number=number).update(parent_number=above)


def _withdraw_quotes(caller: Caller, *paths: str) -> None:
    """Take what was deleted out of the caller's other turns: recall mode's quotes, and links that bear its title.

    What a language model made of it in its own words is part of the turn in which it did so, and stays there.
    """
    with_calls = Turn.objects.for_caller(caller).annotate(calls=Cast("tool_calls", TextField()))
    # Of many paths what all have in common, for all turns are looked through.
    common = commonprefix(paths)  # noqa: RUF071 - by characters, as it is looked for
    quoting = with_calls.filter(Q(calls__contains=common) | Q(is_recall=True, assistant_message__contains=common))
    for turn in quoting.order_by("pk").select_for_update(of=("self",)).iterator(chunk_size=100):
        text = turn.assistant_message
        quoted = [path for path in paths if path in str(turn.tool_calls) or (turn.is_recall and path in text)]
        for path in quoted:
            link = rf"\[(?:\\.|[^\]\\\n])*\]\({re.escape(path)}[^)\s]*\)"
            for call in turn.tool_calls:
                call["summary"] = re.sub(link, "a deleted chat", call.get("summary", ""))
            if turn.is_recall:
                text = re.sub(rf"- \*\*[^*\n]*\*\*, in {link}:\n  > [^\n]*\n\n", "", text)
        if quoted:
            # Not `save`: nothing that is searched has changed.
            Turn.objects.filter(pk=turn.pk).update(tool_calls=turn.tool_calls, assistant_message=text)
