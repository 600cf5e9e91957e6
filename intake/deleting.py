"""Forgetting on request: a turn, a conversation or a whole account, with everything that was made of them.

What must hold, whoever else is writing at the same moment:
1. a conversation's row is locked before its turns are touched, as everywhere, so that no turn is added to what goes;
2. a turn's number is never given again: links lead to the turn they were made for, or to nothing; so a branch whose
   origin is gone still knows that it is one;
3. an answer that is still being written finds its turn gone, and is dropped (`services.finish_turn`).
"""

import re
from collections.abc import Collection
from uuid import UUID

from django.contrib.admin.models import LogEntry
from django.contrib.contenttypes.models import ContentType
from django.db import IntegrityError, connection, transaction
from django.db.models import Q, TextField
from django.db.models.functions import Cast
from django.dispatch import Signal

from core.errors import Conflict, InvalidInput, NotFound
from core.isolation.acting import acting_as
from core.isolation.caller import Caller
from intake.links import conversation_path
from intake.models import Conversation, Turn, User
from intake.models.conversations import TITLE_LENGTH
from intake.paths import Tree, turns_of
from intake.services import lock_conversation, title_from, without_nul

# Sent with `user_id`, `conversation_id` and `numbers` in the transaction that removes turns, before it does.
turns_deleted = Signal()

_DELETE_TURNS = """
DELETE FROM intake_conversation_turns
 WHERE user_id = %(user_id)s AND conversation_id = %(conversation_id)s AND turn_number = ANY(%(numbers)s)
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
        conversation.title = title
        conversation.save(update_fields=["title"])
    return conversation


def delete_turn(*, caller: Caller, conversation_id: UUID, turn_number: int) -> bool:
    """Remove one exchange; what follows it moves up to what it followed.

    Returns whether the conversation is still there: its last turn takes it along.
    """
    with transaction.atomic():
        conversation = lock_conversation(caller, conversation_id)
        turn = turns_of(conversation).filter(turn_number=turn_number).first()
        if turn is None:
            raise NotFound
        turns_of(conversation).filter(parent_number=turn_number).update(parent_number=turn.parent_number)
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
        return _delete_turns(conversation, turn, numbers, caller)


def delete_conversation(*, caller: Caller, conversation_id: UUID) -> None:
    """Remove a conversation with all its turns. Raises `NotFound` for what is not the caller's."""
    with transaction.atomic():
        _delete(lock_conversation(caller, conversation_id), caller)


def delete_account(*, user: User) -> None:
    """Remove a person and everything they ever said or stored here, in one transaction: all of it or nothing."""
    for attempt in range(1, TRIES + 1):
        try:
            with acting_as(user), transaction.atomic():
                _delete_account(user.pk)
            break
        except IntegrityError:
            # Something of theirs was written while the rest was being removed.
            if attempt == TRIES:
                raise


def _delete_turns(conversation: Conversation, top: Turn, numbers: list[int], caller: Caller) -> bool:
    """Remove these turns, `top` above the others. They are not loaded one by one: there may be ten thousand."""
    where = {"user_id": conversation.user_id, "conversation_id": conversation.pk, "numbers": numbers}
    turns_deleted.send(Turn, **where)
    with connection.cursor() as cursor:
        cursor.execute(_DELETE_TURNS, where)
    if top.parent_number is not None:
        branches = Conversation.objects.filter(user=conversation.user_id, branched_from=conversation.pk)
        branches.filter(branched_after__in=numbers).update(branched_after=top.parent_number)
    _withdraw_quotes(caller, conversation_path(conversation.pk), numbers)
    tree = Tree.of(conversation)
    if not tree.parents:
        _delete(conversation, caller)
        return False
    if conversation.title == title_from(top.user_message):
        first = turns_of(conversation).get(turn_number=min(tree.parents))
        conversation.title = title_from(first.user_message)
    if conversation.current_number not in tree:
        conversation.current_number = tree.newest_end(top.parent_number)
    conversation.save(update_fields=["title", "current_number"])
    return True


def _delete(conversation: Conversation, caller: Caller) -> None:
    path = conversation_path(conversation.pk)
    conversation.delete()
    _withdraw_quotes(caller, path)


def _delete_account(user_id: int) -> None:
    with connection.cursor() as cursor:
        # Turns come first, and are not loaded one by one: there may be a hundred thousand. An answer being saved at
        # this moment holds its turn, then asks for the person; taken in the same order, neither waits for ever.
        cursor.execute("DELETE FROM intake_conversation_turns WHERE user_id = %s", [user_id])
    # What staff did to the account is logged under the person's address.
    people = ContentType.objects.get_for_model(User)
    LogEntry.objects.filter(content_type=people, object_id=str(user_id)).delete()
    User.objects.filter(pk=user_id).delete()
    with connection.cursor() as cursor:
        # Foreign keys are checked here rather than at the very end, where nobody could begin anew.
        cursor.execute("SET CONSTRAINTS ALL IMMEDIATE")


def _withdraw_quotes(caller: Caller, path: str, numbers: Collection[int] | None = None) -> None:
    """Take what was deleted out of the caller's other turns: recall mode's quotes, and links that bear its title.

    `path`: the conversation's; `numbers`: those of its turns that went, or None for all of it.
    What a language model made of it in its own words is part of the turn in which it did so, and stays there.
    """
    part = path if numbers is None else f"{path}?turn=" if len(numbers) != 1 else f"{path}?turn={min(numbers)}#"
    with_calls = Turn.objects.for_caller(caller).annotate(calls=Cast("tool_calls", TextField()))
    quoting = with_calls.filter(Q(calls__contains=part) | Q(is_recall=True, assistant_message__contains=part))
    gone = "" if numbers is None else rf"\?turn=(?:{'|'.join(map(str, numbers))})#"
    link = rf"\[(?:\\.|[^\]\\\n])*\]\({re.escape(path)}{gone}[^)\s]*\)"
    quote = re.compile(rf"- \*\*[^*\n]*\*\*, in {link}:\n  > [^\n]*\n\n")
    for turn in quoting.order_by("pk").select_for_update(of=("self",)).iterator(chunk_size=100):
        for call in turn.tool_calls:
            call["summary"] = re.sub(link, "a deleted chat", call.get("summary", ""))
        text = quote.sub("", turn.assistant_message) if turn.is_recall else turn.assistant_message
        # Not `save`: nothing that is searched has changed.
        Turn.objects.filter(pk=turn.pk).update(tool_calls=turn.tool_calls, assistant_message=text)
