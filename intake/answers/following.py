"""Follows an answer that another process writes, from its stream in Redis or from the database.

All readers of this process share one mirror of the log, and so one connection. The mirror changes to the database when
Redis is unavailable, when the stream has a gap, or when the stream is silent although more has been saved (its writer
may have no Redis). From then on the mirror's positions are its own, and readers do not get them.
"""

import asyncio
import logging
from typing import Any

from django.db import InterfaceError, OperationalError
from redis.exceptions import RedisError

from core.isolation.caller import Caller
from intake.agent.events import WRITTEN, ReasoningWritten, TextWritten, ToolCalled, ToolReturned
from intake.answers import streams
from intake.answers.database import load_turn
from intake.answers.events import ending_of, ending_of_deleted, events_of_call
from intake.answers.log import AnswerLog, EventId, length_of, rest_of
from intake.models import Turn
from intake.usage import Usage

logger = logging.getLogger(__name__)

# How long a read of the stream waits before the database is asked whether the answer continues.
BLOCK_SECONDS = 1.0
LOOK_EVERY_SECONDS = 0.5
ENTRIES_AT_ONCE = 500


class Gap(ValueError):
    """The stream does not continue at the mirror's end."""


class Mirror:
    """`log` grows while there are readers. The caller who opened the mirror closes it."""

    def __init__(self, turn: Turn, caller: Caller) -> None:
        self.log = AnswerLog(turn)
        self.log.is_mirror = True
        self.readers = 0
        self._caller = caller
        self._task = asyncio.create_task(self._follow())

    def close(self) -> None:
        self._task.cancel()

    async def _follow(self) -> None:
        try:
            await _mirror_stream(self.log, self._is_worth_waiting)
        except (RedisError, OSError, ValueError) as error:
            logger.info(
                "The answer of turn %s is followed in the database (%s)", self.log.turn.pk, type(error).__name__
            )
        while not self.log.is_over:
            try:
                await self._look()
            except (OperationalError, InterfaceError):
                logger.warning("An answer cannot be followed for the moment: the database is away")
            await asyncio.sleep(LOOK_EVERY_SECONDS)

    async def _is_worth_waiting(self) -> bool:
        """Whether the silent stream may still continue."""
        turn = await load_turn(self.log.turn.pk, caller=self._caller)
        is_going_on = turn is not None and not turn.has_ended and turn.attempt == self.log.turn.attempt
        return is_going_on and turn is not None and len(turn.assistant_message) <= len(self.log.text)

    async def _look(self) -> None:
        """Add the text that has been saved meanwhile."""
        turn = await load_turn(self.log.turn.pk, caller=self._caller)
        if turn is None:
            self.log.finish(ending_of_deleted())
        elif turn.attempt != self.log.turn.attempt:
            self.log.supersede()
        else:
            catch_up(self.log, turn)
            if turn.has_ended:
                self.log.finish(await asyncio.to_thread(ending_of, turn))


async def mirror_of_ended(turn: Turn) -> AnswerLog | None:
    """The log of an ended answer, for readers who already have a part of it.

    The part that its stream does not have comes from the saved turn. None if the positions of the calls in the text are
    lost.
    """
    log = AnswerLog(turn)
    try:
        async with streams.async_client() as client:
            entries: Any = await client.xrange(streams.stream_key(turn.pk), min=str(EventId(turn.attempt, 0)))
        for id_, fields in entries:
            take(log, streams.entry_of(id_, fields))
    except (RedisError, OSError, ValueError) as error:
        logger.info("The stream of turn %s is not whole (%s)", turn.pk, type(error).__name__)
    catch_up(log, turn)
    log.finish(await asyncio.to_thread(ending_of, turn))
    return log if log.is_exact else None


def catch_up(log: AnswerLog, turn: Turn) -> None:
    """Add the missing part of a saved turn to the log. A saved turn has no position of a call within the text."""
    text, reasoning = log.text, log.reasoning
    if len(turn.reasoning) > len(reasoning) and turn.reasoning.startswith(reasoning):
        # It has no position of the reasoning within the text either.
        log.is_exact = False
        log.add(ReasoningWritten(turn.reasoning[len(reasoning) :], Usage.of(turn.usage).thought_seconds))
    told = {(type(event), event.id) for _, event in log.since(0) if isinstance(event, ToolCalled | ToolReturned)}
    kept = [event for call in turn.tool_calls for event in events_of_call(call)]
    for event in kept:
        if (type(event), event.id) not in told:
            log.is_exact = False
            log.add(event)
    if turn.assistant_message.startswith(text):
        log.add(TextWritten(turn.assistant_message[len(text) :]))


def take(log: AnswerLog, entry: streams.StreamEntry) -> bool:
    """Add an entry to the log; returns whether more can follow. Raises `Gap`.

    An entry that the writer sent twice overlaps with the existing text.
    """
    if entry.id.attempt != log.turn.attempt:
        raise Gap("another attempt has begun")
    begins = streams.begins_at(entry)
    if begins > log.position:
        raise Gap(f"from {log.position} to {begins}")
    if entry.event is None:
        return False
    overlap = log.position - begins
    if isinstance(entry.event, WRITTEN):
        log.add(rest_of(entry.event, overlap))
    elif overlap < length_of(entry.event):
        log.add(entry.event)
    return True


async def _mirror_stream(log: AnswerLog, is_worth_waiting: Any) -> None:
    """Until the stream has ended or cannot continue. Raises `RedisError` and `Gap`."""
    key, last = streams.stream_key(log.turn.pk), str(EventId(log.turn.attempt, 0))
    async with streams.async_client(timeout=BLOCK_SECONDS + streams.TIMEOUT_SECONDS) as client:
        while True:
            found: Any = await client.xread({key: last}, block=int(BLOCK_SECONDS * 1000), count=ENTRIES_AT_ONCE)
            if not found:
                if await is_worth_waiting():
                    continue
                return
            for id_, fields in _entries(found, key):
                last = id_.decode()
                if not take(log, streams.entry_of(id_, fields)):
                    return


def _entries(found: Any, key: str) -> list[tuple[bytes, dict[bytes, bytes]]]:
    """The entries of one stream, in the form of either version of the protocol."""
    if isinstance(found, dict):
        (entries,) = found[key.encode()] if key.encode() in found else found[key]
        return list(entries)
    ((_, entries),) = found
    return list(entries)
