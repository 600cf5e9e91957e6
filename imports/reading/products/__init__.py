"""The readers of all products, one module each, and the registry that recognises an export by its content."""

import re
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from pathlib import Path

from core.text import Sentence
from core.text import gettext_noop as _
from imports.reading.files import Files, open_files
from imports.reading.items import Items, Notice, Skipped, UnreadableExport
from imports.reading.limits import Limits
from imports.reading.values import base_name

MODULES = (
    "chatgpt",
    "claude",
    "gemini",
    "open_webui",
    "librechat",
    "grok",
    "le_chat",
    "perplexity",
    "deepseek",
    "claude_code",
    "codex",
    "openclaw",
    "gemini_cli",
    "vscode",
    "cursor",
    "markdown",
    "plain",
    "recollect",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportReader:
    """A product whose exports can be read.

    `recognises` looks at names and beginnings, never at a whole file, and says how sure it is: 0 (no) to 100 (certainly
    this product). `read` yields items as it goes, holding little in memory; it raises `UnreadableExport` before the
    first item if nothing can be read, and yields `Skipped` for what is broken further in. A file that breaks off is
    reported where it is read (`Files.report`). Files that it does not open are listed after its items.
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
    damage = []
    for place, each in enumerate(readers()):
        try:
            scores.append((each.recognises(files), -place, each))
        except UnreadableExport as error:
            damage.append(error)
    score, _place, reader = max(scores, default=(0, 0, readers()[0]))
    if score == 0 and (damage := [*files.damaged.values(), *damage]):
        raise damage[0]
    if score == 0 and any("Takeout/" in name for name in files.names()):
        raise UnreadableExport(
            _(
                "This Takeout has no chats with Gemini: they are in My Activity. At takeout.google.com choose My "
                "Activity, in it Gemini Apps, and JSON as the format."
            )
        )
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
    is_found = False
    listed = set()
    for item in _items(files, reader):
        is_found = is_found or not isinstance(item, Notice)
        if isinstance(item, Skipped):
            listed.add(item.where)
        yield item
    if not is_found and files.damaged:
        raise next(iter(files.damaged.values()))
    if not is_found:
        names = files.names()
        found = ", ".join(names[:5]) + (", …" if len(names) > 5 else "")
        message = _("There is no history of %(product)s in this. Looked for: %(wanted)s. Found: %(names)s.")
        wanted = Sentence(reader.looks_for)
        raise UnreadableExport(Sentence(message, product=reader.label, wanted=wanted, names=found))
    refused = files.refused()
    yield from refused
    yield from _not_read(files, reader, listed | {each.where for each in refused})


def _items(files: Files, reader: ExportReader) -> Items:
    """Its items, and between them what could not be read to its end."""
    for item in reader.read(files):
        yield from files.news()
        yield item
    yield from files.news()


# Of programs and systems, and pictures, sound and fonts: they have no words that a reader of any product could take.
_WORDLESS = re.compile(
    r"(?:.*/)?(?:\.DS_Store|Thumbs\.db|desktop\.ini|\._[^/]+|__MACOSX/.+"
    r"|[^/]+\.(?:png|jpe?g|gif|webp|svg|heic|avif|bmp|tiff?|ico|mp[34]|m4a|ogg|opus|wav|flac|mov|webm|avi|mkv|woff2?"
    r"|ttf|otf|css))",
    re.IGNORECASE,
)


def _not_read(files: Files, reader: ExportReader, listed: set[str]) -> Iterator[Skipped | Notice]:
    """Accounts for the files that the reader did not open: those without words by their number, all others by name."""
    known: Counter[str] = Counter()
    own = re.compile(reader.wordless)
    for name in files.names():
        if name in files.opened or name in listed:
            continue
        if not files.size(name) or _WORDLESS.fullmatch(name) or own.search(name):
            known[base_name(name).rpartition(".")[2]] += 1
        else:
            reason = Sentence(_("not read: no part of a history of %(product)s"), product=reader.label)
            yield Skipped(where=name, reason=reason)
    if known:
        kinds = ", ".join(f"{number} {kind}" for kind, number in sorted(known.items()))
        yield Notice(text=Sentence(_("Files that hold no messages or notes were left out: %(kinds)s."), kinds=kinds))


def _named(product: str) -> ExportReader:
    for reader in readers():
        if reader.product == product:
            return reader
    known = ", ".join(reader.product for reader in readers())
    raise UnreadableExport(f"There is no product {product!r}. Known are: {known}.")


def _labels() -> str:
    return ", ".join(reader.label for reader in readers())


# gzip, 7z, RAR, bzip2, xz and Zstandard.
_PACKED = (b"\x1f\x8b", b"7z\xbc\xaf", b"Rar!", b"BZh", b"\xfd7zXZ", b"\x28\xb5\x2f\xfd")


def _seems_to_be(files: Files) -> str:
    names = files.names()
    base_names = {base_name(name) for name in names}
    if {"users.json", "channels.json"} <= base_names:
        return _("This looks like a Slack export, which is not supported.")
    if not names:
        return _("There is no file in this export that can be read.")
    if not any(map(files.size, names)):
        return _("All files of this export are empty. Download the export again.")
    if len(names) == 1:
        with files.look(names[0]) as stream:
            beginning = stream.read(1000).lstrip(b"\xef\xbb\xbf \t\r\n")
        for signs, sentence in (
            (_PACKED, _("This is packed, and not as a zip: unpack it, and bring in the folder or a zip of it.")),
            (
                (b"<",),
                _("This is a web page, not the data of an export: take the whole zip, or conversations.json from it."),
            ),
            ((b"[", b"{"), _("This JSON file has no conversations of a known product.")),
        ):
            if beginning.startswith(signs):
                return sentence
    return _("Nothing in this export is of a known product.")
