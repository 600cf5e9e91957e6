"""The contents of an export as it is stored: batches, keys, turns, and what later imports changed.

Reads an import's export in batches, and counts the skipped items.
"""

import hashlib
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from datetime import datetime
from itertools import chain, islice, pairwise
from typing import Any, Literal, Self, get_args

from core.text import kept, pg_text, pg_value
from imports.models import Import, ImportedChange, ImportedItem, ItemKind
from imports.reading import products
from imports.reading.exported import path_of
from imports.reading.files import Files, open_files
from imports.reading.items import (
    ExportedTurn,
    ImportedConversation,
    ImportedDocument,
    ImportedFile,
    ImportedMessage,
    ImportedProject,
    ImportedRecord,
    Notice,
    Skipped,
)
from imports.storing.queue import reading_limits, upload_path
from intake.models import User
from intake.models.conversations import OwnedQuerySet

# --- Keeps what later imports changed in earlier imported items, so that imports can be undone in any order ---
# The changes of an item form a stack. Undoing the import on top restores the state below it. Undoing one further down
# keeps its text, because the later imports contain it; these then restore the state before both.


def note(item: ImportedItem, *, brought_by: Import, before: dict[str, Any]) -> None:
    """Keep the item's state, once for each import, except for the one that created it."""
    if item.batch_id == brought_by.pk:
        return
    ImportedChange.objects.get_or_create(
        user_id=brought_by.user_id,
        item=item,
        batch=brought_by,
        defaults={
            "turn_id": item.turn_id,
            "row_id": item.row_id,
            "key": item.key,
            "content_hash": item.content_hash,
            "before": before,
        },
    )


def was_so_before(item: ImportedItem, content_hash: bytes) -> bool:
    """Whether a later import has replaced just this text."""
    return _of(item).filter(content_hash=content_hash).exists()


def taken_back(change: ImportedChange) -> bool:
    """Remove the change; returns whether its item must be restored."""
    above = _of(change.item).filter(pk__gt=change.pk).first()
    change.delete()
    if above is not None:
        above.key, above.content_hash, above.before = change.key, change.content_hash, change.before
        above.save(update_fields=["key", "content_hash", "before"])
    return above is None


def reassign(batch: Import, user: User, *, at_most: int) -> bool:
    """Assign the items that a later import made longer to that one; returns whether there were any."""
    superseding = ImportedChange.objects.for_user(user).values("item")
    items = ImportedItem.objects.for_user(user).filter(batch=batch, pk__in=superseding).order_by("pk")[:at_most]
    for item in items:
        lowest = _of(item)[0]
        ImportedItem.objects.for_user(user).filter(pk=item.pk).update(batch=lowest.batch_id)
        lowest.delete()
    return bool(items)


def make_permanent(batch: Import, user: User) -> None:
    """Make this import's changes permanent: it is removed from the list, and cannot be undone any more."""
    for change in ImportedChange.objects.for_user(user).filter(batch=batch).select_related("item"):
        ImportedItem.objects.for_user(user).filter(pk=change.item_id).update(batch=None)
        _of(change.item).filter(pk__lte=change.pk).delete()


def _of(item: ImportedItem) -> OwnedQuerySet[ImportedChange]:
    return ImportedChange.objects.filter(user=item.user_id, item=item).order_by("pk")


# --- Identifies imported items: a digest of their ids in their product, and one of their text ---

DIGEST_BYTES = 16
LONGEST_ID = 200


def key_of(product: str, kind: str, *ids: str) -> bytes:
    """BLAKE2b-128 of the product, the kind of thing and its ids there, the outermost first."""
    return _digest(product, kind, *ids)


def hash_of(*texts: str) -> bytes:
    """BLAKE2b-128 of all the texts, in their order."""
    return _digest(*texts)


def short_id(external_id: str) -> str:
    """An id for storing and selecting; a very long one is replaced by its digest."""
    external_id = pg_text(external_id)
    return external_id if len(external_id) <= LONGEST_ID else hash_of(external_id).hex()


def _digest(*parts: str) -> bytes:
    # The lengths keep ("ab", "c") apart from ("a", "bc").
    framed = "".join(f"{len(part)}:{part}" for part in parts)
    return hashlib.blake2b(framed.encode("utf-8", "surrogatepass"), digest_size=DIGEST_BYTES).digest()


# --- Converts a conversation's messages, with all branches, into turns: pure, with the same result for the same export
# A user's message and the answers that follow it on its path are a turn. An answer without a message is a turn without
# a message, and a message without an answer is a turn without an answer. Where a path leaves another, the messages
# there are a version: a turn with the same parent.

BETWEEN_ANSWERS = "\n\n"


@dataclass(kw_only=True, eq=False)
class PlannedTurn:
    """A turn to be stored. `parent` comes before it in the list that holds both.

    `key` names it in its product; `key_unanswered` is the key that it had before it was answered.
    """

    key: bytes
    key_unanswered: bytes
    # The keys without an answer that it would have in other sessions with the same turns.
    keys_elsewhere: tuple[bytes, ...] = ()
    parent: "PlannedTurn | None"
    is_current: bool
    user_message: str
    assistant_message: str
    said_at: datetime
    model: str = ""
    tool_calls: list[dict[str, Any]] = field(default_factory=list)
    files: tuple[ImportedFile, ...] = ()
    # For a copy of an account: the fields of its turn.
    exported: ExportedTurn | None = None
    # Its number here, once it is known; None for one that was deleted here.
    number: int | None = None
    product: str = ""
    # The turn after it in the list: its answer may have been glued to this one's by an earlier reader.
    following: "PlannedTurn | None" = None

    @property
    def content_hash(self) -> bytes:
        return hash_of(self.user_message, self.assistant_message)


@dataclass(kw_only=True, eq=False)
class GatheredTurn:
    """A turn while its messages are gathered."""

    question: ImportedMessage | None
    answers: list[ImportedMessage]
    parent: "GatheredTurn | None"
    is_current: bool = False
    # The answer that distinguishes it from other exchanges with this question.
    answer_id: str = ""
    # A later message follows: another answer begins a version.
    is_closed: bool = False

    @property
    def messages(self) -> list[ImportedMessage]:
        return [self.question, *self.answers] if self.question else self.answers


def first_words(turns: Iterable[PlannedTurn]) -> str:
    """For a title: what the user said first, or else what was answered, as to a program's own prompt."""
    turns = list(turns)
    user_texts = (turn.user_message.strip() for turn in turns)
    assistant_texts = (turn.assistant_message.strip() for turn in turns)
    names = (file.name for turn in turns for file in turn.files)
    return next(chain(filter(None, user_texts), filter(None, assistant_texts), names), "")


def nearest_number(turn: PlannedTurn | None) -> int | None:
    """The number of the nearest turn above that is here: those between were deleted here."""
    while turn is not None and turn.number is None:
        turn = turn.parent
    return None if turn is None else turn.number


def planned_turns(conversation: ImportedConversation, *, otherwise: datetime) -> list[PlannedTurn]:
    """The turns of the current path in order, then those of other branches, each after its parent.

    `otherwise`: the time of what has none, in a conversation without any.
    """
    if conversation.exported is not None:
        return list(_as_exported(conversation))
    fallback = conversation.created_at or conversation.last_at or otherwise
    planned: dict[GatheredTurn, PlannedTurn] = {}
    taken: set[bytes] = set()
    for exchange in exchanges(conversation):
        parent = planned[exchange.parent] if exchange.parent else None
        turn = planned_turn(conversation, exchange, parent, fallback)
        # Duplicate ids in an export stay separate, in the same order every time.
        while turn.key in taken:
            turn.key = turn.key_unanswered = hash_of(turn.key.hex())
        taken.add(turn.key)
        planned[exchange] = turn
    turns = list(planned.values())
    for turn, following in pairwise(turns):
        turn.following = following
    return turns


def exchanges(conversation: ImportedConversation) -> list[GatheredTurn]:
    """Those of the current path, then those of other branches, each after its parent."""
    found: list[GatheredTurn] = []
    at: dict[str, GatheredTurn] = {}
    before: GatheredTurn | None = None
    for message in conversation.messages:
        if message.role == "assistant" and before is not None and not message.is_unasked:
            _answer(before, message)
        else:
            before = _begun(message, before, is_current=True)
            found.append(before)
        at.setdefault(message.id, before)
    for message in conversation.other_branches:
        exchange, is_new = _in_a_branch(message, at.get(message.parent or ""))
        if is_new:
            found.append(exchange)
        at.setdefault(message.id, exchange)
    return found


def _begun(message: ImportedMessage, parent: GatheredTurn | None, *, is_current: bool = False) -> GatheredTurn:
    if message.role == "user":
        return GatheredTurn(question=message, answers=[], parent=parent, is_current=is_current)
    return GatheredTurn(question=None, answers=[message], parent=parent, is_current=is_current, answer_id=message.id)


def _answer(exchange: GatheredTurn, message: ImportedMessage) -> None:
    exchange.answers.append(message)
    exchange.answer_id = exchange.answer_id or ("" if message.only_asks else message.id)


def _in_a_branch(message: ImportedMessage, above: GatheredTurn | None) -> tuple[GatheredTurn, bool]:
    """The exchange of the message, and whether it is a new one."""
    if message.role == "user" or above is None or message.is_unasked:
        if above is not None:
            above.is_closed = True
        return _begun(message, above), True
    if not (above.is_current or above.is_closed) and above.messages[-1].id == message.parent:
        _answer(above, message)
        return above, False
    return _version(message, above), True


def _version(message: ImportedMessage, above: GatheredTurn) -> GatheredTurn:
    """The same question with another answer, or with another end of its answer."""
    ids = [answer.id for answer in above.answers]
    shared = above.answers[: ids.index(message.parent) + 1] if message.parent in ids else []
    return GatheredTurn(question=above.question, answers=[*shared, message], parent=above.parent, answer_id=message.id)


def planned_turn(
    conversation: ImportedConversation, exchange: GatheredTurn, parent: PlannedTurn | None, fallback: datetime
) -> PlannedTurn:
    of_conversation = (conversation.product, "turn", conversation.external_id)
    question = exchange.question.id if exchange.question else ""
    said_at = next((message.at for message in exchange.messages if message.at), None)
    answers = [_without_files(answer) for answer in exchange.answers]
    return PlannedTurn(
        key=key_of(*of_conversation, question, exchange.answer_id),
        key_unanswered=key_of(*of_conversation, question, ""),
        keys_elsewhere=tuple(
            key_of(conversation.product, "turn", other, question, "") for other in conversation.also_ids if question
        ),
        parent=parent,
        product=conversation.product,
        is_current=exchange.is_current,
        user_message=_without_files(exchange.question) if exchange.question else "",
        assistant_message=BETWEEN_ANSWERS.join(answer for answer in answers if answer),
        said_at=said_at or (parent.said_at if parent else fallback),
        model=pg_text(next((answer.model for answer in reversed(exchange.answers) if answer.model), "")),
        tool_calls=list(_calls(exchange)),
        files=tuple(
            replace(file, name=pg_text(file.name), text=pg_text(file.text))
            for message in exchange.messages
            for file in message.files
        ),
    )


def _without_files(message: ImportedMessage) -> str:
    """The message's words. A text that becomes a file, as a pasted block does, would be found twice."""
    text = message.text
    for block in filter(None, (file.text.strip() for file in message.files)):
        before, found, after = text.partition(block)
        if found:
            text = "\n\n".join(filter(None, (before.rstrip(), after.lstrip())))
    return pg_text(text)


def _calls(exchange: GatheredTurn) -> Iterator[dict[str, Any]]:
    """Tool calls and the names of attachments: shown folded below the turn, and never searched."""
    calls = (call for message in exchange.messages for call in _calls_of(message))
    for number, call in enumerate(calls, start=1):
        yield {**pg_value(call), "id": f"imported-{number}"}


def _calls_of(message: ImportedMessage) -> Iterator[dict[str, Any]]:
    for name in message.attachments:
        yield {"name": "attachment", "input": {"name": name}}
    for call in message.tool_calls:
        kept: dict[str, Any] = {name: call[name] for name in ("input", "summary") if name in call}
        yield {"name": str(call.get("name", "tool")), "input": {}, **kept}


def conversation_key(conversation: ImportedConversation) -> bytes:
    return key_of(conversation.product, "conversation", conversation.external_id)


def other_keys(conversation: ImportedConversation) -> list[bytes]:
    """The keys of the other sessions that it continues."""
    return [key_of(conversation.product, "conversation", other) for other in conversation.also_ids]


def _as_exported(conversation: ImportedConversation) -> Iterator[PlannedTurn]:
    exported = conversation.exported
    assert exported is not None  # noqa: S101 - called for no other
    path = path_of(exported)
    planned: dict[int | None, PlannedTurn] = {}
    for turn in exported.turns:
        key = key_of(conversation.product, "turn", str(exported.id), str(turn.turn_number))
        planned[turn.turn_number] = PlannedTurn(
            key=key,
            key_unanswered=key,
            parent=planned.get(turn.parent_number),
            is_current=turn.turn_number in path,
            user_message=pg_text(turn.user_message),
            assistant_message=pg_text(turn.assistant_message),
            said_at=turn.said_at,
            tool_calls=pg_value(list(turn.tool_calls)),
            exported=turn,
            files=tuple(replace(file, name=pg_text(file.name)) for file in turn.attachments),
        )
        yield planned[turn.turn_number]


# --- Reads an import's export in batches, and counts the skipped items ---

MAX_LISTED = 100
LONGEST_SENTENCE = 500
# With the instructions of a chat.
LONGEST_NOTICE = 4_500

Wanted = ImportedConversation | ImportedDocument | ImportedRecord | ImportedProject


@dataclass
class SkippedCounts:
    """The skipped items and the notices: the first hundred of each, and their numbers."""

    count: int = 0
    listed: list[dict[str, Any]] = field(default_factory=list)
    notices: list[Any] = field(default_factory=list)
    # Of the files that would come in.
    file_bytes: int = 0
    # Messages of chats that are here, said before their last one, which an earlier version did not read.
    earlier: int = 0

    def add(self, item: Skipped | Notice) -> None:
        if isinstance(item, Notice):
            if len(self.notices) < MAX_LISTED:
                notice = _row("text", item.text, at_most=LONGEST_NOTICE)
                self.notices.append(notice if "sentence" in notice else notice["text"])
            return
        self.count += 1
        if len(self.listed) < MAX_LISTED:
            external_id = None if item.external_id is None else _sentence(item.external_id)
            where, reason = _sentence(item.where), _row("reason", item.reason, at_most=LONGEST_SENTENCE)
            self.listed.append({"where": where, **reason, "external_id": external_id})


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
    with open_export(batch) as files:
        return products.recognise(files).product


def open_export(batch: Import) -> AbstractContextManager[Files]:
    """The files of the upload, which are read while it is open. Raises `UnreadableExport`."""
    return open_files(upload_path(batch), reading_limits(), name=batch.filename)


def read(files: Files, batch: Import, left_out: SkippedCounts) -> Iterator[Wanted]:
    """All items that can be imported. Raises `UnreadableExport`."""
    for item in products.read_files(files, batch.product or None):
        if isinstance(item, Skipped | Notice):
            left_out.add(item)
        else:
            yield item


def id_of(item: Wanted) -> str:
    """The id by which the user selects it."""
    if isinstance(item, ImportedRecord | ImportedProject):
        return short_id(str(item.id))
    account = item.account if isinstance(item, ImportedDocument) else ""
    return short_id(f"{item.external_id} ({account})" if account else item.external_id)


def kind_of(item: Wanted) -> ItemKind:
    match item:
        case ImportedConversation():
            return ItemKind.CONVERSATION
        case ImportedDocument():
            return ItemKind.DOCUMENT
        case ImportedRecord():
            return ItemKind.RECORD
        case ImportedProject():
            return ItemKind.PROJECT


def batches_of(items: Iterable[Wanted], *, size: int) -> Iterator[list[Wanted]]:
    remaining = iter(items)
    while batch := list(islice(remaining, size)):
        yield batch


def _sentence(text: str) -> str:
    return pg_text(text)[:LONGEST_SENTENCE]


def _row(name: str, text: str, *, at_most: int) -> dict[str, Any]:
    """The text as it is stored, with its values unless it had to be changed."""
    stored = pg_text(text)[:at_most]
    return {name: stored, **(kept(text) if stored == text else {})}
