"""Everything of a person as one JSON document, in pieces: however much there is, little of it is in memory at once.

What belongs to whom is said by `settings.ACCOUNT_EXPORTS`: a function for each part, which yields what JSON can hold.
An iterator inside it becomes an array that is written as it is read.
"""

import json
from collections.abc import Collection, Iterable, Iterator, Mapping
from datetime import datetime
from typing import Any, TypeVar
from uuid import UUID

from django.conf import settings
from django.core.serializers.json import DjangoJSONEncoder
from django.db.models import Model, QuerySet
from django.utils.module_loading import import_string

from intake.models import Conversation, Turn, User

Row = TypeVar("Row", bound=Model)

# Rows asked for at once, and bytes sent at once.
PAGE = 200
PIECE = 64 * 1024


def account_as_json(*, user: User, now: datetime) -> Iterator[bytes]:
    """The document in UTF-8. Between two pieces nothing is open in the database."""
    document = {
        "exported_at": now,
        "profile": {"email": user.email, "time_zone": user.time_zone, "joined_at": user.joined_at},
        **{name: import_string(path)(user=user) for name, path in settings.ACCOUNT_EXPORTS.items()},
    }
    yield from _in_pieces(document)


def chats_as_json(*, user: User, chosen: Collection[UUID], now: datetime) -> Iterator[bytes]:
    """Some of the person's conversations, in the shape that they have in the whole account's document."""
    yield from _in_pieces({"exported_at": now, "conversations": conversations(user=user, chosen=chosen)})


def _in_pieces(document: Mapping[str, Any]) -> Iterator[bytes]:
    gathered = bytearray()
    for text in _encode(document):
        # A lone surrogate has no UTF-8; no text in the database has one.
        gathered += text.encode()
        if len(gathered) >= PIECE:
            yield bytes(gathered)
            gathered.clear()
    yield bytes(gathered)


def conversations(*, user: User, chosen: Collection[UUID] | None = None) -> Iterator[dict[str, Any]]:
    """All of them, or those that are chosen."""
    rows = Conversation.objects.for_user(user)
    for conversation in in_pages(rows if chosen is None else rows.filter(pk__in=chosen)):
        yield {
            "id": conversation.pk,
            "title": conversation.title,
            "source": conversation.source,
            "external_id": conversation.external_id,
            "started_at": conversation.started_at,
            "last_active_at": conversation.last_active_at,
            "pinned_at": conversation.pinned_at,
            "archived_at": conversation.archived_at,
            "turns": _turns(conversation, user),
        }


def in_pages(rows: "QuerySet[Row]", *, key: str = "pk", size: int = PAGE) -> Iterator[Row]:
    """All the rows in the order of a unique key, a page for each query, so that no query stays open in between."""
    page = list(rows.order_by(key)[:size])
    while page:
        yield from page
        last = getattr(page[-1], key)
        page = list(rows.filter(**{f"{key}__gt": last}).order_by(key)[:size]) if len(page) == size else []


def _turns(conversation: Conversation, user: User) -> Iterator[dict[str, Any]]:
    for turn in in_pages(Turn.objects.for_user(user).filter(conversation=conversation), key="turn_number"):
        yield {
            "turn_number": turn.turn_number,
            "said_at": turn.said_at,
            "user_message": turn.user_message,
            "assistant_message": turn.assistant_message,
            "tool_calls": turn.tool_calls,
            "status": turn.status,
        }


def _encode(value: Any) -> Iterator[str]:
    """Like `json.dumps`, in pieces where the value holds iterators."""
    if isinstance(value, Iterator):
        yield from _enclosed("[", (_encode(item) for item in value), "]")
    elif isinstance(value, Mapping) and any(isinstance(item, Iterator) for item in value.values()):
        yield from _enclosed("{", (_member(name, item) for name, item in value.items()), "}")
    else:
        yield json.dumps(value, cls=DjangoJSONEncoder, ensure_ascii=False)


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
