"""The tool `search_chat_history`: the caller's own turns, by meaning or by words and meaning."""

from collections.abc import Sequence
from functools import partial
from typing import Annotated, Literal
from uuid import UUID

from django.utils import timezone
from pydantic import AfterValidator, Field, StringConstraints

from agent_tools.registry import Readable, Tool
from agent_tools.tools.wording import (
    NO_CALLER,
    NOBODY,
    NOTHING,
    MaxTokens,
    as_one_line,
    counted,
    first_of,
    id_lines,
    later_in_words,
    link,
    without_our_lines,
)
from core.isolation.acting import acting_as
from core.text import Sentence, shortened
from core.text import gettext_noop as _
from core.validation import Input, Output, refuse_nul
from intake.chats.services import without_nul
from intake.chats.tree import conversation_path
from intake.models import Conversation, User
from memory.models.documents import MAX_PROJECT_LENGTH, Key
from memory.search import SearchMode
from memory.search import search_chat_history as search
from memory.search.texts import read_turns
from memory.search.time_windows import TimeWindow
from memory.search.writing import Rarity, within, written
from memory.short_ids import short_ids

# Of a title.
LONGEST_NAME = 40
NO_HISTORY = "no chat history found"
NOT_YET = "nothing found yet, and {} still waiting to be indexed: try again shortly"

# The notes of both searches.
OPERATORS = (
    'Operators: "exact words", -word, from:me, from:assistant, in:"chat title", after:2026-03-01, before:DAY, has:code.'
)
RERANK = "A second model orders the best again, which takes a little longer."
RELEVANCE = "How likely it is what was wanted, 0 to 1."
ONLY_NEAREST = _("Nothing found about it; the nearest: %(places)s")
NEAREST = "Nothing was found about this, and these results are only the nearest"


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
    max_tokens: MaxTokens = None


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


Interpreted = Annotated[
    InterpretedTime | None,
    Field(description="The days that the query names, such as `last Tuesday`: texts of them come first."),
]
Reranked = Annotated[bool | None, Field(description="Whether the second look happened, if it was asked for.")]
NothingRelevant = Annotated[
    bool | None,
    Field(description="True if nothing was found about this: the results are only the nearest of what there is."),
]


class SearchChatHistoryOutput(Readable):
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
    interpreted: Interpreted = None
    reranked: Reranked = None
    nothing_relevant: NothingRelevant = None


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
    output = SearchChatHistoryOutput(
        results=results,
        total_found=len(results),
        query=requested.query,
        note="; ".join(found.notes) or None,
        pending=found.pending or None,
        interpreted=interpreted(found.window),
        reranked=found.is_reranked if requested.rerank else None,
        nothing_relevant=found.has_nothing_relevant or None,
    )
    # Of a text whose form no specification fixes.
    return output.reading(partial(_text, output, user, requested.max_tokens or 1_500))


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
    one, many = _("Found 1 turn: %(places)s"), _("Found %(count)s turns: %(places)s")
    # As in the answer: results that are only the nearest do not count as found.
    found = ONLY_NEAREST if output.nothing_relevant else one if output.total_found == 1 else many
    return Sentence(found, count=output.total_found, places=first_of(links))


def interpreted(window: TimeWindow | None) -> InterpretedTime | None:
    if window is None:
        return None
    first, last = (day.isoformat() for day in window.days)
    return InterpretedTime(first=first, last=last, text=window.words)


def _text(output: SearchChatHistoryOutput, user: User, budget: int) -> str:
    """The turns in both sides, under the name of their chat where it is the first, each with its id below it.

    Stored text cannot imitate these lines: a title is one line between marks, and a text has no line like ours.
    """
    keys = {(each.conversation_id, each.turn_number): each for each in output.results}
    with acting_as(user):
        turns = {turn[0]: turn[1:] for turn in read_turns(user, keys, query=without_nul(output.query))}
    ids = {f"{source}/{number}" for source, number in turns}
    short = short_ids(user, ids | {later.id for each in output.results if (later := each.stated_otherwise)})
    rarity = Rarity.of(output.query, ("\n".join(side.text for side in turns[key][2]) for key in keys if key in turns))

    def name(key: Key) -> str:
        return short[f"{key[0]}/{key[1]}"]

    def write(key: Key, before: Sequence[Key]) -> str:
        result, (at, title, sides) = keys[key], turns[key]
        day = user.local_time(at).date()
        of_chat = [user.local_time(turns[other][0]).date() for other in before if other[0] == key[0]]
        named = [] if of_chat else [f'"{as_one_line(shortened(title, LONGEST_NAME))}"']
        head = [] if day in of_chat else [" ".join(["--", str(day), *named])]
        lines = [*head, without_our_lines("\n".join(written(sides, rarity, budget)))]
        lines += id_lines(name(key), result.project)
        if (later := result.stated_otherwise) is not None:
            lines.append(later_in_words(short[later.id], later.date))
        return "\n".join(lines)

    notes = [f"Note: {note}." for note in (output.note, NEAREST if output.nothing_relevant else None) if note]
    nearest = f"{min(result.score for result in output.results):.2f}"
    first = f"{counted(output.total_found, 'turn')} found, best first; the nearest has the score {nearest}."
    found = [key for key in keys if key in turns]
    return "\n".join([first, *within(budget, found, write=write, name=name, beside=[first, *notes]), *notes])


def _nothing(query: str, *, note: str, pending: int | None = None) -> SearchChatHistoryOutput:
    output = SearchChatHistoryOutput(results=[], total_found=0, query=query, note=note, pending=pending)
    return output.reading(f"Nothing found.\nNote: {note}.")


search_chat_history = Tool(
    name="search_chat_history",
    description=(
        "Search what the person said in their own chats, by meaning: plans, names, preferences, decisions, facts "
        "about their life or work. `score` is a cosine distance: under 0.5 is usually "
        "about the same thing, over 0.8 usually not."
    ),
    input_model=SearchChatHistoryInput,
    output_model=SearchChatHistoryOutput,
    is_read_only=True,
    acts_itself=True,
    run=run,
    summarise=summarise,
)
