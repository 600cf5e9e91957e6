"""Lives: data sets with documents and records beside the turns, whose questions are asked at their own time."""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import date, datetime
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from core.isolation.acting import acting_as
from evals import synthetic
from evals.datasets.loading import Report, load_turns
from evals.datasets.reading import DatasetError, NonBlankText, TurnRow, in_utc, read_rows, read_turns
from intake.models import User
from memory import documents, records

Moment = Annotated[datetime, AfterValidator(in_utc)]
GoldKind = Literal["turn", "document", "record"]
# The kinds of document that the product has.
DOCUMENTS = ("memory", "daily")


class LifeRow(BaseModel):
    model_config = ConfigDict(frozen=True)


class DocumentRow(LifeRow):
    """A line of `documents.jsonl`: MEMORY.md (`memory`) or the log of a day (`daily`); other kinds are not loaded."""

    user: NonBlankText
    id: NonBlankText
    kind: str
    day: Annotated[date | None, Field(alias="date")] = None
    text: str


class RecordRow(LifeRow):
    """A line of `records.jsonl`."""

    user: NonBlankText
    id: NonBlankText
    type: NonBlankText
    project_id: str = ""
    tags: list[str] = []
    content: NonBlankText
    created_at: Moment


class Gold(LifeRow):
    """One right result. `contains`: the fact; of a long text only a part that holds it is right."""

    turn: str | None = None
    document: str | None = None
    record: str | None = None
    contains: str = ""

    @property
    def key(self) -> tuple[str, str]:
        ((kind, id_),) = [(kind, id_) for kind, id_ in self if kind != "contains" and id_ is not None]
        return kind, id_


class PriorExchange(LifeRow):
    user_message: str
    assistant_message: str = ""


class LifeQuery(LifeRow):
    """A line of `queries.jsonl`. Any of `gold` is right; none: it was never answered.

    `stale`: earlier statements, which the right one should stand above. `best`: those of a time's turns that answer in
    substance. `context`: what was said just before, and is stored nowhere.
    """

    user: NonBlankText
    id: NonBlankText
    category: NonBlankText
    text: NonBlankText
    now: Moment
    timezone: NonBlankText
    sources: list[str]
    gold: list[Gold]
    stale: list[Gold] = []
    best: list[Gold] = []
    context: list[PriorExchange] = []


class Life(LifeRow):
    """`name`: the folder's."""

    name: str
    turns: list[TurnRow]
    documents: list[DocumentRow]
    records: list[RecordRow]
    queries: Annotated[list[LifeQuery], Field(min_length=1)]


@dataclass(frozen=True, slots=True)
class LoadedLife:
    """`users` by their name; `names` leads from what is stored back to its (kind, id) in the data set."""

    users: dict[str, User]
    names: dict[Any, tuple[GoldKind, str]]


def read_life(folder: Path) -> Life:
    """Raises `DatasetError` for what is missing, no JSON, incomplete, or of somebody who has no turns."""
    turns = list(read_turns(folder / "turns.jsonl"))
    people = {turn.user for turn in turns}

    def of_them(name: str, model: type[Any]) -> list[Any]:
        rows = []
        for number, row in read_rows(folder / name, model):
            if row.user not in people:
                raise DatasetError(f"{folder / name}, line {number}: the user {row.user!r} has no turns.")
            rows.append(row)
        return rows

    queries = of_them("queries.jsonl", LifeQuery)
    if not queries:
        raise DatasetError(f"{folder / 'queries.jsonl'} holds no query.")
    return Life(
        name=folder.resolve().name,
        turns=turns,
        documents=of_them("documents.jsonl", DocumentRow),
        records=of_them("records.jsonl", RecordRow),
        queries=queries,
    )


def load_life(life: Life, *, distractors: int, report: Report) -> LoadedLife:
    """Save everything by the services, as said and written at its time. Nothing is embedded yet.

    `distractors`: so many made-up turns are added to each person's, spread over the time of theirs.
    """
    zones = {query.user: query.timezone for query in life.queries}
    loaded = load_turns([*life.turns, *_distractors(life.turns, distractors)], zones=zones, report=report)
    names: dict[Any, tuple[GoldKind, str]] = {
        stored: ("turn", f"{conversation}#{turn}") for stored, (conversation, turn) in loaded.origins.items()
    }
    ends = {turn.user: turn.at for turn in sorted(life.turns, key=lambda turn: turn.at)}
    for document in life.documents:
        if document.kind not in DOCUMENTS:
            continue
        user = loaded.users[document.user]
        with acting_as(user):
            written = documents.create(user=user, day=document.day, content=document.text, now=ends[document.user])
        names[written.id] = ("document", document.id)
    for record in life.records:
        user = loaded.users[record.user]
        with acting_as(user):
            noted = records.create(
                user=user,
                content=record.content,
                type=record.type,
                project_id=record.project_id,
                tags=record.tags,
                now=record.created_at,
            )
        names[noted.id] = ("record", record.id)
    report(f"Saved {len(life.documents):,} documents and {len(life.records):,} records.")
    return LoadedLife(loaded.users, names)


def _distractors(turns: list[TurnRow], count: int) -> Iterable[TurnRow]:
    """Conversations of twelve turns each, in the order of time."""
    times: dict[str, list[datetime]] = defaultdict(list)
    for turn in turns:
        times[turn.user].append(turn.at)
    for seed, (user, said_at) in enumerate(times.items(), start=1):
        said_at.sort()
        for number, made_up in enumerate(synthetic.turns(count, seed=seed)):
            yield TurnRow(
                user=user,
                conversation=f"distractors-{number // 12}",
                turn=number % 12 + 1,
                at=said_at[number * len(said_at) // count],
                user_message=made_up.user_message,
                assistant_message=made_up.assistant_message,
            )
