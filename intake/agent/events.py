"""The events of an answer in this project's types, independent of any vendor."""

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class ToolCalled:
    """`id` is this project's own: vendors' ids are not always unique within an answer."""

    id: str
    name: str
    input: dict[str, Any]


@dataclass(frozen=True, slots=True)
class ToolReturned:
    """`summary` is a line of Markdown for people, with links to the results.

    `stored` and `place` say what the call stored and where, so that it can be undone; None if it stored nothing.
    """

    id: str
    summary: str
    is_error: bool = False
    stored: str | None = None
    place: dict[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class TextWritten:
    text: str


@dataclass(frozen=True, slots=True)
class ReasoningWritten:
    """The reasoning of a thinking model. `seconds` is the thinking time of this answer so far; None if unknown."""

    text: str
    seconds: float | None = None


@dataclass(frozen=True, slots=True)
class AnswerEnded:
    """The model has finished; `finish_reason` is None if its vendor gives none.

    The tokens are those of all requests for the answer, None if they were not counted.
    """

    model: str | None
    input_tokens: int | None
    output_tokens: int | None
    finish_reason: str | None


AgentEvent = ToolCalled | ToolReturned | TextWritten | ReasoningWritten
# Events that arrive in pieces; neighbours of one kind may be joined and split anywhere.
WRITTEN = (TextWritten, ReasoningWritten)
