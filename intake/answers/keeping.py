"""Saves the text of all running answers of a process with one database message, some twice a second.

So a killed server loses less than a second of the text, and the database needs no transaction for each answer.
"""

import asyncio
import logging
import time
from dataclasses import dataclass, field

from django.conf import settings
from django.db import DataError
from django.utils import timezone

from intake import services
from intake.answers.database import aside, load_turn
from intake.answers.writing import Writing
from intake.services import Progress

logger = logging.getLogger(__name__)

SAVE_EVERY_SECONDS = 0.4
PAUSE_SECONDS = 0.1
# The part of a lease after which an unchanged turn is saved all the same, as a sign of life.
SIGN_OF_LIFE = 0.4


@dataclass(frozen=True, slots=True)
class _Kept:
    """The position of the log up to which an answer is saved, and the time."""

    position: int
    at: float

    def is_due(self, position: int, now: float) -> bool:
        return position > self.position or now > self.at + SIGN_OF_LIFE * settings.ANSWER_LEASE_SECONDS


@dataclass(eq=False)
class Keeper:
    """One per event loop; runs while answers are being written."""

    _answers: dict[Writing, _Kept] = field(default_factory=dict)
    _task: asyncio.Task[None] | None = None

    def keep(self, writing: Writing) -> None:
        self._answers[writing] = _Kept(writing.log.position, time.monotonic())
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
        due = [writing for writing, kept in self._answers.items() if kept.is_due(writing.log.position, now)]
        if not due:
            return
        parts: list[Progress] = [writing.progress() for writing in due]
        positions = [writing.log.position for writing in due]
        saved = await _save_together(parts)
        for writing, part, position in zip(due, parts, positions, strict=True):
            if part.turn_id in saved:
                self._answers[writing] = _Kept(position, now)
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


async def _is_open(writing: Writing) -> bool:
    """Whether the turn still belongs to this answer; its row may only have been locked for a moment."""
    turn = await load_turn(writing.log.turn.pk, caller=writing.caller)
    return turn is not None and not turn.has_ended and turn.attempt == writing.log.turn.attempt
