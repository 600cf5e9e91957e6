"""Nothing that reads a stored text takes longer than n log n: each is run on n and on 4n characters of hostile input.

The interpreter runs one thing at a time, so one slow expression over one text stops every page. Three groups are found
here, and no list has to be kept: all regular expressions of the product, all functions that take only a text, and all
readers of exports. `pytest config/tests/test_growth.py -rA` shows the slowest of each group.
"""

import ast
import importlib
import inspect
import itertools
import json
import math
import re
import time
import types
import zipfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import date
from functools import cache
from pathlib import Path

import pytest
from django.conf import settings

from core.text import Sentence, in_language, kept, restored
from imports.reading import envelopes, products
from imports.reading.files import Files
from imports.reading.items import UnreadableExport
from intake.chats import deleting
from intake.markdown import BlockStream, code_blocks, extensions
from memory.chunking import note_lines
from memory.search.excerpts import Matcher, cut
from memory.search.time_windows import RULES, find_window
from recollect_cli import packing

pytestmark = pytest.mark.extended

ROOT = Path(settings.BASE_DIR)
PACKAGES = ("config", "chat", "agent_tools", "imports", "memory", "intake", "core", "recollect_cli")
SHORT, LONG = 1_000, 8_000
# Below this, a difference is noise.
FLOOR = 0.004
# 4n log 4n to n log n is at most 5.1 here, and quadratic growth is 16.
ALLOWED = 8.5
# No short text may take so long, however it grows.
SHORT_SECONDS = 0.5
TRIES = 3

UNITS = (
    *"[]()<>{}|`$*_~#!\\\"'-+=.,:;/@^&%?0a ",
    *("\n", "\t", "\r\n", "\u00a0", "\u00e9", "e\u0301", "\u6771", "\U0001f1e9", "\u200d", "\0"),
    *(
        "a\n",
        "- ",
        "> ",
        "a b ",
        "1. ",
        "0,",
        "0.",
        "<a",
        "</",
        "<!--",
        "$$",
        "\\(",
        "\\[",
        "\\begin{",
        "\\left(",
        "{{",
    ),
    *(
        "http://",
        "mailto:",
        "www.",
        "a@",
        "a\n\n",
        "|a",
        "a|\n",
        "-|",
        "[a](",
        "![",
        "[^a]",
        "[^a]: ",
        "[a]: /a\n",
        "**a",
        "*a_",
    ),
    *(
        "```\n",
        "~~~",
        "    a\n",
        "`a",
        "# a\n",
        "a\n=\n",
        "===\n",
        "---\n",
        "\\",
        "&amp;",
        "&#",
        "a. ",
        "A",
        "1 ",
        '"a ',
        "a-",
        "_a_ ",
    ),
    *("10:00 ", "2025-01-01 ", "last ", "in may ", "a: ", "%(", "a, ", "did "),
)


@dataclass(frozen=True)
class Measured:
    name: str
    family: str
    seconds: float
    size: int

    def __str__(self) -> str:
        return f"{self.seconds * 1000:8.1f} ms for {self.size:6} characters  {self.name}  of {self.family}"


def families(pieces: tuple[str, ...] = ()) -> Iterator[tuple[str, Callable[[int], str]]]:
    """Each as its description, and a function from the length to the text."""
    for unit in (*UNITS, *pieces):
        yield f"{unit!r}…", lambda size, unit=unit: (unit * (size // len(unit) + 1))[:size]
    for before, unit in itertools.product(pieces[:4], "[ 0a\n"):
        yield f"{before!r}, {unit!r}…", lambda size, before=before, unit=unit: before + unit * (size // len(unit))
        both = before + unit
        yield f"{both!r}…", lambda size, both=both: both * (size // len(both) + 1)


def seconds_of(run: Callable[[str], object], text: str, tries: int = 1) -> float:
    """The processor time of the fastest of some runs. An error that refuses the text is an answer."""
    best = math.inf
    for _ in range(tries):
        began = time.thread_time()
        try:
            run(text)
        except RecursionError:
            raise
        except Exception:
            pass
        best = min(best, time.thread_time() - began)
    return best


def growth_of(name: str, run: Callable[[str], object], pieces: tuple[str, ...]) -> tuple[list[str], Measured]:
    """The first family that is too slow or recurses too deeply, and the slowest measurement."""
    slowest = Measured(name, "", 0.0, 0)
    for family, make in families(pieces):
        try:
            complaint, taken = growth_on(run, make)
        except RecursionError:
            complaint, taken = f"{LONG} characters of {family} recurse too deeply", 0.0
        if complaint:
            return [f"{name}: {complaint} (made of {family})"], slowest
        if taken > slowest.seconds:
            slowest = Measured(name, family, taken, LONG)
    return [], slowest


def growth_on(run: Callable[[str], object], make: Callable[[int], str]) -> tuple[str, float]:
    """What is wrong, if anything, and the seconds that the long text takes.

    Only the longest text and its quarter are compared: a shorter one may grow into a limit, as that of nested links or
    of a line. Most long texts take too little for any comparison, and then the quarter is not run. A short one is run
    first, so that cubic growth is a complaint and not a run without an end.
    """
    for length in (SHORT, 2 * SHORT):
        short = seconds_of(run, make(length))
        # Asked again before it is blamed: a collection of the whole process's garbage may fall into one run.
        if short > SHORT_SECONDS and seconds_of(run, make(length), TRIES) > SHORT_SECONDS:
            return f"{length} characters take over {SHORT_SECONDS} s", 0.0
        if short < FLOOR:
            break
    taken = seconds_of(run, make(LONG))
    if taken > FLOOR and taken > ALLOWED * seconds_of(run, make(LONG // 4)):
        quarter, taken = seconds_of(run, make(LONG // 4), TRIES), seconds_of(run, make(LONG), TRIES)
        if taken > ALLOWED * max(quarter, FLOOR / ALLOWED):
            return f"{LONG} characters take {taken:.3f} s, and a quarter {quarter:.4f} s", taken
    return "", taken


PARTS = 4
in_parts = pytest.mark.parametrize("part", range(PARTS))


def judge(things: Iterator[tuple[str, Callable[[str], object], tuple[str, ...]]], part: int) -> None:
    """A part of them, so that several processes share the whole."""
    complaints, measured = [], []
    for name, run, pieces in itertools.islice(things, part, None, PARTS):
        found, slowest = growth_of(name, run, pieces)
        complaints += found
        measured.append(slowest)
    print(f"{len(measured)} measured; the slowest:")  # noqa: T201 - shown by -rA
    for each in sorted(measured, key=lambda each: -each.seconds)[:5]:
        print(each)  # noqa: T201 - shown by -rA
    assert complaints == [], "\n".join(complaints)


@pytest.mark.parametrize(
    ("run", "complaint"),
    [
        (re.compile(r"a+b").search, "made of 'a'"),
        (re.compile(r"a*a*b").search, "characters take over"),
        (lambda text: [text.count("b") for _ in text], "and a quarter"),
        (json.loads, "recurse too deeply"),
        (str.split, ""),
    ],
    ids=["quadratic", "cubic", "quadratic beside other work", "recursion", "linear"],
)
def test_growth_is_a_complaint_that_names_the_text(run, complaint):
    found, _ = growth_of("reading", run, ("[",))
    assert bool(found) is bool(complaint)
    assert complaint in "".join(found)


# Expressions


@cache
def product_modules() -> list[tuple[types.ModuleType, ast.Module]]:
    found = []
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            parts = path.relative_to(ROOT).with_suffix("").parts
            if {"tests", "testing", "migrations"} & set(parts) or parts[-1] in ("__main__", "local", "production"):
                continue
            name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
            found.append((importlib.import_module(name), ast.parse(path.read_text())))
    return found


USES = {"match", "fullmatch", "search", "findall", "finditer", "sub", "subn", "split"}
# By module: examples of the expressions that it makes from values which only exist while the product runs.
MADE: dict[str, Callable[[], list[re.Pattern[str]]]] = {
    "memory.search.excerpts": lambda: [
        each
        for query in ("a", "[[[", "the rye bread, 1.5", "a b a b")
        for each in (Matcher.of(query).literal, Matcher.of(query).likely)
        if each
    ],
    "memory.search.time_windows": lambda: [pattern for pattern, _, _ in RULES],
    "config.settings.table": lambda: [re.compile(f"LLM_{chosen}_MODEL") for chosen in ("[A-Z0-9_]+", "A")],
    "config.ops.doctor": lambda: [re.compile(rf"(?<!\w){re.escape(value)}(?!\w)") for value in ("a", "a.b", "[[[")],
    "recollect_cli.packing": lambda: [
        re.compile(each, re.IGNORECASE) for each in (*packing.WANTED.values(), packing.ANY)
    ],
    "chat.agent.tools": lambda: [
        re.compile(rf"(?<!\w)(?:{hidden})(?!\w)") for hidden in ("a", "a b|a", r"\[\[\[", "(?!)")
    ],
    "chat.agent.servers": lambda: [re.compile(rf"(?<!\w){each}(?!\w)", re.I) for each in ("a", r"a\ b\ a", r"\[\[")],
    "memory.index.trigrams": lambda: [re.compile(rf"(?<![\w-]){re.escape(word)}(?![\w-])") for word in ("-C", "--a-b")],
    "memory.search.writing": lambda: [re.compile(each, re.IGNORECASE) for each in ("oak|work", r"a\.b|a", "(?!)")],
    "intake.markdown.later": lambda: [re.compile(rf"{'0a' * 16}-(\d+);")],
    "imports.reading.products": lambda: [re.compile(each.wordless) for each in products.readers()],
    "imports.reading.envelopes": lambda: [
        pattern
        for product, is_answer in itertools.product((each.product for each in products.readers()), (False, True))
        for table in [envelopes._table(product, is_answer)]
        if table
        for pattern in (table.finds, table.finds_next, table.rest, *(ends for _, ends in table.by_group.values()))
        if pattern
    ],
    "intake.markdown.extensions": lambda: [*extensions._ENDS.values()],
    "intake.attachments.reading.html_text": lambda: [
        re.compile(each, re.IGNORECASE) for each in ("-->", "</script", "</a", r"<main\b")
    ],
    "config.settings.base": list,
    "config.asgi": list,
    "memory.index.vectors": list,
}


METHODS = {
    "config.settings.table": ("fullmatch",),
    # Handed to `imports.reading.sessions`.
    **{f"imports.reading.products.{name}": ("match",) for name in products.MODULES},
    "recollect_cli.packing": ("fullmatch",),
}
"""How the expressions of these modules are used."""


def literal_pieces(source: str) -> tuple[str, ...]:
    """The literal parts of a pattern's source, the longest first; a character of a class is one as well."""
    plain = re.sub(r"\\[dwsbDWSBAZ]|\(\?[^)]{0,40}?[:>=!]|\{[\d,]+\}", "\x01", source)
    plain = re.sub(r"\\(.)", r"\1", plain)
    found = {piece for piece in re.findall(r"[^\x01()|*+?{}\[\]^$.]+", plain) if piece.strip() or piece == " "}
    marks = {mark for mark in source if not mark.isalnum() and mark not in "?^\x01"}
    return tuple(sorted(found, key=lambda piece: (-len(piece), piece))[:10]) + tuple(sorted(marks))


def expressions() -> Iterator[tuple[str, Callable[[str], object], tuple[str, ...]]]:
    """Each once, however many lines make it."""
    known = set()
    for where, pattern, method in uses_of_expressions():
        key = str(pattern.pattern), pattern.flags, method
        if key not in known:
            known.add(key)
            name = f"{where} {method} {pattern.pattern[:60]!r}"
            yield name, using(pattern, method), literal_pieces(str(pattern.pattern))


def uses_of_expressions() -> Iterator[tuple[str, re.Pattern[str], str]]:
    modules = product_modules()
    uses = uses_by_name(modules)
    for module, tree in modules:
        assigned = [each for each in ast.walk(tree) if isinstance(each, ast.Assign)]
        names = {id(each.value): each.targets[0].id for each in assigned if isinstance(each.targets[0], ast.Name)}
        for node in filter(is_of_re, ast.walk(tree)):
            pattern = compiled(node, module)
            where = f"{module.__name__}:{node.lineno}"
            if pattern is None:
                yield from made_at_run_time(module, where)
                continue
            used = uses.get(in_module(module, names.get(id(node), "")), set())
            for method in sorted(used if node.func.attr == "compile" else {node.func.attr}) or METHODS.get(
                module.__name__, ("fullmatch", "search")
            ):
                yield where, pattern, method


def uses_by_name(modules: list[tuple[types.ModuleType, ast.Module]]) -> dict[str, set[str]]:
    uses: dict[str, set[str]] = {}
    for module, tree in modules:
        for node in ast.walk(tree):
            if isinstance(node, ast.Attribute) and node.attr in USES and isinstance(node.value, ast.Name):
                uses.setdefault(in_module(module, node.value.id), set()).add(node.attr)
    return uses


def in_module(module: types.ModuleType, name: str) -> str:
    """A private name is one of its module; a public one may be imported."""
    return f"{module.__name__}:{name}" if name.startswith("_") else name


def is_of_re(node: ast.AST) -> bool:
    return (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and isinstance(node.func.value, ast.Name)
        and node.func.value.id == "re"
        and node.func.attr in {*USES, "compile"}
    )


def compiled(node: ast.Call, module: types.ModuleType) -> re.Pattern[str] | None:
    """None if it is made from local variables."""
    flags = [keyword.value for keyword in node.keywords if keyword.arg == "flags"] + (
        node.args[1:2] if node.func.attr == "compile" else []
    )
    try:
        pattern, *given = (
            eval(compile(ast.Expression(each), "", "eval"), vars(module)) for each in [node.args[0], *flags]
        )
    except NameError:
        return None
    return re.compile(pattern, *given)


def made_at_run_time(module: types.ModuleType, where: str):
    assert module.__name__ in MADE, f"{where} makes an expression from local values: name examples of it in MADE"
    for pattern in MADE[module.__name__]():
        for method in METHODS.get(module.__name__, ("search", "fullmatch")):
            yield where, pattern, method


def using(pattern: re.Pattern[str], method: str) -> Callable[[str], object]:
    if method in ("match", "fullmatch"):
        return getattr(pattern, method)
    return lambda text: sum(1 for _ in pattern.finditer(text))


@in_parts
def test_every_regular_expression_grows_no_faster_than_its_text(part):
    judge(expressions(), part)


# Functions that take a text

TEXT_MODULES = (
    *("intake.markdown", "imports.reading", "core.text", "core.text", "memory.chunking", "memory.index.terms"),
    *(
        "memory.search",
        "agent_tools.tools.wording",
        "chat.agent.prompt",
        "chat.agent.titles",
        "intake.llm.models",
        "chat.agent.recall",
    ),
    *(
        "memory.signatures",
        "memory.index.trigrams",
        "intake.chats.services",
        "recollect_cli.client",
        "chat.pages.searching",
        "chat.pages.overview",
        "intake.attachments.reading",
    ),
)
"""Their functions touch nothing but their argument."""
ASIDE = {"intake.chats.services"}


def functions_of_a_text() -> Iterator[tuple[str, Callable[[str], object], tuple[str, ...]]]:
    """Each function of these modules, also the private ones, whose only required argument is a text."""
    seen = set()
    for module, _ in product_modules():
        if module.__name__ in ASIDE or not any(
            module.__name__ == each or module.__name__.startswith(each + ".") for each in TEXT_MODULES
        ):
            continue
        for name, function in inspect.getmembers(module, inspect.isfunction):
            if function.__module__ != module.__name__ or function in seen or not takes_only_a_text(function):
                continue
            seen.add(function)
            yield f"{module.__name__}.{name}", consumed(function), ()


def takes_only_a_text(function: Callable[..., object]) -> bool:
    required = [
        each
        for each in inspect.signature(function).parameters.values()
        if each.default is each.empty and each.kind is not each.VAR_KEYWORD
    ]
    return (
        len(required) == 1
        and required[0].annotation in ("str", str)
        and required[0].kind is not inspect.Parameter.KEYWORD_ONLY
    )


def consumed(function: Callable[[str], object]) -> Callable[[str], object]:
    def run(text: str) -> object:
        found = function(text)
        return list(found) if isinstance(found, Iterator) else found

    return run


def streamed(text: str) -> None:
    stream = BlockStream(clock=itertools.count(0, 10).__next__)
    piece = max(1, len(text) // 4)
    for start in range(0, len(text), piece):
        stream.feed(text[start : start + piece])
        stream.changes()
    stream.finish()


def others_of_a_text() -> Iterator[tuple[str, Callable[[str], object], tuple[str, ...]]]:
    """What takes more than a text: streaming, code in each language, formulas, excerpts, windows of time, deletion."""
    yield "BlockStream", streamed, ("```python\n", "$$\n")
    yield "without_links", lambda text: deleting.without_links(text, "/c/1", instead=""), ("](/c/1", "[a](/c/1)", "[")
    yield (
        "_without_quotes",
        lambda text: deleting._without_quotes(text, "/c/1"),
        ("- **a**, in ", "[a](/c/1)", ":\n  > "),
    )
    yield "cut", lambda text: cut(text, Matcher.of("a [ 0"), length=500), ()
    yield (
        "note_lines",
        lambda text: list(note_lines(text)),
        ("- a\n  ", "a. b:\n\n", "| a |\n|--|\n", "```\n", "## a\n"),
    )
    yield "find_window", lambda text: find_window(text, today=date.today), ()

    def in_german(text: str) -> None:
        summary = Sentence("Found %(count)s results: %(places)s", count=2, places=[text, Sentence(text)])
        in_language(restored({"summary": str(summary), **kept(summary)}, "summary"), "de")

    yield "in_language", in_german, ("Found 2 results: ", "%(count)s", "%", ", ")


@in_parts
def test_everything_that_takes_a_text_grows_no_faster_than_it(part):
    judge(itertools.chain(functions_of_a_text(), others_of_a_text()), part)


LANGUAGES = ("python", "csharp", "c", "java", "shell-session", "typescript", "html", "yaml", "autoit")


@pytest.mark.parametrize("language", LANGUAGES)
def test_colouring_ends_soon_however_a_lexer_grows(language):
    """Most lexers are quadratic, so a deadline between their tokens ends them."""
    for unit in ("a\n", "\n", " ", "//", "&", "<!--", "a.", "$$", "["):
        text = (unit * code_blocks.LONGEST_COLOURED)[: code_blocks.LONGEST_COLOURED]
        assert seconds_of(lambda text: code_blocks.render_code(text, language), text, TRIES) < 0.4, unit


@in_parts
def test_every_reader_of_exports_grows_no_faster_than_its_texts(tmp_path, part):
    judge(readers_of(tmp_path), part)


def used(path: Path, product: str) -> set[str]:
    """How a reader uses a file: "open", or "look" to see what it is. One that leaves it aside takes as long for any."""
    ways = set()
    with pytest.MonkeyPatch.context() as patch:
        for way in ("open", "look"):
            really = getattr(Files, way)
            patch.setattr(Files, way, lambda files, name, way=way, really=really: ways.add(way) or really(files, name))
        with suppress(UnreadableExport):
            list(products.read(path, product))
    return ways


def readers_of(folder: Path) -> Iterator[tuple[str, Callable[[str], object], tuple[str, ...]]]:
    """Each reader on a file that is hostile as it stands, under each name that the readers know."""
    names = ("conversations.json", "a.md", "conversations/a.md", "memory/2025-01-01.md", "a.html", "MyActivity.html", "projects/p/a.jsonl",
        "sessions/rollout-2025-01-01T10-00-00-a.jsonl", "agents/a/sessions/a.jsonl", "records.md")  # fmt: skip
    beginnings = {
        ".md": ("---\n", '---\nrecollect: "conversation"\ntitle:', "<!-- turn {", "# "),
        ".html": ('<div class="outer-cell"><div class="content-cell">', "<div class="),
        ".json": ('[{"title":"', '{"format": "recollect-export-1", "exported_at": 1, "conversations": [', "[", '{"a":'),
        ".jsonl": ('{"type":"user","message":"', "["),
    }
    read, looked_at = set(), set()
    for name in names:
        for beginning in ("", *beginnings[Path(name).suffix]):
            # Each reader reads the same files: writing one takes as long as refusing it.
            written: dict[str, Path] = {}

            def file_of(text: str, name=name, beginning=beginning, written=written) -> Path:
                path = written.get(text)
                if path is None:
                    path = written[text] = folder / f"{len(written)}.zip"
                    with zipfile.ZipFile(path, "w") as export:
                        export.writestr(name, (beginning + text).encode(errors="replace"))
                return path

            for reader in products.readers():
                ways = used(file_of(" "), reader.product)
                kind = reader.product, Path(name).suffix, beginning
                # What is looked at without regard to its name is looked at under one.
                if not ways or ("open" not in ways and kind in looked_at):
                    continue
                looked_at.add(kind)
                read.add(reader.product)

                def run(text: str, reader=reader, file_of=file_of) -> None:
                    with suppress(UnreadableExport):
                        list(products.read(file_of(text), reader.product))

                yield f"{reader.product}: {name} {beginning!r}", run, ()
    assert read == {reader.product for reader in products.readers()}
