"""The tools that the conformance suite calls by name, in a registry and behind an endpoint like the real ones."""

from contextlib import asynccontextmanager
from typing import Annotated

from pydantic import Field
from starlette.applications import Starlette
from starlette.routing import Route

from agent_tools.mcp.http import McpEndpoint
from agent_tools.registry import Registry, Tool
from core.errors import SearchFailed
from core.gate import Gate
from core.validation import Input, Output


class NoInput(Input):
    pass


class Text(Output):
    text: Annotated[str, Field(description="A text.")]


def fail(*_):
    raise SearchFailed("This tool intentionally returns an error for testing")


def a_tool(name, run):
    return Tool(
        name=name,
        description="A tool for the conformance suite.",
        input_model=NoInput,
        output_model=Text,
        is_read_only=True,
        run=run,
        summarise=lambda *_: "",
    )


registry = Registry(
    a_tool("test_simple_text", lambda *_: Text(text="This is a simple text response for testing.")),
    a_tool("test_error_handling", fail),
)

endpoint = McpEndpoint(registry)


@asynccontextmanager
async def lifespan(_):
    async with endpoint.running():
        yield {"gate": Gate(lambda credentials: (False, None), connections=16)}


application = Starlette(lifespan=lifespan, routes=[Route("/mcp", endpoint)])
