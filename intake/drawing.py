"""The `blocks` events of an answer, for readers who show it as HTML while it is written.

The model's stream never waits for it: text is fed as it comes, and a task of its own renders it in a thread, at most
ten times a second.
"""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress

from intake import sse
from intake.markdown.streaming import BlockStream, ChangedBlocks

SendEvent = Callable[[bytes], Awaitable[None]]


class Drawing:
    """Sends the changed blocks of one answer through `send`; `finish` sends those that are left."""

    def __init__(self, send: SendEvent) -> None:
        self._send = send
        self._blocks = BlockStream()
        self._has_news = asyncio.Event()
        self._task = asyncio.create_task(self._draw())

    def feed(self, text: str) -> None:
        self._blocks.feed(text)
        self._has_news.set()

    async def finish(self) -> None:
        await self.cancel()
        await self._show(await asyncio.to_thread(self._blocks.finish))

    async def cancel(self) -> None:
        """A rendering that has begun in its thread ends first."""
        self._task.cancel()
        with suppress(asyncio.CancelledError):
            await self._task

    async def _draw(self) -> None:
        while True:
            await self._has_news.wait()
            self._has_news.clear()
            await asyncio.sleep(self._blocks.seconds_until_due or 0)
            await self._show(await asyncio.shield(asyncio.to_thread(self._blocks.changes)))

    async def _show(self, changed: ChangedBlocks | None) -> None:
        if changed is not None:
            await self._send(encode(changed))


def encode(changed: ChangedBlocks) -> bytes:
    return sse.encode("blocks", {"from": changed.start, "html": changed.html})
