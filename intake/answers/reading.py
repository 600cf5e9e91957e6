"""Streams an answer's log to one reader, at the reader's own pace.

A reader has no queue, only a position, so a reader who stops reading costs nothing and delays no other.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import suppress

from intake import sse
from intake.agent.events import TextWritten
from intake.answers.drawing import ReaderView
from intake.answers.events import (
    encode_blocks,
    encode_ending,
    encode_event,
    encode_thrown_out,
    encode_turn,
    ending_of,
    events_of_call,
    events_of_reasoning,
)
from intake.answers.log import NOWHERE, AnswerLog
from intake.markdown import render_blocks
from intake.markdown.streaming import ChangedBlocks
from intake.models import Turn
from intake.revocation import IsAuthorized, is_authorized_now, wait_for_revocation

KEEP_ALIVE_SECONDS = 15
# The shortest time between two messages to a reader.
PAUSE_SECONDS = 0.03
CATCH_UP_SECONDS = 3


async def read(
    log: AnswerLog, *, after: int | None = None, view: ReaderView | None = None, is_still_in: IsAuthorized | None = None
) -> AsyncIterator[bytes]:
    """Server-sent events, from `turn` (or after the position `after`) to `done` or `error`.

    `is_still_in` is checked every two seconds; a reader without access gets nothing more. Ends without a last event if
    another attempt at the answer has begun.
    """
    position = await _found(log, after)
    guard = _guard(is_still_in, log.notify)
    try:
        if position is None:
            yield encode_turn(log.turn)
        position = position or 0
        while not guard.done():
            chunk, position = _news(log, position, view)
            if chunk:
                yield chunk
                await asyncio.sleep(0 if log.is_over else PAUSE_SECONDS)
            elif log.is_over and (view is None or view.is_finished):
                break
            elif not await _is_notified(log):
                yield sse.KEEP_ALIVE
        if guard.done() or (log.ending and log.ending.is_cut_short and not await _may_stay(is_still_in)):
            yield encode_thrown_out()
        elif log.ending is not None:
            yield encode_ending(log.ending, log.turn, position=log.position + 1 if log.is_exact else NOWHERE)
    finally:
        guard.cancel()


async def replay(*, turn: Turn, with_blocks: bool = False) -> AsyncIterator[bytes]:
    """The events of an ended turn again: its calls, its answer as one text, and its ending."""
    yield encode_turn(turn)
    for thought in events_of_reasoning(turn):
        yield encode_event(thought, turn)
    for call in turn.tool_calls:
        for event in events_of_call(call):
            yield encode_event(event, turn, with_html=with_blocks)
    if turn.assistant_message:
        yield encode_event(TextWritten(turn.assistant_message), turn)
        if with_blocks:
            blocks = await asyncio.to_thread(render_blocks, turn.assistant_message)
            yield encode_blocks(ChangedBlocks(0, blocks))
    yield encode_ending(await asyncio.to_thread(ending_of, turn), turn)


async def _found(log: AnswerLog, position: int | None) -> int | None:
    """The position, if it exists in this log; a mirror gets a moment to reach it."""
    if position is None:
        return None
    with suppress(TimeoutError):
        async with asyncio.timeout(CATCH_UP_SECONDS):
            while log.is_mirror and log.is_exact and not log.is_over and position > log.position:
                await log.wait()
    return position if log.is_exact and position <= log.position + 1 else None


def _news(log: AnswerLog, position: int, view: ReaderView | None) -> tuple[bytes, int]:
    events = log.since(position)
    encoded = [
        encode_event(event, log.turn, position=end if log.is_exact else NOWHERE, with_html=view is not None)
        for end, event in events
    ]
    if view is not None and (changed := view.take()) is not None:
        encoded.append(encode_blocks(changed))
    return b"".join(encoded), events[-1][0] if events else position


async def _is_notified(log: AnswerLog) -> bool:
    """False if nothing has happened for so long that a proxy may close the connection."""
    try:
        async with asyncio.timeout(KEEP_ALIVE_SECONDS):
            await log.wait()
    except TimeoutError:
        return False
    return True


def _guard(is_still_in: IsAuthorized | None, notify: Callable[[], None]) -> asyncio.Future[None]:
    if is_still_in is None:
        return asyncio.get_running_loop().create_future()
    guard = asyncio.create_task(wait_for_revocation(is_still_in))
    guard.add_done_callback(lambda _: notify())
    return guard


async def _may_stay(is_still_in: IsAuthorized | None) -> bool:
    """An answer may have been cut off because its starter lost access, and this reader may be the starter."""
    return is_still_in is None or await is_authorized_now(is_still_in)
