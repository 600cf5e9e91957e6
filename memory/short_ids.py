"""Short ids: the last eight digits of a row's id, as tools write them; more where two rows of one person share them.

The digits are taken from the end, because rows of one import share the first ones, which are their time.
"""

import re
from collections.abc import Iterable
from contextlib import suppress
from typing import Any
from uuid import UUID

from django.db.models import QuerySet, TextField, Value
from django.db.models.functions import Cast, Replace, Right

from core.errors import NotFound
from core.ids import parse_id
from core.isolation.acting import acting_as
from core.text import gettext_noop as _
from intake.models import Attachment, Conversation, User
from memory.models import MemoryDocument, MemoryRecord

SHORTEST = 8
AMBIGUOUS = _("Several of your ids end like this. Send more digits of it, or the whole id.")
_WHOLE = re.compile(r"[0-9a-f-]{36}")
_END = re.compile(rf"[0-9a-f]{{{SHORTEST},31}}")


def short_ids(user: User, names: Iterable[str]) -> dict[str, str]:
    """For each of these names of a person's chats, files, records and documents, the same with enough of the last
    digits of its id. It acts as the user itself.
    """
    ids = {name: UUID(whole[0]) for name in names if (whole := _WHOLE.search(name))}
    ends = {id_.hex[-SHORTEST:] for id_ in ids.values()}
    alike = set(ids.values())
    with acting_as(user):
        for model in (Conversation, Attachment, MemoryRecord, MemoryDocument) if ends else ():
            end = Right(Cast("pk", TextField()), SHORTEST, output_field=TextField())
            alike |= set(model.objects.for_user(user).alias(end=end).filter(end__in=ends).values_list("pk", flat=True))
    short = {}
    for name, id_ in ids.items():
        others = {other.hex for other in alike if other != id_}
        length = SHORTEST
        while any(other.endswith(id_.hex[-length:]) for other in others):
            length += 1
        short[name] = name.replace(str(id_), id_.hex[-length:])
    return short


def id_in(rows: QuerySet[Any], text: str) -> UUID:
    """The id among these rows that the text names: a whole id, or the last digits of one.

    Raises `NotFound` for what is no id, for digits of no row, and, with a sentence, for those of several.
    """
    with suppress(NotFound):
        return parse_id(text)
    if not _END.fullmatch(digits := text.lower().replace("-", "")):
        raise NotFound
    of_row = Replace(Cast("pk", TextField()), Value("-"), Value(""), output_field=TextField())
    match list(rows.annotate(digits=of_row).filter(digits__endswith=digits).values_list("pk", flat=True)[:2]):
        case [UUID() as one]:
            return one
        case [_one, _other]:
            raise NotFound(AMBIGUOUS)
    raise NotFound
