"""The tools of notes: `search_memory`, `save_memory`, `append_daily_log`.

The tool `search_memory`: a user's own memory records by meaning, filtered by type, project and tags.
"""

import datetime as dt
import logging
import string
from collections.abc import Mapping, Sequence
from contextlib import suppress
from types import MappingProxyType
from typing import Annotated, Any, Literal
from uuid import UUID

from django.db import InterfaceError, OperationalError
from django.utils import timezone
from pydantic import AfterValidator, Field, StringConstraints

from agent_tools.registry import Readable, StoredByCall, Tool
from agent_tools.tools.chat_history import ProjectName
from agent_tools.tools.wording import (
    INCLUDE_REPLACED,
    NO_CALLER,
    NOBODY,
    NOTHING,
    MaxTokens,
    as_one_line,
    id_lines,
    known,
    past_in_words,
)
from core.errors import InvalidInput, NotFound, RecollectError, SearchFailed, Unavailable
from core.isolation.acting import acting_as
from core.responses import database_away
from core.text import Sentence, shortened
from core.text import gettext_noop as _
from core.validation import LONGEST_REFERENCE, Input, Output, parse_day, refuse_nul, text_limit
from intake.chats.temporary import project_named
from intake.models import User
from memory import documents, proposals, records
from memory.backends.embedders import EmbedderError
from memory.models import MemoryRecord
from memory.models.documents import (
    MAX_DOCUMENT_LENGTH,
    MAX_LABEL_LENGTH,
    MAX_TAGS,
)
from memory.records import CONTENT_LIMIT, LABEL_LIMIT, PROJECT_LIMIT, TAGS_LIMIT, RecordFacts, RecordOutput, RecordTags
from memory.search.hybrid import MODEL_AWAY
from memory.search.records import (
    MemorySearchError,
    MemorySearchQuery,
    MemorySearchResult,
    count_pending,
    find_nearly_same,
    floor_of_relevance,
)
from memory.search.records import search_memory as search
from memory.search.writing import within
from memory.short_ids import id_in, short_ids

logger = logging.getLogger(__name__)

NO_MATCHES = "no memory records found"
NO_MATCHES_IN_WORDS = "No matching memories found."
# The part of a record in the list; the results have the complete record.
EXCERPT_LENGTH = 500
SAME_TEXT = _("The record to replace has this very text.")
# Fields that a proposal does not have, by their names as clients send them.
NOT_PROPOSED = {"tags": "tags", **{name: each.alias or name for name, each in RecordFacts.model_fields.items()}}
NOT_WITH_PROPOSE = _("A proposal has no such field: the person adds it when they keep it.")


Label = Annotated[str, StringConstraints(min_length=1, max_length=MAX_LABEL_LENGTH), AfterValidator(refuse_nul)]
Labels = Annotated[list[Label], Field(max_length=MAX_TAGS)]


class SearchMemoryInput(Input):
    as_sent = frozenset({"query", "project_id"})

    query: Annotated[
        str,
        StringConstraints(strip_whitespace=True, min_length=1, max_length=2000),
        Field(description="What to look for."),
    ]
    top_k: Annotated[int, Field(alias="topK", ge=1, description="Results at most; 50 if more.")] = 10
    min_similarity: Annotated[
        float,
        Field(
            alias="minSimilarity",
            ge=0.0,
            le=1.0,
            description="Leave out less.",
        ),
    ] = 0.0
    types: Annotated[Labels | None, Field(description="Only of any of these.")] = None
    project_id: Annotated[ProjectName | None, Field(description="Only of this project.")] = None
    tags: Annotated[Labels | None, Field(description="Only with any of these.")] = None
    include_replaced: Annotated[bool, Field(description=INCLUDE_REPLACED)] = False
    max_tokens: MaxTokens = None


class MemoryResult(Output):
    record: Annotated[RecordOutput, Field(description="The record as it was noted.")]
    similarity: Annotated[
        float, Field(description="1 minus the cosine distance to the query: 0 is unrelated, 1 identical.")
    ]


class SearchMemoryOutput(Readable):
    results: Annotated[list[MemoryResult], Field(description="The records found, most similar first.")]
    text: Annotated[str, Field(description="The results as a Markdown list, long records cut short.")]
    note: Annotated[str | None, Field(description="Why there is nothing, if there is nothing.")] = None
    pending: Annotated[
        int | None, Field(description="How many of the caller's records wait for a vector and cannot be found yet.")
    ] = None


def run(requested: SearchMemoryInput, user: User | None) -> SearchMemoryOutput:
    if user is None:
        output = SearchMemoryOutput(results=[], text=NO_MATCHES_IN_WORDS, note=NO_CALLER)
        return output.reading(output.text)
    query = MemorySearchQuery(
        text=requested.query,
        top_k=requested.top_k,
        min_similarity=requested.min_similarity,
        types=requested.types or (),
        project_id=requested.project_id,
        tags=requested.tags or (),
        include_replaced=requested.include_replaced,
    )
    try:
        # Counted first: a record that is embedded meanwhile may be counted and found, but never missed by both.
        pending = count_pending(user=user)
        found = search(query, user=user)
    except MemorySearchError as error:
        raise _as_recollect_error(error) from error
    output = SearchMemoryOutput(
        results=[MemoryResult(record=result.record, similarity=result.similarity) for result in found],
        text=_as_markdown(found, user, requested.max_tokens),
        note=None if found else NO_MATCHES,
        pending=pending or None,
    )
    ids = [str(result.record.id) for result in found]
    return output.reading(lambda: _as_markdown(found, user, requested.max_tokens, short_ids(user, ids)))


def summarise(output: SearchMemoryOutput, user: User | None) -> str:
    if user is None:
        return NOBODY
    count = len(output.results)
    if not count:
        return NOTHING
    return _("Found 1 memory") if count == 1 else Sentence(_("Found %(count)s memories"), count=count)


def _as_recollect_error(error: MemorySearchError) -> RecollectError:
    """The cause for the caller: whether a retry may help."""
    match error.cause:
        case EmbedderError():
            return Unavailable(MODEL_AWAY)
        case OperationalError() | InterfaceError():
            return database_away(error.cause)
        case cause:
            logger.error("search_memory failed: %s", type(cause).__name__)
            return SearchFailed()


def _as_markdown(
    found: list[MemorySearchResult],
    user: User,
    budget: int | None,
    short: Mapping[str, str] = MappingProxyType({}),
) -> str:
    """A line says where the results begin that are probably about something else. `short`: ids below the lines."""
    if not found:
        return NO_MATCHES_IN_WORDS
    floor = floor_of_relevance()
    above = len(found) if floor is None else sum(result.similarity >= floor for result in found)

    def name(result: MemorySearchResult) -> str:
        return short.get(id_ := str(result.record.id), id_)

    def write(result: MemorySearchResult, before: Sequence[MemorySearchResult]) -> str:
        number = found.index(result) + 1
        lines = [_item(number, result, user), *(id_lines(name(result)) if short else [])]
        if number == above + 1:
            count = len(found) - above
            memories = f"{count} {'more ' if above else ''}{'memory is' if count == 1 else 'memories are'}"
            rest = f"{memories} probably about something else (similarity under {floor:.2f}):"
            lines = [*([""] if above else []), rest, "", *lines]
        return "\n".join(lines)

    return "\n".join(within(budget, found, write=write, name=name))


def _item(number: int, result: MemorySearchResult, user: User) -> str:
    record = result.record
    about = [f"similarity {result.similarity:.2f}", user.local_time(record.created_at).date().isoformat()]
    about += [f"project {_label(record.project_id)}"] if record.project_id else []
    about += [f"tags: {', '.join(map(_label, record.tags))}"] if record.tags else []
    about += past_in_words(record, records.today_of(user))
    content = " ".join(record.content.split())
    return f"{number}. **{_label(record.type)}** ({'; '.join(about)}): {shortened(content, EXCERPT_LENGTH)}"


def _label(label: str) -> str:
    return as_one_line(label, without="*();")


search_memory = Tool(
    name="search_memory",
    description=(
        "Search the person's long-term memory, by meaning: decisions, lessons, facts, notes that were saved on "
        "purpose. Use it before deciding what may have been decided already. `similarity` over 0.5 is usually about "
        "the same thing, under 0.2 usually not."
    ),
    input_model=SearchMemoryInput,
    output_model=SearchMemoryOutput,
    is_read_only=True,
    acts_itself=True,
    run=run,
    in_text=frozenset({"text", "type", "project_id", "tags", "content", "note"}),
    summarise=summarise,
)


class SaveMemoryInput(RecordFacts):
    content: Annotated[
        str,
        CONTENT_LIMIT,
        Field(description="What to remember, to be clear a year from now."),
    ]
    type: Annotated[
        str | None,
        LABEL_LIMIT,
        Field(description="decision, lesson, preference, fact, todo, or another word; note if not given."),
    ] = None
    project_id: Annotated[
        str | None,
        PROJECT_LIMIT,
        Field(description="me/app, or a folder's name."),
    ] = None
    tags: Annotated[
        RecordTags | None,
        TAGS_LIMIT,
        Field(description="Labels to find it by."),
    ] = None
    replaces: Annotated[
        str | None,
        Field(
            description="Id of a memory that is no longer true: this one takes its place.", max_length=LONGEST_REFERENCE
        ),
    ] = None
    propose: Annotated[
        bool | None,
        Field(description="Only propose it: nothing finds it until the person keeps it."),
    ] = None


class SaveMemoryOutput(Output):
    record: Annotated[RecordOutput, Field(description="The record as it is kept.")]
    already_saved: Annotated[
        bool | None, Field(description="True if the same was saved before: this is that record, and nothing was added.")
    ] = None
    nearly_same: Annotated[
        list[UUID] | None, Field(description="Earlier records with nearly the same words, which this one may replace.")
    ] = None
    marked: Annotated[
        Literal["done", "open"] | None, Field(description="The new state of a saved to-do, if this call changed it.")
    ] = None
    proposed: Annotated[
        bool | None, Field(description="True if it waits for the person's decision: `record` is the proposal.")
    ] = None
    text: Annotated[str, Field(description="What was stored, and its id, in a sentence.")]


class AppendDailyLogInput(Input):
    text: Annotated[
        str,
        Field(
            description="The lines to add.",
            json_schema_extra=text_limit(MAX_DOCUMENT_LENGTH),
        ),
    ]
    date: Annotated[
        str | None,
        Field(
            description="YYYY-MM-DD; today if not given.",
            json_schema_extra={**text_limit(len("YYYY-MM-DD")), "format": "date"},
        ),
    ] = None
    project: Annotated[
        str | None,
        PROJECT_LIMIT,
        Field(description="To its log, not the general one."),
    ] = None


class AppendDailyLogOutput(Output):
    document_id: Annotated[UUID, Field(description="The log's id.")]
    date: Annotated[dt.date | None, Field(description="The day whose log it is.")] = None
    project: Annotated[str | None, Field(description="The project whose log it is, if it is one's.")] = None
    length: Annotated[int | None, Field(description="How many characters the log has now.")] = None
    text: Annotated[
        str,
        Field(description="What was stored, and the log's id, in a sentence; to a token that may not read, the lines."),
    ]


def save(requested: SaveMemoryInput, user: User | None) -> SaveMemoryOutput:
    """It acts as the user itself: a proposal is compared with the rejected ones, which asks the embedding model."""
    user, replaced = known(user), None
    if requested.replaces is not None:
        with acting_as(user):
            replaced = id_in(MemoryRecord.objects.for_user(user), requested.replaces)
    if requested.propose:
        return _proposed(requested, replaced, user)
    with acting_as(user):
        return _save(requested, replaced, user)


def _proposed(requested: SaveMemoryInput, replaced: UUID | None, user: User) -> SaveMemoryOutput:
    """Raises `InvalidInput` for what a proposal does not have, and for what the person rejected before."""
    if beside := [name for name in NOT_PROPOSED if getattr(requested, name) is not None]:
        raise InvalidInput(errors={NOT_PROPOSED[name]: [NOT_WITH_PROPOSE] for name in beside})
    draft = requested.model_dump(include={"content", "type", "project_id"}) | {"replaces": replaced}
    (found,) = proposals.propose(user=user, drafts=[draft], now=timezone.now())
    if isinstance(found, str):
        raise InvalidInput(found, errors={"content": [found]})
    fields = {"id", "type", "project_id", "content", "created_at", "replaces"}
    record = RecordOutput(**found.model_dump(include=fields), tags=())
    text = f"Proposed with the id {found.id}. The person decides whether it is kept."
    return SaveMemoryOutput(record=record, proposed=True, text=text)


def _save(requested: SaveMemoryInput, replaced: UUID | None, user: User) -> SaveMemoryOutput:
    project_id = project_named(requested.project_id or "", user=user, field="project_id")
    same = records.find_same(user=user, content=requested.content, project_id=project_id)
    if same is not None and replaced == same.id:
        raise InvalidInput(errors={"replaces": [SAME_TEXT]})
    if same is not None and replaced in (None, same.replaces):
        return _saved_before(requested, same, user)
    nearly_same = find_nearly_same(user=user, content=requested.content, project_id=project_id)
    record = records.create(
        user=user,
        content=requested.content,
        type=records.DEFAULT_TYPE if requested.type is None else requested.type,
        project_id=project_id,
        tags=requested.tags or (),
        facts={**requested.facts, "replaces": replaced},
        now=timezone.now(),
    )
    nearly_same = [pk for pk in nearly_same if pk != record.replaces]
    return SaveMemoryOutput(record=record, nearly_same=nearly_same or None, text=_saved(record, nearly_same))


def _saved_before(requested: SaveMemoryInput, same: RecordOutput, user: User) -> SaveMemoryOutput:
    """The state of a to-do is the only thing that a second call changes."""
    if requested.done is None or requested.done == (same.done_at is not None):
        return SaveMemoryOutput(record=same, already_saved=True, text=f"This was saved before, with the id {same.id}.")
    done = {"done": requested.done}
    changed = records.rewrite(user=user, record_id=same.id, facts=done, now=timezone.now())
    state: Literal["done", "open"] = "done" if requested.done else "open"
    text = f"Marked the to-do with the id {same.id} as {state}."
    return SaveMemoryOutput(record=changed, already_saved=True, marked=state, text=text)


def _saved(record: RecordOutput, nearly_same: list[UUID]) -> str:
    length = f"{len(record.content):,} {'character' if len(record.content) == 1 else 'characters'}"
    text = f"Saved a memory of type {record.type!r} ({length}) with the id {record.id}."
    if record.replaces is not None:
        text = f"{text} It replaces {record.replaces}."
    if not nearly_same:
        return text
    ids = f"id{'' if len(nearly_same) == 1 else 's'} {', '.join(map(str, nearly_same))}"
    return f"{text} Nearly the same was saved before, with the {ids}."


def append(requested: AppendDailyLogInput, user: User | None) -> AppendDailyLogOutput:
    user, now = known(user), timezone.now()
    day = user.local_time(now).date() if requested.date is None else _day(requested.date)
    project = project_named(requested.project or "", user=user)
    document = documents.append(user=user, day=day, project=project, text=requested.text, now=now)
    lines = len(requested.text.splitlines())
    whose = f" of the project {document.project!r}" if document.project else ""
    text = (
        f"Added {lines} {'line' if lines == 1 else 'lines'} to the daily log of {day}{whose} with the id {document.id}."
    )
    return AppendDailyLogOutput(
        document_id=document.id, date=day, project=project or None, length=len(document.content), text=text
    )


def without_earlier(requested: SaveMemoryInput, output: SaveMemoryOutput) -> SaveMemoryOutput:
    """Of a record that was there before, only the id and what the caller has written; nothing of one that is alike."""
    if output.proposed:
        return output
    if not output.already_saved:
        return output.model_copy(update={"nearly_same": None, "text": _saved(output.record, [])})
    own: dict[str, Any] = dict.fromkeys(("source_conversation", "source_turn", "done_at"))
    own |= requested.model_dump(include={*RecordFacts.model_fields} - {"done"})
    own["replaces"] = output.record.replaces if requested.replaces else None
    own |= {"type": requested.type or records.DEFAULT_TYPE, "tags": tuple(requested.tags or ())}
    return output.model_copy(update={"record": output.record.model_copy(update=own)})


def kept_record(requested: SaveMemoryInput, output: SaveMemoryOutput) -> StoredByCall | None:
    if output.proposed:
        return StoredByCall(output.record.content, {"proposalId": str(output.record.id)})
    place: dict[str, Any] = {"recordId": str(output.record.id)}
    if output.marked is not None:
        return StoredByCall(output.record.content, {**place, "wasDone": output.marked == "open"})
    return None if output.already_saved else StoredByCall(output.record.content, place)


def delete_record(requested: SaveMemoryInput, place: dict[str, Any], user: User, now: dt.datetime) -> None:
    """A record that was deleted elsewhere counts as undone. What the record replaced holds again."""
    if "proposalId" in place:
        with suppress(NotFound):
            proposals.withdraw(user=user, proposal_id=UUID(place["proposalId"]))
        return
    record_id = UUID(place["recordId"])
    with suppress(NotFound):
        if "wasDone" in place:
            records.rewrite(user=user, record_id=record_id, facts={"done": place["wasDone"]}, now=now)
        else:
            records.delete(user=user, record_id=record_id)


def kept_lines(requested: AppendDailyLogInput, output: AppendDailyLogOutput) -> StoredByCall:
    assert output.length is not None and output.date is not None, "the chat reads"  # noqa: S101 - tells the types
    at = output.length - len(documents.as_lines(requested.text))
    return StoredByCall(requested.text, {"date": output.date.isoformat(), "project": output.project or "", "at": at})


def take_back_lines(requested: AppendDailyLogInput, place: dict[str, Any], user: User, now: dt.datetime) -> None:
    day = dt.date.fromisoformat(place["date"])
    # Calls from before there were logs of projects name none.
    project = place.get("project", "")
    documents.take_back(user=user, day=day, project=project, text=requested.text, at=place["at"], now=now)


def _say_record(output: SaveMemoryOutput, user: User | None) -> str:
    if output.proposed:
        return _("Proposed for you to keep")
    if output.marked is not None:
        return _("Marked as done") if output.marked == "done" else _("Marked as still open")
    if output.already_saved:
        return _("This was saved before")
    record = output.record
    if record.replaces is not None:
        return Sentence(_("Saved a %(type)s that replaces an earlier one"), type=_plain(record.type))
    match bool(record.project_id), bool(record.tags):
        case True, True:
            message = _("Saved a %(type)s, project %(project)s, tagged %(tags)s")
        case True, False:
            message = _("Saved a %(type)s, project %(project)s")
        case False, True:
            message = _("Saved a %(type)s, tagged %(tags)s")
        case _none:
            message = _("Saved a %(type)s")
    tags = list(map(_plain, record.tags))
    return Sentence(message, type=_plain(record.type), project=_plain(record.project_id), tags=tags)


def _say_log(output: AppendDailyLogOutput, user: User | None) -> Sentence:
    if output.project:
        message = _("Added to the log of %(date)s, project %(project)s")
        return Sentence(message, date=output.date or "", project=_plain(output.project))
    return Sentence(_("Added to the log of %(date)s"), date=output.date or "")


def _plain(label: str) -> str:
    """A label as Markdown that displays as that label."""
    return "".join(f"\\{character}" if character in string.punctuation else character for character in label)


def _day(text: str) -> dt.date:
    try:
        return parse_day(text)
    except ValueError:
        message = f"Date must be in YYYY-MM-DD format: {text[:50]}"
        raise InvalidInput(message, errors={"date": [message]}) from None


save_memory = Tool(
    name="save_memory",
    description=(
        "Save one thing to the person's long-term memory: what they ask to be remembered, and decisions, preferences "
        "and lessons that will matter again, with names and dates written out. If one of the answer's `nearlySame` is "
        "no longer true, save what is with `replaces`."
    ),
    input_model=SaveMemoryInput,
    output_model=SaveMemoryOutput,
    is_read_only=False,
    acts_itself=True,
    run=save,
    in_text=frozenset({"text", "type", "project_id", "tags", "content"}),
    summarise=_say_record,
    for_writers=without_earlier,
    kept=kept_record,
    undo=delete_record,
)

append_daily_log = Tool(
    name="append_daily_log",
    description="Add lines to the person's daily log: what happened on a day. For what stays true use `save_memory`.",
    input_model=AppendDailyLogInput,
    output_model=AppendDailyLogOutput,
    is_read_only=False,
    run=append,
    in_text=frozenset({"text"}),
    summarise=_say_log,
    kept=kept_lines,
    for_writers=lambda requested, output: AppendDailyLogOutput(document_id=output.document_id, text=requested.text),
    undo=take_back_lines,
)
