"""Renders Markdown to HTML, for stored answers and while one is written.

Renders Markdown block by block, without raw HTML and cleaned by an allow-list. Each block is one element.
"""

import re
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from copy import deepcopy
from dataclasses import dataclass
from itertools import takewhile
from typing import Any
from urllib.parse import urlsplit

import nh3
from django.utils.safestring import SafeString, mark_safe
from django.utils.translation import gettext as _
from markdown_it import MarkdownIt
from markdown_it.renderer import RendererHTML
from markdown_it.token import Token
from mdit_py_plugins.footnote import footnote_plugin

from intake.markdown.extensions import add_elements, add_formulas
from intake.markdown.safety import budget, check, clean_answer, clean_summary, render_code

# The page's own headings are the first two levels; an answer's begin below them.
HEADING_SHIFT = 2
DEEPEST_HEADING = 6
# For each opening bracket the parser scans all the remaining text. Above this number, links stay as plain text.
MOST_BRACKETS = 3_000
# For each address that might begin, all the remaining text is searched.
MOST_ADDRESSES = 1_000
# About 100 ms of work. Text beyond it is shown unrendered, in pieces of this many characters.
LONGEST_MARKDOWN = 100_000
PLAIN_PIECE = 10_000
SUMMARY_SECONDS = 0.1
LONG = 20_000
_drawing_a_long_one = threading.Lock()

# Most summaries contain only words.
_WORDS = re.compile(r"[^\W_](?:[^\W_]|[ ,.:;])*")
_LINE_END = re.compile("\n")
_TASK = re.compile(r"\[([ xX])\] +")

Env = dict[str, Any]


def render(text: str) -> SafeString:
    """Render an answer's Markdown as HTML that runs and loads nothing; images become links.

    It is rendered anew each time, in 1 ms for each 1,000 characters, because stored HTML would have to be deleted with
    its turn. A process renders one long answer at a time: several would share one interpreter and delay all other
    requests.
    """
    if len(text) > LONG:
        with _drawing_a_long_one:
            return mark_safe("".join(render_blocks(text)))  # noqa: S308 - each block is cleaned
    return mark_safe("".join(render_blocks(text)))  # noqa: S308 - each block is cleaned


def render_blocks(text: str) -> list[str]:
    """The HTML of each top-level block, one element each; `render` is their concatenation."""
    text = normalise(text)
    cut = markdown_length(text)
    blocks: list[str] = []
    plain_from = 0
    with budget():
        try:
            for end, html in _with_ends(text[:cut], {}):
                blocks.append(html)
                plain_from = end
        except TimeoutError:
            return [*blocks, took_too_long(), *render_plain(text[plain_from:])]
    return [*blocks, *render_plain(text[cut:])]


def render_summary(text: str) -> SafeString:
    """One line of Markdown that names a tool's results; it may link only to pages of this site."""
    if _WORDS.fullmatch(text):
        return mark_safe(text)  # noqa: S308 - letters, digits and what means nothing in Markdown and HTML
    parser = _summary_parser if text.count("[") <= MOST_BRACKETS else _linkless_summary_parser
    try:
        with budget(SUMMARY_SECONDS):
            return mark_safe(clean_summary(parser.renderInline(text)))  # noqa: S308 - cleaned on this line
    except (TimeoutError, RecursionError):
        return mark_safe(_escape(text))  # noqa: S308 - escaped on this line


def normalise(text: str) -> str:
    """The line breaks that the parser counts."""
    return text.replace("\r\n", "\n").replace("\r", "\n")


def markdown_length(text: str) -> int:
    """The length of the text that is read as Markdown: all of it, or up to the last line that ends within the limit."""
    if len(text) <= LONGEST_MARKDOWN:
        return len(text)
    return _last_line_end(text, LONGEST_MARKDOWN)


def render_parsed(text: str, env: Env) -> list[str]:
    """The blocks of a text; `env` holds the earlier link definitions, and gets those of the text."""
    return [html for _, html in render_with_lines(text, env)]


def render_with_lines(text: str, env: Env) -> Iterator[tuple[int, str]]:
    """The same, each with its first line. Raises `TimeoutError`."""
    has_many_links = sum(map(text.count, ("//", "mailto:"))) > MOST_ADDRESSES or text.count("[") > MOST_BRACKETS
    parser = _linkless_parser if has_many_links else _parser
    try:
        tokens = parser.parse(text, env)
    except RecursionError:
        raise TimeoutError from None
    for group in _top_level(tokens):
        check()
        line = next(token.map[0] for token in group if token.map)
        yield line, clean_answer(parser.renderer.render(group, parser.options, env)).rstrip("\n")


def _with_ends(text: str, env: Env) -> Iterator[tuple[int, str]]:
    """Each block after the place in the text where the next one begins."""
    lines = [0, *(found.end() for found in _LINE_END.finditer(text)), len(text)]
    before: str | None = None
    for line, html in render_with_lines(text, env):
        if before is not None:
            yield lines[line], before
        before = html
    if before is not None:
        yield len(text), before


def took_too_long() -> str:
    sentence = _("Formatting this text would take too long. It is shown as it was written.")
    return f'<p class="plain" dir="auto"><em>{_escape(sentence)}</em></p>'


def render_plain(text: str) -> list[str]:
    return [f'<p class="plain" dir="auto">{_escape(piece)}</p>' for piece in plain_pieces(text)]


def plain_pieces(text: str) -> Iterator[str]:
    at = 0
    while at < len(text):
        end = at + _last_line_end(text[at : at + PLAIN_PIECE + 1], PLAIN_PIECE)
        yield text[at:end]
        at = end


def _last_line_end(text: str, limit: int) -> int:
    """Where a text is cut at `limit`: after a line, unless one line is longer than that."""
    if len(text) <= limit:
        return len(text)
    return text.rfind("\n", 0, limit) + 1 or limit


def _top_level(tokens: Sequence[Token]) -> Iterator[list[Token]]:
    group: list[Token] = []
    depth = 0
    for token in tokens:
        group.append(token)
        depth += token.nesting
        if depth == 0:
            yield group
            group = []


def _make_parser() -> MarkdownIt:
    parser = MarkdownIt("js-default", {"html": False, "linkify": True})
    # Only explicit addresses become links: `setup.py` and `e.g` are names of other things.
    assert parser.linkify is not None  # noqa: S101 - it is there by the option above
    parser.linkify.set({"fuzzy_link": False, "fuzzy_email": False, "fuzzy_ip": False})
    # A footnote stays where it is written and keeps its label, so that a block does not depend on later blocks.
    footnote_plugin(parser, inline=False, move_to_end=False, always_match_refs=True)
    add_formulas(parser)
    _add_budget(parser)
    parser.core.ruler.push("fit_into_page", _fit_into_page)
    add_elements(parser)
    _add_render_rules(parser)
    return parser


def _add_budget(parser: MarkdownIt) -> None:
    """Rules that match nothing, before all others: each step of the parser looks at the time."""

    def look_at_the_time(*_: Any) -> bool:
        check()
        return False

    parser.block.ruler.before(
        "table", "budget", look_at_the_time, {"alt": ["paragraph", "reference", "blockquote", "list", "table"]}
    )
    parser.inline.ruler.before("text", "budget", look_at_the_time)


def _add_render_rules(parser: MarkdownIt) -> None:
    parser.add_render_rule("image", _image_not_loaded)
    parser.add_render_rule("link_open", _link_open)
    parser.add_render_rule(
        "fence", lambda renderer, tokens, index, *__: render_code(tokens[index].content, tokens[index].info)
    )
    parser.add_render_rule("code_block", lambda renderer, tokens, index, *__: render_code(tokens[index].content, ""))
    parser.add_render_rule("table_open", lambda *_: '<div class="table-scroll" dir="auto" tabindex="0"><table>')
    parser.add_render_rule("table_close", lambda *_: "</table></div>")
    parser.add_render_rule(
        "footnote_ref", lambda renderer, tokens, index, *__: _note_mark(tokens[index], ' class="footnote-ref"')
    )
    parser.add_render_rule("footnote_reference_open", _note_open)
    parser.add_render_rule("footnote_reference_close", lambda *_: "</div>")


def _fit_into_page(state: Any) -> None:
    for index, token in enumerate(state.tokens):
        if token.type in ("heading_open", "heading_close"):
            level = min(int(token.tag[1:]) + HEADING_SHIFT, DEEPEST_HEADING)
            token.tag = f"h{level}"
        elif token.type in ("th_open", "td_open") and "style" in token.attrs:
            # The page's policy would refuse a style attribute.
            alignment = str(token.attrs.pop("style")).removeprefix("text-align:")
            token.attrs["class"] = f"align-{alignment}"
        elif token.type == "list_item_open":
            _mark_task(token, state.tokens[index + 2])
        if token.level == 0 and token.nesting == 1:
            # Below the top level, style sheets let each line find its own direction: an element with an explicit one
            # hides its words from that search.
            token.attrs["dir"] = "auto"


def _mark_task(item: Token, content: Token) -> None:
    """`[ ]` and `[x]` at the beginning of an item become symbols that can be read aloud and copied."""
    if not content.children:
        return
    first = content.children[0]
    if task := _TASK.match(first.content):
        first.content = ("☐ " if task[1] == " " else "☑ ") + first.content[task.end() :]
        item.attrs["class"] = "task"


def _note_open(renderer: RendererHTML, tokens: Sequence[Token], index: int, *_: Any) -> str:
    return f'<div class="footnote" dir="auto">{_note_mark(tokens[index])}'


def _note_mark(token: Token, attributes: str = "") -> str:
    return f"<sup{attributes}>{_escape(str(token.meta['label']))}</sup>"


def _image_as_link(renderer: RendererHTML, tokens: Sequence[Token], index: int, options: Any, env: Env) -> str:
    """Loading a picture would reveal the reader to its server; a link leaves the choice to the reader."""
    token = tokens[index]
    address = _escape(str(token.attrs.get("src", "")))
    words = _escape(renderer.renderInlineAsText(token.children, options, env)) or "image"
    is_inside_link = sum(before.nesting for before in tokens[:index] if before.type.startswith("link_"))
    return words if is_inside_link else f'<a href="{address}" target="_blank">{words}</a>'


def _image_not_loaded(renderer: RendererHTML, tokens: Sequence[Token], index: int, options: Any, env: Env) -> str:
    """The same link with its host, and a button that loads the picture (static/intake/previews.js, decision 73)."""
    link = _image_as_link(renderer, tokens, index, options, env)
    host = _host_of(str(tokens[index].attrs.get("src", "")))
    if not host or not link.startswith("<a "):
        return link
    words, load = _("Image not loaded"), _("Load")
    label = f'<span class="picture-label">{words}</span><span class="picture-label"> · </span>'
    place = f'<span class="picture-host">{_escape(host)}</span>'
    button = f'<button type="button" data-action="load-picture">{load}</button>'
    return f'<span class="picture">{label}{place} · {link} {button}</span>'


def _host_of(address: str) -> str:
    """Empty for an address that names no other site. One that is no name has quoted characters by now."""
    try:
        parts = urlsplit(address)
    except ValueError:
        return ""
    host = parts.hostname or ""
    return host if parts.scheme in ("http", "https") and "%" not in host else ""


def _link_open(renderer: RendererHTML, tokens: Sequence[Token], index: int, options: Any, env: Env) -> str:
    token = tokens[index]
    if str(token.attrs.get("href", "")).startswith(("http://", "https://")):
        # Another site opens in a new tab, so that a draft in the chat is kept.
        token.attrSet("target", "_blank")
    return renderer.renderToken(tokens, index, options, env)


def _escape(text: str) -> str:
    return nh3.clean_text(text)


_parser = _make_parser()
_linkless_parser = _make_parser().disable(["link", "image", "footnote_ref", "linkify"])
_summary_parser = MarkdownIt("js-default", {"html": False})
_summary_parser.add_render_rule("image", _image_as_link)
_add_budget(_summary_parser)
_linkless_summary_parser = MarkdownIt("js-default", {"html": False}).disable(["link", "image"])
_add_budget(_linkless_summary_parser)


# --- Renders an answer while it is written: finished blocks once, open blocks again as they grow ---
# A block is closed when a later one begins on a finished line; later text cannot change it. The exceptions are a link
# definition, and more brackets than are read as links: `finish` renders the complete text and corrects these.

SHORTEST_PAUSE = 0.1
# Rendering takes at most about a fifth of the time, however long the open block is.
PAUSE_PER_WORK = 4


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
        self._not_before = finished + max(SHORTEST_PAUSE, (finished - started) * PAUSE_PER_WORK)
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
                open_blocks = render_parsed(close_emphasis(text[self._read : cut]), deepcopy(self._env))
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
