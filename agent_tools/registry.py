"""One registry of tools: each is described once, and REST, the chat and MCP publish the same schema."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Generic, TypeVar

from pydantic import BaseModel, ConfigDict
from pydantic.alias_generators import to_camel

from agent_tools.arguments import arguments, published
from agent_tools.scopes import TokenScope
from core.isolation.acting import acting_as, read_as
from core.isolation.caller import Caller
from core.metrics import TOOL_CALLS
from core.validation import validate
from intake.models import User

AnyInput = TypeVar("AnyInput", bound=BaseModel)
AnyOutput = TypeVar("AnyOutput", bound=BaseModel)

# A visitor has no memory yet, so the tools do not see the visitor's messages either.
NOBODY = Caller(user_id=None)


class ToolOutput(BaseModel):
    """The base of every tool's output: frozen, in camel case on the wire."""

    model_config = ConfigDict(frozen=True, alias_generator=to_camel, populate_by_name=True)


@dataclass(frozen=True, slots=True)
class StoredByCall:
    """A call that saved something: its `text`, for the user, and its `place`, JSON by which `Tool.undo` finds it."""

    text: str
    place: dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Tool(Generic[AnyInput, AnyOutput]):
    """`run(input, user)` does the work, without a user when `user` is None; `summarise` describes it in a line of
    Markdown.

    If an output has a field `text`, a model reads that; otherwise it reads the output as JSON. A tool that stores data
    also has `kept(input, output)`, which describes it, and `undo(input, place, user, now)`.
    """

    name: str
    description: str
    input_model: type[AnyInput]
    output_model: type[AnyOutput]
    is_read_only: bool
    run: Callable[[AnyInput, User | None], AnyOutput]
    summarise: Callable[[AnyOutput, User | None], str]
    kept: Callable[[AnyInput, AnyOutput], StoredByCall] | None = None
    # The part of the output for a caller who may write and not read.
    for_writers: Callable[[AnyInput, AnyOutput], AnyOutput] | None = None
    # If it is not `search` for a tool that reads and `write` for one that writes.
    named_scope: TokenScope | None = None
    undo: Callable[[AnyInput, dict[str, Any], User, datetime], None] | None = None
    # Whether `run` acts as the user itself, in short transactions: a search asks the models' endpoints between them.
    acts_itself: bool = False

    def call(self, data: Any, *, user: User | None, may_read: bool = True) -> AnyOutput:
        """Validate the input, and run as the caller. Raises `InvalidInput` and the `RecollectError`s of the layers
        below.

        Without `may_read` the output contains nothing that was stored before.
        """
        wanted = self.read(data)
        TOOL_CALLS.labels(self.name, str(getattr(wanted, "mode", ""))).inc()
        if self.acts_itself:
            return self.run(wanted, user)
        if self.is_read_only:
            return read_as(user or NOBODY, lambda: self.run(wanted, user))
        with acting_as(user or NOBODY):
            output = self.run(wanted, user)
        return output if may_read or self.for_writers is None else self.for_writers(wanted, output)

    def read(self, data: Any) -> AnyInput:
        """The arguments as this tool's input. Raises `InvalidInput`."""
        return validate(self.input_model, arguments(self.input_model, data))

    @property
    def scope(self) -> TokenScope:
        """The scope that a token needs for a call."""
        return self.named_scope or (TokenScope.SEARCH if self.is_read_only else TokenScope.WRITE)

    @property
    def input_schema(self) -> dict[str, Any]:
        return published(self.input_model, "validation")

    @property
    def output_schema(self) -> dict[str, Any]:
        return published(self.output_model, "serialization")


def as_data(output: BaseModel) -> dict[str, Any]:
    """The output as JSON types, in the contract's names; missing values are left out."""
    return output.model_dump(mode="json", by_alias=True, exclude_none=True)


def as_json(output: BaseModel) -> str:
    """`as_data`, as a JSON text."""
    return output.model_dump_json(by_alias=True, exclude_none=True)


class Registry:
    """The tools in the order of their registration. It accepts any tool; `agent_tools.checks` reports errors."""

    def __init__(self) -> None:
        self._tools: list[Tool[Any, Any]] = []

    def register(self, tool: Tool[Any, Any]) -> None:
        self._tools.append(tool)

    def get(self, name: str) -> Tool[Any, Any] | None:
        return next((tool for tool in self._tools if tool.name == name), None)

    def __iter__(self) -> Iterator[Tool[Any, Any]]:
        return iter(self._tools)
