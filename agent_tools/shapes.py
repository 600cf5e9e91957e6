"""Describes a tool in three formats: this API's own, and the function-calling formats of OpenAI and Anthropic."""

from collections.abc import Callable
from typing import Any

from agent_tools.registry import Tool
from core.errors import InvalidInput

AnyTool = Tool[Any, Any]


def own(tool: AnyTool) -> dict[str, Any]:
    return {
        "name": tool.name,
        "description": tool.description,
        "readOnly": tool.is_read_only,
        "scope": tool.scope.value,
        "inputSchema": tool.input_schema,
        "outputSchema": tool.output_schema,
    }


def openai(tool: AnyTool) -> dict[str, Any]:
    """An element of `tools` in a request to the Chat Completions API."""
    function = {"name": tool.name, "description": tool.description, "parameters": tool.input_schema}
    return {"type": "function", "function": function}


def anthropic(tool: AnyTool) -> dict[str, Any]:
    """An element of `tools` in a request to the Messages API."""
    return {"name": tool.name, "description": tool.description, "input_schema": tool.input_schema}


SHAPES: dict[str, Callable[[AnyTool], dict[str, Any]]] = {"own": own, "openai": openai, "anthropic": anthropic}


def shape_named(name: str | None) -> Callable[[AnyTool], dict[str, Any]]:
    """Raises `InvalidInput` for an unknown format."""
    if name is None:
        return own
    if name not in SHAPES:
        choices = f"Must be one of: {', '.join(SHAPES)}."
        raise InvalidInput("There is no such format.", errors={"format": [choices]})
    return SHAPES[name]
