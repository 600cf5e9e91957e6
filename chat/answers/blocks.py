"""Renders an answer as HTML while it is written, once for all readers who want HTML in a language.

The model's stream never waits for it: a separate task renders the log's text in a thread, at most ten times a second.
Each reader has a view that knows the first block that the reader has not seen.
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import ParamSpec, TypeVar
from weakref import WeakSet

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
        self.blocks: list[str] = []
        # Whether these are the blocks of the whole answer.
        self.is_finished = False
        self.views: WeakSet[ReaderView] = WeakSet()
        self._task = asyncio.create_task(self._draw())

    def close_view(self, view: "ReaderView") -> bool:
        """Returns whether other views are left; without any, rendering stops."""
        self.views.discard(view)
        if not self.views:
            self._task.cancel()
        return bool(self.views)

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
        self.blocks[changed.start :] = changed.html
        for view in self.views:
            view.note(changed.start)
        self._log.notify()


class ReaderView:
    """The blocks that one reader has not seen yet."""

    def __init__(self, drawing: BlockRenderer) -> None:
        self._drawing = drawing
        drawing.views.add(self)
        # A reader who arrives, or returns, gets all blocks.
        self._unseen_from: int | None = 0 if drawing.blocks else None

    def note(self, start: int) -> None:
        self._unseen_from = start if self._unseen_from is None else min(start, self._unseen_from)

    @property
    def is_finished(self) -> bool:
        return self._drawing.is_finished

    def take(self) -> ChangedBlocks | None:
        if self._unseen_from is None:
            return None
        start, self._unseen_from = self._unseen_from, None
        return ChangedBlocks(start, self._drawing.blocks[start:])
