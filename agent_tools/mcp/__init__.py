"""The tools over MCP: streamable HTTP at `/mcp`, and stdio with `manage.py mcp`."""
