"""One module per product, each a pure reader behind the registry, which recognises an export by its content."""

from collections.abc import Callable
from dataclasses import dataclass

from imports.files import Files
from imports.items import Items


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
