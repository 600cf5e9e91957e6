"""Renders a model's Markdown to safe HTML: the only renderer, for stored and for streamed answers."""

from intake.markdown.rendering import render, render_blocks, render_summary
from intake.markdown.streaming import BlockStream, ChangedBlocks

__all__ = ["BlockStream", "ChangedBlocks", "render", "render_blocks", "render_summary"]
