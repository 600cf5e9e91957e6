"""Finds every endpoint there is, from what is running and not from a list: URLs, tools, MCP's methods, workers' tasks."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from django.urls import URLPattern, URLResolver, get_resolver

from agent_tools.tools import mcp_registry, registry
from config.celery import app

# What is said of them at the end of a run.
ENDPOINTS_TRIED = pytest.StashKey[str]()
METHODS = ("GET", "HEAD", "OPTIONS", "POST", "PUT", "PATCH", "DELETE")


@dataclass(frozen=True)
class Route:
    """`pattern` as Django's resolver gives it for a path that leads here."""

    pattern: str
    view: Any


def routes(resolver: URLResolver | None = None, before: str = "") -> Iterator[Route]:
    for entry in (resolver or get_resolver()).url_patterns:
        pattern = before + str(entry.pattern).removeprefix("^")
        if isinstance(entry, URLPattern):
            yield Route(pattern, entry.callback)
        else:
            yield from routes(entry, pattern)


def tools() -> list[str]:
    return [tool.name for tool in registry]


def mcp_tools() -> list[str]:
    """Those that are offered over MCP alone."""
    return [tool.name for tool in mcp_registry if tool.name not in tools()]


# Two of ours and two of the SDK's own, which it lists nowhere in public.
MCP_METHODS = ["ping", "server/discover", "tools/call", "tools/list"]


def mcp_methods() -> list[str]:
    return MCP_METHODS


def tasks() -> list[str]:
    """What a message to a worker can start; Celery's own begin with its name and touch nothing of ours."""
    app.loader.import_default_modules()
    return sorted(name for name in app.tasks if not name.startswith("celery."))
