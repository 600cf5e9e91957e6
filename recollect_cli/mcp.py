"""`recollect mcp`: the server's tools for agents that start a program, with this machine's token."""

import json
import sys
from typing import Any

from recollect_cli.client import Failure, Server

_STARTING = ("initialize", "server/discover", "notifications/initialized", "tools/list", "ping")


def serve_mcp(server: Server, *, tools: str = "all") -> None:
    """Pass each message of standard input to the server's `/mcp`, and its answer to standard output."""
    import threading

    output, state = threading.Lock(), {"version": "", "path": f"/mcp?tools={tools}"}
    threads = []
    for line in sys.stdin.buffer:
        try:
            message = json.loads(line)
        except ValueError:
            continue
        if not isinstance(message, dict):
            continue
        is_first = message.get("method") == "initialize"
        thread = threading.Thread(target=_pass_on, args=(server, message, state, output), daemon=True)
        thread.start()
        threads.append(thread)
        if is_first:
            # The version that it agrees on belongs to all that follow.
            thread.join()
    for thread in threads:
        thread.join()


def _pass_on(server: Server, message: dict[str, Any], state: dict[str, str], output: Any) -> None:
    answer = _answer_of(server, message, **state)
    if message.get("method") == "initialize":
        state["version"] = str((answer.get("result") or {}).get("protocolVersion", ""))
    if answer:
        with output:
            sys.stdout.buffer.write(json.dumps(answer).encode() + b"\n")
            sys.stdout.buffer.flush()


def _answer_of(server: Server, message: dict[str, Any], *, version: str, path: str) -> dict[str, Any]:
    headers = {"Accept": "application/json, text/event-stream", "Mcp-Method": str(message.get("method", ""))}
    meta = (message.get("params") or {}).get("_meta") if isinstance(message.get("params"), dict) else None
    named = (meta or {}).get("io.modelcontextprotocol/protocolVersion") or version
    if named:
        headers["MCP-Protocol-Version"] = str(named)
    # An agent waits for its servers before its first answer.
    seconds = 2 if message.get("method") in _STARTING else 0
    try:
        return Server(server.address, server.token, seconds=seconds).ask("POST", path, message, **headers)
    except Failure as failure:
        if "jsonrpc" in failure.problem:
            return failure.problem
        if "id" not in message:
            return {}
        return {"jsonrpc": "2.0", "id": message["id"], "error": {"code": -32000, "message": f"Recollect: {failure}"}}
