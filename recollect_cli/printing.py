"""What an import looks like at a terminal: a bar by `rich`, where that is installed, or a line for each step."""

import sys
import unicodedata
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

STEPS = {
    "uploading": "Uploading",
    "reading": "Reading the export",
    "waiting": "Waiting for a worker",
    "running": "Storing",
    "undoing": "Undoing",
}


def printable(text: str) -> str:
    """For all that is not ours, before it goes to a terminal: control characters as JSON writes them.

    A terminal obeys them: they move the cursor, change the title, and write to the clipboard. Marks of direction make a
    line read as another. Line ends and tabs stay.
    """
    return "".join(f"\\u{ord(each):04x}" if _is_obeyed(each) else each for each in text)


def printable_line(text: str) -> str:
    """The same for a title or a name, which is one line."""
    return printable(" ".join(text.split()))


def _is_obeyed(character: str) -> bool:
    if character in "\n\t":
        return False
    # U+200D joins emojis. Of the format characters, those of direction do harm.
    return (
        unicodedata.category(character) in ("Cc", "Cs", "Zl", "Zp") or unicodedata.bidirectional(character) in _TURNING
    )


_TURNING = ("LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI")


Shows = Callable[[str, float], None]
"""Takes a state and the progress within it, from 0 to 1."""


@contextmanager
def progress_shown(*, is_quiet: bool) -> Iterator[Shows]:
    """Progress goes to standard error, so that what is printed can be piped."""
    if is_quiet:
        yield lambda state, progress: None
        return
    try:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn
    except ImportError:
        yield _in_lines()
        return
    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("", total=1.0)

        def show(state: str, progress: float) -> None:
            bar.update(task, description=STEPS.get(state, state), completed=progress)

        yield show


def _in_lines() -> Shows:
    """Without a bar: each step once."""
    shown = [""]

    def show(state: str, progress: float) -> None:
        if state != shown[-1] and state in STEPS:
            shown.append(state)
            print(f"{STEPS[state]} …", file=sys.stderr, flush=True)  # noqa: T201

    return show


def in_numbers(counts: dict[str, int] | None) -> str:
    """`812 conversations, 9,120 turns, 3 documents`."""
    requested = [(name, (counts or {}).get(name, 0)) for name in ("conversations", "turns", "documents", "records")]
    return ", ".join(f"{n:,} {name if n != 1 else name[:-1]}" for name, n in requested if n) or "nothing"


def preview_text(preview: dict[str, Any]) -> str:
    shown, newest = preview["import"], preview["newest"]
    found = shown["found"] or {}
    lines = [f"{shown['product_label'] or 'Export'}: {in_numbers(found)}"]
    if shown.get("from") and shown.get("to"):
        lines.append(f"From {shown['from'][:10]} to {shown['to'][:10]}")
    counts = (("new", "new"), ("longer than what is here", "longer"), ("here already", "here"))
    lines += [f"{found[name]:,} {words}" for words, name in counts if found.get(name)]
    lines.append(f"Would come in: {in_numbers(preview['comes_in'])}")
    lines += [f"Note: {printable_line(notice)}" for notice in shown.get("notices") or []]
    if found.get("skipped"):
        lines.append(f"{found['skipped']:,} cannot come in:")
        lines += [
            f"  {printable_line(each['where'])}: {printable_line(each['reason'])}" for each in shown["skipped"][:20]
        ]
    if newest:
        lines += ["The newest:", *(f"  {printable_line(title)}" for title in newest)]
    return "\n".join(lines)


def report_text(shown: dict[str, Any], address: str) -> str:
    lines = [
        f"Imported from {printable_line(shown['product_label'] or shown['filename'])}: {in_numbers(shown['stored'])}."
    ]
    if changed := ((shown.get("account") or {}).get("changed") or {}).get("turns"):
        lines.append(f"{changed:,} {'turn' if changed == 1 else 'turns'} got corrected or longer words.")
    if (shown["found"] or {}).get("skipped"):
        lines.append(f"{shown['found']['skipped']:,} could not come in; the report lists them.")
    if shown["can_undo"]:
        lines.append(f"Report and undo: {address.rstrip('/')}/import/{shown['id']}/")
    return "\n".join(lines)
