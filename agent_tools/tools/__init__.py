"""The registry of all tools."""

from agent_tools.registry import Registry
from agent_tools.tools.chat_history import search_chat_history
from agent_tools.tools.connectors import fetch, search
from agent_tools.tools.context import get_context
from agent_tools.tools.conversations import get_conversation, list_recent_conversations
from agent_tools.tools.history import search_history
from agent_tools.tools.memory import append_daily_log, save_memory, search_memory

registry = Registry()
registry.register(get_context)
registry.register(search_chat_history)
registry.register(search_history)
registry.register(search_memory)
registry.register(get_conversation)
registry.register(list_recent_conversations)
registry.register(save_memory)
registry.register(append_daily_log)

# Over MCP there are two more, with the names that ChatGPT's connectors expect.
mcp_registry = Registry()
for tool in (*registry, search, fetch):
    mcp_registry.register(tool)
