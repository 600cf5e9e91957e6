"""The memory: notes, the index and search. From Python: `from memory import MemorySearchQuery, search_memory`."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from memory.search.records import MemorySearchError, MemorySearchQuery, MemorySearchResult, search_memory

__all__ = ["MemorySearchError", "MemorySearchQuery", "MemorySearchResult", "search_memory"]


def __getattr__(name: str) -> Any:
    """Imported on first use, because Django loads the app before its models."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from memory.search import records

    return getattr(records, name)
