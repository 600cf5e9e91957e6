"""MCP by hand, for tests of what the official client would never send: messages and headers of both revisions."""

import json

import httpx2

ACCEPT = "application/json, text/event-stream"
LEGACY, MODERN = "2025-11-25", "2026-07-28"
META = {
    "io.modelcontextprotocol/protocolVersion": MODERN,
    "io.modelcontextprotocol/clientInfo": {"name": "by-hand", "version": "1"},
    "io.modelcontextprotocol/clientCapabilities": {},
}


def headers(secret=None, *, version=MODERN, method="tools/list", name=None, **extra):
    given = {"Accept": ACCEPT, "Content-Type": "application/json", "MCP-Protocol-Version": version}
    if version == MODERN:
        given["Mcp-Method"] = method
        if name is not None:
            given["Mcp-Name"] = name
    if secret is not None:
        given["Authorization"] = f"Bearer {secret}"
    return given | extra


def message(method="tools/list", params=None, *, version=MODERN, request_id=1):
    params = dict(params or {})
    if version == MODERN:
        params["_meta"] = META
    return {"jsonrpc": "2.0", "id": request_id, "method": method, "params": params}


def post(
    address,
    secret=None,
    method="tools/list",
    params=None,
    *,
    version=MODERN,
    request_id=1,
    body=None,
    path="/mcp",
    **extra,
):
    """The response to one message; `body` replaces it as bytes."""
    name = (params or {}).get("name")
    content = body if body is not None else json.dumps(message(method, params, version=version, request_id=request_id))
    return httpx2.post(
        f"{address}{path}",
        content=content,
        headers=headers(secret, version=version, method=method, name=name, **extra),
        timeout=20,
    )


def call(address, secret, tool, arguments, **options):
    return post(address, secret, "tools/call", {"name": tool, "arguments": arguments}, **options)
