"""Reads data sets: what people said, and what they ask for later together with where the answer is.

A life is a data set with documents and records beside the turns, whose questions are asked at their own time.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime
from functools import cached_property
from pathlib import Path
from typing import Annotated, TypeVar

from django.core.management import CommandError
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, StringConstraints, ValidationError

NonBlankText = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1)]
Moment = Annotated[datetime, AfterValidator(lambda value: value if value.tzinfo else value.replace(tzinfo=UTC))]
"""A time without a zone is UTC."""


class Row(BaseModel):
    model_config = ConfigDict(frozen=True)


class PersonsRow(Row):
    user: NonBlankText


class TurnRow(PersonsRow):
    """A line of `turns.jsonl`. `turn` counts within the conversation."""

    conversation: NonBlankText
    turn: int
    at: Moment
    user_message: str
    assistant_message: str = ""

    @property
    def key(self) -> tuple[str, str, int]:
        return self.user, self.conversation, self.turn


class QueryRow(PersonsRow):
    """A line of `queries.jsonl`. `gold` names turns of the same person by conversation and turn."""

    id: NonBlankText
    category: NonBlankText
    text: NonBlankText
    gold: Annotated[list[tuple[str, int]], Field(min_length=1)]


class DocumentRow(PersonsRow):
    """A line of `documents.jsonl`: MEMORY.md (`memory`) or the log of a day (`daily`); other kinds are not loaded."""

    id: NonBlankText
    kind: str
    day: Annotated[date | None, Field(alias="date")] = None
    text: str


class RecordRow(PersonsRow):
    """A line of `records.jsonl`."""

    id: NonBlankText
    type: NonBlankText
    project_id: str = ""
    tags: list[str] = []
    content: NonBlankText
    created_at: Moment


class Gold(Row):
    """One right result. `contains`: the fact; of a long text only a part that holds it is right."""

    turn: str | None = None
    document: str | None = None
    record: str | None = None
    contains: str = ""

    @property
    def key(self) -> tuple[str, str]:
        ((kind, id_),) = [(kind, id_) for kind, id_ in self if kind != "contains" and id_ is not None]
        return kind, id_


class PriorExchange(Row):
    user_message: str
    assistant_message: str = ""


class LifeQuery(PersonsRow):
    """A line of a life's `queries.jsonl`. Any of `gold` is right, but an answer `needs_all` in a data set of turns
    alone; none: it was never answered.

    `stale`: earlier statements, which the right one should stand above. `best`: those of a time's turns that answer in
    substance. `context`: what was said just before, and is stored nowhere.
    """

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
    needs_all: bool = False

    @property
    def needed(self) -> str:
        """How many turns an answer needs: 1, 2, or 3+."""
        count = len({each.key for each in self.gold}) if self.needs_all else 1
        return str(count) if count < 3 else "3+"


AnyDatasetRow = TypeVar("AnyDatasetRow", bound=BaseModel)
AnyPersonsRow = TypeVar("AnyPersonsRow", bound=PersonsRow)


@dataclass(frozen=True, slots=True)
class Dataset:
    """`name`: the folder's. Every query's person and gold turns are among `turns`."""

    name: str
    turns: list[TurnRow]
    queries: list[QueryRow]


@dataclass(frozen=True)
class Life:
    """`name`: the folder's. All rows are of people who have turns."""

    name: str
    turns: list[TurnRow]
    documents: list[DocumentRow]
    records: list[RecordRow]
    queries: list[LifeQuery]

    @cached_property
    def turns_by_name(self) -> dict[tuple[str, str | None], TurnRow]:
        """By their person and the name that a question's gold has for them."""
        return {(turn.user, f"{turn.conversation}#{turn.turn}"): turn for turn in self.turns}

    @cached_property
    def ends(self) -> dict[str, datetime]:
        """When each person's last turn was said, which is when MEMORY.md was written."""
        return {turn.user: turn.at for turn in sorted(self.turns, key=lambda turn: turn.at)}


def read_dataset(folder: Path) -> Dataset:
    """Raises `CommandError` for what is missing, no JSON, incomplete, or points nowhere."""
    turns = _turns(folder)
    known = {turn.key for turn in turns}
    queries = _of_people(turns, folder / "queries.jsonl", QueryRow)
    for where, query in queries:
        for conversation, turn in query.gold:
            if (query.user, conversation, turn) not in known:
                raise CommandError(f"{where}: gold names turn {turn} of {conversation!r}, which does not exist.")
    return Dataset(folder.resolve().name, turns, _some_of(queries, folder))


def read_life(folder: Path) -> Life:
    """A data set of turns alone is a life too: its questions are asked after the last turn. Raises `CommandError`."""
    if not (folder / "documents.jsonl").exists():
        return _life_of_turns(read_dataset(folder))
    turns = _turns(folder)
    documents = _of_people(turns, folder / "documents.jsonl", DocumentRow)
    records = _of_people(turns, folder / "records.jsonl", RecordRow)
    queries = _some_of(_of_people(turns, folder / "queries.jsonl", LifeQuery), folder)
    return Life(folder.resolve().name, turns, [row for _, row in documents], [row for _, row in records], queries)


def _life_of_turns(dataset: Dataset) -> Life:
    now = max(turn.at for turn in dataset.turns)
    queries = [
        LifeQuery(
            **query.model_dump(exclude={"gold"}),
            now=now,
            timezone="UTC",
            sources=["turns"],
            gold=[Gold(turn=f"{conversation}#{turn}") for conversation, turn in query.gold],
            needs_all=True,
        )
        for query in dataset.queries
    ]
    return Life(dataset.name, dataset.turns, documents=[], records=[], queries=queries)


def read_rows(path: Path, model: type[AnyDatasetRow]) -> Iterator[tuple[str, AnyDatasetRow]]:
    """The lines that are not blank, each with where it stands; raises `CommandError`."""
    try:
        # Bytes are split at line feeds only: a text may hold other characters that Python takes for line ends.
        lines = path.read_bytes().removeprefix(b"\xef\xbb\xbf").split(b"\n")
    except OSError as error:
        raise CommandError(f"{path} cannot be read: {error.strerror}.") from error
    for number, line in enumerate(lines, start=1):
        if line.strip():
            where = f"{path}, line {number}"
            try:
                yield where, model.model_validate_json(line)
            except ValidationError as error:
                problem = error.errors(include_url=False, include_input=False)[0]
                field = ".".join(str(step) for step in problem["loc"])
                raise CommandError(f"{where}: {f'{field}: ' if field else ''}{problem['msg']}.") from error


def _turns(folder: Path) -> list[TurnRow]:
    """In the file's order, each at most once."""
    if not folder.is_dir():
        raise CommandError(f"There is no folder {folder}.")
    turns: dict[tuple[str, str, int], TurnRow] = {}
    for where, turn in read_rows(folder / "turns.jsonl", TurnRow):
        if turns.setdefault(turn.key, turn) is not turn:
            raise CommandError(f"{where}: this turn is there already.")
    return list(turns.values())


def _of_people(turns: list[TurnRow], path: Path, model: type[AnyPersonsRow]) -> list[tuple[str, AnyPersonsRow]]:
    """Each row with where it stands; all of them are of people who have turns."""
    people, rows = {turn.user for turn in turns}, list(read_rows(path, model))
    for where, row in rows:
        if row.user not in people:
            raise CommandError(f"{where}: the user {row.user!r} has no turns.")
    return rows


def _some_of(queries: list[tuple[str, AnyPersonsRow]], folder: Path) -> list[AnyPersonsRow]:
    if not queries:
        raise CommandError(f"{folder / 'queries.jsonl'} holds no query.")
    return [query for _, query in queries]
