"""Reads an import's export in batches, and counts the skipped items."""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Literal, Self, get_args

from core.pg_text import storable_text
from imports.models import EntryKind, Import
from imports.reading import products
from imports.reading.files import open_files
from imports.reading.items import ImportedConversation, ImportedDocument, ImportedRecord, Notice, Skipped
from imports.storing.keys import short_id
from imports.storing.turns import PlannedTurn
from imports.storing.uploads import path_of, reading_limits

MAX_LISTED = 100
LONGEST_SENTENCE = 500
# With the instructions of a chat.
LONGEST_NOTICE = 4_500

Wanted = ImportedConversation | ImportedDocument | ImportedRecord


@dataclass
class LeftOut:
    """The skipped items and the notices: the first hundred of each, and their numbers."""

    count: int = 0
    listed: list[dict[str, Any]] = field(default_factory=list)
    notices: list[str] = field(default_factory=list)

    def add(self, item: Skipped | Notice) -> None:
        if isinstance(item, Notice):
            if len(self.notices) < MAX_LISTED:
                self.notices.append(storable_text(item.text)[:LONGEST_NOTICE])
            return
        self.count += 1
        if len(self.listed) < MAX_LISTED:
            external_id = None if item.external_id is None else _sentence(item.external_id)
            where, reason = _sentence(item.where), _sentence(item.reason)
            self.listed.append({"where": where, "reason": reason, "external_id": external_id})


# Where a turn of an export is after the import.
TurnPlace = Literal["stored", "changed", "here", "deleted", "not_chosen"]
PLACES: tuple[TurnPlace, ...] = get_args(TurnPlace)


@dataclass
class TurnAccount:
    """Where each turn of an export went, by count and by the characters of the user's words.

    Together the places are what was read: each item that could not be read is listed among the skipped ones instead.
    """

    turns: Counter[str] = field(default_factory=Counter)
    characters: Counter[str] = field(default_factory=Counter)

    def add(self, place: str, turn: PlannedTurn) -> None:
        self.turns[place] += 1
        self.characters[place] += len(turn.user_message)

    def __iadd__(self, other: "TurnAccount") -> Self:
        self.turns.update(other.turns)
        self.characters.update(other.characters)
        return self

    def as_data(self, *places: str) -> dict[str, dict[str, int]]:
        return {place: {"turns": self.turns[place], "characters": self.characters[place]} for place in places}


def product_of(batch: Import) -> str:
    """The product, as the user named it or else as recognised. Raises `UnreadableExport`."""
    if batch.product:
        return batch.product
    with open_files(path_of(batch), reading_limits(), name=batch.filename) as files:
        return products.recognise(files).product


def read(batch: Import, left_out: LeftOut) -> Iterator[Wanted]:
    """All items that can be imported. Raises `UnreadableExport`."""
    for item in products.read(path_of(batch), batch.product or None, reading_limits(), name=batch.filename):
        if isinstance(item, Skipped | Notice):
            left_out.add(item)
        else:
            yield item


def id_of(item: Wanted) -> str:
    """The id by which the user selects it."""
    return short_id(str(item.id) if isinstance(item, ImportedRecord) else item.external_id)


def kind_of(item: Wanted) -> EntryKind:
    match item:
        case ImportedConversation():
            return EntryKind.CONVERSATION
        case ImportedDocument():
            return EntryKind.DOCUMENT
        case ImportedRecord():
            return EntryKind.RECORD


def batches_of(items: Iterable[Wanted], *, size: int) -> Iterator[list[Wanted]]:
    remaining = iter(items)
    while batch := list(islice(remaining, size)):
        yield batch


def _sentence(text: str) -> str:
    return storable_text(text)[:LONGEST_SENTENCE]
