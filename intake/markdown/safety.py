"""The allow-lists for all rendered HTML: nothing on them runs code, loads data or misleads."""

import re

import nh3

from intake.markdown.code_blocks import CLASS_PREFIX

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


def _only_known_classes(tag: str, attribute: str, value: str) -> str | None:
    if attribute != "class":
        return value
    pattern = _CLASSES.get(tag)
    return value if pattern and pattern.fullmatch(value) else None


clean_answer = nh3.Cleaner(
    tags=_BLOCKS | _TABLES | _INLINE | _FRAMES | MATH_TAGS,
    attributes={
        "ol": {"start"},
        **{tag: {"class"} for tag in _CLASSES},
        "a": {"href", "title"},
        **{tag: _MATH_ATTRIBUTES for tag in MATH_TAGS},
    },
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
).clean
clean_summary = nh3.Cleaner(
    tags=_INLINE,
    attributes={"a": {"href"}},
    url_schemes=set(),
    # A browser reads `//host` and `/\host` as another site.
    url_relative=lambda url: url if re.match(r"/(?![/\\])", url) else None,
    link_rel=LINK_REL,
).clean
