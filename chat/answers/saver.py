"""Saves the text of all running answers of a process with one database message, some twice a second.

So a killed server loses less than a second of the text, and the database needs no transaction for each answer.
"""

import asyncio
import logging
import time
from dataclasses import dataclass, field

from django.db import DataError
from django.utils import timezone

from chat.answers.database import aside, load_turn
from chat.answers.writer import AnswerWriter
from intake.chats import services
from intake.chats.services import Progress

logger = logging.getLogger(__name__)


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
            # The text is saved so often, with a pause also where saving takes long.
            await asyncio.sleep(max(0.1, 0.4 - took))
            began = time.monotonic()
            self._answers = {writing: kept for writing, kept in self._answers.items() if not writing.is_closing}
            try:
                await self._save(began)
            except Exception as error:  # the next round tries again
                logger.warning("What is being written cannot be saved for the moment (%s)", type(error).__name__)
            took = time.monotonic() - began

    async def _save(self, now: float) -> None:
        # An unchanged answer is saved after this time all the same: that renews its lease, and finds out that it was
        # stopped.
        due = [
            writing
            for writing, (position, at) in self._answers.items()
            if writing.log.position > position or at < now - 0.5
        ]
        if not due:
            return
        parts: list[Progress] = [writing.progress() for writing in due]
        positions = [writing.log.position for writing in due]
        saved = await _save_together(parts)
        for writing, part, position in zip(due, parts, positions, strict=True):
            if part.turn_id in saved:
                self._answers[writing] = position, now
                continue
            # Its row may only have been locked for a moment; or the turn does not belong to this answer any more.
            turn = await load_turn(part.turn_id, caller=writing.caller)
            if turn is None or not turn.is_being_written or turn.attempt != part.attempt:
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
