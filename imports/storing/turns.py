"""Converts a conversation's messages, with all branches, into turns: pure, with the same result for the same export."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from datetime import datetime
from itertools import chain, pairwise
from typing import Any, Literal, Self

from core.text import pg_text, pg_value
from imports.reading.exported import path_of
from imports.reading.items import (
    ExportedTurn,
    ImportedConversation,
    ImportedFile,
    ImportedMessage,
)
from imports.storing.contents import hash_of, key_of

# A user's message and the answers that follow it on its path are a turn. An answer without a message is a turn without
# a message, and a message without an answer is a turn without an answer. Where a path leaves another, the messages
# there are a version: a turn with the same parent.

BETWEEN_ANSWERS = "\n\n"
# Where a turn of an export is after the import.
TurnPlace = Literal["stored", "changed", "here", "deleted", "not_chosen"]


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
    place: TurnPlace = "deleted"
    product: str = ""
    # The turn after it in the list: its answer may have been glued to this one's by an earlier reader.
    following: "PlannedTurn | None" = None

    @property
    def content_hash(self) -> bytes:
        return hash_of(self.user_message, self.assistant_message)


@dataclass(eq=False)
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

    @classmethod
    def begun(cls, message: ImportedMessage, parent: "GatheredTurn | None", *, is_current: bool = False) -> Self:
        if message.role == "user":
            return cls(message, [], parent, is_current)
        return cls(None, [message], parent, is_current, answer_id=message.id)

    def add(self, answer: ImportedMessage) -> None:
        self.answers.append(answer)
        self.answer_id = self.answer_id or ("" if answer.only_asks else answer.id)

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
    for message in conversation.messages:
        before = found[-1] if found else None
        if message.role == "assistant" and before is not None and not message.is_unasked:
            before.add(message)
        else:
            found.append(GatheredTurn.begun(message, before, is_current=True))
        at.setdefault(message.id, found[-1])
    for message in conversation.other_branches:
        above = at.get(message.parent or "")
        if message.role == "user" or above is None or message.is_unasked:
            if above is not None:
                above.is_closed = True
            turn = GatheredTurn.begun(message, above)
            found.append(turn)
        elif not (above.is_current or above.is_closed) and above.messages[-1].id == message.parent:
            turn = above
            turn.add(message)
        else:
            # The same question with another answer, or with another end of its answer.
            ids = [answer.id for answer in above.answers]
            answers = above.answers[: ids.index(message.parent) + 1] if message.parent in ids else []
            turn = GatheredTurn(above.question, [*answers, message], above.parent, answer_id=message.id)
            found.append(turn)
        at.setdefault(message.id, turn)
    return found


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
    calls: list[dict[str, Any]] = []
    for message in exchange.messages:
        calls += ({"name": "attachment", "input": {"name": name}} for name in message.attachments)
        calls += (
            {"name": str(call.get("name", "tool")), "input": {}}
            | {name: call[name] for name in ("input", "summary") if name in call}
            for call in message.tool_calls
        )
    for number, call in enumerate(calls, start=1):
        yield {**pg_value(call), "id": f"imported-{number}"}


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
