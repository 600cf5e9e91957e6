"""Access tokens: made and revoked by their owner, and turned into a caller in one place for REST, MCP and stdio."""

from agent_tools.tokens.admitting import admit
from agent_tools.tokens.issuing import NewToken, TokenInfo, create_token, list_tokens, revoke_token
from agent_tools.tokens.verifying import Refusal, TokenCaller, TokenRefused, is_still_valid, secret_in, verify

__all__ = [
    "NewToken",
    "Refusal",
    "TokenCaller",
    "TokenInfo",
    "TokenRefused",
    "admit",
    "create_token",
    "is_still_valid",
    "list_tokens",
    "revoke_token",
    "secret_in",
    "verify",
]
