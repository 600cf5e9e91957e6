"""Finds formulas in Markdown (`$…$`, `\\(…\\)`, `$$…$$`, `\\[…\\]`, LaTeX environments) and renders them as MathML."""

import re
from typing import Any

import nh3
from latex2mathml.converter import convert
from markdown_it import MarkdownIt
from markdown_it.rules_block import StateBlock
from markdown_it.rules_inline import StateInline

from intake.markdown.budget import check
from intake.markdown.safety import MATH_TAGS

# A longer formula is not for reading, and the converter recurses for each bracket.
LONGEST_FORMULA = 2_000

# From here on Unicode has Chinese, Japanese and Korean.
FIRST_WITHOUT_BLANKS = "\u2e80"

_TAG = re.compile(r"</?([^\s/>]*)")
_FENCES = {"$$": "$$", "\\[": "\\]"}
# The converter aligns at `&` only in these two.
_LINED_UP = re.compile(r"\\(begin|end)\{(?:align|aligned|alignat|flalign|gather|gathered|eqnarray)\*?\}")
_CHEMISTRY = re.compile(r"\\ce\{((?:[^{}]|\{[^{}]*\})*)\}")
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
        if len(source) > LONGEST_FORMULA or _depth(source) > 40:
            return _as_code(source)
        source = _CHEMISTRY.sub(_in_roman, source)
        drawn = convert(_LINED_UP.sub(r"\\\1{align*}", source), display="block" if is_display else "inline")
    except TimeoutError:
        raise
    except Exception:  # the converter answers bad LaTeX with errors of many kinds, IndexError and StopIteration too
        return _as_code(source)
    # The converter copies the contents of \text unchanged.
    return drawn if set(_TAG.findall(drawn)) <= MATH_TAGS else _as_code(source)


def _in_roman(found: re.Match[str]) -> str:
    """Chemistry of mhchem: a number after an element or a bracket counts it, and a charge is raised."""
    text = re.sub(r"(?<=[A-Za-z)\]])(\d+)", r"_{\1}", found[1])
    text = re.sub(r"\^\{?(\d*[+-])\}?", r"^{\1}", text)
    text = text.replace("<=>", r"\rightleftharpoons ").replace("->", r"\rightarrow ")
    return rf"\mathrm{{{text}}}"


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
    environment = _ENVIRONMENT.match(first)
    closing = f"\\end{{{environment[1]}}}" if environment else _FENCES.get(first[:2])
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
