"""From what a model wrote to what a page may show: the only Markdown renderer, for stored and for streamed answers."""

from intake.markdown.rendering import render, render_blocks, render_summary
from intake.markdown.streaming import BlockStream, ChangedBlocks

__all__ = ["BlockStream", "ChangedBlocks", "render", "render_blocks", "render_summary"]
