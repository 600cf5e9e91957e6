"""The chat edge: the registry's tools as the agent loop's toolset, bound to the caller whom the loop works for."""

from contextlib import nullcontext
from typing import Any

from asgiref.sync import sync_to_async
from django.db import connections
from pydantic_ai import FunctionToolset, ModelRetry, ToolReturn
from pydantic_ai import Tool as ModelTool
from pydantic_ai.exceptions import ToolFailed

from agent_tools.registry import Tool, as_data
from agent_tools.tools import registry
from intake.acting import acting_as
from intake.agent.deps import ChatDeps
from intake.errors import InvalidInput, RecollectError
from intake.models import User
from intake.models.conversations import Caller


def toolset(caller: Caller) -> FunctionToolset[ChatDeps]:
    """What `settings.CHAT_TOOLSET` names."""
    return FunctionToolset([_for_model(tool, caller) for tool in registry])


def _for_model(tool: Tool[Any, Any], caller: Caller) -> ModelTool[ChatDeps]:
    async def call(**data: Any) -> ToolReturn[dict[str, Any]]:
        return await sync_to_async(_call, thread_sensitive=False)(tool, data, caller)

    return ModelTool.from_schema(call, name=tool.name, description=tool.description, json_schema=tool.input_schema)


def _call(tool: Tool[Any, Any], data: dict[str, Any], caller: Caller) -> ToolReturn[dict[str, Any]]:
    """A wrong input is for the model to mend; any other failure is for it to live with."""
    try:
        user = User.objects.get(pk=caller.user_id) if caller.user_id is not None else None
        with acting_as(caller) if user else nullcontext():
            output = tool.call(data, user=user)
            return ToolReturn(as_data(output), metadata={"summary": tool.summarise(output, user)})
    except InvalidInput as error:
        raise ModelRetry(f"{error.code}: {error.detail} {error.errors or ''}".strip()) from error
    except RecollectError as error:
        raise ToolFailed(f"{error.code}: {error.detail}") from error
    finally:
        # The stream may go on for minutes: it must not keep a connection that others wait for.
        connections.close_all()
