"""OAuth 2.1 for agents that know only this server's address, by django-oauth-toolkit.

1. An agent calls `/mcp` without a token; the 401 names the metadata (`metadata`).
2. It registers (`registration`), or is identified by the address of its own metadata.
3. Its user logs in and agrees (`authorizing`), and it exchanges the code for tokens (`exchange`).
4. `/mcp` finds the user by the access token (`access`). The user sees and ends the connections (`connections`).

The reasons are in docs/decisions/0037-oauth-for-agents.md.
"""
