"""Renders an answer as HTML while it is written, once for all readers who want HTML in a language.

The model's stream never waits for it: a separate task renders the log's text in a thread, at most ten times a second.
Each reader knows how many of its changes they have seen.
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import ParamSpec, TypeVar

from django.utils.translation import override

from chat.answers.log import AnswerLog
from intake.markdown.streaming import BlockStream, ChangedBlocks

# Rendering occupies a processor: more threads would only slow the others down.
_threads = ThreadPoolExecutor(2, thread_name_prefix="drawing")

P = ParamSpec("P")
Drawn = TypeVar("Drawn")


def drawn_in(language: str, draw: Callable[P, Drawn], *args: P.args, **kwargs: P.kwargs) -> Drawn:
    """The result of drawing in a language, in whichever thread this is."""
    with override(language):
        return draw(*args, **kwargs)


class BlockRenderer:
    def __init__(self, log: AnswerLog, language: str) -> None:
        self._log = log
        self._language = language
        self._stream = BlockStream()
        self._fed = 0
        self._blocks: list[str] = []
        # The first block of each change.
        self._starts: list[int] = []
        # Whether these are the blocks of the whole answer.
        self.is_finished = False
        self.readers = 0
        self._task = asyncio.create_task(self._draw())

    def stop(self) -> None:
        self._task.cancel()

    def since(self, seen: int) -> tuple[int, ChangedBlocks | None]:
        """The number of changes so far, and what those after the first `seen` changed. A new reader has seen none."""
        start = min(self._starts[seen:], default=None)
        return len(self._starts), None if start is None else ChangedBlocks(start, self._blocks[start:])

    async def _draw(self) -> None:
        loop = asyncio.get_running_loop()
        while not self.is_finished:
            # Read before the text: anything written in between is rendered next time.
            is_whole = self._log.is_over
            text = self._log.text
            if len(text) > self._fed:
                self._stream.feed(text[self._fed :])
                self._fed = len(text)
            if is_whole:
                self._show(await loop.run_in_executor(_threads, drawn_in, self._language, self._stream.finish))
                self.is_finished = True
                self._log.notify()
            elif (pause := self._stream.seconds_until_due) == 0:
                self._show(await loop.run_in_executor(_threads, drawn_in, self._language, self._stream.changes))
            else:
                with suppress(TimeoutError):
                    async with asyncio.timeout(pause):
                        await self._log.wait()

    def _show(self, changed: ChangedBlocks | None) -> None:
        if changed is None:
            return
        self._blocks[changed.start :] = changed.html
        self._starts.append(changed.start)
        self._log.notify()
