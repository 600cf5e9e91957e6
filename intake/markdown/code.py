"""Renders code blocks: the language, highlighting by Pygments with classes, and buttons for the page's script."""

import re

import nh3
from django.utils.translation import gettext as _
from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexers import get_lexer_by_name
from pygments.util import ClassNotFound

# The CSS rules of its classes are in static/intake/css/prose.css.
CLASS_PREFIX = "hl-"
# Highlighting takes 1 ms for each 1,000 characters, and a block is highlighted again while it grows.
LONGEST_COLOURED = 20_000

_LANGUAGE = re.compile(r"[\w+#.-]{1,32}")
_formatter = HtmlFormatter(nowrap=True, classprefix=CLASS_PREFIX)


def render_code(source: str, info: str) -> str:
    """A frame with a bar above the code, so that the language and the buttons do not cover it."""
    word = info.split(maxsplit=1)[0] if info.strip() else ""
    language = word if _LANGUAGE.fullmatch(word) else ""
    shown = _coloured(source, language) or nh3.clean_text(source)
    named = f' class="language-{language}"' if language else ""
    return (
        '<div class="code-frame" dir="ltr"><div class="code-bar">'
        f'<span class="code-language">{language}</span>'
        f'<button type="button" data-action="copy-code">{_("Copy")}</button>'
        f'<button type="button" data-action="download-code">{_("Download")}</button></div>'
        f'<pre tabindex="0"><code{named}>{shown}</code></pre></div>'
    )


def _coloured(source: str, language: str) -> str | None:
    """None without a lexer for the language, or if the code is too long."""
    if not language or len(source) > LONGEST_COLOURED:
        return None
    try:
        lexer = get_lexer_by_name(language, stripnl=False, ensurenl=False)
    except ClassNotFound:
        return None
    return str(highlight(source, lexer, _formatter))
