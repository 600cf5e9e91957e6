"""Formats a tool's output for MCP: text for the model, structured content for programs, and failures as results."""

import json
import logging
from typing import Any

from mcp_types import CallToolResult, TextContent, ToolAnnotations
from mcp_types import Tool as McpTool
from pydantic import BaseModel

from agent_tools.registry import Tool, as_data
from core.errors import Broken, RecollectError
from core.problems import as_recollect_error

logger = logging.getLogger(__name__)


def described(tool: Tool[Any, Any]) -> McpTool:
    """A tool that writes only adds: it overwrites nothing, and a second call adds again. None accesses the outside
    world.
    """
    return McpTool(
        name=tool.name,
        description=tool.description,
        input_schema=tool.input_schema,
        output_schema=tool.output_schema,
        annotations=ToolAnnotations(
            read_only_hint=tool.is_read_only,
            destructive_hint=False,
            idempotent_hint=tool.is_read_only,
            open_world_hint=False,
        ),
    )


def succeeded(output: BaseModel) -> CallToolResult:
    data = as_data(output)
    text = getattr(output, "text", None)
    if not isinstance(text, str):
        text = json.dumps(data, ensure_ascii=False)
    return CallToolResult(content=[TextContent(text=text)], structured_content=data)


def failed(error: Exception) -> CallToolResult:
    """The contract's code and message as text, because structured content must conform to the output schema."""
    known = as_recollect_error(error)
    if known is None:
        logger.error("A tool failed", exc_info=error)
        known = Broken()
    return CallToolResult(content=[TextContent(text=json.dumps(_told(known), ensure_ascii=False))], is_error=True)


def _told(error: RecollectError) -> dict[str, Any]:
    told: dict[str, Any] = {"code": error.code, "detail": error.detail, "retryable": error.retryable}
    if error.errors:
        told["errors"] = error.errors
    return told
