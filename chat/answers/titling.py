"""Runs after an answer is saved, without delaying it: notifies open pages and writes the chat's title.

The title is written by a task in the web process that answered, because workers may not write conversations. A process
that stops first leaves the first line as the title.
"""

import asyncio
import logging

from django.conf import settings

from chat.answers.database import as_caller
from core.isolation.acting import Caller
from intake.chats import changes
from intake.chats.services import Answer
from intake.llm.language_models import LanguageModel, is_recall_mode
from intake.models import Conversation, Turn, User
from intake.models.conversations import ConversationQuerySet, TitledBy

logger = logging.getLogger(__name__)


_tasks: set[asyncio.Task[None]] = set()


def after_answer(turn: Turn, caller: Caller, answer: Answer, *, model: LanguageModel | None) -> None:
    """Call on the event loop, once the answer is saved, however it ended. `model` is the one that answered."""
    changes.tell_now(caller, turn.conversation_id)
    wants_title = settings.CHAT_TITLES and not is_recall_mode() and turn.turn_number == 1 and not turn.is_temporary
    if wants_title and answer.status == Turn.Status.COMPLETE and answer.text.strip():
        task = asyncio.create_task(_give_title(turn, caller, answer.text, model))
        _tasks.add(task)
        task.add_done_callback(_tasks.discard)


async def stop() -> None:
    """Stop the tasks of this event loop without their titles."""
    tasks = [task for task in _tasks if task.get_loop() is asyncio.get_running_loop()]
    for task in tasks:
        task.cancel()
    if tasks:
        await asyncio.wait(tasks, timeout=1)


async def _give_title(turn: Turn, caller: Caller, answer: str, model: LanguageModel | None) -> None:
    from chat.agent.titles import suggest_title

    try:
        # A slower model is busy.
        async with asyncio.timeout(60):
            if not await as_caller(caller, _wants_title, turn, caller):
                return
            title = await suggest_title(model=model, message=turn.user_message, answer=answer)
            if title:
                await as_caller(caller, _set_title, turn, caller, title)
    except Exception as error:  # the first line stays as the title
        # The error's text may contain the user's words.
        logger.warning("No title could be made for %s (%s)", turn.conversation_id, type(error).__name__)


def _wants_title(turn: Turn, caller: Caller) -> bool:
    wishes = caller.user_id is not None and User.objects.filter(pk=caller.user_id, titles_by_model=True).exists()
    return wishes and _untitled(turn, caller).exists()


def _set_title(turn: Turn, caller: Caller, title: str) -> None:
    """Keeps a title that the user wrote meanwhile; does nothing if the turn was deleted."""
    conversation = _untitled(turn, caller).select_for_update().first()
    if conversation is None or not Turn.objects.for_caller(caller).filter(pk=turn.pk).exists():
        return
    conversation.title, conversation.titled_by = title, TitledBy.MODEL
    conversation.save(update_fields=["title", "titled_by"])
    changes.tell(caller, conversation.pk)


def _untitled(turn: Turn, caller: Caller) -> ConversationQuerySet:
    return Conversation.objects.for_caller(caller).filter(pk=turn.conversation_id, titled_by=TitledBy.LINE)
