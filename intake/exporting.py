"""Exports an account as one JSON document, in pieces, with only a small part in memory.

`settings.ACCOUNT_EXPORTS` lists the parts: each is a function that yields JSON values. An iterator inside a value
becomes an array that is written while it is read.
"""

import json
from collections.abc import Collection, Iterable, Iterator, Mapping
from datetime import datetime
from typing import Any, TypeVar
from uuid import UUID

from django.conf import settings
from django.core.serializers.json import DjangoJSONEncoder
from django.db.models import Model, QuerySet
from django.utils.crypto import constant_time_compare, salted_hmac
from django.utils.module_loading import import_string

from core.isolation.acting import acting_as
from intake.models import ActivityEntry, ChatPreferences, Conversation, Turn, User

ExportedRow = TypeVar("ExportedRow", bound=Model)

# The reader of exports recognises our own export by this (imports/reading/products/recollect.py).
FORMAT = "recollect-export-1"

# The number of rows per query, and of bytes per piece.
PAGE = 200
PIECE = 64 * 1024


class ExportEncoder(DjangoJSONEncoder):
    """Times to the microsecond, as in the database."""

    def default(self, value: Any) -> Any:
        if isinstance(value, datetime):
            return value.isoformat().removesuffix("+00:00") + "Z" if not value.utcoffset() else value.isoformat()
        return super().default(value)


def account_as_json(*, user: User, now: datetime) -> Iterator[bytes]:
    """The document in UTF-8. No query or transaction is open between two pieces."""
    parts = {name: import_string(path)(user=user) for name, path in settings.ACCOUNT_EXPORTS.items()}
    return in_bytes({**opening(user=user, now=now), **parts})


def conversation_as_json(*, conversation: Conversation, user: User, now: datetime) -> Iterator[bytes]:
    """A document of the same shape with this conversation alone."""
    one = iter([conversation_fields(conversation, user)])
    return in_bytes({"format": FORMAT, "exported_at": now, "conversations": one})


def chats_as_json(*, user: User, chosen: Collection[UUID], now: datetime) -> Iterator[bytes]:
    """A document of the same shape with these conversations alone."""
    some = conversations(user=user, chosen=chosen)
    return in_bytes({"format": FORMAT, "exported_at": now, "conversations": some})


def opening(*, user: User, now: datetime) -> dict[str, Any]:
    """The beginning of every export."""
    with acting_as(user):
        preferences = ChatPreferences.objects.for_user(user).first() or ChatPreferences()
    profile = {
        "email": user.email,
        "time_zone": user.time_zone,
        "language": user.language,
        "joined_at": user.joined_at,
        "model": preferences.model,
        "how_to_answer": preferences.how_to_answer,
    }
    return {"format": FORMAT, "exported_at": now, "profile": profile}


def in_bytes(value: Any) -> Iterator[bytes]:
    """The value as JSON; its iterators become arrays."""
    return in_pieces(_encode(value))


def in_pieces(texts: Iterable[str]) -> Iterator[bytes]:
    """The texts as UTF-8, gathered into pieces of about `PIECE` bytes."""
    gathered = bytearray()
    for text in texts:
        # A lone surrogate has no UTF-8; no text in the database contains one.
        gathered += text.encode()
        if len(gathered) >= PIECE:
            yield bytes(gathered)
            gathered.clear()
    yield bytes(gathered)


def conversations(*, user: User, chosen: Collection[UUID] | None = None) -> Iterator[dict[str, Any]]:
    """`settings.ACCOUNT_EXPORTS`: all conversations, or the chosen ones."""
    rows = Conversation.objects.for_user(user).kept()
    for conversation in in_pages(rows if chosen is None else rows.filter(pk__in=chosen)):
        yield conversation_fields(conversation, user)


def conversation_fields(conversation: Conversation, user: User) -> dict[str, Any]:
    """The exported fields of a conversation; `turns` is an iterator."""
    return {
        "id": conversation.pk,
        "title": conversation.title,
        "titled_by": conversation.titled_by,
        "source": conversation.source,
        "external_id": conversation.external_id,
        "started_at": conversation.started_at,
        "last_active_at": conversation.last_active_at,
        "pinned_at": conversation.pinned_at,
        "archived_at": conversation.archived_at,
        "current_number": conversation.current_number,
        "branched_from": conversation.branched_from,
        "branched_after": conversation.branched_after,
        "model": conversation.model,
        "instructions": conversation.instructions,
        "temperature": conversation.temperature,
        "uses_memory": conversation.uses_memory,
        "proof": proof_of(user, conversation.pk, conversation.instructions),
        "turns": _turns(conversation, user),
    }


def proof_of(user: User, conversation_id: UUID, instructions: str) -> str:
    """Says in an export that this user had the conversation with these instructions: its import keeps both."""
    said = f"{user.pk}:{conversation_id}:{instructions}"
    return salted_hmac("recollect.exported_conversation", said, algorithm="sha256").hexdigest()


def is_own(user: User, conversation_id: UUID, instructions: str, *, proof: str) -> bool:
    return constant_time_compare(proof_of(user, conversation_id, instructions), proof)


def activity(*, user: User) -> Iterator[dict[str, Any]]:
    """`settings.ACCOUNT_EXPORTS`: the account's activity log, which an import ignores."""
    for entry in in_pages(ActivityEntry.objects.for_user(user), key="id"):
        yield {"at": entry.at, "what": entry.what, "count": entry.count, "device": entry.device}


def count_turns(conversation: Conversation, user: User) -> int:
    return Turn.objects.for_user(user).filter(conversation=conversation).count()


def in_pages(rows: "QuerySet[ExportedRow]", *, key: str = "pk", size: int = PAGE) -> Iterator[ExportedRow]:
    """All rows in the order of a unique key, one page per query, so that no query stays open."""
    page = list(rows.order_by(key)[:size])
    while page:
        yield from page
        last = getattr(page[-1], key)
        page = list(rows.filter(**{f"{key}__gt": last}).order_by(key)[:size]) if len(page) == size else []


def _turns(conversation: Conversation, user: User) -> Iterator[dict[str, Any]]:
    for turn in in_pages(Turn.objects.for_user(user).filter(conversation=conversation), key="turn_number"):
        yield {
            "turn_number": turn.turn_number,
            "parent_number": turn.parent_number,
            "said_at": turn.said_at,
            "user_message": turn.user_message,
            "assistant_message": turn.assistant_message,
            "reasoning": turn.reasoning,
            "tool_calls": turn.tool_calls,
            "status": turn.status,
            "is_recall": turn.is_recall,
            "error": turn.error,
            "usage": turn.usage,
        }


def _encode(value: Any) -> Iterator[str]:
    """Like `json.dumps`, in pieces where the value holds iterators."""
    if isinstance(value, Iterator):
        yield from _enclosed("[", (_encode(item) for item in value), "]")
    elif isinstance(value, Mapping) and any(isinstance(item, Iterator) for item in value.values()):
        yield from _enclosed("{", (_member(name, item) for name, item in value.items()), "}")
    else:
        yield json.dumps(value, cls=ExportEncoder, ensure_ascii=False)


def _member(name: str, value: Any) -> Iterator[str]:
    yield json.dumps(name) + ": "
    yield from _encode(value)


def _enclosed(opening: str, items: Iterable[Iterator[str]], closing: str) -> Iterator[str]:
    separator = opening + "\n"
    empty = True
    for item in items:
        yield separator
        yield from item
        separator, empty = ",\n", False
    yield opening + closing if empty else "\n" + closing
