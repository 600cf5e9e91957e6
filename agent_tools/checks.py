"""Start-up checks of the registry, which find tools that a model or a vendor could not use."""

import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from django.apps import AppConfig
from django.core.checks import CheckMessage, Error

from agent_tools.registry import COMMON_KEYWORDS, Tool

# OpenAI, Anthropic and MCP all accept these names.
USABLE_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")


def check_tools(app_configs: Sequence[AppConfig] | None = None, **_: Any) -> list[CheckMessage]:
    """Registered with Django: checks the real registry."""
    from agent_tools.tools import mcp_registry

    # This registry has all the others' tools, and two more.
    return list(problems_of(mcp_registry))


def problems_of(tools: Iterable[Tool[Any, Any]]) -> Iterator[Error]:
    tools = list(tools)
    yield from _duplicate_names(tools)
    for tool in tools:
        yield from _missing_descriptions(tool)
        yield from _unusable_schemas(tool)
        yield from _unusable_name(tool)


def _duplicate_names(tools: list[Tool[Any, Any]]) -> Iterator[Error]:
    for name, count in Counter(tool.name for tool in tools).items():
        if count > 1:
            yield Error(
                f"{count} tools are called {name!r}.",
                hint="Give each a name of its own in agent_tools/tools/: callers know a tool by nothing else.",
                id="agent_tools.E001",
            )


def _missing_descriptions(tool: Tool[Any, Any]) -> Iterator[Error]:
    if not tool.description.strip():
        yield Error(
            f"The tool {tool.name!r} has no description.",
            hint="Say when a model should use it and what the numbers in its answer mean.",
            id="agent_tools.E002",
        )
    for kind, schema in (("input", tool.input_schema), ("output", tool.output_schema)):
        for path, field in _fields(schema):
            if not str(field.get("description", "")).strip():
                yield Error(
                    f"The {kind} field {path!r} of the tool {tool.name!r} has no description.",
                    hint="Annotate it with pydantic's Field(description=…): it is all a model knows of it.",
                    id="agent_tools.E002",
                )


def _unusable_schemas(tool: Tool[Any, Any]) -> Iterator[Error]:
    faults = {
        "input": _fault(tool.input_model.model_json_schema(), must_be_closed=True) or _uncommon(tool.input_schema),
        "output": _fault(tool.output_model.model_json_schema(mode="serialization"), must_be_closed=False),
    }
    for kind, fault in faults.items():
        if fault:
            yield Error(
                f"The {kind} schema of the tool {tool.name!r} {fault}.",
                hint="Derive the model from Input or Output, and use types that JSON has.",
                id="agent_tools.E003",
            )


def _unusable_name(tool: Tool[Any, Any]) -> Iterator[Error]:
    if not USABLE_NAME.fullmatch(tool.name):
        yield Error(
            f"{tool.name!r} is no name that every vendor takes for a tool.",
            hint="Use 1 to 64 letters, digits, underscores and hyphens.",
            id="agent_tools.E004",
        )


def _fault(schema: dict[str, Any], *, must_be_closed: bool) -> str | None:
    # Most processes run no checks, and it takes 3 MB.
    from jsonschema import Draft202012Validator, SchemaError

    try:
        # Numbers and keys that JSON does not have would change when they are read.
        if json.loads(json.dumps(schema, allow_nan=False)) != schema:
            return "is not the same after a round trip through JSON"
        Draft202012Validator.check_schema(schema)
    except (TypeError, ValueError) as error:
        return f"cannot be written as JSON: {error}"
    except SchemaError as error:
        return f"is no JSON Schema: {error.message}"
    if schema.get("type") != "object":
        return "does not describe an object"
    # The schema itself and those it refers to, if they have fields.
    parts = [schema, *(part for part in schema.get("$defs", {}).values() if part.get("type") == "object")]
    if must_be_closed and any(part.get("additionalProperties") is not False for part in parts):
        return "is not closed: it accepts fields without a description"
    return None


def _uncommon(schema: dict[str, Any]) -> str | None:
    """An input's schema may only say what OpenAI, Anthropic and Gemini all accept, at each depth."""
    if unknown := schema.keys() - COMMON_KEYWORDS:
        return f"has {min(unknown)!r}, which not every vendor accepts"
    parts = [*schema.get("properties", {}).values(), *([schema["items"]] if "items" in schema else [])]
    return next(filter(None, map(_uncommon, parts)), None)


def _fields(schema: dict[str, Any], within: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    for name, field in schema.get("properties", {}).items():
        yield f"{within}{name}", field
        yield from _fields(field.get("items", field), f"{within}{name}.")
