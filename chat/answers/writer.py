"""Writes an answer from the saved question to the saved end: runs the agent loop in its own task, logs every event,
saves the progress, and does what follows the end.

The task belongs to the turn. It ends with the answer, or earlier if
1. a reader requests it (`stop`);
2. the session or token of the question is no longer valid;
3. the turn has been deleted, or stopped in another process: its row says so when the lease is renewed;
4. the process stops.
In every case the text written so far is saved.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, ParamSpec, TypeVar

from asgiref.sync import sync_to_async
from django.conf import settings
from django.db import DataError, InterfaceError, OperationalError, connections
from django.utils import timezone
from pydantic_ai.messages import BinaryContent

from chat.agent import context, loop, prompt
from chat.agent.context import (
    WRITTEN,
    AgentEvent,
    AnswerEnded,
    ChatDeps,
    TextWritten,
    ToolCalled,
    ToolReturned,
    deps_for,
    is_being_read,
)
from chat.agent.prompt import Asked
from chat.answers.log import AnswerLog, Ending
from chat.answers.reader import (
    as_data,
    ending_by,
    ending_of,
    ending_of_deleted,
    events_of_call,
    events_of_reasoning,
    kept_result,
)
from core.errors import RecollectError, TooLarge, Unavailable
from core.isolation.acting import Caller, acting_as
from core.responses import database_away, is_disk_full
from core.text import gettext_noop as _
from intake.chats import changes, services
from intake.chats.services import Answer, Progress
from intake.chats.usage import Usage
from intake.llm.language_models import LanguageModel, ask_servers, is_recall_mode, is_window_asked, learn_window
from intake.models import Conversation, Turn, User
from intake.models.conversations import ConversationQuerySet, TitledBy
from intake.revocation import IsAuthorized, wait_for_revocation
from memory.search import unindexed

# --- Runs database work beside an answer's event loop, each piece in its own thread and transaction ---

P = ParamSpec("P")
T = TypeVar("T")


async def as_caller(caller: Caller, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    def work() -> T:
        with acting_as(caller):
            return function(*args, **kwargs)

    return await aside(work)


async def aside(function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Run database work beside the event loop and return its connection at once: streams last longer than a pool can
    wait.
    """

    def work() -> T:
        try:
            return function(*args, **kwargs)
        finally:
            connections.close_all()

    return await sync_to_async(work, thread_sensitive=False)()


async def load_turn(turn_id: int, *, caller: Caller) -> Turn | None:
    """The caller's turn as it is now; None if it does not exist or belongs to another user."""

    def load() -> Turn | None:
        return Turn.objects.for_caller(caller).filter(pk=turn_id).first()

    return await as_caller(caller, load)


# --- Runs after an answer is saved, without delaying it: notifies open pages and writes the chat's title ---
# The title is written by a task in the web process that answered, because workers may not write conversations. A
# process that stops first leaves the first line as the title.

logger = logging.getLogger(__name__)

# How often it is asked whether the files of the message have been read.
READ_EVERY_SECONDS = 0.25

# A slower model is busy.
TITLE_SECONDS = 60

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
        async with asyncio.timeout(TITLE_SECONDS):
            if not await as_caller(caller, _wants_title, turn, caller):
                return
            title = await suggest_title(model=model, message=turn.user_message, answer=answer)
            if title:
                await as_caller(caller, _set_title, turn, caller, title)
    except Exception as error:  # the first line stays as the title
        # The error's text may contain the user's words.
        logger.warning("No title could be made for %s (%s)", turn.conversation_id, type(error).__name__)


def _wants_title(turn: Turn, caller: Caller) -> bool:
    if caller.user_id is None or not User.objects.filter(pk=caller.user_id, titles_by_model=True).exists():
        return False
    return _untitled(turn, caller).exists()


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


# --- Writes an answer from the saved question to the saved end ---


# How many seconds the last save is retried while the database is away, and the pauses in between, which double. Giving
# up leaves the turn open, and a client without an Idempotency-Key that then repeats its message adds a second turn.
LAST_SAVE_SECONDS = 60.0
FULL_DISK_SECONDS = 3.0
SHORTEST_WAIT, LONGEST_WAIT = 0.2, 2.0
# Limits every answer, also one without readers.
LONGEST_ANSWER = 500_000


class TooLong(TooLarge):
    def __init__(self) -> None:
        super().__init__(_("The answer was ended: it had reached %(count)s characters."), count=LONGEST_ANSWER)


@dataclass(slots=True)
class Draft:
    """The answer as it will be saved."""

    log: AnswerLog
    tool_calls: list[dict[str, Any]] = field(default_factory=list)
    begun_at: float = field(default_factory=time.monotonic)
    end: AnswerEnded | None = None
    model: LanguageModel | None = None
    asked: Asked | None = None

    def add(self, event: AgentEvent | AnswerEnded) -> None:
        match event:
            case AnswerEnded():
                self.end = event
                return
            case ToolCalled(id=id_, name=name, input=input_):
                self.tool_calls.append({"id": id_, "name": name, "input": input_})
            case ToolReturned(id=id_):
                for call in self.tool_calls:
                    if call["id"] == id_:
                        call.update(kept_result(event))
        self.log.add(event)

    def ended(self, status: Turn.Status, error: RecollectError | None = None) -> Answer:
        return Answer(
            text=self.log.text,
            status=status,
            tool_calls=self.tool_calls,
            reasoning=self.log.reasoning,
            is_recall=is_recall_mode(),
            error=as_data(error) if error else None,
            usage=self._usage().as_data(),
        )

    def _usage(self) -> Usage:
        """Recall mode is no model and counts no tokens. An answer without an end broke off."""
        seconds = round(time.monotonic() - self.begun_at, 2)
        if is_recall_mode():
            return Usage(seconds=seconds)
        known = Usage(seconds=seconds, thought_seconds=self.log.thought_seconds)
        if self.asked is not None and self.asked.left_out:
            known = replace(known, not_sent=len(self.asked.left_out), sent=self.asked.sent)
        if self.end is None:
            return replace(known, model=self.model.own_name if self.model else None)
        return replace(
            known,
            model=self.end.model,
            input_tokens=self.end.input_tokens,
            output_tokens=self.end.output_tokens,
            finish_reason=self.end.finish_reason,
            token_ratio=self._token_ratio(self.end),
        )

    def _token_ratio(self, end: AnswerEnded) -> float | None:
        """What the model's server counted for the prompt, for each token of our own count."""
        if self.asked is None or not self.asked.tokens or not end.first_input_tokens:
            return None
        return round(end.first_input_tokens / self.asked.tokens, 3)


class AnswerWriter:
    """One running answer. `log` is what readers follow; when it `is_closing`, its end is being saved."""

    def __init__(
        self,
        turn: Turn,
        caller: Caller,
        *,
        is_authorized: IsAuthorized | None = None,
        newest_only: bool = False,
    ) -> None:
        """`newest_only`: the model gets only the newer half of the earlier messages that would fit."""
        self.log = AnswerLog(turn)
        self._turn = turn
        self._newest_only = newest_only
        self.caller = caller
        self._draft = Draft(self.log, tool_calls=list(turn.tool_calls))
        # The existing text of a continued answer; recall mode writes all of it again.
        self._kept = "" if is_recall_mode() else turn.assistant_message
        if self._kept:
            self._tell_kept()
        # The last save is not interrupted.
        self.is_closing = False
        # A task that is cancelled before its first step never runs at all, and nobody would save and close the turn.
        self._has_begun = self._is_stopped = False
        self._task = asyncio.create_task(self._write())
        self._guard = None if is_authorized is None else asyncio.create_task(self._stop_when_revoked(is_authorized))

    def stop(self) -> None:
        """End the answer as it is; harmless if it has ended."""
        self._is_stopped = True
        if self._has_begun and not self.is_closing and not self._task.cancelling():
            self._task.cancel()

    async def ended(self, *, seconds: float | None = None) -> None:
        """Waits for the end, at most this long."""
        await asyncio.wait([self._task], timeout=seconds)

    def progress(self) -> Progress:
        """A copy that another thread can save while streaming continues."""
        assert self.caller.user_id is not None, "a turn has an owner"  # noqa: S101 - tells the types
        return Progress(
            turn_id=self._turn.pk,
            user_id=self.caller.user_id,
            attempt=self._turn.attempt,
            text=self.log.text,
            reasoning=self.log.reasoning,
            tool_calls=[dict(call) for call in self._draft.tool_calls],
        )

    async def _write(self) -> None:
        self._has_begun = True
        answer = await self._answer()
        self.is_closing = True
        if self._guard is not None:
            self._guard.cancel()
        self.log.finish(await self._close(answer))

    async def _answer(self) -> Answer:
        if self._is_stopped:
            return self._draft.ended(Turn.Status.INTERRUPTED)
        try:
            await self._ask()
        except asyncio.CancelledError:
            return self._draft.ended(Turn.Status.INTERRUPTED)
        except TooLong as error:
            return self._draft.ended(Turn.Status.INTERRUPTED, error)
        except Exception as error:
            # Earlier text remains an answer that can be continued.
            status = Turn.Status.INTERRUPTED if self._kept else Turn.Status.FAILED
            return self._draft.ended(status, _shown(error))
        return self._draft.ended(Turn.Status.COMPLETE)

    async def _ask(self) -> None:
        asked = await self._asked()
        self._draft.model, self._draft.asked = asked.deps.model, asked
        length = len(self._kept)
        events = loop.answer(message=asked.content, history=asked.history, deps=asked.deps)
        async with aclosing(events):
            async for event in events:
                self._draft.add(event)
                length += len(event.text) if isinstance(event, WRITTEN) else 0
                if length > LONGEST_ANSWER:
                    raise TooLong

    async def _asked(self) -> Asked:
        """The prompt, fitted into the model's window. What it leaves out is searched for what the question is about."""
        if self._turn.attachment_count and not is_recall_mode():
            await self._until_read()
        await asyncio.to_thread(ask_servers)
        deps, asked, beginning, turns = await as_caller(self.caller, self._fitted)
        if asked is None and deps.model is not None:
            # Only the first answer of a process waits, for a few seconds at most.
            await asyncio.to_thread(learn_window, deps.model)
            deps, asked, beginning, turns = await as_caller(self.caller, self._fitted, deps)
        assert asked is not None, "a window is known once it is asked for"  # noqa: S101 - tells the types
        self.log.set_sent(not_sent=len(asked.left_out), sent=asked.sent)
        compared: Sequence[tuple[float, Turn]] = ()
        if turns:
            compared = await asyncio.to_thread(unindexed.compared, question=self._turn.user_message, turns=turns)
        if asked.deps.model is None:
            return replace(asked, deps=replace(asked.deps, compared=compared))
        passages = [*prompt.passages_of(compared, self._turn), *await self._recalled(asked)]
        return await self._with_pictures(
            prompt.with_left_out(asked, turn=self._turn, beginning=beginning, passages=passages)
        )

    async def _with_pictures(self, asked: Asked) -> Asked:
        """Reads the pictures one after the other, each in a transaction of its own."""
        pictures: dict[str, BinaryContent | None] = {}
        for id_ in prompt.pictures_in(asked):
            pictures[id_] = await as_caller(self.caller, context.picture, self.caller, id_)
        return prompt.with_pictures(asked, pictures) if pictures else asked

    async def _until_read(self) -> None:
        """A file that was just uploaded is read within seconds; the answer waits so long, and then goes without it."""
        deadline = time.monotonic() + settings.ATTACHMENT_WAIT_SECONDS
        # The worker is another process, which can set no event here.
        while await as_caller(self.caller, partial(is_being_read, self._turn)):
            if time.monotonic() >= deadline:
                return
            await asyncio.sleep(READ_EVERY_SECONDS)

    def _fitted(self, known: ChatDeps | None = None) -> tuple[ChatDeps, Asked | None, str, list[Turn]]:
        """With the beginning of the first message that is left out, and the turns to compare with the question.

        No prompt while the window is not asked for.
        """
        deps = known or deps_for(self.caller, self._turn.conversation, now=timezone.now())
        if known is None and deps.model is not None and not is_window_asked(deps.model):
            return deps, None, "", []
        asked = prompt.asked(self._turn, deps, kept=self._kept, newest_only=self._newest_only)
        return deps, asked, prompt.beginning_of(asked, self.caller), prompt.turns_to_compare(self._turn, asked)

    async def _recalled(self, asked: Asked) -> list[str]:
        """Nothing of a visitor or of a temporary chat is indexed."""
        user = asked.deps.user
        if user is None or not asked.left_out or asked.deps.is_temporary:
            return []
        search = partial(
            prompt.recalled,
            user=user,
            message=self._turn.user_message,
            conversations=asked.conversations,
            among=set(asked.left_out),
        )
        return await aside(search)

    def _tell_kept(self) -> None:
        """Readers get the complete answer: the earlier text and the new text."""
        for thought in events_of_reasoning(self._turn):
            self.log.add(thought)
        for call in self._turn.tool_calls:
            for event in events_of_call(call):
                self.log.add(event)
        self.log.add(TextWritten(self._kept))

    async def _close(self, answer: Answer) -> Ending:
        """Save the answer; returns how the turn has ended, which another process may have decided."""
        try:
            saved = await self._save(answer)
            if saved is None:
                self.log.is_deleted = True
                return ending_of_deleted()
            return ending_of(saved)
        except Exception as error:
            return ending_by(_shown(error))

    async def _save(self, answer: Answer) -> Turn | None:
        """The last save, retried while the database is unavailable; raises `Unavailable` if it stays so.

        Returns the turn as it is now, None if it was deleted. After a commit that was not confirmed, the next attempt
        finds the turn closed.
        """
        turn, wait = self._turn, SHORTEST_WAIT
        began, is_full = time.monotonic(), False
        deadline = began + LAST_SAVE_SECONDS
        while True:
            try:
                saved = await as_caller(
                    self.caller, services.finish_turn, turn_id=turn.pk, attempt=turn.attempt, answer=answer
                ) or await load_turn(turn.pk, caller=self.caller)
            except (OperationalError, InterfaceError) as error:
                is_full = is_disk_full(error)
                # A full disk stays full until somebody makes room: the reader learns it soon.
                if time.monotonic() > (min(deadline, began + FULL_DISK_SECONDS) if is_full else deadline):
                    break
                await asyncio.sleep(wait)
                wait = min(2 * wait, LONGEST_WAIT)
            else:
                after_answer(turn, self.caller, answer, model=self._draft.model)
                return saved
        logger.error("The answer of turn %s could not be saved", turn)
        raise Unavailable(
            _("The disk is full, and the answer could not be kept. The administrator of this server has to make room.")
            if is_full
            else "The database is not available, and the answer could not be saved. Try again."
        )

    async def _stop_when_revoked(self, is_authorized: IsAuthorized) -> None:
        await wait_for_revocation(is_authorized)
        self.stop()


def _shown(error: Exception) -> RecollectError:
    if isinstance(error, RecollectError):
        return error
    if isinstance(error, OperationalError | InterfaceError):
        return database_away(error)
    logger.exception("An answer failed")
    return Unavailable("Something went wrong. Try again.")


# --- Saves the text of all running answers of a process with one database message, some twice a second ---
# So a killed server loses less than a second of the text, and the database needs no transaction for each answer.


SAVE_EVERY_SECONDS = 0.4
PAUSE_SECONDS = 0.1
# An unchanged answer is saved after this time all the same: that renews its lease, and finds out that it was stopped.
RENEW_SECONDS = 0.5


@dataclass(eq=False)
class ProgressSaver:
    """One per event loop; runs while answers are being written."""

    # The position of each log up to which its answer is saved, and the time.
    _answers: dict[AnswerWriter, tuple[int, float]] = field(default_factory=dict)
    _task: asyncio.Task[None] | None = None

    def keep(self, writing: AnswerWriter) -> None:
        self._answers[writing] = writing.log.position, time.monotonic()
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._run())

    async def _run(self) -> None:
        took = 0.0
        while self._answers:
            await asyncio.sleep(max(PAUSE_SECONDS, SAVE_EVERY_SECONDS - took))
            began = time.monotonic()
            self._answers = {writing: kept for writing, kept in self._answers.items() if not writing.is_closing}
            try:
                await self._save(began)
            except Exception as error:  # the next round tries again
                logger.warning("What is being written cannot be saved for the moment (%s)", type(error).__name__)
            took = time.monotonic() - began

    async def _save(self, now: float) -> None:
        due = [
            writing
            for writing, (position, at) in self._answers.items()
            if writing.log.position > position or at < now - RENEW_SECONDS
        ]
        if not due:
            return
        parts: list[Progress] = [writing.progress() for writing in due]
        positions = [writing.log.position for writing in due]
        saved = await _save_together(parts)
        for writing, part, position in zip(due, parts, positions, strict=True):
            if part.turn_id in saved:
                self._answers[writing] = position, now
            elif not await _is_open(writing):
                writing.stop()


async def _save_together(parts: list[Progress]) -> set[int]:
    """Returns the saved turns. If the database refuses one answer, the others are still saved."""
    try:
        return await aside(services.save_progress, parts, now=timezone.now())
    except DataError:
        if len(parts) == 1:
            # Without the database's message: it may contain the user's words.
            logger.error("What is being written of turn %s cannot be saved", parts[0].turn_id)
            return {parts[0].turn_id}
        half = len(parts) // 2
        return await _save_together(parts[:half]) | await _save_together(parts[half:])


async def _is_open(writing: AnswerWriter) -> bool:
    """Whether the turn still belongs to this answer; its row may only have been locked for a moment."""
    turn = await load_turn(writing.log.turn.pk, caller=writing.caller)
    return turn is not None and not turn.has_ended and turn.attempt == writing.log.turn.attempt
