"""Finding again what was said: each search is inside one person's rows, and that person is a required keyword."""

from memory.search.chat_history import ChatHistory, ChatMatch, SearchMode, search_chat_history

__all__ = ["ChatHistory", "ChatMatch", "SearchMode", "search_chat_history"]
