"""The registry of all tools."""

from agent_tools.registry import Registry
from agent_tools.tools.attachments import read_attachment
from agent_tools.tools.chat_history import search_chat_history
from agent_tools.tools.connectors import fetch, search
from agent_tools.tools.context import get_context
from agent_tools.tools.conversations import get_conversation, list_recent_conversations
from agent_tools.tools.history import search_history
from agent_tools.tools.memory import append_daily_log, save_memory, search_memory

registry = Registry(
    get_context,
    search_chat_history,
    search_history,
    search_memory,
    get_conversation,
    list_recent_conversations,
    read_attachment,
    save_memory,
    append_daily_log,
)

# Over MCP there are two more, with the names that ChatGPT's connectors expect.
mcp_registry = Registry(*registry, search, fetch)
