"""OAuth 2.1 for agents that know this server's address alone, by django-oauth-toolkit.

1. An agent asks `/mcp` without a token; the 401 names the metadata (`metadata`).
2. It registers (`registration`), or is known by the address of its own metadata.
3. Its person logs in and agrees (`authorizing`), and it exchanges the code for tokens (`exchange`).
4. `/mcp` finds the person by the access token (`access`). The person sees and ends what is connected (`connections`).

docs/decisions/0037-oauth-for-agents.md says why it is so.
"""
