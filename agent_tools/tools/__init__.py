"""The tools there are."""

from agent_tools.registry import Registry
from agent_tools.tools.chat_history import search_chat_history
from agent_tools.tools.history import search_history
from agent_tools.tools.memory import search_memory

registry = Registry()
registry.register(search_chat_history)
registry.register(search_history)
registry.register(search_memory)
