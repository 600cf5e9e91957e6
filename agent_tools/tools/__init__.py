"""The tools there are."""

from agent_tools.registry import Registry
from agent_tools.tools.chat_history import search_chat_history

registry = Registry()
registry.register(search_chat_history)
