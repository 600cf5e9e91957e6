"""Draws what answers use beyond CommonMark: a few HTML elements, `==marks==`, callouts, and folded thoughts.

Nothing here lets HTML through: each element is read by name and made anew, without attributes, and always with its end.
All searches are bounded, so that the time grows with the text's length alone.
"""

import re

from django.utils.translation import gettext as _
from django.utils.translation import gettext_noop
from markdown_it import MarkdownIt
from markdown_it.rules_block import StateBlock
from markdown_it.rules_core import StateCore
from markdown_it.rules_inline import StateInline
from markdown_it.token import Token

# How far behind its beginning an inline element may end.
LONGEST_INLINE = 500
# The longest summary of a folded block.
LONGEST_SUMMARY = 500

_INLINE = re.compile(r"<(sup|sub|kbd|mark)>", re.IGNORECASE)
_ENDS = {tag: re.compile(f"</{tag}>", re.IGNORECASE) for tag in ("sup", "sub", "kbd", "mark")}
_BREAK = re.compile(r"<br ?/?>", re.IGNORECASE)
_FOLD = re.compile(r"<(details|think|thinking)(?: open)?>", re.IGNORECASE)
_SUMMARY = re.compile(rf"\s{{0,8}}<summary>(.{{0,{LONGEST_SUMMARY}}}?)</summary>", re.IGNORECASE | re.DOTALL)
_CALLOUT = re.compile(r"\[!(NOTE|TIP|IMPORTANT|WARNING|CAUTION)\][ \t]*(?:\n|$)", re.IGNORECASE)
CALLOUTS = {
    "note": gettext_noop("Note"),
    "tip": gettext_noop("Tip"),
    "important": gettext_noop("Important"),
    "warning": gettext_noop("Warning"),
    "caution": gettext_noop("Caution"),
}
# How many folded blocks the parser is in; a key of its environment.
_DEPTH = "fold_depth"


def add_elements(parser: MarkdownIt) -> None:
    parser.block.ruler.before("fence", "fold", _find_fold, {"alt": ["paragraph", "reference", "blockquote", "list"]})
    parser.inline.ruler.before("autolink", "inline_element", _find_inline_element)
    parser.inline.ruler.before("autolink", "marked", _find_marked)
    parser.core.ruler.before("inline", "callout", _find_callouts)
    parser.core.ruler.push("short_cells", _mark_short_cells)
    parser.add_render_rule(
        "callout_title",
        lambda _renderer, tokens, index, *__: (
            f'<p class="callout-title" dir="auto">{_(CALLOUTS[tokens[index].content])}</p>'
        ),
    )


def _find_inline_element(state: StateInline, silent: bool) -> bool:
    if found := _BREAK.match(state.src, state.pos, state.posMax):
        if not silent:
            state.push("hardbreak", "br", 0)
        state.pos = found.end()
        return True
    found = _INLINE.match(state.src, state.pos, state.posMax)
    if found is None:
        return False
    tag = found[1].lower()
    end = _ENDS[tag].search(state.src, found.end(), min(state.posMax, found.end() + LONGEST_INLINE))
    return end is not None and _take(state, tag, found.end(), *end.span(), silent=silent)


def _find_marked(state: StateInline, silent: bool) -> bool:
    """`==so==`: as for a formula, no letter, digit or further sign stands around it, and no blank within its signs."""
    start, src = state.pos + 2, state.src
    if src[state.pos : start] != "==" or src[start : start + 1] in ("", "=", " ", "\n"):
        return False
    if state.pos and (src[state.pos - 1].isalnum() or src[state.pos - 1] == "="):
        return False
    end = src.find("==", start, min(state.posMax, start + LONGEST_INLINE))
    after = src[end + 2 : end + 3]
    if end < 0 or src[end - 1].isspace() or after.isalnum() or after == "=":
        return False
    return _take(state, "mark", start, end, end + 2, silent=silent)


def _take(state: StateInline, tag: str, start: int, end: int, after: int, *, silent: bool) -> bool:
    """Parse what is between `start` and `end` as one element; one that is in too many others stays text."""
    if state.level >= state.md.options["maxNesting"]:
        return False
    outer = state.posMax
    if not silent:
        state.push(f"{tag}_open", tag, 1)
        state.pos, state.posMax = start, end
        state.md.inline.tokenize(state)
        state.posMax = outer
        state.push(f"{tag}_close", tag, -1)
    state.pos = after
    return True


def _find_fold(state: StateBlock, start_line: int, end_line: int, silent: bool) -> bool:
    """`<details>` with its summary, or `<think>`, up to its end or that of the text: an answer is drawn while it is
    written.
    """
    depth = state.env.get(_DEPTH, 0)
    # Folded blocks in one another: each is searched for its end.
    if state.is_code_block(start_line) or depth >= 4:
        return False
    begin = state.bMarks[start_line] + state.tShift[start_line]
    opening = _FOLD.match(state.src, begin, state.eMarks[start_line])
    if opening is None:
        return False
    if silent:
        return True
    tag = opening[1].lower()
    after = _line_after_end(state, tag, start_line, end_line)
    text = state.getLines(start_line, after, state.blkIndent, False).lstrip()[opening.end() - begin :]
    ends = [found.span() for found in re.finditer(f"</{tag}>", text, re.IGNORECASE)]
    # Without an end yet, all of it is within.
    content, rest = (text[: ends[-1][0]], text[ends[-1][1] :]) if ends else (text, "")
    state.line = after
    state.env[_DEPTH] = depth + 1
    try:
        if tag != "details":
            # A model that had nothing to think about says so with an empty element.
            if content.strip():
                _push_fold(state, _("Thought"), content, lines=(start_line, after), is_thought=True)
        else:
            summary = _SUMMARY.match(content)
            behind = summary.end() if summary else 0
            _push_fold(state, summary and summary[1].strip(), content[behind:], lines=(start_line, after))
        _parse(state, rest, lines=(start_line, after))
    finally:
        state.env[_DEPTH] = depth
    return True


def _line_after_end(state: StateBlock, tag: str, start_line: int, end_line: int) -> int:
    """The line behind the one in which the element ends; a `<details>` may have others in it."""
    open_ones = 0
    for number in range(start_line, end_line):
        line = state.src[state.bMarks[number] : state.eMarks[number]].lower()
        open_ones += line.count(f"<{tag}>") + line.count(f"<{tag} open>") - line.count(f"</{tag}>")
        if open_ones <= 0:
            return number + 1
    return end_line


def _push_fold(
    state: StateBlock, summary: str | None, content: str, *, lines: tuple[int, int], is_thought: bool = False
) -> None:
    """Without a summary the browser writes one in its own language."""
    token = state.push("details_open", "details", 1)
    token.map = list(lines)
    if is_thought:
        token.attrs["class"] = "thought"
    if summary is not None:
        state.push("summary_open", "summary", 1)
        inline = state.push("inline", "", 0)
        inline.content, inline.map, inline.children = " ".join(summary.split()), list(lines), []
        state.push("summary_close", "summary", -1)
    _parse(state, content, lines=lines)
    state.push("details_close", "details", -1)


def _parse(state: StateBlock, text: str, *, lines: tuple[int, int]) -> None:
    """The blocks of a text that was taken out of its lines; they all count as of these."""
    if not text.strip():
        return
    parsed: list[Token] = []
    state.md.block.parse(text.strip("\n"), state.md, state.env, parsed)
    for token in parsed:
        token.map = token.map and list(lines)
    state.tokens.extend(parsed)


def _find_callouts(state: StateCore) -> None:
    """`> [!NOTE]`: the quotation becomes a callout with its kind as a heading."""
    tokens: list[Token] = []
    for place, token in enumerate(state.tokens):
        tokens.append(token)
        opening = state.tokens[place - 1] if place else None
        if opening is None or opening.type != "blockquote_open" or token.type != "paragraph_open":
            continue
        content = state.tokens[place + 1]
        if found := _CALLOUT.match(content.content):
            kind = found[1].lower()
            opening.attrs["class"] = f"callout callout-{kind}"
            content.content = content.content[found.end() :]
            tokens.insert(-1, Token("callout_title", "p", 0, content=kind))
    state.tokens = tokens


def _mark_short_cells(state: StateCore) -> None:
    """The cells of a table whose text stays in one line."""
    for place, token in enumerate(state.tokens):
        # A cell of about three words, of a date or an amount, in characters.
        if token.type in ("th_open", "td_open") and len(state.tokens[place + 1].content) <= 24:
            classes = [str(token.attrs["class"])] if "class" in token.attrs else []
            token.attrs["class"] = " ".join([*classes, "short"])
