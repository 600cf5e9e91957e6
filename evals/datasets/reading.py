"""Reads a data set's two files: what people said, and what they ask for later together with where the answer is."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, TypeVar

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, StringConstraints, ValidationError

NonBlankText = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1)]
AnyLine = TypeVar("AnyLine", bound=BaseModel)


class DatasetError(Exception):
    """The data set cannot be used; the message is one sentence that says where and why."""


def in_utc(value: datetime) -> datetime:
    return value if value.tzinfo else value.replace(tzinfo=UTC)


class TurnRow(BaseModel):
    """A line of `turns.jsonl`. `turn` counts within the conversation; a time without a zone is UTC."""

    model_config = ConfigDict(frozen=True)

    user: NonBlankText
    conversation: NonBlankText
    turn: int
    at: Annotated[datetime, AfterValidator(in_utc)]
    user_message: str
    assistant_message: str = ""

    @property
    def key(self) -> tuple[str, str, int]:
        return self.user, self.conversation, self.turn


class QueryRow(BaseModel):
    """A line of `queries.jsonl`. `gold` names turns of the same person by conversation and turn."""

    model_config = ConfigDict(frozen=True)

    user: NonBlankText
    id: NonBlankText
    category: NonBlankText
    text: NonBlankText
    gold: Annotated[list[tuple[str, int]], Field(min_length=1)]


@dataclass(frozen=True, slots=True)
class Dataset:
    """`name`: the folder's. Every query's person and gold turns are among `turns`."""

    name: str
    turns: list[TurnRow]
    queries: list[QueryRow]


def read_dataset(folder: Path) -> Dataset:
    """Raises `DatasetError` for what is missing, no JSON, incomplete, or points nowhere."""
    if not folder.is_dir():
        raise DatasetError(f"There is no folder {folder}.")
    turns = list(read_turns(folder / "turns.jsonl"))
    known = {turn.key for turn in turns}
    people = {turn.user for turn in turns}
    queries = []
    for number, query in read_rows(folder / "queries.jsonl", QueryRow):
        where = f"{folder / 'queries.jsonl'}, line {number}"
        if query.user not in people:
            raise DatasetError(f"{where}: the user {query.user!r} has no turns.")
        for conversation, turn in query.gold:
            if (query.user, conversation, turn) not in known:
                raise DatasetError(f"{where}: gold names turn {turn} of {conversation!r}, which does not exist.")
        queries.append(query)
    if not queries:
        raise DatasetError(f"{folder / 'queries.jsonl'} holds no query.")
    return Dataset(name=folder.resolve().name, turns=turns, queries=queries)


def read_turns(path: Path) -> Iterator[TurnRow]:
    """The turns in the file's order, each at most once; raises `DatasetError`."""
    lines: dict[tuple[str, str, int], int] = {}
    for number, turn in read_rows(path, TurnRow):
        first = lines.setdefault(turn.key, number)
        if first != number:
            raise DatasetError(f"{path}, line {number}: this turn stands already on line {first}.")
        yield turn


def read_rows(path: Path, model: type[AnyLine]) -> Iterator[tuple[int, AnyLine]]:
    """The lines that are not blank, each with its number from 1; raises `DatasetError`."""
    try:
        # Bytes are split at line feeds only: a text may hold other characters that Python takes for line ends.
        lines = path.read_bytes().removeprefix(b"\xef\xbb\xbf").split(b"\n")
    except OSError as error:
        raise DatasetError(f"{path} cannot be read: {error.strerror}.") from error
    for number, line in enumerate(lines, start=1):
        if line.strip():
            yield number, _parse(line, model, where=f"{path}, line {number}")


def _parse(line: bytes, model: type[AnyLine], *, where: str) -> AnyLine:
    try:
        return model.model_validate_json(line)
    except ValidationError as error:
        problem = error.errors(include_url=False, include_input=False)[0]
        field = ".".join(str(step) for step in problem["loc"])
        raise DatasetError(f"{where}: {f'{field}: ' if field else ''}{problem['msg']}.") from error
