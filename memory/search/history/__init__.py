"""`search_history`: what was said and what was written down, from every source, in one ranking."""

from memory.search.history.choosing import HistoryResult
from memory.search.history.requests import DEFAULT_RESULTS, MAX_RESULTS, HistoryRequest, HistoryScope
from memory.search.history.searching import History, search_history
from memory.search.history.sources import Kind, Reference

__all__ = [
    "DEFAULT_RESULTS",
    "MAX_RESULTS",
    "History",
    "HistoryRequest",
    "HistoryResult",
    "HistoryScope",
    "Kind",
    "Reference",
    "search_history",
]
