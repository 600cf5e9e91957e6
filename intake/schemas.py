"""What every endpoint of the API may answer besides what it is for, in the words of OpenAPI."""

from typing import Annotated, Any

from pydantic import BaseModel, Field

from intake.problems import CONTENT_TYPE, STATUSES


class Problem(BaseModel):
    """A failure (RFC 9457)."""

    type: str
    title: Annotated[str, Field(description="The status in words.")]
    status: int
    detail: Annotated[str, Field(description="A sentence for a person.")]
    code: Annotated[str, Field(description="What went wrong, for a program.", examples=sorted(STATUSES))]
    retryable: Annotated[bool, Field(description="Whether the same request may succeed later.")]
    errors: Annotated[dict[str, list[str]] | None, Field(description="What is wrong with each field.")] = None


def problems(*statuses: int) -> dict[tuple[int, str], Any]:
    """For `extend_schema(responses=…)`."""
    return {(status, CONTENT_TYPE): Problem for status in statuses}
