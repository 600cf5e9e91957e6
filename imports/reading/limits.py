"""Limits the unpacked size of an export: counted over all levels of nested zips, before anything is unpacked."""

import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path

from core.text import Sentence
from core.text import gettext_noop as _
from imports.reading.items import UnreadableExport

_MEGABYTE = 1024 * 1024
TOO_MANY = _("This export has more than %(count)s files, more than can be read.")


class BeyondLimits(UnreadableExport):
    """Refuses the whole export, not one of its files."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """The largest export that is read. Chat JSON has a compression ratio of 5 to 20, very repetitive text of 60."""

    unpacked_bytes: int = 50 * 1024 * _MEGABYTE
    entries: int = 200_000
    ratio: int = 200
    # A small file may have any compression ratio.
    ratio_from_bytes: int = 32 * _MEGABYTE
    # Copies of zips in a zip: their folder (the system's by default), the space that stays free there, and how many
    # bytes they may have in all: a zip packed once more is no smaller, so hardly more than the file itself.
    temporary: Path | None = None
    free_bytes: int = 256 * _MEGABYTE
    copies_ratio: float = 2.0
    copies_from_bytes: int = 8 * _MEGABYTE


class Budget:
    """Counts the claimed sizes of one export, at every level, against the limits."""

    def __init__(self, limits: Limits, *, packed: int) -> None:
        self.limits = limits
        self._packed = packed
        self._bytes = 0
        self._entries = 0
        self._copied = 0

    def claim(self, size: int, packed: int | None = None) -> None:
        """Counts one entry of `size` bytes unpacked; `packed` is its size in the zip. Raises `BeyondLimits`."""
        self._entries += 1
        self._bytes += size
        if self._entries > self.limits.entries:
            raise BeyondLimits(Sentence(TOO_MANY, count=self.limits.entries))
        if self._bytes > self.limits.unpacked_bytes:
            gigabytes = round(self.limits.unpacked_bytes / (1024 * _MEGABYTE))
            message = _("This export unpacks to more than %(count)s GB, more than can be read.")
            raise BeyondLimits(Sentence(message, count=gigabytes))
        if self._is_bomb(size, packed) or self._is_bomb(self._bytes, self._packed or None):
            message = _(
                "This zip unpacks to more than %(count)s times its size, as no export does: it is not read. "
                "Download the export again."
            )
            raise BeyondLimits(Sentence(message, count=self.limits.ratio))

    def claim_copy(self, size: int) -> None:
        """Counts the copy of a zip in a zip, before it is made. Raises `BeyondLimits`."""
        self._copied += size
        limits = self.limits
        if self._copied > limits.copies_from_bytes and self._copied > limits.copies_ratio * self._packed:
            raise BeyondLimits(
                _(
                    "The zips in this zip are much larger than the file, as in no export: they are not read. "
                    "Unpack the file, and bring in what was in it."
                )
            )

    def check_free(self) -> None:
        """Raises `BeyondLimits` when the copies would fill the disk."""
        folder = self.limits.temporary or Path(tempfile.gettempdir())
        if shutil.disk_usage(folder).free < self.limits.free_bytes:
            raise BeyondLimits(_("The server's disk has no room for this file. Ask the server's administrator."))

    def _is_bomb(self, size: int, packed: int | None) -> bool:
        return packed is not None and size > self.limits.ratio_from_bytes and size > self.limits.ratio * packed
