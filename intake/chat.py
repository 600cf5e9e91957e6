"""The chat's answers for the endpoints: start an answer, follow it with any number of readers, stop it early.

An answer belongs to its turn (`intake/answers/`): it is written to its end with or without readers.
"""

import asyncio
import time
from collections.abc import AsyncIterator

from core.isolation.caller import Caller
from intake import services
from intake.answers import streams
from intake.answers.database import as_caller, load_turn
from intake.answers.log import EventId
from intake.answers.office import office
from intake.answers.reading import replay
from intake.models import Turn
from intake.revocation import IsAuthorized

__all__ = ["cut_off_answers", "follow_answer", "replay", "start_answer", "stop_answer", "stream_answer"]

# How long a request to stop waits for the writer, in any process, to save the text.
STOP_PATIENCE_SECONDS = 2.0
LOOK_EVERY_SECONDS = 0.05
# How long a stopping server waits for the last saves.
SHUTDOWN_SECONDS = 5


def start_answer(*, turn: Turn, caller: Caller, is_still_in: IsAuthorized | None = None) -> None:
    """Start writing the answer of a turn that was just begun or resumed.

    `is_still_in` is checked every two seconds, and the answer ends when its starter loses access.
    """
    office().start(turn, caller, is_still_in=is_still_in)


async def follow_answer(
    *,
    turn: Turn,
    caller: Caller,
    after: EventId | None = None,
    is_still_in: IsAuthorized | None = None,
    with_blocks: bool = False,
) -> AsyncIterator[bytes]:
    """The server-sent events of a turn's answer, from `turn`, or after the event `after`, to `done` or `error`.

    `is_still_in` is for this reader: without access the reader's stream ends and the answer continues. `with_blocks`
    adds `blocks`.
    """
    following = office().follow(turn, caller, after=after, is_still_in=is_still_in, with_blocks=with_blocks)
    async for events in following:
        yield events


async def stream_answer(
    *, turn: Turn, caller: Caller, is_still_in: IsAuthorized | None = None, with_blocks: bool = False
) -> AsyncIterator[bytes]:
    """Start the answer and follow it from the beginning."""
    start_answer(turn=turn, caller=caller, is_still_in=is_still_in)
    async for events in follow_answer(turn=turn, caller=caller, is_still_in=is_still_in, with_blocks=with_blocks):
        yield events


async def stop_answer(*, turn: Turn, caller: Caller) -> Turn | None:
    """End the answer, in any process; returns the turn in its new state, None if it was deleted.

    If a writer does not end in time, the turn's status stops it, and the text saved so far is kept.
    """
    writing = office().writings.get(turn.pk)
    if writing is not None:
        writing.stop()
    has_taken = writing is not None or await asyncio.to_thread(streams.request_stop, turn.pk, attempt=turn.attempt)
    deadline = time.monotonic() + (STOP_PATIENCE_SECONDS if has_taken else 0)
    present: Turn | None = turn
    while present is not None and not present.has_ended and present.attempt == turn.attempt:
        if time.monotonic() > deadline:
            await as_caller(caller, services.interrupt_turn, turn_id=turn.pk, attempt=turn.attempt)
        await asyncio.sleep(LOOK_EVERY_SECONDS)
        present = await load_turn(turn.pk, caller=caller)
    return present


async def cut_off_answers() -> None:
    """Save the text of every answer of this loop as interrupted: the last step of a stopping server."""
    here = office()
    if writings := list(here.writings.values()):
        for writing in writings:
            writing.stop()
        await asyncio.wait([asyncio.create_task(each.ended()) for each in writings], timeout=SHUTDOWN_SECONDS)
    await asyncio.wait([asyncio.create_task(here.publisher.flushed())], timeout=1)
