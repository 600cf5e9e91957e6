"""Forgetting on request: a turn, a conversation or a whole account, with everything that was made of them.

What must hold, whoever else is writing at the same moment:
1. a conversation's row is locked before its turns are touched, as everywhere, so that no turn is added to what goes;
2. a turn's number is never given again: links lead to the turn they were made for, or to nothing;
3. an answer that is still being written finds its turn gone, and is dropped (`services.finish_turn`).
"""

import re
from uuid import UUID

from django.contrib.admin.models import LogEntry
from django.contrib.contenttypes.models import ContentType
from django.db import IntegrityError, connection, transaction
from django.db.models import Q, TextField
from django.db.models.functions import Cast

from core.errors import InvalidInput, NotFound
from core.isolation.acting import acting_as
from core.isolation.caller import Caller
from intake import changes
from intake.links import conversation_path
from intake.models import Conversation, Turn, User
from intake.models.conversations import TITLE_LENGTH, TitledBy
from intake.services import title_from, without_nul

# How often an account's deletion begins anew when the person was still writing somewhere else.
TRIES = 3


def rename_conversation(*, caller: Caller, conversation_id: UUID, title: str) -> Conversation:
    """Raises `InvalidInput` for a blank or overlong title, `NotFound` for what is not the caller's."""
    title = " ".join(without_nul(title).split())
    if not 1 <= len(title) <= TITLE_LENGTH:
        raise InvalidInput("The title is not valid.", errors={"title": [f"1 to {TITLE_LENGTH} characters."]})
    with transaction.atomic():
        conversation = _locked(caller, conversation_id)
        conversation.title, conversation.titled_by = title, TitledBy.PERSON
        conversation.save(update_fields=["title", "titled_by"])
        changes.tell(caller, conversation_id)
    return conversation


def delete_turn(*, caller: Caller, conversation_id: UUID, turn_number: int) -> bool:
    """Remove one exchange; returns whether the conversation is still there: its last turn takes it along."""
    with transaction.atomic():
        conversation = _locked(caller, conversation_id)
        turns = Turn.objects.filter(conversation=conversation, user=conversation.user_id)
        turn = turns.filter(turn_number=turn_number).first()
        if turn is None:
            raise NotFound
        turn.delete()
        _withdraw_quotes(caller, conversation_path(conversation_id, turn_number=turn_number))
        rest = turns.in_order().first()
        if rest is None:
            _delete(conversation, caller)
        elif _is_titled_by(turn, conversation):
            conversation.title, conversation.titled_by = title_from(rest.user_message), TitledBy.LINE
            conversation.save(update_fields=["title", "titled_by"])
        changes.tell(caller, conversation_id)
    return rest is not None


def delete_conversation(*, caller: Caller, conversation_id: UUID) -> None:
    """Remove a conversation with all its turns. Raises `NotFound` for what is not the caller's."""
    with transaction.atomic():
        _delete(_locked(caller, conversation_id), caller)
        changes.tell(caller, conversation_id)


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


def _locked(caller: Caller, conversation_id: UUID) -> Conversation:
    try:
        return Conversation.objects.for_caller(caller).select_for_update().get(pk=conversation_id)
    except Conversation.DoesNotExist:
        raise NotFound from None


def _is_titled_by(turn: Turn, conversation: Conversation) -> bool:
    """Whether the title was made of this turn, and so goes with it. A model makes one of the first turn."""
    if conversation.titled_by == TitledBy.MODEL:
        return turn.turn_number == 1
    return conversation.titled_by == TitledBy.LINE and conversation.title == title_from(turn.user_message)


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


def _withdraw_quotes(caller: Caller, path: str) -> None:
    """Take what was deleted out of the caller's other turns: recall mode's quotes, and links that bear its title.

    What a language model made of it in its own words is part of the turn in which it did so, and stays there.
    """
    with_calls = Turn.objects.for_caller(caller).annotate(calls=Cast("tool_calls", TextField()))
    quoting = with_calls.filter(Q(calls__contains=path) | Q(is_recall=True, assistant_message__contains=path))
    link = rf"\[(?:\\.|[^\]\\\n])*\]\({re.escape(path)}[^)\s]*\)"
    quote = re.compile(rf"- \*\*[^*\n]*\*\*, in {link}:\n  > [^\n]*\n\n")
    for turn in quoting.order_by("pk").select_for_update(of=("self",)).iterator(chunk_size=100):
        for call in turn.tool_calls:
            call["summary"] = re.sub(link, "a deleted chat", call.get("summary", ""))
        text = quote.sub("", turn.assistant_message) if turn.is_recall else turn.assistant_message
        # Not `save`: nothing that is searched has changed.
        Turn.objects.filter(pk=turn.pk).update(tool_calls=turn.tool_calls, assistant_message=text)
