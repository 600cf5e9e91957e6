"""What happens while an answer is made, in the words of this project rather than of any vendor."""

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class ToolCalled:
    id: str
    name: str
    input: dict[str, Any]


@dataclass(frozen=True, slots=True)
class ToolReturned:
    """`summary`: a line of Markdown for people, with links to what was found."""

    id: str
    summary: str
    is_error: bool = False


@dataclass(frozen=True, slots=True)
class TextWritten:
    text: str


AgentEvent = ToolCalled | ToolReturned | TextWritten
