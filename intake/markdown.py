"""From what a model wrote to what a page may show: Markdown without raw HTML, then an allow-list on what is left."""

import re
from collections.abc import Sequence
from typing import Any

import nh3
from django.utils.safestring import SafeString, mark_safe
from markdown_it import MarkdownIt
from markdown_it.renderer import RendererHTML
from markdown_it.token import Token

LINK_REL = "noopener noreferrer nofollow"
# The page's own headings are the first two levels; an answer's begin below them.
HEADING_SHIFT = 2
DEEPEST_HEADING = 6
# Each opening bracket has the parser look through all the rest: with more of them, links are left as they are written.
MOST_BRACKETS = 3_000

# Most summaries are words alone.
_WORDS = re.compile(r"[^\W_](?:[^\W_]|[ ,.:;])*")

_BLOCKS = {"p", "blockquote", "ul", "ol", "li", "pre", "hr", "h3", "h4", "h5", "h6", "div"}
_TABLES = {"table", "thead", "tbody", "tr", "th", "td"}
_INLINE = {"a", "em", "strong", "s", "code", "br"}
_CLASSES = {
    "div": re.compile("table-scroll"),
    "code": re.compile(r"language-[\w+#.-]{1,32}"),
    "th": re.compile("align-(left|center|right)"),
    "td": re.compile("align-(left|center|right)"),
}


def render(text: str) -> SafeString:
    """An answer's Markdown as HTML that runs nothing and loads nothing; images become links to them.

    Made anew each time, in 1 ms for each 1,500 characters: what is kept of an answer is deleted with its turn.
    """
    return mark_safe(_answer_cleaner.clean(_parser_for(text).render(text)))  # noqa: S308 - cleaned on this line


def render_summary(text: str) -> SafeString:
    """One line of Markdown that names what a tool found; it may link to pages of this site only."""
    if _WORDS.fullmatch(text):
        return mark_safe(text)  # noqa: S308 - letters, digits and what means nothing in Markdown and HTML
    return mark_safe(_summary_cleaner.clean(_parser_for(text).renderInline(text)))  # noqa: S308 - cleaned on this line


def _parser_for(text: str) -> MarkdownIt:
    return _parser if text.count("[") <= MOST_BRACKETS else _linkless_parser


def _make_parser() -> MarkdownIt:
    parser = MarkdownIt("js-default", {"html": False})
    parser.core.ruler.push("fit_into_page", _fit_into_page)
    parser.add_render_rule("image", _image_as_link)
    parser.add_render_rule("link_open", _link_open)
    parser.add_render_rule("table_open", lambda *_: '<div class="table-scroll"><table>')
    parser.add_render_rule("table_close", lambda *_: "</table></div>")
    return parser


def _fit_into_page(state: Any) -> None:
    for token in state.tokens:
        if token.type in ("heading_open", "heading_close"):
            level = min(int(token.tag[1:]) + HEADING_SHIFT, DEEPEST_HEADING)
            token.tag = f"h{level}"
        elif token.type in ("th_open", "td_open") and "style" in token.attrs:
            # A style attribute would be refused by the page's policy.
            alignment = str(token.attrs.pop("style")).removeprefix("text-align:")
            token.attrs["class"] = f"align-{alignment}"


def _image_as_link(
    renderer: RendererHTML, tokens: Sequence[Token], index: int, options: Any, env: dict[str, Any]
) -> str:
    """Loading a picture would tell its server who reads; a link leaves that to the reader."""
    token = tokens[index]
    address = _escape(str(token.attrs.get("src", "")))
    words = _escape(renderer.renderInlineAsText(token.children, options, env)) or "image"
    is_inside_link = sum(before.nesting for before in tokens[:index] if before.type.startswith("link_"))
    return words if is_inside_link else f'<a href="{address}" target="_blank">{words}</a>'


def _link_open(renderer: RendererHTML, tokens: Sequence[Token], index: int, options: Any, env: dict[str, Any]) -> str:
    token = tokens[index]
    if str(token.attrs.get("href", "")).startswith(("http://", "https://")):
        # Another site opens beside the chat, so that an answer still being written is not cut off.
        token.attrSet("target", "_blank")
    return renderer.renderToken(tokens, index, options, env)


def _escape(text: str) -> str:
    return nh3.clean_text(text)


def _only_known_classes(tag: str, attribute: str, value: str) -> str | None:
    if attribute != "class":
        return value
    pattern = _CLASSES.get(tag)
    return value if pattern and pattern.fullmatch(value) else None


def _path_on_this_site(url: str) -> str | None:
    """A browser reads `//host` and `/\\host` as another site."""
    return url if re.match(r"/(?![/\\])", url) else None


_parser = _make_parser()
_linkless_parser = _make_parser().disable(["link", "image"])
_answer_cleaner = nh3.Cleaner(
    tags=_BLOCKS | _TABLES | _INLINE,
    attributes={
        "a": {"href", "title"},
        "ol": {"start"},
        **{tag: {"class"} for tag in _CLASSES},
    },
    attribute_filter=_only_known_classes,
    tag_attribute_values={"a": {"target": {"_blank"}}},
    url_schemes={"http", "https", "mailto"},
    link_rel=LINK_REL,
)
_summary_cleaner = nh3.Cleaner(
    tags=_INLINE,
    attributes={"a": {"href"}},
    url_schemes=set(),
    url_relative=_path_on_this_site,
    link_rel=LINK_REL,
)
