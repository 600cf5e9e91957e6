"""The tool `search_memory`: a user's own memory records by meaning, filtered by type, project and tags."""

import logging
from typing import Annotated
from uuid import UUID

from django.db import InterfaceError, OperationalError
from pydantic import AfterValidator, AwareDatetime, BaseModel, ConfigDict, Field, StringConstraints

from agent_tools.registry import Tool, ToolInput, ToolOutput
from agent_tools.tools.wording import NO_CALLER, NOBODY
from agent_tools.untrusted import as_one_line
from core.errors import RecollectError, SearchFailed
from core.pg_text import shortened
from core.problems import database_away
from core.validation import refuse_nul
from intake.models import User
from memory.embedders import EmbedderError
from memory.models.documents import MAX_LABEL_LENGTH, MAX_PROJECT_LENGTH, MAX_TAGS
from memory.records import Record
from memory.search.chat_history import EmbeddingModelAway
from memory.search.records import (
    MemorySearchError,
    MemorySearchQuery,
    MemorySearchResult,
    count_pending,
)
from memory.search.records import (
    search_memory as search,
)

logger = logging.getLogger(__name__)

NO_MATCHES = "no memory records found"
NO_MATCHES_IN_WORDS = "No matching memories found."
# The part of a record in the list; the results have the complete record.
EXCERPT_LENGTH = 500


Label = Annotated[str, StringConstraints(min_length=1, max_length=MAX_LABEL_LENGTH), AfterValidator(refuse_nul)]
Labels = Annotated[list[Label], Field(max_length=MAX_TAGS)]


class SearchMemoryInput(ToolInput):
    query: Annotated[
        str,
        StringConstraints(strip_whitespace=True, min_length=1, max_length=2000),
        Field(description="What to look for, in natural language."),
    ]
    top_k: Annotated[
        int, Field(alias="topK", ge=1, description="How many results at most; more than 50 is taken for 50.")
    ] = 10
    min_similarity: Annotated[
        float,
        Field(
            alias="minSimilarity",
            ge=0.0,
            le=1.0,
            description="Leaves out what is less similar, from 0 (nothing) to 1 (all but the identical).",
        ),
    ] = 0.0
    types: Annotated[Labels | None, Field(description="Only records of any of these types.")] = None
    project_id: Annotated[
        Annotated[str, StringConstraints(max_length=MAX_PROJECT_LENGTH), AfterValidator(refuse_nul)] | None,
        Field(description="Only records of this project."),
    ] = None
    tags: Annotated[Labels | None, Field(description="Only records with any of these tags.")] = None


class MemoryRecordOutput(BaseModel):
    """A record as it was noted; its names are the contract's, which are not in camel case."""

    model_config = ConfigDict(frozen=True)

    id: Annotated[UUID, Field(description="The record's id.")]
    type: Annotated[str, Field(description="What kind of record: a decision, a lesson, a note.")]
    project_id: Annotated[str, Field(description="The project it belongs to; empty for none.")]
    tags: Annotated[tuple[str, ...], Field(description="The labels it was given.")]
    content: Annotated[str, Field(description="What was noted, whole.")]
    created_at: Annotated[AwareDatetime, Field(description="When it was noted.")]


class MemoryResult(ToolOutput):
    record: Annotated[MemoryRecordOutput, Field(description="The record as it was noted.")]
    similarity: Annotated[
        float, Field(description="1 minus the cosine distance to the query: 0 is unrelated, 1 identical.")
    ]


class SearchMemoryOutput(ToolOutput):
    results: Annotated[list[MemoryResult], Field(description="The records found, most similar first.")]
    text: Annotated[str, Field(description="The results as a Markdown list, long records cut short.")]
    note: Annotated[str | None, Field(description="Why there is nothing, if there is nothing.")] = None
    pending: Annotated[
        int | None, Field(description="How many of the caller's records wait for a vector and cannot be found yet.")
    ] = None


def run(wanted: SearchMemoryInput, user: User | None) -> SearchMemoryOutput:
    if user is None:
        return SearchMemoryOutput(results=[], text=NO_MATCHES_IN_WORDS, note=NO_CALLER)
    query = MemorySearchQuery(
        text=wanted.query,
        top_k=wanted.top_k,
        min_similarity=wanted.min_similarity,
        types=wanted.types or (),
        project_id=wanted.project_id,
        tags=wanted.tags or (),
    )
    try:
        # Counted first: a record that is embedded meanwhile may be counted and found, but never missed by both.
        pending = count_pending(user=user)
        found = search(query, user=user)
    except MemorySearchError as error:
        raise _as_told(error) from error
    return SearchMemoryOutput(
        results=[_output(result) for result in found],
        text=_as_markdown(found, user),
        note=None if found else NO_MATCHES,
        pending=pending or None,
    )


def summarise(output: SearchMemoryOutput, user: User | None) -> str:
    if user is None:
        return NOBODY
    count = len(output.results)
    return f"Found {count} {'memory' if count == 1 else 'memories'}" if count else "Nothing found"


def _as_told(error: MemorySearchError) -> RecollectError:
    """The cause for the caller: whether a retry may help."""
    match error.cause:
        case EmbedderError():
            return EmbeddingModelAway()
        case OperationalError() | InterfaceError():
            return database_away(error.cause)
        case cause:
            logger.error("search_memory failed: %s", type(cause).__name__)
            return SearchFailed()


def record_output(record: Record) -> MemoryRecordOutput:
    return MemoryRecordOutput.model_validate(record, from_attributes=True)


def _output(result: MemorySearchResult) -> MemoryResult:
    return MemoryResult(record=record_output(result.record), similarity=result.similarity)


def _as_markdown(found: list[MemorySearchResult], user: User) -> str:
    if not found:
        return NO_MATCHES_IN_WORDS
    return "\n".join(_item(number, result, user) for number, result in enumerate(found, start=1))


def _item(number: int, result: MemorySearchResult, user: User) -> str:
    record = result.record
    about = [f"similarity {result.similarity:.2f}", user.local_time(record.created_at).date().isoformat()]
    about += [f"project {_label(record.project_id)}"] if record.project_id else []
    about += [f"tags: {', '.join(map(_label, record.tags))}"] if record.tags else []
    content = " ".join(record.content.split())
    return f"{number}. **{_label(record.type)}** ({'; '.join(about)}): {shortened(content, EXCERPT_LENGTH)}"


def _label(label: str) -> str:
    return as_one_line(label, without="*();")


search_memory = Tool(
    name="search_memory",
    description=(
        "Search the person's long-term memory: the decisions, lessons, facts and notes that were saved on purpose, by "
        "meaning. Use it before deciding something that may have been decided already, and for what the person asked "
        "to be remembered. Narrow it by `types`, `project_id` and `tags`; a record must fit all that are given. "
        "`similarity` is 1 for identical and 0 for unrelated: over 0.5 is usually about the same thing, under 0.2 "
        "usually is not. Only the caller's own records are searched; for what was said in chats there is "
        "`search_chat_history`."
    ),
    input_model=SearchMemoryInput,
    output_model=SearchMemoryOutput,
    is_read_only=True,
    acts_itself=True,
    run=run,
    summarise=summarise,
)
