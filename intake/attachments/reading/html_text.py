"""Converts HTML to Markdown: headings, lists with their numbers, tables, code, quotes and links.

One pass over the text, by patterns that are anchored and bounded, so that any input takes linear time: `html.parser`
takes quadratic time for some. Tags that are not known are left out, and their text stays.
"""

import html
import re
from collections.abc import Callable, Collection, Iterator
from itertools import count

_TOKEN = re.compile(
    r"<(?P<close>/?)(?P<name>[a-zA-Z][a-zA-Z0-9:-]{0,30})(?P<attributes>(?:[\s/][^<>]{0,8000})?)>|<!--|<![^<>]{0,2000}>"
)
_HREF = re.compile(r"\bhref\s{0,9}=\s{0,9}(?:\"([^\"]{0,4000})\"|'([^']{0,4000})'|([^\s\"'>]{1,4000}))", re.IGNORECASE)
_ALT = re.compile(r"\balt\s{0,9}=\s{0,9}(?:\"([^\"]{0,4000})\"|'([^']{0,4000})')", re.IGNORECASE)
_START = re.compile(r"\bstart\s{0,9}=\s{0,9}[\"']?(\d{1,9})", re.IGNORECASE)
_LANGUAGE = re.compile(r"\blanguage-([\w+#.-]{1,30})")
_SPACES = re.compile(r"[ \t\r\n\f]+")
_BLOCKS = {
    "p", "div", "section", "article", "header", "footer", "main", "figure", "figcaption", "address", "details",
    "summary", "form", "fieldset", "aside", "nav", "dl", "dt", "dd", "body", "html", "caption",
}  # fmt: skip
_HEADINGS = {f"h{level}": level for level in range(1, 7)}
_MARKS = {"b": "**", "strong": "**", "i": "*", "em": "*", "s": "~~", "del": "~~"}
_HIDDEN = {"script", "style", "template", "head", "noscript", "rt", "rp"}
# Beside the text of a page, and where its text stands.
_AROUND = ("nav", "footer", "aside", "dialog", "svg", "button", "select", "iframe")
_MAIN = [(re.compile(rf"<{name}\b", re.IGNORECASE), f"</{name}") for name in ("main", "article")]
_TABLES = {"table", "tr", "th", "td", "thead", "tbody", "tfoot"}
_SAFE = re.compile(r"(?:https?|mailto):", re.IGNORECASE)
# Deeper lists and quotes are written at this depth.
_DEEPEST = 20


def html_to_text(markup: str, *, hidden: Collection[str] = ()) -> str:
    """The text as Markdown, without the elements of these names and their contents. Blocks are separated by an empty
    line, items and rows by a line end.
    """
    return _Writer(_HIDDEN | {*hidden}).write(markup)


def main_text(markup: str) -> str:
    """The text of a page of the web without what surrounds it: its `main`, or else its articles, or else all that is
    neither navigation nor the foot; all of it where less than a tenth would be left.
    """
    whole = html_to_text(markup)
    for start, end in _MAIN:
        first = start.search(markup)
        last = markup.lower().rfind(end)
        if first is not None and last > first.start():
            text = html_to_text(markup[first.start() : last], hidden=_AROUND)
            if len(text) > max(200, len(whole) // 10):
                return text
    text = html_to_text(markup, hidden=(*_AROUND, "header"))
    return text if len(text) > len(whole) // 10 else whole


def _attribute(pattern: re.Pattern[str], attributes: str) -> str:
    found = pattern.search(attributes)
    return html.unescape(next((each for each in found.groups() if each), "")) if found else ""


def _end_of_hidden(markup: str, found: re.Match[str], name: str, without_end: set[str]) -> int:
    """Where a comment, a declaration or an element that is not shown ends; the end of its tag if it has none."""
    if found[0] != "<!--" and not name:
        return found.end()
    ending = f"</{name}" if name else "-->"
    if ending in without_end:
        return found.end()
    end = re.compile(re.escape(ending), re.IGNORECASE).search(markup, found.end())
    if end is None:
        without_end.add(ending)
        return found.end()
    return end.start() if name else end.end()


class _Writer:
    def __init__(self, hidden: Collection[str]) -> None:
        self._hidden = hidden
        self._lines: list[str] = []
        # The present line, without its prefix.
        self._line: list[str] = []
        self._prefix = ""
        # With the numbers to come; None for a list without numbers.
        self._lists: list[Iterator[int] | None] = []
        self._quotes = 0
        self._links: list[tuple[str, int]] = []
        # Each by its rows.
        self._tables: list[list[list[str]]] = []
        self._code: list[str] | None = None
        self._language = ""
        self._is_apart = False
        self._writers: dict[str, Callable[[str, str, bool], None]] = {
            "pre": self._pre,
            "ul": self._list,
            "ol": self._list,
            "li": self._item,
            "br": self._break,
            "hr": self._rule,
            "blockquote": self._quote,
        }

    def write(self, markup: str) -> str:
        at = 0
        without_end: set[str] = set()
        while found := _TOKEN.search(markup, at):
            self._text(markup[at : found.start()])
            name = (found["name"] or "").lower()
            if name and (found["close"] or name not in self._hidden):
                self._tag(name, found["attributes"] or "", is_closing=bool(found["close"]))
                at = found.end()
            else:
                at = _end_of_hidden(markup, found, name, without_end)
        self._text(markup[at:])
        while self._tables:
            self._end_table()
        self._end_code()
        self._end_line()
        return "\n".join(self._lines).strip("\n")

    def _text(self, markup: str) -> None:
        if not markup:
            return
        text = html.unescape(markup)
        if self._code is not None:
            self._code.append(text)
            return
        text = _SPACES.sub(" ", text)
        if not self._line or self._line[-1].endswith((" ", "\n")):
            text = text.lstrip(" ")
        if text:
            self._line.append(text)

    def _tag(self, name: str, attributes: str, *, is_closing: bool) -> None:
        if self._code is not None and name != "pre":
            self._in_code(name, attributes, is_closing=is_closing)
        elif name in _TABLES:
            self._table(name, is_closing=is_closing)
        elif name in _HEADINGS:
            self._block()
            if not is_closing and not self._tables:
                self._line.append("#" * _HEADINGS[name] + " ")
        elif name in _BLOCKS:
            self._block()
        elif name in self._writers:
            self._writers[name](name, attributes, is_closing)
        else:
            self._inline(name, attributes, is_closing=is_closing)

    def _in_code(self, name: str, attributes: str, *, is_closing: bool) -> None:
        if self._code is None:
            return
        if name == "br":
            self._code.append("\n")
        elif name == "code" and not is_closing and not self._code:
            self._language = _attribute(_LANGUAGE, attributes)

    def _pre(self, _: str, attributes: str, is_closing: bool) -> None:
        if is_closing:
            self._end_code()
        elif self._code is None:
            self._end_line()
            self._code = []
            self._language = _attribute(_LANGUAGE, attributes)

    def _rule(self, *_: object) -> None:
        self._block()
        self._line.append("---")
        self._block()

    def _quote(self, _: str, _attributes: str, is_closing: bool) -> None:
        self._block()
        self._quotes = max(0, self._quotes + (-1 if is_closing else 1))

    def _inline(self, name: str, attributes: str, *, is_closing: bool) -> None:
        if name == "a":
            self._end_link() if is_closing else self._links.append((_attribute(_HREF, attributes), len(self._line)))
        elif name == "code":
            self._line.append("`")
        elif name in _MARKS:
            self._mark(_MARKS[name], is_closing=is_closing)
        elif name == "img" and (alt := _SPACES.sub(" ", _attribute(_ALT, attributes)).strip()):
            self._line.append(f"[{alt}]")

    def _mark(self, mark: str, *, is_closing: bool) -> None:
        """Emphasis closes directly after a word; an empty one is left out."""
        if not is_closing:
            self._line.append(mark)
            return
        if self._line and self._line[-1] == mark:
            self._line.pop()
            return
        space = " " if self._line and self._line[-1].endswith(" ") else ""
        if self._line:
            self._line[-1] = self._line[-1].rstrip(" ")
        self._line.append(mark + space)

    def _end_link(self) -> None:
        address, start = self._links.pop() if self._links else ("", 0)
        text = "".join(self._line[start:]).strip()
        if text and _SAFE.match(address) and len(address) <= 2000 and text != address:
            self._line[start:] = [f"[{text}]({address.replace(' ', '%20').replace(')', '%29')})"]

    def _break(self, *_: object) -> None:
        if self._tables:
            self._line.append(" ")
        else:
            self._end_line()

    def _block(self) -> None:
        if self._tables:
            self._break()
            return
        self._end_line()
        self._is_apart = not self._lists or (self._is_apart and not self._lists)

    def _end_line(self) -> None:
        text = "".join(self._line).rstrip()
        self._line = []
        self._links = []
        if not text:
            return
        self._put(text, prefix=self._prefix)
        # The next lines of an item stand below its text.
        self._prefix = " " * len(self._prefix) if self._lists else ""

    def _put(self, text: str, *, prefix: str = "") -> None:
        quote = "> " * min(self._quotes, _DEEPEST)
        if self._is_apart and self._lines and self._lines[-1]:
            self._lines.append(quote.rstrip() if quote and self._lines[-1].startswith(">") else "")
        self._is_apart = False
        self._lines.append(f"{quote}{prefix}{text}")

    def _list(self, name: str, attributes: str, is_closing: bool) -> None:
        self._end_line()
        if not is_closing:
            self._is_apart = self._is_apart or not self._lists
            start = _attribute(_START, attributes)
            self._lists.append(count(int(start) if start else 1) if name == "ol" else None)
        elif self._lists:
            self._lists.pop()
            self._is_apart = not self._lists
        self._prefix = ""

    def _item(self, _: str, _attributes: str, is_closing: bool) -> None:
        self._end_line()
        if is_closing:
            self._prefix = ""
            return
        numbers = self._lists[-1] if self._lists else None
        mark = "- " if numbers is None else f"{next(numbers)}. "
        outer = self._lists[: min(len(self._lists) - 1, _DEEPEST)]
        self._prefix = "".join("  " if each is None else "   " for each in outer) + mark

    def _end_code(self) -> None:
        if self._code is None:
            return
        lines = "".join(self._code).replace("\r\n", "\n").strip("\n").split("\n")
        self._code = None
        indent = " " * len(self._prefix)
        fence = "```"
        while any(line.lstrip().startswith(fence) for line in lines):
            fence += "`"
        if self._tables:
            self._line.append("`" + " ".join(line.strip() for line in lines) + "`")
            return
        self._is_apart = True
        for line in (f"{fence}{self._language}", *lines, fence):
            self._put(line, prefix=indent) if line else self._lines.append("")
        self._is_apart = True

    def _table(self, name: str, *, is_closing: bool) -> None:
        if name == "table":
            if is_closing:
                self._end_table()
            else:
                self._end_cell()
                self._end_line() if not self._tables else None
                self._tables.append([])
            return
        if not self._tables:
            self._block()
            return
        table = self._tables[-1]
        self._end_cell()
        if name == "tr" and not is_closing:
            table.append([])
        elif name in ("th", "td") and not is_closing:
            if not table:
                table.append([])
            table[-1].append("")

    def _end_cell(self) -> None:
        """Ends a cell: its text is everything since its beginning."""
        if not self._tables:
            return
        text = _SPACES.sub(" ", "".join(self._line)).strip().replace("|", "\\|")
        self._line, self._links = [], []
        rows = self._tables[-1]
        if not text:
            return
        if not rows:
            rows.append([])
        if not rows[-1]:
            rows[-1].append("")
        rows[-1][-1] = f"{rows[-1][-1]} {text}".strip()

    def _end_table(self) -> None:
        if not self._tables:
            return
        self._end_cell()
        rows = [row for row in self._tables.pop() if any(row)]
        if self._tables:
            # A table in a cell of another one becomes the cell's text.
            self._line.append(" ".join(cell for row in rows for cell in row))
            return
        if not rows:
            return
        width = max(map(len, rows))
        self._is_apart = True
        for place, row in enumerate(rows):
            self._put(f"| {' | '.join([*row, *[''] * (width - len(row))])} |")
            if place == 0:
                self._put(f"|{' --- |' * width}")
        self._is_apart = True
