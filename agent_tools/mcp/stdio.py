"""Serves MCP over standard input and output for one caller, for `manage.py mcp`."""

import os
import sys
from functools import partial
from typing import Any

import anyio
import anyio.to_thread
from django.utils import timezone
from mcp.server.stdio import stdio_server

from agent_tools.authentication import Refusal, TokenCaller, TokenRefused, digest_of, still_valid, verify
from agent_tools.mcp.server import build_server
from agent_tools.registry import Registry
from agent_tools.threads import run_in_thread
from intake.revocation import wait_for_revocation
from memory.backends.embedders import get_embedder


async def serve(tools: Registry, *, secret: str, lists_few: bool = False) -> None:
    """Serve until the client closes the pipe; a revoked token ends the process, even during a call."""

    def who_calls(_: Any) -> TokenCaller:
        return verify(secret, now=timezone.now())

    server = build_server(tools, who_calls, lists_few=lambda ctx: lists_few)
    async with anyio.create_task_group() as group:
        group.start_soon(_leave_when_revoked, secret)
        # During the handshake, so that the first search does not wait for it.
        group.start_soon(_warm_up)
        async with stdio_server() as (read_stream, write_stream):
            await server.run(read_stream, write_stream, server.create_initialization_options())
        group.cancel_scope.cancel()


async def _warm_up() -> None:
    await anyio.to_thread.run_sync(get_embedder().warm_up)


async def _leave_when_revoked(secret: str) -> None:
    digest = digest_of(secret)
    await wait_for_revocation(lambda: digest in still_valid({digest}, now=timezone.now()))
    sys.stderr.write(f"{await run_in_thread(partial(_reason, secret))}\n")
    sys.stderr.flush()
    # Immediately: a thread is waiting for standard input, and an orderly end would wait for that thread.
    os._exit(77)


def _reason(secret: str) -> str:
    try:
        verify(secret, now=timezone.now())
    except TokenRefused as refused:
        return refused.detail
    return Refusal.UNKNOWN.value
