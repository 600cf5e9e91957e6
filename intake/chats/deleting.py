"""Deletes turns, chats and accounts, on request or by age, with all data derived from them.

These rules hold under concurrent writes:
1. A conversation's row is locked before its turns are changed, as everywhere, so that no turn is added meanwhile.
2. A turn's number is never used again: a link leads to its own turn or to nothing, and a branch whose origin is deleted
   still knows that it is a branch.
3. The writer of a running answer finds its turn deleted when it renews its lease, and drops the answer.
"""

import logging
import re
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from os.path import commonprefix
from typing import Any
from uuid import UUID

from django.apps import apps
from django.contrib.admin.models import LogEntry
from django.contrib.contenttypes.models import ContentType
from django.db import IntegrityError, connection, transaction
from django.db.models import F, Q, TextField
from django.db.models.functions import Cast
from django.dispatch import Signal
from django.utils.translation import gettext_noop

from core.errors import Conflict, InvalidInput, NotFound
from core.isolation.acting import Caller, acting_as
from core.isolation.checks import personal_models
from core.text import Sentence, as_json
from core.text import gettext_noop as _
from intake.accounts import activity
from intake.attachments import services as attachments
from intake.chats import changes
from intake.chats.services import lock_conversation, title_from, without_nul
from intake.chats.tree import Tree, conversation_path, turns_of
from intake.models import Activity, Attachment, Conversation, Turn, User
from intake.models.conversations import TITLE_LENGTH, TitledBy

logger = logging.getLogger(__name__)

ALSO = (
    gettext_noop("Uploads of imports went with it, or go within an hour."),
    gettext_noop("Exports are sent while they are made, and never kept."),
    gettext_noop("Logs hold ids and counts alone."),
    gettext_noop("Backups hold what they held until they are replaced."),
)
# The plural names of all models that may have rows of a user: in English over REST, translated on the page.
KINDS = (
    gettext_noop("access tokens"),
    gettext_noop("agent connections"),
    gettext_noop("applications"),
    gettext_noop("attachment pieces"),
    gettext_noop("attachment texts"),
    gettext_noop("attachments"),
    gettext_noop("authenticators"),
    gettext_noop("chat preferences"),
    gettext_noop("conversations"),
    gettext_noop("deleted texts"),
    gettext_noop("device grants"),
    gettext_noop("email addresses"),
    gettext_noop("embeddings"),
    gettext_noop("entries of activity"),
    gettext_noop("grants"),
    gettext_noop("id tokens"),
    gettext_noop("idempotent answers"),
    gettext_noop("import entries"),
    gettext_noop("import jobs"),
    gettext_noop("imported items"),
    gettext_noop("imports"),
    gettext_noop("indexed texts"),
    gettext_noop("known answers"),
    gettext_noop("log entries"),
    gettext_noop("map points"),
    gettext_noop("memory document versions"),
    gettext_noop("memory documents"),
    gettext_noop("memory maps"),
    gettext_noop("memory records"),
    gettext_noop("paused turns"),
    gettext_noop("pending terms"),
    gettext_noop("projects"),
    gettext_noop("proposals"),
    gettext_noop("refresh tokens"),
    gettext_noop("sessions"),
    gettext_noop("social accounts"),
    gettext_noop("telling words"),
    gettext_noop("term blocks"),
    gettext_noop("term segments"),
    gettext_noop("tool consents"),
    gettext_noop("tool logins"),
    gettext_noop("tool servers"),
    gettext_noop("turns"),
    gettext_noop("users"),
)

# Sent with `user_id`, `conversation_id` and `numbers` (None for all) in the transaction that removes turns, before it
# does so.
turns_deleted = Signal()

_DELETE_SOME_TURNS = """
DELETE FROM intake_conversation_turns
 WHERE user_id = %(user_id)s AND conversation_id = %(conversation_id)s AND turn_number = ANY(%(numbers)s)
"""
# Without loading the turns, which have all texts: the database deletes them by cascade.
_DELETE_CONVERSATIONS = "DELETE FROM intake_conversations WHERE user_id = %s AND id = ANY(%s)"
# How often an account's deletion restarts if the user was still writing.
TRIES = 3


def rename_conversation(*, caller: Caller, conversation_id: UUID, title: str) -> Conversation:
    """Raises `InvalidInput` for a blank or overlong title, `NotFound` if the conversation is not the caller's."""
    title = " ".join(without_nul(title).split())
    if not 1 <= len(title) <= TITLE_LENGTH:
        length = Sentence(_("1 to %(most)s characters."), most=TITLE_LENGTH)
        raise InvalidInput(_("The title is not valid."), errors={"title": [length]})
    with transaction.atomic():
        conversation = lock_conversation(caller, conversation_id)
        conversation.title, conversation.titled_by = title, TitledBy.PERSON
        conversation.save(update_fields=["title", "titled_by"])
        changes.tell(caller, conversation_id)
    return conversation


def delete_turn(*, caller: Caller, conversation_id: UUID, turn_number: int, is_noted: bool = True) -> bool:
    """Delete one turn; the turns after it move up to its parent.

    `is_noted`: whether it gets its own line in the user's activity. Returns whether the conversation still exists: it
    is deleted with its last turn.
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
    """Delete a turn and all that follow it, in every version.

    `expected` is the number of turns that the user was shown; raises `Conflict` if it has changed, so that no other
    turn is deleted. Returns whether the conversation still exists: it is deleted with its last turn.
    """
    with transaction.atomic():
        conversation = lock_conversation(caller, conversation_id)
        tree = Tree.of(conversation)
        if turn_number not in tree:
            raise NotFound
        numbers = tree.below(turn_number)
        if len(numbers) != expected:
            message = _("The turn and what follows it are %(found)s turns, not %(expected)s. Nothing was deleted.")
            raise Conflict(message, found=len(numbers), expected=expected)
        turn = turns_of(conversation).get(turn_number=turn_number)
        activity.note_for_caller(caller, Activity.TURN_DELETED, count=len(numbers))
        return _delete_turns(conversation, turn, numbers, caller)


def delete_older(*, caller: Caller, conversation_id: UUID, before: datetime) -> int:
    """Delete the turns of a conversation from before a time, and the conversation if none is left.

    Later turns move up. Returns the number of deleted turns; 0 if the conversation does not exist or is not the
    caller's.
    """
    try:
        with transaction.atomic():
            conversation = lock_conversation(caller, conversation_id)
            old_turns = turns_of(conversation).filter(said_at__lt=before)
            old = sorted(old_turns.values_list("turn_number", flat=True))
            if old:
                _move_up(conversation, past=old)
                _delete_turns(conversation, turns_of(conversation).get(turn_number=old[0]), old, caller)
            return len(old)
    except NotFound:
        return 0


def delete_conversation(*, caller: Caller, conversation_id: UUID) -> None:
    """Delete a conversation with all its turns. Raises `NotFound` if it is not the caller's."""
    with transaction.atomic():
        conversation = lock_conversation(caller, conversation_id)
        _delete([conversation], caller)
        if conversation.expires_at is None:
            activity.note_for_caller(caller, Activity.CHAT_DELETED)


def delete_conversations(*, caller: Caller, conversation_ids: Collection[UUID]) -> int:
    """Delete those of the conversations that are the caller's, with all turns; quotes are searched once.

    Returns the number of deleted conversations.
    """
    with transaction.atomic():
        requested = Conversation.objects.for_caller(caller).filter(pk__in=conversation_ids).order_by("pk")
        gone = list(requested.select_for_update())
        if gone:
            _delete(gone, caller)
        return len(gone)


def delete_attachment(*, caller: Caller, attachment_id: str) -> None:
    """Delete a file with its bytes and texts; its message stays. Raises `NotFound` if it is not the caller's."""
    with transaction.atomic():
        attachment = attachments.get(caller=caller, attachment_id=attachment_id)
        if attachment.conversation_id is None or attachment.turn_number is None:
            attachments.remove_unclaimed(caller=caller, attachment=attachment)
            return
        conversation = lock_conversation(caller, attachment.conversation_id)
        if not Attachment.objects.for_caller(caller).filter(pk=attachment.pk).delete()[0]:
            raise NotFound
        if attachment.kind != Attachment.Kind.PAGE:
            message = turns_of(conversation).filter(turn_number=attachment.turn_number)
            message.update(attachment_count=F("attachment_count") - 1)
        attachments.release(attachment.user_id, [attachment.sha256])
        changes.tell(caller, conversation.pk)


def delete_account(*, user: User) -> dict[str, int]:
    """Delete a user and everything they stored, in one transaction.

    Returns the number of deleted rows by their kind (one of `KINDS`).
    """
    user_id = user.pk
    for attempt in range(1, TRIES + 1):
        try:
            with acting_as(user), transaction.atomic():
                rows = _delete_account(user_id)
            break
        except IntegrityError:
            # The user's data changed while the rest was being deleted.
            if attempt == TRIES:
                raise
    logger.info("The account %d was deleted", user_id)
    return _by_kind(rows)


def _delete_turns(conversation: Conversation, top: Turn, numbers: list[int], caller: Caller) -> bool:
    """Delete these turns, with `top` above the others. They are not loaded one by one: there may be ten thousand."""
    where = {"user_id": conversation.user_id, "conversation_id": conversation.pk, "numbers": numbers}
    turns_deleted.send(Turn, **where)
    contents = attachments.contents_of(conversation.user_id, [conversation.pk], numbers)
    with connection.cursor() as cursor:
        cursor.execute(_DELETE_SOME_TURNS, where)
    attachments.release(conversation.user_id, contents)
    if top.parent_number is not None:
        branches = Conversation.objects.filter(user=conversation.user_id, branched_from=conversation.pk)
        branches.filter(branched_after__in=numbers).update(branched_after=top.parent_number)
    _withdraw_quotes(caller, *(conversation_path(conversation.pk, turn_number=number) for number in numbers))
    tree = Tree.of(conversation)
    if not tree.parents:
        _delete([conversation], caller)
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
    """Whether the title was made from this turn, and is deleted with it. A model makes one from the first turn."""
    # A chat that began with a file and no words has the file's name.
    if conversation.titled_by == TitledBy.MODEL or not turn.user_message:
        return turn.turn_number == 1 and conversation.titled_by != TitledBy.PERSON
    return conversation.titled_by == TitledBy.LINE and conversation.title == title_from(turn.user_message)


def _delete(conversations: Sequence[Conversation], caller: Caller) -> None:
    """All of them in one statement, without loading a text. Their rows are locked."""
    ids = [conversation.pk for conversation in conversations]
    changes.tell(caller, *ids)
    for pk in ids:
        turns_deleted.send(Turn, user_id=caller.user_id, conversation_id=pk, numbers=None)
    contents = attachments.contents_of(caller.user_id, ids)
    with connection.cursor() as cursor:
        cursor.execute(_DELETE_CONVERSATIONS, [caller.user_id, ids])
    attachments.release(caller.user_id, contents)
    _withdraw_quotes(caller, *map(conversation_path, ids))


def _by_kind(rows: Mapping[str, int]) -> dict[str, int]:
    named: Counter[str] = Counter()
    for label, number in rows.items():
        # Two kinds of access tokens share one name.
        named[str(apps.get_model(label)._meta.verbose_name_plural)] += number
    return {name: number for name, number in sorted(named.items()) if number}


def _delete_account(user_id: int) -> Counter[str]:
    """Returns the number of deleted rows of each model; the database's cascades are counted before."""
    rows = Counter(
        {model._meta.label: model._meta.base_manager.filter(user_id=user_id).count() for model in personal_models()}
    )
    with connection.cursor() as cursor:
        # Turns come first, and are not loaded one by one: there may be a hundred thousand. An answer that is being
        # saved locks its turn, then the user; the same order avoids a deadlock.
        cursor.execute("DELETE FROM intake_conversation_turns WHERE user_id = %s", [user_id])
    # Changes by staff are logged under the user's address.
    user_type = ContentType.objects.get_for_model(User)
    LogEntry.objects.filter(content_type=user_type, object_id=str(user_id)).delete()
    _, deleted = User.objects.filter(pk=user_id).delete()
    with connection.cursor() as cursor:
        # Check foreign keys here and not at the end of the transaction, where a restart is impossible.
        cursor.execute("SET CONSTRAINTS ALL IMMEDIATE")
    return rows | Counter(deleted)


def _move_up(conversation: Conversation, *, past: Collection[int]) -> None:
    """Turns that follow one of these, and are not deleted, move to the nearest turn above that is not deleted."""
    tree, gone = Tree.of(conversation), set(past)
    for number, parent in tree.parents.items():
        if number not in gone and parent in gone:
            above = next((each for each in tree.upward(parent) if each not in gone), None)
            turns_of(conversation).filter(turn_number=number).update(parent_number=above)


DELETED = _("a deleted chat")


def _withdraw_quotes(caller: Caller, *paths: str) -> None:
    """Remove deleted text from the caller's other turns: recall mode's quotes, links with its title, and the results of
    tools that show any of these chats.

    Text that a language model wrote about it belongs to the turn in which it was written, and stays.
    """
    with_calls = Turn.objects.for_caller(caller).annotate(calls=Cast("tool_calls", TextField()))
    ids = {_A_CHAT.findall(path)[-1] for path in paths}
    # The common prefix of many, because all turns are searched.
    common = commonprefix([*ids])  # noqa: RUF071 - by characters, as it is looked for
    quoting = with_calls.filter(Q(calls__contains=common) | Q(is_recall=True, assistant_message__contains=common))
    for turn in quoting.order_by("pk").select_for_update(of=("self",)).iterator(chunk_size=100):
        text, shows_any = turn.assistant_message, _withdraw_found(turn, ids)
        quoted = [path for path in paths if path in str(turn.tool_calls) or (turn.is_recall and path in text)]
        for path in quoted:
            for call in turn.tool_calls:
                if isinstance(call, dict) and isinstance(call.get("summary"), str):
                    call["summary"] = without_links(call["summary"], path, instead=DELETED)
                if isinstance(call, dict) and "sentence" in call:
                    call["sentence"] = without_links_in(call["sentence"], path)
            if turn.is_recall:
                text = _without_quotes(text, path)
        if quoted or shows_any:
            # Not `save`: the indexed text has not changed.
            Turn.objects.filter(pk=turn.pk).update(tool_calls=turn.tool_calls, assistant_message=text)


def withdraw_results(user_id: int, id_: UUID) -> None:
    """Remove the results of tools that show a deleted note, memory or file of this id from the user's turns."""
    with_calls = Turn.objects.filter(user=user_id).annotate(calls=Cast("tool_calls", TextField()))
    showing = with_calls.filter(calls__contains=str(id_)).order_by("pk")
    for turn in showing.select_for_update(of=("self",)).iterator(chunk_size=100):
        if _withdraw_found(turn, {str(id_)}):
            Turn.objects.filter(pk=turn.pk).update(tool_calls=turn.tool_calls)


def _withdraw_found(turn: Turn, ids: Collection[str]) -> bool:
    """Remove the results of its calls that show any of these ids; returns whether there were any."""
    kept = [call for call in turn.tool_calls if "found" in call]
    # The text has short ids, `shows` whole ones; a text of an earlier version has whole ones itself.
    showing = [call for call in kept if any(id_ in f"{call['found']} {call.get('shows')}" for id_ in ids)]
    for call in showing:
        del call["found"]
    return bool(showing)


# The id of a chat in its path.
_A_CHAT = re.compile(r"/c/([^/]+)/")
# A quote of recall mode: its line with the day and the link, then the words of both sides.
_QUOTE = re.compile(r"^- \*\*[^*\n]*\*\*, in (?P<link>[^\n]*):\n(?:  >[^\n]*\n)+\n", re.MULTILINE)
_LABEL_SIGN = re.compile(r"\\.|[\[\]\n]")
_END_OF_LINK = re.compile(r"[^)\s]{0,200}\)")


def without_links_in(value: Any, path: str) -> Any:
    """The values of a kept sentence (`core.text.kept`) without links to the path or below it."""
    match value:
        case str():
            left = without_links(value, path, instead=DELETED)
            return as_json(Sentence(left)) if left == DELETED else left
        case dict():
            return {name: without_links_in(each, path) for name, each in value.items()}
        case list():
            return [without_links_in(each, path) for each in value]
    return value


def without_links(text: str, path: str, *, instead: str) -> str:
    """The text with `instead` for each Markdown link to the path or below it.

    Each character is read once: the path is found first and its label before it, because an expression that begins
    with a label reads all the text for each bracket of it.
    """
    kept: list[str] = []
    read, target = 0, f"]({path}"
    while (close := text.find(target, read)) >= 0:
        start = _label_start(text, read, close)
        end = _END_OF_LINK.match(text, close + len(target))
        if start is None or end is None:
            kept.append(text[read : close + len(target)])
            read = close + len(target)
        else:
            kept += [text[read:start], instead]
            read = end.end()
    return "".join([*kept, text[read:]])


def _label_start(text: str, start: int, close: int) -> int | None:
    """The opening bracket of the label that ends at `close`; None if there is none on its line."""
    opening: int | None = None
    for sign in _LABEL_SIGN.finditer(text, start, close):
        if sign[0] == "[":
            opening = sign.start() if opening is None else opening
        elif len(sign[0]) == 1:
            opening = None
    return opening


def _without_quotes(text: str, path: str) -> str:
    return _QUOTE.sub(lambda quote: "" if not without_links(quote["link"], path, instead="") else quote[0], text)
