"""Markdown beyond CommonMark: a few elements, callouts, folded thoughts, and formulas.

Draws what answers use beyond CommonMark: a few HTML elements, `==marks==`, callouts, and folded thoughts.

Nothing here lets HTML through: each element is read by name and made anew, without attributes, and always with its end.
All searches are bounded, so that the time grows with the text's length alone.
"""

import re
from typing import Any

import nh3
from django.utils.translation import gettext as _
from django.utils.translation import gettext_noop
from latex2mathml.converter import convert
from markdown_it import MarkdownIt
from markdown_it.rules_block import StateBlock
from markdown_it.rules_core import StateCore
from markdown_it.rules_inline import StateInline
from markdown_it.token import Token

from intake.markdown.safety import MATH_TAGS, check

# How far behind its beginning an inline element may end.
LONGEST_INLINE = 500
# Folded blocks in one another: each is searched for its end.
DEEPEST_FOLD = 4
# A cell of about three words, of a date or an amount, in characters.
SHORT_CELL = 24
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
    parser.add_render_rule("callout_title", lambda _renderer, tokens, index, *_: _callout_title(tokens[index]))


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
    if state.is_code_block(start_line) or depth >= DEEPEST_FOLD:
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
    content, rest = _parted(text, tag)
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


def _parted(text: str, tag: str) -> tuple[str, str]:
    """The text before the last end, and the text behind it; all of it if there is no end yet."""
    ends = [found.span() for found in re.finditer(f"</{tag}>", text, re.IGNORECASE)]
    return (text[: ends[-1][0]], text[ends[-1][1] :]) if ends else (text, "")


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


def _callout_title(token: Token) -> str:
    return f'<p class="callout-title" dir="auto">{_(CALLOUTS[token.content])}</p>'


def _mark_short_cells(state: StateCore) -> None:
    """The cells of a table whose text stays in one line."""
    for place, token in enumerate(state.tokens):
        if token.type in ("th_open", "td_open") and len(state.tokens[place + 1].content) <= SHORT_CELL:
            classes = [str(token.attrs["class"])] if "class" in token.attrs else []
            token.attrs["class"] = " ".join([*classes, "short"])


# --- Finds formulas in Markdown (`$…$`, `\(…\)`, `$$…$$`, `\[…\]`, LaTeX environments) and renders them as MathML ---

# A longer formula is not for reading, and the converter recurses for each bracket.
LONGEST_FORMULA = 2_000
DEEPEST_FORMULA = 40

# From here on Unicode has Chinese, Japanese and Korean.
FIRST_WITHOUT_BLANKS = "\u2e80"

_TAG = re.compile(r"</?([^\s/>]*)")
_FENCES = {"$$": "$$", "\\[": "\\]"}
# The converter aligns at `&` only in these two.
_LINED_UP = re.compile(r"\\(begin|end)\{(?:align|aligned|alignat|flalign|gather|gathered|eqnarray)\*?\}")
_ENVIRONMENT = re.compile(r"\\begin\{((?:equation|align|gather|multline|alignat|flalign|cases|[pbvBV]?matrix)\*?)\}")


def add_formulas(parser: MarkdownIt) -> None:
    parser.block.ruler.before(
        "fence", "formula", _find_block, {"alt": ["paragraph", "reference", "blockquote", "list"]}
    )
    parser.inline.ruler.before("escape", "formula_in_brackets", _find_in_brackets)
    parser.inline.ruler.before("escape", "formula_in_dollars", _find_in_dollars)
    parser.add_render_rule("math_inline", lambda _renderer, tokens, index, *_: draw(tokens[index].content))
    parser.add_render_rule("formula", _render_block)


def draw(source: str, *, is_display: bool = False) -> str:
    """MathML of LaTeX; the source as code if it is invalid or too long."""
    check()
    try:
        if len(source) > LONGEST_FORMULA or _depth(source) > DEEPEST_FORMULA:
            return _as_code(source)
        drawn = convert(_LINED_UP.sub(r"\\\1{align*}", source), display="block" if is_display else "inline")
    except TimeoutError:
        raise
    except Exception:  # the converter answers bad LaTeX with errors of many kinds, IndexError and StopIteration too
        return _as_code(source)
    # The converter copies the contents of \text unchanged.
    return drawn if set(_TAG.findall(drawn)) <= MATH_TAGS else _as_code(source)


def _as_code(source: str) -> str:
    return f'<code class="formula-source">{nh3.clean_text(source)}</code>'


def _depth(source: str) -> int:
    deepest = depth = 0
    for character in source:
        depth += (character == "{") - (character == "}")
        deepest = max(deepest, depth)
    return deepest + source.count("\\left") + source.count("\\begin")


def _find_block(state: StateBlock, start_line: int, end_line: int, silent: bool) -> bool:
    """A block formula ends at its closing mark or with the text; after an empty line it is not a formula."""
    if state.is_code_block(start_line):
        return False
    first = _line(state, start_line)
    closing = _closing_of(first)
    if closing is None:
        return False
    lines: list[str] = []
    is_closed = False
    after = start_line
    while after < end_line and not is_closed:
        line = first[2:] if after == start_line and closing in _FENCES.values() else _line(state, after)
        is_closed = line.rstrip().endswith(closing)
        if (not is_closed and closing in line) or (not line.strip() and after > start_line):
            return False
        lines.append(line)
        after += 1
    if not silent:
        _push(state, "\n".join(lines), closing, is_closed=is_closed, lines=(start_line, after))
    return True


def _closing_of(line: str) -> str | None:
    if environment := _ENVIRONMENT.match(line):
        return f"\\end{{{environment[1]}}}"
    return _FENCES.get(line[:2])


def _push(state: StateBlock, text: str, closing: str, *, is_closed: bool, lines: tuple[int, int]) -> None:
    token = state.push("formula", "", 0)
    is_fence = closing in _FENCES.values()
    token.content = text.rstrip().removesuffix(closing).strip() if is_fence else text.strip()
    token.map = list(lines)
    token.meta = {"is_closed": is_closed}
    state.line = lines[1]


def _line(state: StateBlock, number: int) -> str:
    return state.src[state.bMarks[number] + state.tShift[number] : state.eMarks[number]]


def _find_in_dollars(state: StateInline, silent: bool) -> bool:
    """`$x$` and `$$x$$` within a line. A price or a variable's name is no formula: "US$5 to R$10", `$HOME/$USER`."""
    src, begin = state.src, state.pos
    if src[begin] != "$" or (begin and _is_in_word(src[begin - 1])):
        return False
    mark = "$$" if src.startswith("$$", begin) else "$"
    start = begin + len(mark)
    end = src.find(mark, start, min(state.posMax, start + LONGEST_FORMULA))
    while end > 0 and _is_escaped(src, end):
        end = src.find(mark, end + 1, min(state.posMax, start + LONGEST_FORMULA))
    content = src[start:end]
    if end < 0 or not content or content[0].isspace() or content[-1].isspace():
        return False
    if _is_in_word(src[end + len(mark) : end + len(mark) + 1]):
        return False
    if not silent:
        state.push("math_inline", "math", 0).content = content
    state.pos = end + len(mark)
    return True


def _is_in_word(character: str) -> bool:
    """A letter or a digit. Scripts without blanks between words have none around a formula either."""
    return character.isalnum() and character < FIRST_WITHOUT_BLANKS


def _is_escaped(src: str, at: int) -> bool:
    before = src[max(0, at - LONGEST_FORMULA) : at]
    return bool((len(before) - len(before.rstrip("\\"))) % 2)


def _find_in_brackets(state: StateInline, silent: bool) -> bool:
    opening = state.src[state.pos : state.pos + 2]
    if opening not in ("\\(", "\\["):
        return False
    closing = "\\)" if opening == "\\(" else "\\]"
    end = state.src.find(closing, state.pos + 2, min(state.posMax, state.pos + LONGEST_FORMULA))
    content = state.src[state.pos + 2 : end]
    if end < 0 or not content.strip():
        return False
    if not silent:
        state.push("math_inline", "math", 0).content = content.strip()
    state.pos = end + 2
    return True


def _render_block(_renderer: Any, tokens: Any, index: int, *_: Any) -> str:
    token = tokens[index]
    # Half a formula would change its shape with every letter.
    shown = draw(token.content, is_display=True) if token.meta["is_closed"] else _as_code(token.content)
    return f'<div class="formula">{shown}</div>'
