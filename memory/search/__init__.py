"""The searches. Each one reads only one user's rows, and `user` is a required keyword."""

from memory.search.chat_history import ChatHistory, SearchMode, search_chat_history
from memory.search.records import MemorySearchError, MemorySearchQuery, MemorySearchResult, build_filter, search_memory

__all__ = [
    "ChatHistory",
    "MemorySearchError",
    "MemorySearchQuery",
    "MemorySearchResult",
    "SearchMode",
    "build_filter",
    "search_chat_history",
    "search_memory",
]
