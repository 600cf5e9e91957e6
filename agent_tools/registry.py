"""One registry of tools: each is described once, and REST, the chat and MCP publish the same schema."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from pydantic import BaseModel, ConfigDict
from pydantic.alias_generators import to_camel

from intake.acting import acting_as
from intake.models import User
from intake.models.conversations import Caller
from intake.validation import validate

Input = TypeVar("Input", bound=BaseModel)
Output = TypeVar("Output", bound=BaseModel)

# A visitor has no memory yet: their tools see nothing of what they said either.
NOBODY = Caller(user_id=None)


class ToolInput(BaseModel):
    """The base of every tool's input: what is not asked for is refused."""

    model_config = ConfigDict(extra="forbid")


class ToolOutput(BaseModel):
    """The base of every tool's output: frozen, in camel case on the wire."""

    model_config = ConfigDict(frozen=True, alias_generator=to_camel, populate_by_name=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Tool(Generic[Input, Output]):
    """`run(input, user)` does the work, for nobody when `user` is None; `summarise` tells it in a line of Markdown."""

    name: str
    description: str
    input_model: type[Input]
    output_model: type[Output]
    is_read_only: bool
    run: Callable[[Input, User | None], Output]
    summarise: Callable[[Output, User | None], str]

    def call(self, data: Any, *, user: User | None) -> Output:
        """Validate, and run as the caller. Raises `InvalidInput` and the `RecollectError`s of what lies beneath."""
        wanted = validate(self.input_model, data)
        with acting_as(user or NOBODY):
            return self.run(wanted, user)

    @property
    def input_schema(self) -> dict[str, Any]:
        return self.input_model.model_json_schema()

    @property
    def output_schema(self) -> dict[str, Any]:
        return self.output_model.model_json_schema(mode="serialization")


def as_data(output: BaseModel) -> dict[str, Any]:
    """The output as JSON types, in the contract's names; what is absent is left out."""
    return output.model_dump(mode="json", by_alias=True, exclude_none=True)


class Registry:
    def __init__(self) -> None:
        self._tools: dict[str, Tool[Any, Any]] = {}

    def register(self, tool: Tool[Any, Any]) -> None:
        """Refuses, at start-up, a tool that no caller could use."""
        if tool.name in self._tools:
            raise ValueError(f"Two tools are called {tool.name!r}.")
        if not tool.description.strip():
            raise ValueError(f"The tool {tool.name!r} has no description for a model to read.")
        self._tools[tool.name] = tool

    def get(self, name: str) -> Tool[Any, Any] | None:
        return self._tools.get(name)

    def __iter__(self) -> Iterator[Tool[Any, Any]]:
        return iter(self._tools.values())
