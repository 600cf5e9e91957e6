"""The chat's language model, its tools and its notes."""

from config.settings.base.environment import env

# Without LLM_MODEL the chat runs in recall mode. A name such as "anthropic:…" picks that vendor; any other name is
# asked for at LLM_BASE_URL, which speaks the OpenAI protocol.
LLM_MODEL = env.str("LLM_MODEL", default="")
LLM_BASE_URL = env.str("LLM_BASE_URL", default="")
LLM_API_KEY = env.str("LLM_API_KEY", default="")
LLM_TIMEOUT_SECONDS = env.float("LLM_TIMEOUT_SECONDS", default=60.0)
# The tools the chat's agent loop is given, by dotted path, so that intake imports nobody.
CHAT_TOOLSET = "agent_tools.chat.toolset"
# What takes back what one of those tools stored, when the person asks for it.
CHAT_UNDO = "agent_tools.chat.undo"
# How often in one answer the model may call tools and read what they gave; then it has to answer.
CHAT_TOOL_ROUNDS = max(0, env.int("CHAT_TOOL_ROUNDS", default=8))
# What gives the notes that the model has in mind from the start, and how much of them; 0 is none.
CHAT_NOTES = "memory.notes.notes"
CHAT_NOTES_CHARACTERS = env.int("CHAT_NOTES_CHARACTERS", default=8_000)

# A turn that has been streaming without a sign of life for this long lost its server.
TURN_ABANDONED_SECONDS = env.int("TURN_ABANDONED_SECONDS", default=120)
