"""The tool `search_history`: a user's messages and notes, from every source, in one ranking."""

from collections.abc import Iterator, Sequence
from typing import Annotated, Literal
from uuid import UUID

from django.conf import settings
from django.utils import timezone
from pydantic import Field

from agent_tools.registry import Tool, ToolOutput
from agent_tools.tools.chat_history import (
    NOTHING_RELEVANT,
    ONLY_NEAREST,
    RELEVANCE,
    RERANKED,
    InterpretedTime,
    interpreted,
)
from agent_tools.tools.history_input import ScopeName, SearchHistoryInput
from agent_tools.tools.wording import NO_CALLER, NOBODY, counted, first_of, link
from agent_tools.untrusted import as_one_line, without_our_lines
from intake.links import conversation_path
from intake.models import User
from memory.search.chat_history import PIECES_LEFT_OUT, WORDS_ALONE
from memory.search.history import History, HistoryMatch, HistoryRequest
from memory.search.history import search_history as search
from memory.search.sources import HistoryScope

NOTHING_FOUND = "No matching results found. Try broader keywords or a different scope."
NEAREST = "Nothing was found about this, and these results are only the nearest"


class HistoryResult(ToolOutput):
    source: Annotated[Literal["memory", "daily_log", "message", "session"], Field(description="What it is.")]
    date: Annotated[str, Field(description="The day it is of, YYYY-MM-DD, in the person's time zone.")]
    score: Annotated[float, Field(description="Higher is better; 1 is the most there is.")]
    excerpt: Annotated[str, Field(description="At most 500 characters around the match.")]
    highlights: Annotated[
        list[tuple[int, int]],
        Field(description="Where in the excerpt the matches are: start and end, in Unicode characters."),
    ]
    conversation_id: Annotated[UUID | None, Field(description="The conversation it is in, or is.")] = None
    turn_number: Annotated[int | None, Field(description="Which turn of it, from 1.")] = None
    session: Annotated[str | None, Field(description="The title of the conversation.")] = None
    document_id: Annotated[UUID | None, Field(description="The document it is in.")] = None
    record_id: Annotated[UUID | None, Field(description="The saved memory it is.")] = None
    relevance: Annotated[float | None, Field(description=f"{RELEVANCE} Its source and its age do not count.")] = None


class HistoryDay(ToolOutput):
    date: Annotated[str, Field(description="YYYY-MM-DD, in the person's time zone.")]
    results: Annotated[list[int], Field(description="Which of `results` are of this day, from 0.")]


class SearchHistoryOutput(ToolOutput):
    text: Annotated[str, Field(description="The results to read.")]
    results: Annotated[list[HistoryResult], Field(description="The same, as data: best first.")]
    by_date: Annotated[list[HistoryDay], Field(description="The results by day: newest day first.")]
    query: Annotated[str, Field(description="The query as it was searched.")]
    scope: Annotated[ScopeName, Field(description="Which sources were searched.")]
    note: Annotated[str | None, Field(description="What could not be searched, and why.")] = None
    pending: Annotated[
        int | None, Field(description="How many of the caller's texts have no vector yet: they are found by words.")
    ] = None
    interpreted: Annotated[
        InterpretedTime | None,
        Field(description="The days that were searched because the query named them, such as `last Tuesday`."),
    ] = None
    reranked: Annotated[bool | None, Field(description=RERANKED)] = None
    nothing_relevant: Annotated[bool | None, Field(description=NOTHING_RELEVANT)] = None


def run(wanted: SearchHistoryInput, user: User | None) -> SearchHistoryOutput:
    if user is None:
        return _output(wanted, History(results=[], unfinished=[], pending=0), note=NO_CALLER)
    request = HistoryRequest(
        query=wanted.query,
        scope=HistoryScope(wanted.scope),
        date_from=wanted.date_from,
        date_to=wanted.date_to,
        max_results=wanted.max_results,
        rerank=wanted.rerank,
    )
    history = search(request, user=user, now=timezone.now())
    return _output(wanted, history, note="; ".join(_left_out(history)) or None)


def summarise(output: SearchHistoryOutput, user: User | None) -> str:
    """The number of results, and the first places: conversations as links."""
    if user is None:
        return NOBODY
    if not output.results:
        return "Nothing found"
    best: dict[object, str] = {}
    for result in output.results:
        best.setdefault(result.conversation_id or _place(result), _place(result))
    places = list(best.values())
    found = ONLY_NEAREST if output.nothing_relevant else f"Found {counted(len(output.results), 'result')}"
    return f"{found}: {first_of(places)}"


def _place(result: HistoryResult) -> str:
    if result.conversation_id is not None:
        return link(result.session or "", conversation_path(result.conversation_id, turn_number=result.turn_number))
    if result.record_id is not None:
        return "a saved memory"
    return f"the log of {result.date}" if result.source == "daily_log" else "MEMORY.md"


def _output(wanted: SearchHistoryInput, history: History, *, note: str | None) -> SearchHistoryOutput:
    results = [_result(found) for found in history.results]
    is_nearest_only = bool(results) and history.has_nothing_relevant
    told = "; ".join(filter(None, [note, NEAREST if is_nearest_only else None]))
    return SearchHistoryOutput(
        text=history_text(wanted.query, wanted.scope, results, note=told or None),
        results=results,
        by_date=[HistoryDay(date=day.isoformat(), results=indexes) for day, indexes in history.by_day()],
        query=wanted.query,
        scope=wanted.scope,
        note=note,
        pending=history.pending or None,
        interpreted=interpreted(history.window),
        reranked=history.is_reranked if wanted.rerank else None,
        nothing_relevant=is_nearest_only or None,
    )


def _result(found: HistoryMatch) -> HistoryResult:
    reference = found.reference
    return HistoryResult(
        source=reference.kind.value,
        date=reference.day.isoformat(),
        score=round(found.score, 4),
        relevance=round(found.relevance, 4),
        excerpt=found.excerpt.text,
        highlights=found.excerpt.highlights,
        conversation_id=reference.conversation_id,
        turn_number=reference.turn_number,
        session=reference.session,
        document_id=reference.document_id,
        record_id=reference.record_id,
    )


def history_text(query: str, scope: str, results: Sequence[HistoryResult], *, note: str | None = None) -> str:
    """The specification's text (FEAT-032, "Output Format"): a header, a block for each result, and the note last."""
    header = f'[Search Results for "{" ".join(query.split())}" (scope: {scope}, {len(results)} results)]'
    blocks = [_block(number, result) for number, result in enumerate(results, start=1)] or [NOTHING_FOUND]
    return "\n\n".join([header, *blocks, *([f"Note: {note}."] if note else [])])


def _block(number: int, result: HistoryResult) -> str:
    """Stored text cannot imitate these lines: a header is one line, and an excerpt has no line like ours."""
    # The excerpt of a session contains its title.
    session = f', session: "{as_one_line(result.session or "")}"' if result.source == "message" else ""
    about = f"score: {result.score:.2f}, source: {result.source}, date: {result.date}{session}"
    return f"--- Result {number} ({about}) ---\n{without_our_lines(result.excerpt)}"


def _left_out(history: History) -> Iterator[str]:
    """Sentences about what the answer lacks, and why."""
    if history.unfinished:
        seconds = f"{settings.HISTORY_TIMEOUT_SECONDS:g} seconds"
        yield f"The search took longer than {seconds}: not searched to the end: {', '.join(history.unfinished)}"
    if history.is_by_words_alone:
        yield WORDS_ALONE
    if history.left_out:
        yield PIECES_LEFT_OUT.format(", ".join(history.left_out))


search_history = Tool(
    name="search_history",
    description=(
        "Search past conversations, memory and daily logs for information the person mentioned before: a name, a "
        "place, a decision, a piece of code, what happened on some day. Unlike `search_chat_history` it also searches "
        "MEMORY.md, the daily logs, saved memories and the titles of conversations; finds exact pieces of text as well "
        "as meaning; takes a range of dates; and prefers what is recent. Returns excerpts with their source and date, "
        "best first. If nothing is found, try broader keywords or another scope. Only the caller's own history is "
        "searched."
    ),
    input_model=SearchHistoryInput,
    output_model=SearchHistoryOutput,
    is_read_only=True,
    acts_itself=True,
    run=run,
    summarise=summarise,
)
