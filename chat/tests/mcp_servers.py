"""MCP servers of others, as the protocol's own package serves them: they count the calls that reach them."""

import asyncio
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from typing import Any

from mcp.server.mcpserver import MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp_types import ToolAnnotations

from chat.agent.servers import list_tools
from core.isolation.acting import Caller
from intake.chats.consent import SERVERS
from intake.models import InstallationSetting, ToolServer
from intake.models.installation import read_kept_settings
from testing.serving import serving


class Others:
    """A server with a tool that reads, one that acts and one that destroys. `calls`: those that reached it."""

    def __init__(self) -> None:
        self.address = ""
        self.tools: list[dict[str, Any]] = []
        self.calls: list[tuple[str, Any]] = []
        self.server = MCPServer("others")
        self.answers: Callable[[str], Any] = lambda title: f"Made {title}."
        self.describe("Makes an issue in the tracker.")
        self.server.add_tool(self.look_up, name="look_up", annotations=ToolAnnotations(readOnlyHint=True))
        self.server.add_tool(self.wipe, name="wipe", annotations=ToolAnnotations(destructiveHint=True))

    def describe(self, description: str) -> None:
        """Anew, if it is there."""
        with suppress(ToolError):
            self.server.remove_tool("create_issue")
        about = ToolAnnotations(destructiveHint=False)
        self.server.add_tool(self.create_issue, name="create_issue", description=description, annotations=about)

    def create_issue(self, title: str) -> str:
        self.calls.append(("create_issue", title))
        return self.answers(title)

    def look_up(self, query: str) -> str:
        self.calls.append(("look_up", query))
        return self.answers(query)

    def wipe(self) -> str:
        self.calls.append(("wipe", None))
        return "Wiped."

    @contextmanager
    def serving(self) -> Iterator[str]:
        with serving(self.server.streamable_http_app()) as address:
            yield f"{address}/mcp"

    def list(self) -> None:
        """As staff add it for all."""
        server = ToolServer(name="tracker", address=self.address)
        with ThreadPoolExecutor(1) as pool:
            # A test in a browser has a loop of its own already.
            self.tools = pool.submit(asyncio.run, list_tools(server, Caller(user_id=None))).result()
        row = {"name": "tracker", "address": self.address, "header": "", "sealed": "", "tools": self.tools}
        InstallationSetting.objects.update_or_create(name=SERVERS, defaults={"value": [row]})
        read_kept_settings()
