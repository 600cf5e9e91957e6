"""The tool `search_chat_history`: the caller's own turns, by meaning or by words and meaning."""

from typing import Annotated, Literal
from uuid import UUID

from django.utils import timezone
from pydantic import AfterValidator, Field, StringConstraints

from agent_tools.registry import Tool
from agent_tools.tools.wording import (
    NO_CALLER,
    NOBODY,
    NOTHING,
    as_one_line,
    counted,
    first_of,
    id_line,
    later_in_words,
    link,
    project_line,
)
from core.text import Sentence
from core.text import gettext_noop as _
from core.validation import Input, Output, refuse_nul
from intake.chats.tree import conversation_path
from intake.models import Conversation, User
from memory.models.documents import MAX_PROJECT_LENGTH
from memory.search import SearchMode
from memory.search import search_chat_history as search
from memory.search.time_windows import TimeWindow

NO_HISTORY = "no chat history found"
NOT_YET = "nothing found yet, and {} still waiting to be indexed: try again shortly"

# The notes of both searches.
OPERATORS = (
    'Operators: "exact words", -word, from:me, from:assistant, in:"chat title", after:2026-03-01, before:DAY, has:code.'
)
RERANK = "A second model orders the best again, which takes a little longer."
RERANKED = "Whether the second look happened, if it was asked for."
RELEVANCE = "How likely it is what was wanted, 0 to 1."
ONLY_NEAREST = _("Nothing found about it; the nearest: %(places)s")
NEAREST = "Nothing was found about this, and these results are only the nearest"
NOTHING_RELEVANT = "True if nothing was found about this: the results are only the nearest of what there is."


PROJECT = "me/app, or a folder's name; -me/app: all but it."
ProjectName = Annotated[str, StringConstraints(max_length=MAX_PROJECT_LENGTH), AfterValidator(refuse_nul)]
OptionalProject = Annotated[ProjectName | None, Field(description=PROJECT)]
OptionalSession = Annotated[
    Annotated[str, StringConstraints(max_length=200), AfterValidator(refuse_nul)] | None,
    Field(alias="excludeSession", description="Your own conversation or session, to leave out."),
]
PROJECT_OF = "The project that it is labelled with, if with one."
LATER = "The newest of the results in which the person says otherwise later than here: trust that one."


class StatedOtherwise(Output):
    """A later turn in which the person states another value, or denies what they state here."""

    id: Annotated[str, Field(description="CONVERSATION/TURN, as `get_conversation` and `fetch` take it.")]
    date: Annotated[str, Field(description="Its day, YYYY-MM-DD, in the person's time zone.")]


class SearchChatHistoryInput(Input):
    query: Annotated[
        str,
        StringConstraints(strip_whitespace=True, min_length=1, max_length=500),
        Field(description="What to look for, in at most 500 characters."),
    ]
    limit: Annotated[int, Field(ge=1, le=20, description="Results at most.")] = 5
    mode: Annotated[
        Literal["semantic", "hybrid"],
        Field(
            description="semantic: by meaning. hybrid: by words too, for names, numbers, what was just said, and the "
            "operators of `search_history`."
        ),
    ] = "semantic"
    rerank: Annotated[bool, Field(description=RERANK)] = False
    project: OptionalProject = None
    exclude_session: OptionalSession = None


class ChatHistoryResult(Output):
    conversation_id: Annotated[UUID, Field(description="The conversation the turn belongs to.")]
    turn_number: Annotated[int, Field(description="Which turn of it, from 1.")]
    snippet: Annotated[str, Field(description="The first 200 characters of what the person said.")]
    score: Annotated[
        float,
        Field(
            description="Cosine distance to the query, 0 to 2: lower is closer. 1 for a turn that waits for its vector."
        ),
    ]
    relevance: Annotated[float | None, Field(description=f"{RELEVANCE} In hybrid mode.")] = None
    project: Annotated[str | None, Field(description=PROJECT_OF)] = None
    stated_otherwise: Annotated[StatedOtherwise | None, Field(alias="saidOtherwise", description=LATER)] = None


class InterpretedTime(Output):
    """The words of the query that were read as a time, and the days they stand for."""

    first: Annotated[str, Field(alias="from", description="The first day, YYYY-MM-DD, in the person's time zone.")]
    last: Annotated[str, Field(alias="to", description="The last day, included.")]
    text: Annotated[str, Field(description="The words of the query that say so.")]


class SearchChatHistoryOutput(Output):
    results: Annotated[list[ChatHistoryResult], Field(description="One for each turn, best first.")]
    total_found: Annotated[int, Field(description="How many results there are.")]
    query: Annotated[str, Field(description="The query as it was searched.")]
    note: Annotated[
        str | None, Field(description="Why there is nothing, if there is nothing; and what was left out, and why.")
    ] = None
    pending: Annotated[
        int | None,
        Field(description="How many of the caller's turns have no vector yet: only `hybrid` finds them, by words."),
    ] = None
    interpreted: Annotated[
        InterpretedTime | None,
        Field(description="The days that the query names, such as `last Tuesday`: texts of them come first."),
    ] = None
    reranked: Annotated[bool | None, Field(description=RERANKED)] = None
    nothing_relevant: Annotated[bool | None, Field(description=NOTHING_RELEVANT)] = None


def run(requested: SearchChatHistoryInput, user: User | None) -> SearchChatHistoryOutput:
    if user is None:
        return _nothing(requested.query, note=NO_CALLER)
    mode = SearchMode(requested.mode)
    found = search(
        user=user,
        query=requested.query,
        limit=requested.limit,
        mode=mode,
        now=timezone.now(),
        rerank=requested.rerank,
        project=requested.project or "",
        exclude_session=requested.exclude_session or "",
    )
    if not found.matches:
        note = NOT_YET.format(counted(found.pending, "turn")) if found.pending else NO_HISTORY
        note = "; ".join([note, *found.notes])
        return _nothing(requested.query, note=note, pending=found.pending or None)
    results = [
        ChatHistoryResult(
            conversation_id=hit.key[0],
            turn_number=hit.key[1],
            snippet=hit.snippet or "",
            # A turn that was found by its terms and has no vector yet is neither near nor far.
            score=1.0 if hit.distance is None else hit.distance,
            relevance=round(hit.relevance, 4) if requested.mode == "hybrid" else None,
            project=hit.project or None,
            stated_otherwise=None
            if hit.later is None
            else StatedOtherwise(
                id="/".join(map(str, hit.later[0])), date=user.local_time(hit.later[1]).date().isoformat()
            ),
        )
        for hit in found.matches
    ]
    return SearchChatHistoryOutput(
        results=results,
        total_found=len(results),
        query=requested.query,
        note="; ".join(found.notes) or None,
        pending=found.pending or None,
        interpreted=interpreted(found.window),
        reranked=found.is_reranked if requested.rerank else None,
        nothing_relevant=found.has_nothing_relevant or None,
    )


def summarise(output: SearchChatHistoryOutput, user: User | None) -> str:
    """The number of turns, and links to the first of their conversations."""
    if user is None:
        return NOBODY
    if not output.results:
        return NOTHING
    best_turns: dict[UUID, int] = {}
    for result in output.results:
        best_turns.setdefault(result.conversation_id, result.turn_number)
    titles = Conversation.objects.for_user(user).in_bulk(list(best_turns))
    links = [
        link(titles[conversation_id].title, conversation_path(conversation_id, turn_number=number))
        for conversation_id, number in best_turns.items()
        if conversation_id in titles
    ]
    # As in the answer: results that are only the nearest do not count as found.
    if output.nothing_relevant:
        return Sentence(ONLY_NEAREST, places=first_of(links))
    found = _("Found 1 turn: %(places)s") if output.total_found == 1 else _("Found %(count)s turns: %(places)s")
    return Sentence(found, count=output.total_found, places=first_of(links))


def interpreted(window: TimeWindow | None) -> InterpretedTime | None:
    if window is None:
        return None
    first, last = (day.isoformat() for day in window.days)
    return InterpretedTime(first=first, last=last, text=window.words)


def as_text(output: SearchChatHistoryOutput) -> str:
    """A line for each turn, and its id. Stored text cannot imitate either: a snippet is one line between marks."""
    lines = [f"{counted(output.total_found, 'turn')} found, best first." if output.results else "Nothing found."]
    for number, result in enumerate(output.results, start=1):
        lines.append(f'{number}. (score: {result.score:.2f}) "{as_one_line(result.snippet)}"')
        lines.append(id_line(result.conversation_id, result.turn_number))
        lines += project_line(result.project)
        if later := result.stated_otherwise:
            lines.append(later_in_words(later.id, later.date))
    notes = [output.note, NEAREST if output.nothing_relevant else None]
    return "\n".join([*lines, *(f"Note: {note}." for note in notes if note)])


def _nothing(query: str, *, note: str, pending: int | None = None) -> SearchChatHistoryOutput:
    return SearchChatHistoryOutput(results=[], total_found=0, query=query, note=note, pending=pending)


search_chat_history = Tool(
    name="search_chat_history",
    description=(
        "Search what the person said in their own chats, by meaning: plans, names, preferences, decisions, facts "
        "about their life or work. Returns the beginnings of turns; `score` is a cosine distance: under 0.5 is usually "
        "about the same thing, over 0.8 usually not."
    ),
    input_model=SearchChatHistoryInput,
    output_model=SearchChatHistoryOutput,
    is_read_only=True,
    acts_itself=True,
    run=run,
    as_text=as_text,
    summarise=summarise,
)
