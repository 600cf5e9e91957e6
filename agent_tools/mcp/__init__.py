"""The MCP edge: the registry's tools over streamable HTTP at `/mcp` and over the pipes of `manage.py mcp`."""
