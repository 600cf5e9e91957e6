"""Keeps rendered Markdown safe and quick: allow-lists, code blocks, and a bound on processor time.

The allow-lists for all rendered HTML: nothing on them runs code, loads data or misleads.
"""

import re
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TypeVar

import nh3
from django.utils.translation import gettext as _
from pygments import format as format_tokens
from pygments.formatters import HtmlFormatter
from pygments.lexers import get_all_lexers, get_lexer_by_name

# --- Bounds the processor time that one text may take to render: the interpreter runs one thing at a time ---
# The time is that of the thread, so a busy machine changes nothing that a reader sees.

Value = TypeVar("Value")

# Dense Markdown of the longest length that is rendered takes 1.8 s on two slow cores.
RENDERING_SECONDS = 2.5
_ends_at: ContextVar[float] = ContextVar("rendering_ends_at", default=float("inf"))


@contextmanager
def budget(seconds: float | None = None) -> Iterator[None]:
    """Within it `check` raises once the time is over; an outer budget ends an inner one.

    A text that takes too long is shown, or the rest of it, as it was written.
    """
    seconds = RENDERING_SECONDS if seconds is None else seconds
    token = _ends_at.set(min(_ends_at.get(), time.thread_time() + seconds))
    try:
        yield
    finally:
        _ends_at.reset(token)


def check() -> None:
    """Raises `TimeoutError`."""
    if time.thread_time() > _ends_at.get():
        raise TimeoutError


def spend(values: Iterable[Value], *, at_most: float) -> Iterator[Value]:
    """The values, as long as making them takes at most so many seconds. Raises `TimeoutError`."""
    ends_at = min(_ends_at.get(), time.thread_time() + at_most)
    for value in values:
        if time.thread_time() > ends_at:
            raise TimeoutError
        yield value


# --- Renders code blocks: the language, highlighting by Pygments with classes, and buttons for the page's script ---

# The CSS rules of its classes are in static/intake/css/prose.css.
CLASS_PREFIX = "hl-"
# Highlighting takes 1 ms for each 1,000 characters, and a block is highlighted again while it grows.
LONGEST_COLOURED = 20_000
# Many lexers take quadratic time for text that is not of their language.
COLOURING_SECONDS = 0.2
# Without those for sessions of a shell, whose lexer reads all the text before its first token.
# Pygments has some five hundred lexers by many authors; one of them took 100 seconds for 20,000 spaces.
# fmt: off
LANGUAGES = frozenset(
    (
        "Bash", "C", "C#", "C++", "CMake", "CSS", "Clojure", "Dart", "Diff", "Docker", "Elixir",
        "Erlang", "Go", "GraphQL", "Groovy", "HTML", "Haskell", "INI", "JSON", "JSX", "Java", "JavaScript", "Julia",
        "Kotlin", "Lua", "Makefile", "Markdown", "Nginx configuration file", "PHP", "Perl", "PowerShell",
        "Protocol Buffer", "Python", "Python console session", "Ruby", "Rust", "S", "SCSS", "SQL", "Scala", "Swift",
        "TOML", "TSX", "TeX", "TypeScript", "XML", "YAML",
    )
)
# fmt: on
_NAMES = frozenset(
    alias for name, aliases, *_ in get_all_lexers(plugins=False) if name in LANGUAGES for alias in aliases
)

# Diagrams, pages and pictures.
PREVIEWED = frozenset(("mermaid", "html", "htm", "xhtml", "svg"))

_LANGUAGE = re.compile(r"[\w+#.-]{1,32}")
_formatter = HtmlFormatter(nowrap=True, classprefix=CLASS_PREFIX)


def render_code(source: str, info: str) -> str:
    """A frame with a bar above the code, so that the language and the buttons do not cover it."""
    word = info.split(maxsplit=1)[0] if info.strip() else ""
    language = word if _LANGUAGE.fullmatch(word) else ""
    try:
        shown, remark = _coloured(source, language) or nh3.clean_text(source), ""
    except TimeoutError:
        shown, remark = nh3.clean_text(source), " " + _("without colours")
    named = f' class="language-{language}"' if language else ""
    # The page can show these in a sandboxed frame (static/intake/previews.js).
    is_svg = word.lower() == "xml" and source.lstrip().startswith("<svg")
    is_shown = is_svg or word.lower() in PREVIEWED
    preview = f'<button type="button" data-action="preview-code">{_("Preview")}</button>' if is_shown else ""
    return (
        '<div class="code-frame" dir="ltr"><div class="code-bar">'
        f'<span class="code-language">{language}{remark}</span>'
        f'{preview}<button type="button" data-action="copy-code">{_("Copy")}</button>'
        f'<button type="button" data-action="download-code">{_("Download")}</button></div>'
        f'<pre tabindex="0"><code{named}>{shown}</code></pre></div>'
    )


def _coloured(source: str, language: str) -> str | None:
    """None without a lexer for the language, or if the code is too long. Raises `TimeoutError`."""
    if language.lower() not in _NAMES or len(source) > LONGEST_COLOURED:
        return None
    lexer = get_lexer_by_name(language, stripnl=False, ensurenl=False)
    return str(format_tokens(spend(lexer.get_tokens(source), at_most=COLOURING_SECONDS), _formatter))


# --- The allow-lists for all rendered HTML ---

LINK_REL = "noopener noreferrer nofollow"

_BLOCKS = {"p", "blockquote", "ul", "ol", "li", "pre", "hr", "h3", "h4", "h5", "h6", "div"}
_TABLES = {"table", "thead", "tbody", "tr", "th", "td"}
_INLINE = {"a", "em", "strong", "s", "code", "br"}
_FRAMES = {"span", "button", "sup", "sub", "kbd", "mark", "details", "summary"}
# fmt: off
# Presentation alone. `maction`, `annotation-xml`, `mglyph` and `semantics` can hold HTML or act: they stay out.
MATH_TAGS = {
    "math", "mrow", "mi", "mn", "mo", "ms", "mtext", "mspace", "mfrac", "msqrt", "mroot", "msub", "msup", "msubsup",
    "munder", "mover", "munderover", "mmultiscripts", "mprescripts", "none", "mtable", "mtr", "mtd", "mstyle",
    "mpadded", "mphantom", "menclose",
}
_MATH_ATTRIBUTES = {
    "display", "displaystyle", "scriptlevel", "mathvariant", "stretchy", "fence", "separator", "form", "lspace",
    "rspace", "minsize", "maxsize", "largeop", "movablelimits", "accent", "accentunder", "linethickness",
    "columnalign", "columnlines", "rowlines", "columnspacing", "rowspacing", "notation", "width", "height", "depth",
    "voffset", "symmetric",
}
# fmt: on
_CLASSES = {
    "div": re.compile("table-scroll|formula|code-frame|code-bar|footnote"),
    "code": re.compile(r"language-[\w+#.-]{1,32}|formula-source"),
    "th": re.compile("(?:align-(?:left|center|right))? ?(?:short)?"),
    "td": re.compile("(?:align-(?:left|center|right))? ?(?:short)?"),
    "li": re.compile("task"),
    "p": re.compile("plain|callout-title"),
    "blockquote": re.compile("callout callout-(note|tip|important|warning|caution)"),
    "details": re.compile("thought"),
    "span": re.compile(rf"code-language|picture(?:-label|-host)?|{CLASS_PREFIX}[a-z0-9]{{1,4}}"),
    "sup": re.compile("footnote-ref"),
}
_HAS_DIRECTION = {"p", "blockquote", "ul", "ol", "table", "h3", "h4", "h5", "h6", "div", "details"}


def clean_answer(html: str) -> str:
    return _answer_cleaner.clean(html)


def clean_summary(html: str) -> str:
    return _summary_cleaner.clean(html)


def _only_known_classes(tag: str, attribute: str, value: str) -> str | None:
    if attribute != "class":
        return value
    pattern = _CLASSES.get(tag)
    return value if pattern and pattern.fullmatch(value) else None


def _path_on_this_site(url: str) -> str | None:
    """A browser reads `//host` and `/\\host` as another site."""
    return url if re.match(r"/(?![/\\])", url) else None


def _attributes() -> dict[str, set[str]]:
    return {
        "ol": {"start"},
        **{tag: {"class"} for tag in _CLASSES},
        "a": {"href", "title"},
        **{tag: _MATH_ATTRIBUTES for tag in MATH_TAGS},
    }


_answer_cleaner = nh3.Cleaner(
    tags=_BLOCKS | _TABLES | _INLINE | _FRAMES | MATH_TAGS,
    attributes=_attributes(),
    attribute_filter=_only_known_classes,
    tag_attribute_values={
        "a": {"target": {"_blank"}},
        "button": {"type": {"button"}, "data-action": {"copy-code", "download-code", "preview-code", "load-picture"}},
        # Scrollable elements must be reachable by keyboard.
        "pre": {"tabindex": {"0"}},
        **{tag: {"dir": {"auto", "ltr"}} for tag in _HAS_DIRECTION},
        "div": {"dir": {"auto", "ltr"}, "tabindex": {"0"}},
    },
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
