"""Renders Markdown block by block, without raw HTML and cleaned by an allow-list. Each block is one element."""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit

import nh3
from django.utils.safestring import SafeString, mark_safe
from django.utils.translation import gettext as _
from markdown_it import MarkdownIt
from markdown_it.renderer import RendererHTML
from markdown_it.token import Token
from mdit_py_plugins.footnote import footnote_plugin

from intake.markdown.budget import TURN_SECONDS, budget, check
from intake.markdown.code_blocks import render_code
from intake.markdown.extensions import add_elements
from intake.markdown.formulas import add_formulas
from intake.markdown.safety import clean_answer, clean_summary

# For each opening bracket the parser scans all the remaining text. Above this number, links stay as plain text.
MOST_BRACKETS = 3_000
# About 100 ms of work. Text beyond it is shown unrendered, in pieces of this many characters.
LONGEST_MARKDOWN = 100_000
PLAIN_PIECE = 10_000
# What has more characters waits for its turn before it is parsed.
LONG = 20_000

# Most summaries contain only words.
_WORDS = re.compile(r"[^\W_](?:[^\W_]|[ ,.:;])*")
_LINE_END = re.compile("\n")
_TASK = re.compile(r"\[([ xX])\] +")
# The rule looks at each place of a text: with no bound, a text of nothing but brackets takes quadratic time.
_CITATION = re.compile(r"(\[{0,3})\[(\d+)\](\]{0,3})")
# The name of the cited pages among what a rendering knows.
CITED = "cited"

Env = dict[str, Any]


def render(text: str, cited: Mapping[str, str] | None = None) -> SafeString:
    """Render an answer's Markdown as HTML that runs and loads nothing; images become links. `cited`: the pages to which
    numbers in brackets lead.

    It is rendered anew each time, in 1 ms for each 1,000 characters, because stored HTML would have to be deleted with
    its turn.
    """
    return mark_safe("".join(render_blocks(text, cited)))  # noqa: S308 - each block is cleaned


def render_blocks(text: str, cited: Mapping[str, str] | None = None) -> list[str]:
    """The HTML of each top-level block, one element each; `render` is their concatenation."""
    text = normalise(text)
    cut = markdown_length(text)
    blocks: list[str] = []
    plain_from = 0
    with budget(is_long=len(text) > LONG):
        try:
            check()
            for end, html in _with_ends(text[:cut], {CITED: cited} if cited else {}):
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
        # Drawn on the event loop too, which must not wait for a turn.
        with budget(TURN_SECONDS):
            return mark_safe(clean_summary(parser.renderInline(text)))  # noqa: S308 - cleaned on this line
    except (TimeoutError, RecursionError):
        return mark_safe(nh3.clean_text(text))  # noqa: S308 - escaped on this line


def normalise(text: str) -> str:
    """The line breaks that the parser counts."""
    return text.replace("\r\n", "\n").replace("\r", "\n")


def markdown_length(text: str) -> int:
    """The length of the text that is read as Markdown: all of it, or up to the last line that ends within the limit."""
    if len(text) <= LONGEST_MARKDOWN:
        return len(text)
    return _last_line_end(text, LONGEST_MARKDOWN)


def render_with_lines(text: str, env: Env) -> Iterator[tuple[int, str]]:
    """The blocks of a text, each with its first line. Raises `TimeoutError`.

    `env` holds the earlier link definitions, and gets those of the text.
    """
    # For each address that might begin, all the remaining text is searched.
    has_many_links = sum(map(text.count, ("//", "mailto:"))) > 1_000 or text.count("[") > MOST_BRACKETS
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
    return f'<p class="plain" dir="auto"><em>{nh3.clean_text(sentence)}</em></p>'


def render_plain(text: str) -> list[str]:
    return [f'<p class="plain" dir="auto">{nh3.clean_text(piece)}</p>' for piece in plain_pieces(text)]


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
    parser.inline.ruler.before("link", "citation", _find_citation)
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
    parser.add_render_rule(
        "footnote_reference_open",
        lambda renderer, tokens, index, *__: f'<div class="footnote" dir="auto">{_note_mark(tokens[index])}',
    )
    parser.add_render_rule("footnote_reference_close", lambda *_: "</div>")


def _fit_into_page(state: Any) -> None:
    for index, token in enumerate(state.tokens):
        if token.type in ("heading_open", "heading_close"):
            # The page's own headings are the first two levels; an answer's begin below them.
            level = min(int(token.tag[1:]) + 2, 6)
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


def _find_citation(state: Any, silent: bool) -> bool:
    """Where sources have numbers, `[1]` leads to the source of this number, or is text if there is none: an answer
    cannot give it another address (`[1](https://…)`, or `[1]: https://…`).
    """
    if CITED not in state.env or state.linkLevel:
        return False
    if not (found := _CITATION.match(state.src, state.pos, state.posMax)):
        return False
    state.pos = found.end()
    if not silent:
        before, number, after = found.groups()
        state.pending += before
        if place := state.env[CITED].get(number):
            state.push("link_open", "a", 1).attrs = {"href": place}
            state.push("text", "", 0).content = f"[{number}]"
            state.push("link_close", "a", -1)
        else:
            state.pending += f"[{number}]"
        state.pending += after
    return True


def _mark_task(item: Token, content: Token) -> None:
    """`[ ]` and `[x]` at the beginning of an item become symbols that can be read aloud and copied."""
    if not content.children:
        return
    first = content.children[0]
    if task := _TASK.match(first.content):
        first.content = ("☐ " if task[1] == " " else "☑ ") + first.content[task.end() :]
        item.attrs["class"] = "task"


def _note_mark(token: Token, attributes: str = "") -> str:
    return f"<sup{attributes}>{nh3.clean_text(str(token.meta['label']))}</sup>"


def _image_as_link(renderer: RendererHTML, tokens: Sequence[Token], index: int, options: Any, env: Env) -> str:
    """Loading a picture would reveal the reader to its server; a link leaves the choice to the reader."""
    token = tokens[index]
    address = nh3.clean_text(str(token.attrs.get("src", "")))
    words = nh3.clean_text(renderer.renderInlineAsText(token.children, options, env)) or "image"
    is_inside_link = sum(before.nesting for before in tokens[:index] if before.type.startswith("link_"))
    return words if is_inside_link else f'<a href="{address}" target="_blank">{words}</a>'


def _image_not_loaded(renderer: RendererHTML, tokens: Sequence[Token], index: int, options: Any, env: Env) -> str:
    """The same link with its host, and a button that loads the picture (static/intake/previews.js, decision 71)."""
    link = _image_as_link(renderer, tokens, index, options, env)
    host = _host_of(str(tokens[index].attrs.get("src", "")))
    if not host or not link.startswith("<a "):
        return link
    words, load = _("Image not loaded"), _("Load")
    label = f'<span class="picture-label">{words}</span><span class="picture-label"> · </span>'
    place = f'<span class="picture-host">{nh3.clean_text(host)}</span>'
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


_parser = _make_parser()
_linkless_parser = _make_parser().disable(["link", "image", "footnote_ref", "linkify"])
_summary_parser = MarkdownIt("js-default", {"html": False})
_summary_parser.add_render_rule("image", _image_as_link)
_add_budget(_summary_parser)
_linkless_summary_parser = MarkdownIt("js-default", {"html": False}).disable(["link", "image"])
_add_budget(_linkless_summary_parser)
