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
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from typing import Any

from django.conf import settings
from django.db import InterfaceError, OperationalError
from django.utils import timezone
from pydantic_ai.messages import BinaryContent

from chat.agent import context, loop, pausing, prompt
from chat.agent.context import (
    WRITTEN,
    AgentEvent,
    AnswerEnded,
    ApprovalAsked,
    ChatDeps,
    TextWritten,
    ToolCalled,
    ToolReturned,
    deps_for,
    is_being_read,
)
from chat.agent.prompt import Asked
from chat.answers.database import as_caller, aside, load_turn
from chat.answers.log import AnswerLog
from chat.answers.reader import (
    as_data,
    ending_by,
    ending_of,
    ending_of_deleted,
    events_of_call,
    events_of_reasoning,
    kept_result,
)
from chat.answers.titling import after_answer
from core.errors import RecollectError, TooLarge, Unavailable
from core.isolation.acting import Caller
from core.responses import database_away, is_disk_full
from core.text import UntrustedData
from core.text import gettext_noop as _
from intake.chats import services
from intake.chats.prompts import Prompt, PromptPart
from intake.chats.services import Answer, Progress
from intake.chats.usage import Usage
from intake.llm.language_models import LanguageModel, ask_servers, is_recall_mode
from intake.llm.windows import is_window_asked, learn_window
from intake.models import PausedTurn, Turn
from intake.models.tools import Pause
from intake.revocation import IsAuthorized, SessionCheck, wait_for_revocation
from memory.search import unindexed

logger = logging.getLogger(__name__)

Events = Callable[[], AsyncGenerator[AgentEvent | AnswerEnded | Pause, None]]

# How many seconds the last save is retried while the database is away, and the pauses in between, which double. Giving
# up leaves the turn open, and a client without an Idempotency-Key that then repeats its message adds a second turn.
LAST_SAVE_SECONDS = 60.0
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
    sources: list[PromptPart] = field(default_factory=list)
    pause: Pause | None = None
    # What the answer was made of before it paused.
    before: Prompt = field(default_factory=Prompt)

    def add(self, event: AgentEvent | AnswerEnded | Pause) -> None:
        match event:
            case AnswerEnded():
                self.end = event
                return
            case Pause():
                self.pause = event
                return
            case ToolCalled():
                self.tool_calls.append(event.as_data())
            case ApprovalAsked(id=id_, approval=approval):
                self._update(id_, {"approval": approval})
            case ToolReturned(id=id_):
                self.sources += event.sources
                self._update(id_, kept_result(event))
        self.log.add(event)

    def _update(self, id_: str, values: dict[str, Any]) -> None:
        for call in self.tool_calls:
            if call["id"] == id_:
                call.update(values)

    def ended(self, status: Turn.Status, error: RecollectError | None = None) -> Answer:
        return Answer(
            text=self.log.text,
            status=status,
            tool_calls=self.tool_calls,
            reasoning=self.log.reasoning,
            is_recall=is_recall_mode(),
            error=as_data(error) if error else None,
            usage=self._usage().as_data(),
            prompt=self._prompt(),
            pause=self.pause if status == Turn.Status.WAITING else None,
        )

    def _prompt(self) -> str:
        """Empty if none was made. The tools' results come first, then each source once, those that were sent first."""
        if self.asked is None:
            return ""
        results = [part for part in self.sources if part.kind == "result"]
        brought = Prompt(parts=(*self.sources, *self.asked.deps.quoted)).sources
        parts = self.before.parts or self.asked.parts
        return replace(self.asked.made, parts=(*parts, *results, *brought)).as_row()

    def _usage(self) -> Usage:
        """Recall mode is no model and counts no tokens. An answer without an end broke off."""
        seconds = round(time.monotonic() - self.begun_at, 2)
        if is_recall_mode():
            return Usage(seconds=seconds)
        asked, end = self.asked, self.end
        known = Usage(seconds=seconds, thought_seconds=self.log.thought_seconds)
        if asked is not None and asked.left_out:
            known = replace(known, not_sent=len(asked.left_out), sent=asked.made.sent)
        if end is None:
            return replace(known, model=self.model.own_name if self.model else None)
        tokens, counted = asked.tokens if asked is not None else 0, end.first_input_tokens
        return replace(
            known,
            model=end.model,
            input_tokens=end.input_tokens,
            output_tokens=end.output_tokens,
            finish_reason=end.finish_reason,
            # What the model's server counted for the prompt, for each token of our own count.
            token_ratio=round(counted / tokens, 3) if counted and tokens else None,
        )


class AnswerWriter:
    """One running answer. `log` is what readers follow; when it `is_closing`, its end is being saved."""

    def __init__(
        self,
        turn: Turn,
        caller: Caller,
        *,
        is_authorized: IsAuthorized | None = None,
        newest_only: bool = False,
        events: Events | None = None,
        model: LanguageModel | None = None,
        paused: PausedTurn | None = None,
    ) -> None:
        """`is_authorized` is checked every two seconds, and the answer ends when its starter loses access.
        `newest_only`: the model gets only the newer half of the earlier messages that would fit. `events`: makes the
        answer in place of the chat's agent, by this `model`. `paused`: what the answer goes on from.

        Who began it in a session of the browser can be asked before a call; nobody sits before a program with a token.
        """
        self.log = AnswerLog(turn)
        self._turn = turn
        self._newest_only = newest_only
        self._events = events
        self._paused = paused
        self._can_ask = isinstance(is_authorized, SessionCheck)
        self.caller = caller
        self._draft = Draft(self.log, tool_calls=list(turn.tool_calls), model=model)
        # The existing text of a continued answer; recall mode writes all of it again.
        self._kept = "" if is_recall_mode() else turn.assistant_message
        if self._kept or paused is not None:
            # Readers get the complete answer: the earlier text and the new text.
            for thought in events_of_reasoning(self._turn):
                self.log.add(thought)
            for call in self._turn.tool_calls:
                for event in events_of_call(call):
                    self.log.add(event)
            self.log.add(TextWritten(self._kept))
        # The last save is not interrupted.
        self.is_closing = False
        # A task that is cancelled before its first step never runs at all, and nobody would save and close the turn.
        self._has_begun = self._is_stopped = False
        self._because: RecollectError | None = None
        self._task = asyncio.create_task(self._write())
        self._guard: asyncio.Task[None] | None = None
        if is_authorized is not None:
            self._guard = asyncio.create_task(wait_for_revocation(is_authorized))
            self._guard.add_done_callback(lambda guard: None if guard.cancelled() else self.stop())

    def stop(self, because: RecollectError | None = None) -> None:
        """End the answer as it is, by its person or `because` of something else; harmless if it has ended."""
        self._is_stopped, self._because = True, because
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
        """Asks the model, then saves the answer; another process may have decided how the turn has ended."""
        self._has_begun = True
        answer = await self._answer()
        self.is_closing = True
        if self._guard is not None:
            self._guard.cancel()
        try:
            saved = await self._save(answer)
            self.log.is_deleted = saved is None
            ending = ending_of_deleted() if saved is None else ending_of(saved)
        except Exception as error:
            ending = ending_by(shown(error))
        self.log.finish(ending)

    async def _answer(self) -> Answer:
        if self._is_stopped:
            return self._draft.ended(Turn.Status.INTERRUPTED, self._because)
        try:
            if self._events is not None:
                making = self._events()
            else:
                asked = await self._asked()
                self._draft.model, self._draft.asked = asked.deps.model, asked
                making = loop.answer(message=asked.content, history=asked.history, deps=asked.deps, paused=self._paused)
            length = len(self._kept)
            async with aclosing(making) as events:
                async for event in events:
                    self._draft.add(event)
                    length += len(event.text) if isinstance(event, WRITTEN) else 0
                    if length > LONGEST_ANSWER:
                        raise TooLong
        except asyncio.CancelledError:
            return self._draft.ended(Turn.Status.INTERRUPTED, self._because)
        except TooLong as error:
            return self._draft.ended(Turn.Status.INTERRUPTED, error)
        except Exception as error:
            # Earlier text remains an answer that can be continued.
            status = Turn.Status.INTERRUPTED if self._kept else Turn.Status.FAILED
            return self._draft.ended(status, shown(error))
        return self._draft.ended(Turn.Status.COMPLETE if self._draft.pause is None else Turn.Status.WAITING)

    async def _asked(self) -> Asked:
        """The prompt, fitted into the model's window. What it leaves out is searched for what the question is about."""
        if self._turn.attachment_count and not is_recall_mode():
            # A file that was just uploaded is read within seconds, by a worker, which can set no event here.
            deadline = time.monotonic() + settings.ATTACHMENT_WAIT_SECONDS
            while await as_caller(self.caller, is_being_read, self._turn):
                if time.monotonic() >= deadline:
                    break
                # How often it is asked whether the files of the message have been read.
                await asyncio.sleep(0.25)
        await asyncio.to_thread(ask_servers)
        deps, asked, turns = await as_caller(self.caller, self._fitted)
        if asked is not None and self._paused is not None:
            self._draft.before = Prompt.of(self._turn.prompt)
            return replace(asked, tokens=0)
        if asked is None and deps.model is not None:
            # Only the first answer of a process waits, for a few seconds at most.
            await asyncio.to_thread(learn_window, deps.model)
            deps, asked, turns = await as_caller(self.caller, self._fitted, deps)
        assert asked is not None, "a window is known once it is asked for"  # noqa: S101 - tells the types
        deps, question = asked.deps, self._turn.user_message
        # A reader may get the first event now.
        self.log.not_sent, self.log.sent = len(asked.left_out), asked.made.sent
        self.log.notify()
        compared: Sequence[tuple[float, Turn]] = ()
        if turns:
            compared = await asyncio.to_thread(unindexed.compared, question=question, turns=turns)
        if deps.model is None:
            return replace(asked, deps=replace(deps, compared=compared))
        if asked.left_out or compared:
            first = await as_caller(self.caller, prompt.first_of, asked)
            passages = [*prompt.passages_of(compared, self._turn, deps)]
            if asked.left_out and deps.is_indexed:
                passages += await aside(prompt.recalled, asked, self._turn)
            count = len(asked.left_out)
            asked = prompt.with_left_out(asked, turn=self._turn, count=count, first=first, passages=passages)
        # One after the other, each in a transaction of its own.
        pictures: dict[str, BinaryContent | None] = {}
        for id_ in asked.picture_ids:
            pictures[id_] = await as_caller(self.caller, context.picture, self.caller, id_)
        return prompt.with_pictures(asked, pictures) if pictures else asked

    def _fitted(self, known: ChatDeps | None = None) -> tuple[ChatDeps, Asked | None, list[Turn]]:
        """With the turns to compare with the question. No prompt while the window is not asked for."""
        turn, chat, state = self._turn, self._turn.conversation, self._paused.state if self._paused else None
        if state is not None:
            # Another model could not go on from what this one has thought.
            chat.model = state["model"]
        deps = known or deps_for(
            self.caller, chat, now=timezone.now(), message=turn.user_message, can_ask=self._can_ask
        )
        if state is None and known is None and deps.model is not None and not is_window_asked(deps.model):
            return deps, None, []
        if state is not None:
            deps = replace(deps, untrusted=UntrustedData(state["mark"]))
            asked = prompt.asked(turn, deps)
            return deps, replace(asked, deps=pausing.resumed_deps(asked.deps, state)), []
        asked = prompt.asked(turn, deps, kept=self._kept, newest_only=self._newest_only)
        is_found = deps.model is not None and deps.is_indexed
        return deps, asked, [] if is_found else prompt.turns_to_compare(self._turn, asked)

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
                # A full disk seldom gets room within seconds.
                if time.monotonic() > (min(deadline, began + 3.0) if is_full else deadline):
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


def shown(error: Exception) -> RecollectError:
    """Of any failure of an answer; an unexpected one is logged."""
    if isinstance(error, RecollectError):
        return error
    if isinstance(error, OperationalError | InterfaceError):
        return database_away(error)
    logger.exception("An answer failed")
    return Unavailable(_("Something went wrong. Try again."))
