"""What happens while an answer is made, in the words of this project rather than of any vendor."""

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class ToolCalled:
    """`id` is this project's own: vendors' are not always unique within an answer."""

    id: str
    name: str
    input: dict[str, Any]


@dataclass(frozen=True, slots=True)
class ToolReturned:
    """`summary`: a line of Markdown for people, with links to what was found.

    `stored` and `place`: what the call stored, and where, for it to be taken back; None if it stored nothing.
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
    """What a thinking model thinks. `seconds`: how long it has thought for this answer until now; None if not known."""

    text: str
    seconds: float | None = None


@dataclass(frozen=True, slots=True)
class AnswerEnded:
    """The model has nothing more to say; `finish_reason` is None where its vendor gives none.

    The tokens are those of all requests for the answer, None where they were not counted.
    """

    model: str | None
    input_tokens: int | None
    output_tokens: int | None
    finish_reason: str | None


AgentEvent = ToolCalled | ToolReturned | TextWritten | ReasoningWritten
# What is written piece by piece; neighbours of one kind may be joined, and cut anywhere.
WRITTEN = (TextWritten, ReasoningWritten)
