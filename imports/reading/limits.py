"""Limits the unpacked size of an export: counted over all levels of nested zips, before anything is unpacked."""

from dataclasses import dataclass

from imports.reading.items import UnreadableExport

_MEGABYTE = 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """The largest export that is read. Chat JSON has a compression ratio of 5 to 20, very repetitive text of 60."""

    unpacked_bytes: int = 50 * 1024 * _MEGABYTE
    entries: int = 200_000
    ratio: int = 200
    # A small file may have any compression ratio.
    ratio_from_bytes: int = 32 * _MEGABYTE
    # A zip, zips in it, and zips in those.
    depth: int = 3


class Budget:
    """Counts the claimed sizes of one export, at every level, against the limits."""

    def __init__(self, limits: Limits, *, packed: int) -> None:
        self.limits = limits
        self._packed = packed
        self._bytes = 0
        self._entries = 0

    def claim(self, size: int, packed: int | None = None) -> None:
        """Counts one entry of `size` bytes unpacked; `packed` is its size in the zip. Raises `UnreadableExport`."""
        self._entries += 1
        self._bytes += size
        if self._entries > self.limits.entries:
            raise UnreadableExport(f"This export has more than {self.limits.entries:,} files, more than can be read.")
        if self._bytes > self.limits.unpacked_bytes:
            gigabytes = self.limits.unpacked_bytes / (1024 * _MEGABYTE)
            raise UnreadableExport(f"This export unpacks to more than {gigabytes:,.0f} GB, more than can be read.")
        if self._is_bomb(size, packed) or self._is_bomb(self._bytes, self._packed or None):
            raise UnreadableExport(
                "This zip unpacks to more than "
                f"{self.limits.ratio} times its size, as no export does: it is not read. Download the export again."
            )

    def _is_bomb(self, size: int, packed: int | None) -> bool:
        return packed is not None and size > self.limits.ratio_from_bytes and size > self.limits.ratio * packed
