"""The tool `search_history`: a user's messages and notes, from every source, in one ranking."""

import json
from collections.abc import Iterator, Mapping, Sequence
from datetime import date
from functools import partial
from types import MappingProxyType
from typing import Annotated, Any, Literal, get_args
from uuid import UUID

from django.conf import settings
from django.utils import timezone
from pydantic import BeforeValidator, ConfigDict, Field, ValidationInfo, field_validator

from agent_tools.registry import Readable, Tool
from agent_tools.tools.chat_history import (
    LATER,
    LONGEST_NAME,
    NEAREST,
    ONLY_NEAREST,
    OPERATORS,
    PROJECT_OF,
    RELEVANCE,
    RERANK,
    Interpreted,
    NothingRelevant,
    OptionalProject,
    OptionalSession,
    Reranked,
    StatedOtherwise,
    interpreted,
)
from agent_tools.tools.wording import (
    INCLUDE_REPLACED,
    NO_CALLER,
    NOBODY,
    NOTHING,
    MaxTokens,
    as_one_line,
    first_of,
    id_lines,
    later_in_words,
    link,
    past_in_words,
    result_id,
    without_our_lines,
)
from core.text import Sentence, shortened
from core.text import gettext_noop as _
from core.validation import Input, Output, parse_day, stated
from intake.chats.services import without_nul
from intake.chats.tree import conversation_path
from intake.models import User
from memory.search.chat_history import WORDS_ALONE
from memory.search.history import DEFAULT_RESULTS, MAX_RESULTS, History, HistoryMatch, HistoryRequest
from memory.search.history import search_history as search
from memory.search.literal import PIECES_LEFT_OUT
from memory.search.sources import HistoryScope
from memory.search.texts import SEARCHED_LENGTH
from memory.search.writing import within
from memory.short_ids import short_ids

ScopeName = Literal["all", "memory", "daily_log", "sessions"]
SCOPES = get_args(ScopeName)
# An error quotes the input, but not a very long one.
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
    return text if len(text) <= 100 else text[:100] + "…"


def _requires_the_query(schema: dict[str, Any]) -> None:
    """It has a default only so that its absence gets the contract's message."""
    schema["required"] = ["query"]
    del schema["properties"]["query"]["default"]


OptionalDay = Annotated[date | None, BeforeValidator(_a_date)]


class SearchHistoryInput(Input):
    model_config = ConfigDict(json_schema_extra=_requires_the_query, validate_default=True)
    as_sent = frozenset({"scope", "date_from", "date_to"})

    query: Annotated[
        str,
        BeforeValidator(_a_query),
        Field(
            description=f"Keywords, a phrase, a piece of code or a question. {OPERATORS}",
            json_schema_extra={"maxLength": MAX_QUERY_LENGTH},
        ),
    ] = ""
    scope: Annotated[
        ScopeName,
        BeforeValidator(_a_scope),
        Field(description="memory: MEMORY.md, daily logs, saved memories. sessions: conversations. all: files too."),
    ] = "all"
    date_from: Annotated[OptionalDay, Field(description="First day, YYYY-MM-DD; alone until today.")] = None
    date_to: Annotated[OptionalDay, Field(description="Last day, YYYY-MM-DD.")] = None
    max_results: Annotated[
        int,
        Field(description=f"At most {MAX_RESULTS}."),
    ] = DEFAULT_RESULTS
    rerank: Annotated[bool, Field(description=RERANK)] = False
    project: OptionalProject = None
    exclude_session: OptionalSession = None
    include_replaced: Annotated[bool, Field(description=INCLUDE_REPLACED)] = False
    max_tokens: MaxTokens = None

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


NOTHING_FOUND = "No matching results found. Try broader keywords or a different scope."


class HistoryResult(Output):
    source: Annotated[
        Literal["memory", "daily_log", "message", "session", "attachment"],
        Field(description="What it is; an attachment is a part of a file."),
    ]
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
    file: Annotated[str | None, Field(description="The name of the file it is in.")] = None
    kind: Annotated[
        Literal["page"] | None, Field(description="`page`: not the person's file, but a page of the web that was read.")
    ] = None
    address: Annotated[str | None, Field(description="The address of a page.")] = None
    place: Annotated[str | None, Field(description="Where in the file: a page, a sheet, a heading.")] = None
    attachment_id: Annotated[UUID | None, Field(description="The file, for `read_attachment`.")] = None
    part: Annotated[int | None, Field(description="Which part of the file: `from` of `read_attachment`.")] = None
    relevance: Annotated[float | None, Field(description=f"{RELEVANCE} Its source and its age do not count.")] = None
    project: Annotated[str | None, Field(description=PROJECT_OF)] = None
    past: Annotated[
        str | None, Field(description="Of a saved memory that no longer holds: since when, and what replaced it.")
    ] = None
    stated_otherwise: Annotated[StatedOtherwise | None, Field(alias="saidOtherwise", description=LATER)] = None


class HistoryDay(Output):
    date: Annotated[str, Field(description="YYYY-MM-DD, in the person's time zone.")]
    results: Annotated[list[int], Field(description="Which of `results` are of this day, from 0.")]


class SearchHistoryOutput(Readable):
    text: Annotated[str, Field(description="The results to read.")]
    results: Annotated[list[HistoryResult], Field(description="The same, as data: best first.")]
    by_date: Annotated[list[HistoryDay], Field(description="The results by day: newest day first.")]
    query: Annotated[str, Field(description="The query as it was searched.")]
    scope: Annotated[ScopeName, Field(description="Which sources were searched.")]
    note: Annotated[str | None, Field(description="What could not be searched, and why.")] = None
    pending: Annotated[
        int | None, Field(description="How many of the caller's texts have no vector yet: they are found by words.")
    ] = None
    interpreted: Interpreted = None
    reranked: Reranked = None
    nothing_relevant: NothingRelevant = None


def run(requested: SearchHistoryInput, user: User | None) -> SearchHistoryOutput:
    if user is None:
        nothing = History(results=[], unfinished=[], pending=0)
        return _output(requested, nothing, None, today=date.min, note=NO_CALLER)
    now = timezone.now()
    today = user.local_time(now).date()
    request = HistoryRequest(
        query=requested.query,
        scope=HistoryScope(requested.scope),
        date_from=requested.date_from,
        date_to=today if requested.date_from and requested.date_to is None else requested.date_to,
        max_results=requested.max_results,
        rerank=requested.rerank,
        project=requested.project or "",
        exclude_session=requested.exclude_session or "",
        include_replaced=requested.include_replaced,
    )
    history = search(request, user=user, now=now)
    return _output(requested, history, user, today=today, note="; ".join(_left_out(history)) or None)


def summarise(output: SearchHistoryOutput, user: User | None) -> str:
    """The number of results, and the first places: conversations as links."""
    if user is None:
        return NOBODY
    if not output.results:
        return NOTHING
    best: dict[object, str] = {}
    for result in output.results:
        best.setdefault(result.attachment_id or result.conversation_id or _place(result), _place(result))
    one, many = _("Found 1 result: %(places)s"), _("Found %(count)s results: %(places)s")
    found = ONLY_NEAREST if output.nothing_relevant else one if len(output.results) == 1 else many
    return Sentence(found, count=len(output.results), places=first_of(list(best.values())))


def _place(result: HistoryResult) -> str:
    if result.conversation_id is not None:
        return link(
            result.file or result.session or "",
            conversation_path(result.conversation_id, turn_number=result.turn_number),
        )
    if result.record_id is not None:
        return Sentence(_("a saved memory"))
    if result.source == "daily_log":
        return Sentence(_("the log of %(date)s"), date=date.fromisoformat(result.date))
    return "MEMORY.md"


def _output(
    requested: SearchHistoryInput, history: History, user: User | None, *, today: date, note: str | None
) -> SearchHistoryOutput:
    results = [_result(found, today) for found in history.results]
    is_nearest_only = bool(results) and history.has_nothing_relevant
    notes = "; ".join(filter(None, [note, NEAREST if is_nearest_only else None]))
    write = partial(history_text, requested.query, requested.scope, results, note=notes, budget=requested.max_tokens)
    output = SearchHistoryOutput(
        text=write(),
        results=results,
        by_date=[HistoryDay(date=day.isoformat(), results=indexes) for day, indexes in history.by_day()],
        query=requested.query,
        scope=requested.scope,
        note=note,
        pending=history.pending or None,
        interpreted=interpreted(history.window),
        reranked=history.is_reranked if requested.rerank else None,
        nothing_relevant=is_nearest_only or None,
    )
    if user is None:
        return output.reading(output.text)
    return output.reading(lambda: write(short=short_ids(user, map(result_id, results))))


def _result(found: HistoryMatch, today: date) -> HistoryResult:
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
        file=reference.file,
        kind="page" if reference.address else None,
        address=reference.address or None,
        place=reference.place,
        attachment_id=reference.attachment_id,
        part=reference.part,
        project=reference.project or None,
        past="; ".join(past_in_words(reference, today)) or None,
        stated_otherwise=None
        if (later := found.later) is None
        else StatedOtherwise(id=f"{later.conversation_id}/{later.turn_number}", date=later.day.isoformat()),
    )


def history_text(
    query: str,
    scope: str,
    results: Sequence[HistoryResult],
    *,
    note: str = "",
    budget: int | None = None,
    short: Mapping[str, str] = MappingProxyType({}),
) -> str:
    """The specification's text (FEAT-032, "Output Format"): a header, a block for each result, and the note last.

    `short`: ids by which the results are named, each after its excerpt; none over REST. `budget`: tokens at most.
    """
    header = f'[Search Results for "{" ".join(query.split())}" (scope: {scope}, {len(results)} results)]'
    last = [f"Note: {note}."] if note else []

    def name(result: HistoryResult) -> str:
        return short.get(id_ := result_id(result), id_)

    def write(result: HistoryResult, before: Sequence[HistoryResult]) -> str:
        ids = id_lines(name(result), result.project) if short else []
        return "\n".join([_block(results.index(result) + 1, result), *ids])

    blocks = within(budget, results, write=write, name=name, beside=[header, *last])
    return "\n\n".join([header, *(blocks or [NOTHING_FOUND]), *last])


def _block(number: int, result: HistoryResult) -> str:
    """Stored text cannot imitate these lines: a header is one line, and an excerpt has no line like ours."""
    # The excerpt of a session contains its title.
    labels: list[tuple[str, str | None]] = []
    if result.source == "message":
        labels = [("session", shortened(result.session or "", LONGEST_NAME))]
    elif result.source == "attachment":
        labels = [("page" if result.address else "file", result.file), ("address", result.address)]
        labels.append(("place", result.place))
    where = "".join(f', {name}: "{as_one_line(label)}"' for name, label in labels if label is not None)
    past = f", {result.past}" if result.past else ""
    turn = result.stated_otherwise
    later = f", {later_in_words(turn.id, turn.date)}" if turn else ""
    about = f"score: {result.score:.2f}, source: {result.source}, date: {result.date}{where}{past}{later}"
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
    if history.query is not None:
        yield from history.query.notes
        if len(history.query.to_embed) > SEARCHED_LENGTH:
            yield f"only the first {SEARCHED_LENGTH:,} characters of the query were searched"
    yield from history.lacking


search_history = Tool(
    name="search_history",
    description=(
        "Search past conversations, memory, daily logs and attached files for information the person mentioned "
        "before: a name, a decision, code, what happened on a day. Finds exact text as well as meaning, and prefers "
        "what is recent."
    ),
    input_model=SearchHistoryInput,
    output_model=SearchHistoryOutput,
    is_read_only=True,
    acts_itself=True,
    run=run,
    in_text=frozenset(
        {"text", "excerpt", "highlights", "session", "byDate", "query", "scope", "note", "project", "past"}
    ),
    summarise=summarise,
)
