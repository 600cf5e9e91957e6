"""Renders an answer while it is written: finished blocks once, open blocks again as they grow."""

import re
import time
from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass
from itertools import takewhile

from intake.markdown.budget import budget
from intake.markdown.rendering import (
    Env,
    markdown_length,
    normalise,
    render_blocks,
    render_plain,
    render_with_lines,
    took_too_long,
)

# A block is closed when a later one begins on a finished line; later text cannot change it. The exceptions are a link
# definition, and more brackets than are read as links: `finish` renders the complete text and corrects these.


# A code span, or the sign that opens and closes bold or struck words.
_SIGN = re.compile(r"(`+)[^`]*(?:\1|$)|\*\*|~~")


def close_emphasis(text: str) -> str:
    """Close the bold or struck words that the last paragraph has opened."""
    last = text[text.rfind("\n\n") + 1 :]
    if text.count("```") % 2 or not last.strip():
        return text
    opened: list[str] = []
    for match in _SIGN.finditer(last):
        sign = match[0]
        if sign in opened:
            opened.remove(sign)
        elif sign in ("**", "~~") and last[match.end() : match.end() + 1].strip():
            opened.append(sign)
    # A sign after a blank would open and not close.
    return text.rstrip(" ") + "".join(reversed(opened)) if opened else text


@dataclass(frozen=True, slots=True)
class ChangedBlocks:
    """`html`: the blocks from index `start` on; they replace all earlier blocks from there."""

    start: int
    html: list[str]


class BlockStream:
    """The blocks of one answer; `clock` counts seconds."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._not_before = clock()
        self._pieces: list[str] = []
        self._has_news = False
        # For the closed blocks: their end in the text, their number, and their link definitions.
        self._read = 0
        self._closed = 0
        self._env: Env = {}
        self._shown: list[str] = []
        self._is_out_of_time = False

    def feed(self, text: str) -> None:
        self._pieces.append(text)
        self._has_news = True

    @property
    def seconds_until_due(self) -> float | None:
        """How long the next `changes` must wait; None if nothing was fed since the last."""
        return max(0.0, self._not_before - self._clock()) if self._has_news else None

    def changes(self) -> ChangedBlocks | None:
        """The changed blocks, if it is time for them and there are any."""
        if self.seconds_until_due != 0:
            return None
        self._has_news = False
        started = self._clock()
        text = normalise("".join(self._pieces))
        changed = self._show(self._render(text))
        finished = self._clock()
        # Rendering takes at most about a fifth of the time, however long the open block is.
        self._not_before = finished + max(0.1, (finished - started) * 4)
        return changed

    def finish(self) -> ChangedBlocks | None:
        """The blocks that still differ from the rendering of the complete text."""
        self._has_news = False
        return self._show(render_blocks("".join(self._pieces)))

    def _render(self, text: str) -> list[str]:
        cut = markdown_length(text)
        closed = self._shown[: self._closed]
        if self._is_out_of_time:
            return [*closed, took_too_long(), *render_plain(text[self._read :])]
        try:
            with budget():
                newly_closed = self._close(text[self._read : cut])
                # The open blocks' definitions may be incomplete, so they are not kept.
                closing = close_emphasis(text[self._read : cut])
                open_blocks = [html for _, html in render_with_lines(closing, deepcopy(self._env))]
        except TimeoutError:
            # The open block only grows, so it would take as long the next time.
            self._is_out_of_time = True
            return [*self._shown[: self._closed], took_too_long(), *render_plain(text[self._read :])]
        return [*closed, *newly_closed, *open_blocks, *render_plain(text[cut:])]

    def _close(self, text: str) -> list[str]:
        """Render the newly closed blocks for the last time."""
        finished_lines = text[: text.rfind("\n") + 1]
        # Parsed with the following block: a formula without an end is one only at the end of the text.
        env = deepcopy(self._env)
        blocks = list(render_with_lines(finished_lines, env))
        if not blocks[:-1]:
            return []
        last_start = blocks[-1][0]
        self._env = env
        self._read += sum(len(line) + 1 for line in finished_lines.split("\n")[:last_start])
        self._closed += len(blocks) - 1
        return [html for _, html in blocks[:-1]]

    def _show(self, blocks: list[str]) -> ChangedBlocks | None:
        same = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(self._shown, blocks, strict=False)))
        is_unchanged = same == len(blocks) == len(self._shown)
        self._shown = blocks
        return None if is_unchanged else ChangedBlocks(same, blocks[same:])
