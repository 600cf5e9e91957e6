"""Renders code blocks: the language, highlighting by Pygments with classes, and buttons for the page's script."""

import re

import nh3
from django.utils.translation import gettext as _
from pygments import format as format_tokens
from pygments.formatters import HtmlFormatter
from pygments.lexers import get_all_lexers, get_lexer_by_name

from intake.markdown.budget import spend

# The CSS rules of its classes are in static/intake/css/prose.css.
CLASS_PREFIX = "hl-"
# Highlighting takes 1 ms for each 1,000 characters, and a block is highlighted again while it grows.
LONGEST_COLOURED = 20_000
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
    # Many lexers take quadratic time for text that is not of their language.
    return str(format_tokens(spend(lexer.get_tokens(source), at_most=0.2), _formatter))
