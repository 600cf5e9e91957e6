"""The readers of all products, one module each, and the registry that recognises an export by its content."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from pathlib import Path

from core.text import Sentence
from core.text import gettext_noop as _
from imports.reading.files import Files, Limits, open_files
from imports.reading.items import Items, Skipped, UnreadableExport

MODULES = (
    "chatgpt",
    "claude",
    "gemini",
    "open_webui",
    "librechat",
    "claude_code",
    "codex",
    "openclaw",
    "gemini_cli",
    "vscode",
    "cursor",
    "markdown",
    "recollect",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportReader:
    """A product whose exports can be read.

    `recognises` looks at names and beginnings, never at a whole file, and says how sure it is: 0 (no) to 100 (certainly
    this product). `read` yields items as it goes, holding little in memory; it raises `UnreadableExport` before the
    first item if nothing can be read, and yields `Skipped` for what is broken further in.
    """

    product: str
    label: str
    recognises: Callable[[Files], int]
    read: Callable[[Files], Items]
    # What it looks for, in words for the person.
    looks_for: str = ""
    # A pattern of the names of files, known to hold no words of the person: counted, not listed.
    wordless: str = r"(?!)"


@cache
def readers() -> tuple[ExportReader, ...]:
    """All products, in the order in which they are listed for a person."""
    return tuple(import_module(f"imports.reading.products.{name}").READER for name in MODULES)


def recognise(files: Files) -> ExportReader:
    """The reader that is surest of these files. Raises `UnreadableExport`, which says what they seem to be instead."""
    scores: list[tuple[int, int, ExportReader]] = []
    damage: UnreadableExport | None = None
    for place, each in enumerate(readers()):
        try:
            scores.append((each.recognises(files), -place, each))
        except UnreadableExport as error:
            damage = damage or error
    score, _place, reader = max(scores, default=(0, 0, readers()[0]))
    if score == 0 and damage:
        raise damage
    if score == 0:
        message = _("%(sentence)s What can be read: %(products)s.")
        raise UnreadableExport(Sentence(message, sentence=Sentence(_seems_to_be(files)), products=_labels()))
    return reader


def read(path: Path, product: str | None = None, limits: Limits | None = None, *, name: str = "") -> Items:
    """Everything in the export at `path`, read as `product`, or as the recognised one.

    `name`: that of an uploaded file, by which the report names positions in it.
    """
    with open_files(path, limits, name=name) as files:
        yield from read_files(files, product)


def read_files(files: Files, product: str | None = None) -> Items:
    """Everything in these files, which stay open: what messages name of them is read afterwards."""
    reader = _named(product) if product else recognise(files)
    for refused in files.refused():
        yield Skipped(where=refused.where, reason=refused.reason)
    yield from reader.read(files)


def _named(product: str) -> ExportReader:
    for reader in readers():
        if reader.product == product:
            return reader
    known = ", ".join(reader.product for reader in readers())
    raise UnreadableExport(f"There is no product {product!r}. Known are: {known}.")


def _labels() -> str:
    return ", ".join(reader.label for reader in readers())


def _seems_to_be(files: Files) -> str:
    names = files.names()
    base_names = {name.rpartition("/")[2] for name in names}
    if {"users.json", "channels.json"} <= base_names:
        return _("This looks like a Slack export, which is not supported.")
    if not names:
        return _("There is no file in this export that can be read.")
    if not any(map(files.size, names)):
        return _("All files of this export are empty. Download the export again.")
    if len(names) == 1:
        with files.open(names[0]) as stream:
            beginning = stream.read(1000).lstrip(b"\xef\xbb\xbf \t\r\n")
        if beginning[:1] == b"<":
            return _(
                "This is a web page, not the data of an export: take the whole zip, or conversations.json from it."
            )
        if beginning[:1] in (b"[", b"{"):
            return _("This JSON file has no conversations of a known product.")
    return _("Nothing in this export is of a known product.")
