"""The input of `search_history`, whose errors have the contract's wording."""

import json
from datetime import date
from typing import Annotated, Any, Literal, get_args

from pydantic import BeforeValidator, ConfigDict, Field, ValidationInfo, field_validator

from agent_tools.registry import ToolInput
from agent_tools.tools.chat_history import RERANK
from core.validation import parse_day, stated
from intake.services import without_nul
from memory.search.history import DEFAULT_RESULTS, MAX_RESULTS

ScopeName = Literal["all", "memory", "daily_log", "sessions"]
SCOPES = get_args(ScopeName)
# An error quotes the input, but not a very long one.
QUOTED = 100
MAX_QUERY_LENGTH = 10_000


def _a_query(value: Any) -> str:
    if value is not None and not isinstance(value, str):
        raise stated("Parameter 'query' must be a text")
    query = without_nul(value or "").strip()
    if not query:
        raise stated("Parameter 'query' is required and cannot be empty")
    if len(query) > MAX_QUERY_LENGTH:
        raise stated(f"Parameter 'query' must be at most {MAX_QUERY_LENGTH:,} characters long")
    return query


def _a_scope(value: Any) -> str:
    if value not in SCOPES:
        raise stated(f"Invalid scope '{_quoted(value)}'. Must be one of: {', '.join(SCOPES)}")
    return str(value)


def _a_date(value: Any) -> date | None:
    if value is None:
        return None
    try:
        if isinstance(value, str):
            return parse_day(value)
    except ValueError:
        pass
    raise stated(f"Date must be in YYYY-MM-DD format: {_quoted(value)}")


def _quoted(value: Any) -> str:
    """Unchanged: a string without its quotes, anything else as JSON."""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= QUOTED else text[:QUOTED] + "…"


def _requires_the_query(schema: dict[str, Any]) -> None:
    """It has a default only so that its absence gets the contract's message."""
    schema["required"] = ["query"]
    del schema["properties"]["query"]["default"]


OptionalDay = Annotated[date | None, BeforeValidator(_a_date)]


class SearchHistoryInput(ToolInput):
    model_config = ConfigDict(json_schema_extra=_requires_the_query, validate_default=True)

    query: Annotated[
        str,
        BeforeValidator(_a_query),
        Field(
            description="Keywords, a phrase or a question; also a piece of code, a number or half a word. At most "
            f"{MAX_QUERY_LENGTH:,} characters.",
            json_schema_extra={"maxLength": MAX_QUERY_LENGTH},
        ),
    ] = ""
    scope: Annotated[
        ScopeName,
        BeforeValidator(_a_scope),
        Field(
            description="`all`; `memory`: MEMORY.md, daily logs and saved memories; `daily_log`: daily logs alone; "
            "`sessions`: the titles and the messages of conversations."
        ),
    ] = "all"
    date_from: Annotated[OptionalDay, Field(description="Nothing before this day, YYYY-MM-DD.")] = None
    date_to: Annotated[OptionalDay, Field(description="Nothing after this day, YYYY-MM-DD.")] = None
    max_results: Annotated[
        int,
        Field(description=f"How many results at most, up to {MAX_RESULTS}; 0 or less means {DEFAULT_RESULTS}."),
    ] = DEFAULT_RESULTS
    rerank: Annotated[bool, Field(description=RERANK)] = False

    @field_validator("date_to")
    @classmethod
    def _not_before_date_from(cls, value: date | None, info: ValidationInfo) -> date | None:
        since = info.data.get("date_from")
        if value is not None and since is not None and since > value:
            raise stated("date_from must not be after date_to")
        return value

    @field_validator("max_results")
    @classmethod
    def _within_bounds(cls, value: int) -> int:
        return min(value, MAX_RESULTS) if value > 0 else DEFAULT_RESULTS
