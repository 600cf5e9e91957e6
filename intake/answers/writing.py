"""Writes an answer from the saved question to the saved end: runs the agent loop in its own task, and logs every event.

The task belongs to the turn. It ends with the answer, or earlier if
1. a reader requests it (`stop`), in this process or through Redis;
2. the session or token of the question is no longer valid;
3. the turn has been deleted or closed meanwhile;
4. the process stops.
In every case the text written so far is saved.
"""

import asyncio
import logging
import time
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from typing import Any

from django.db import InterfaceError, OperationalError
from django.utils import timezone
from pydantic_ai.messages import ModelMessage

from core.errors import RecollectError, TooLarge, Unavailable
from core.isolation.caller import Caller
from core.problems import database_away, is_disk_full
from intake import services
from intake.agent import loop, prompt
from intake.agent.deps import ChatDeps, deps_for
from intake.agent.events import WRITTEN, AgentEvent, AnswerEnded, TextWritten, ToolCalled, ToolReturned
from intake.answers.after import after_answer
from intake.answers.database import as_caller, load_turn
from intake.answers.events import (
    as_data,
    ending_by,
    ending_of,
    ending_of_deleted,
    events_of_call,
    events_of_reasoning,
    kept_result,
)
from intake.answers.log import AnswerLog, Ending
from intake.language_models import LanguageModel, is_recall_mode
from intake.models import Turn
from intake.revocation import IsAuthorized, wait_for_revocation
from intake.services import Answer, Progress
from intake.usage import Usage

logger = logging.getLogger(__name__)

# How many seconds the last save is retried while the database is away, and the pauses in between, which double. Giving
# up leaves the turn open, and a client without an Idempotency-Key that then repeats its message adds a second turn.
LAST_SAVE_SECONDS = 60.0
FULL_DISK_SECONDS = 3.0
SHORTEST_WAIT, LONGEST_WAIT = 0.2, 2.0
# Limits every answer, also one without readers.
LONGEST_ANSWER = 500_000


class TooLong(TooLarge):
    default_detail = f"The answer was ended: it had reached {LONGEST_ANSWER:,} characters."


@dataclass(slots=True)
class Draft:
    """The answer as it will be saved."""

    log: AnswerLog
    tool_calls: list[dict[str, Any]] = field(default_factory=list)
    begun_at: float = field(default_factory=time.monotonic)
    end: AnswerEnded | None = None
    model: LanguageModel | None = None

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
        if self.end is None:
            return replace(known, model=self.model.own_name if self.model else None)
        return replace(
            known,
            model=self.end.model,
            input_tokens=self.end.input_tokens,
            output_tokens=self.end.output_tokens,
            finish_reason=self.end.finish_reason,
        )


class Writing:
    """One running answer. `log` is what readers follow; when it `is_closing`, its end is being saved."""

    def __init__(self, turn: Turn, caller: Caller, *, is_still_in: IsAuthorized | None = None) -> None:
        self.log = AnswerLog(turn)
        self._turn = turn
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
        self._guard = None if is_still_in is None else asyncio.create_task(self._stop_when_revoked(is_still_in))

    def stop(self) -> None:
        """End the answer as it is; harmless if it has ended."""
        self._is_stopped = True
        if self._has_begun and not self.is_closing and not self._task.cancelling():
            self._task.cancel()

    async def ended(self) -> None:
        await asyncio.wait([self._task])

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
        deps, (message, told) = await as_caller(self.caller, self._asked)
        self._draft.model = deps.model
        length = len(self._kept)
        async with aclosing(loop.answer(message=message, history=told, deps=deps)) as events:
            async for event in events:
                self._draft.add(event)
                length += len(event.text) if isinstance(event, WRITTEN) else 0
                if length > LONGEST_ANSWER:
                    raise TooLong

    def _asked(self) -> tuple[ChatDeps, tuple[str, list[ModelMessage]]]:
        deps = deps_for(self.caller, self._turn.conversation, now=timezone.now())
        return deps, prompt.asked(self._turn, kept=self._kept)

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
            return await asyncio.to_thread(ending_of, saved)
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
            "The disk is full, and the answer could not be kept. The administrator of this server has to make room."
            if is_full
            else "The database is away, and the answer could not be kept. Try again."
        )

    async def _stop_when_revoked(self, is_still_in: IsAuthorized) -> None:
        await wait_for_revocation(is_still_in)
        self.stop()


def _shown(error: Exception) -> RecollectError:
    if isinstance(error, RecollectError):
        return error
    if isinstance(error, OperationalError | InterfaceError):
        return database_away(error)
    logger.exception("An answer failed")
    return Unavailable("Something went wrong here. Try again.")
